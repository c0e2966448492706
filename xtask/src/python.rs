//! A Python with the packages that our clients in it use, in a folder of its own.
//!
//! The tests run the programs of `clients/python` as their readers do: with packages of the versions
//! that the requirements name. The folder is used again for as long as they name the same.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process;
use crate::servers::install;

/// Through which tests find the interpreter.
pub(crate) const VARIABLE: &str = "PUNCTUAL_TEST_PYTHON";

/// What clients need, and what their tests need besides.
const REQUIREMENTS: [&str; 2] = ["requirements.txt", "requirements-test.txt"];

const FOLDER: &str = "clients/python";

/// Names the requirements that an environment has; written last, so that one that was left half
/// made is made anew.
const STAMP: &str = "requirements.installed";

/// Makes the environment, or finds it made: its interpreter, or why there is none.
pub(crate) fn prepare(root: &Path, target: &Path) -> Result<PathBuf, String> {
    let wanted = wanted(&root.join(FOLDER))?;
    let environment = target.join("python");
    let interpreter = environment.join("bin/python");
    if has(&environment, &wanted) && runs(&interpreter) {
        return Ok(interpreter);
    }
    if environment.exists() {
        fs::remove_dir_all(&environment).map_err(|error| error.to_string())?;
    }
    println!("python: making an environment in {}", environment.display());
    let python = python_with_pip()?;
    // Without a pip of its own, which would take longer to install than everything else.
    let mut venv = Command::new(&python);
    done(venv.args(["-m", "venv", "--without-pip"]).arg(&environment))?;
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "--python"]).arg(&interpreter);
    pip.args(["--quiet", "--disable-pip-version-check", "--no-input"]);
    pip.arg("install");
    for file in REQUIREMENTS {
        pip.arg("-r").arg(root.join(FOLDER).join(file));
    }
    done(&mut pip)?;
    fs::write(environment.join(STAMP), wanted).map_err(|error| error.to_string())?;
    Ok(interpreter)
}

/// The requirements as one text.
fn wanted(folder: &Path) -> Result<String, String> {
    REQUIREMENTS
        .iter()
        .map(|file| fs::read_to_string(folder.join(file)))
        .collect::<Result<_, _>>()
        .map_err(|error| format!("failed to read {FOLDER}: {error}"))
}

fn has(environment: &Path, wanted: &str) -> bool {
    fs::read_to_string(environment.join(STAMP)).is_ok_and(|installed| installed == wanted)
}

/// An environment breaks when the interpreter goes away that it was made from.
fn runs(interpreter: &Path) -> bool {
    done(Command::new(interpreter).args(["-c", ""])).is_ok()
}

/// The system's Python. What it lacks is installed where that is possible.
fn python_with_pip() -> Result<PathBuf, String> {
    let reason = match find_python_with_pip() {
        Ok(python) => return Ok(python),
        Err(reason) => reason,
    };
    install::apt_get(&["python3", "python3-pip", "python3-venv"])
        .map_err(|no_help| format!("{reason}, and {no_help}"))?;
    find_python_with_pip()
}

fn find_python_with_pip() -> Result<PathBuf, String> {
    let python = process::find_program("python3").ok_or("python3 was not found")?;
    for module in ["pip", "venv"] {
        done(Command::new(&python).args(["-m", module, "--help"]))?;
    }
    Ok(python)
}

/// Runs a command to its end, or says how it failed.
fn done(command: &mut Command) -> Result<(), String> {
    let line = process::command_line(command);
    let output = command
        .output()
        .map_err(|error| format!("`{line}` did not start: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty());
    let last = last.unwrap_or("it gave no reason");
    Err(format!("`{line}` failed: {last}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree whose requirements are these.
    fn tree(requirements: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join(FOLDER);
        fs::create_dir_all(&folder).unwrap();
        for file in REQUIREMENTS {
            fs::write(folder.join(file), requirements).unwrap();
        }
        root
    }

    #[test]
    fn an_environment_is_made_once_and_made_anew_for_other_requirements() {
        let root = tree("# nothing\n");
        let target = root.path().join("target");
        let interpreter = match prepare(root.path(), &target) {
            Ok(interpreter) => interpreter,
            Err(reason) => {
                assert!(std::env::var_os("CI").is_none(), "{reason}");
                eprintln!("skipped: {reason}");
                return;
            }
        };
        let mark = target.join("python/mark");
        fs::write(&mark, "").unwrap();
        assert_eq!(prepare(root.path(), &target), Ok(interpreter));
        assert!(mark.exists(), "it was used again");

        fs::write(root.path().join(FOLDER).join(REQUIREMENTS[0]), "# other\n").unwrap();
        prepare(root.path(), &target).unwrap();
        assert!(!mark.exists(), "it was made anew");
    }

    #[test]
    fn requirements_that_cannot_be_had_are_told_and_not_taken_for_installed() {
        let root = tree("./no-such-package\n");
        let target = root.path().join("target");
        let reason = prepare(root.path(), &target).unwrap_err();
        assert_eq!(reason.lines().count(), 1, "{reason}");
        assert!(!target.join("python").join(STAMP).exists());
    }

    #[test]
    fn the_requirements_are_there_and_each_names_its_version() {
        let folder = crate::workspace::root().unwrap().join(FOLDER);
        let text = wanted(&folder).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        for line in lines.filter(|line| !line.is_empty()) {
            assert!(line.contains("=="), "{line}");
        }
    }
}
