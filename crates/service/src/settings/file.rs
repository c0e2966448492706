//! The settings file `punctual.toml`: read once, and every problem reported with its line.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::is_given;
use super::table::{ALL, About, Shape};
use crate::display::{cut, reason};

/// The longest file that is read: more is no settings file, and no secret.
pub(super) const LONGEST: usize = 64 * 1024;

/// How alike two keys must be for one to be suggested in place of the other.
const ALIKE: f64 = 0.8;

/// A settings file that was read.
#[derive(Debug, Default)]
pub(crate) struct SettingsFile {
    path: PathBuf,
    entries: Vec<Entry>,
    problems: Vec<Problem>,
}

/// Something that is wrong with a settings file.
#[derive(Debug)]
pub(crate) struct Problem {
    /// The key that it is about, if it is about one.
    key: Option<String>,
    /// One sentence that names the file, and the line if there is one.
    pub(crate) sentence: String,
}

#[derive(Debug)]
struct Entry {
    variable: &'static str,
    line: usize,
    value: OsString,
}

impl SettingsFile {
    /// Reads a file that was named explicitly: it has to exist.
    pub(crate) fn named(path: &Path, named_by: &str) -> Self {
        match read(path) {
            Ok(text) => Self::parse(path, &text),
            Err(error) => Self::unreadable(path, &format!(", named by {named_by},"), &error),
        }
    }

    /// Reads a file that need not be there.
    pub(crate) fn if_present(path: &Path) -> Option<Self> {
        match read(path) {
            Ok(text) => Some(Self::parse(path, &text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => Some(Self::unreadable(path, "", &error)),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The value of a setting, and the line where it stands.
    pub(crate) fn get(&self, about: &About) -> Option<(&OsStr, usize)> {
        let found = self.entries.iter().find(|it| it.variable == about.variable);
        found.map(|entry| (entry.value.as_os_str(), entry.line))
    }

    /// Whether it gives a setting a value that is none.
    pub(crate) fn is_wrong_in(&self, about: &About) -> bool {
        let key = Some(about.key());
        self.problems.iter().any(|it| it.key == key)
    }

    fn unreadable(path: &Path, origin: &str, error: &io::Error) -> Self {
        let (path_text, why) = (crate::display::path(path), reason(error));
        let sentence = format!("the settings file {path_text}{origin} cannot be read: {why}");
        Self::broken(path, sentence)
    }

    fn broken(path: &Path, sentence: String) -> Self {
        Self {
            path: path.to_path_buf(),
            entries: Vec::new(),
            problems: vec![Problem {
                key: None,
                sentence,
            }],
        }
    }

    fn parse(path: &Path, text: &str) -> Self {
        // Editors of some systems begin a file with a mark that means nothing.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let at = |span: Range<usize>| line_of(text, span.start);
        let table = match DeTable::parse(text) {
            Ok(table) => table.into_inner(),
            Err(error) => return Self::broken(path, no_toml(path, text, &error)),
        };
        let mut file = Self {
            path: path.to_path_buf(),
            ..Self::default()
        };
        let mut lines: Vec<_> = table.iter().collect();
        lines.sort_by_key(|(key, _)| key.span().start);
        for (key, value) in lines {
            let line = at(key.span());
            match entry(key.get_ref(), value.get_ref(), line) {
                Ok(entry) => file.entries.push(entry),
                Err(problem) => file.problems.push(Problem {
                    key: Some(key.get_ref().to_string()),
                    sentence: format!("{} line {line}: {problem}", crate::display::path(path)),
                }),
            }
        }
        file
    }
}

/// What keeps a text from being TOML, without the words that only its grammar explains.
fn no_toml(path: &Path, text: &str, error: &toml::de::Error) -> String {
    let span = error.span().unwrap_or_default();
    let place = format!(
        "{} line {}",
        crate::display::path(path),
        line_of(text, span.start)
    );
    if error.message() == "duplicate key" {
        let key = cut(text.get(span).unwrap_or("a key"));
        return format!("{place}: {key} stands there twice: keep one of them");
    }
    format!(
        "{place} is not TOML ({}): write lines like timer_batch_size = 100 or log_level = \"info\"",
        in_one_line(error.message())
    )
}

/// Reads a text of limited length. It is no part of an error.
pub(super) fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(LONGEST as u64 + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() > LONGEST {
        return Err(io::Error::other(format!(
            "it has more than {LONGEST} bytes"
        )));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"))
}

/// What a key and its value say, or what is wrong with them.
fn entry(key: &str, value: &DeValue<'_>, line: usize) -> Result<Entry, String> {
    let Some(about) = ALL.iter().find(|about| about.key() == key) else {
        return Err(unknown(key, value));
    };
    let text = text_of(about, value).ok_or_else(|| {
        let right = match about.shape {
            Shape::Text => "text in quotes",
            Shape::Number => "a whole number without quotes",
            Shape::List => "texts in brackets, like [\"timer\"]",
        };
        format!("{key} is {}: give {right}", a_kind(value))
    })?;
    let raw = OsString::from(&text);
    (about.check)(&raw).map_err(|advice| format!("{key} {}: {advice}", is_given(about, &raw)))?;
    Ok(Entry {
        variable: about.variable,
        line,
        value: raw,
    })
}

fn unknown(key: &str, value: &DeValue<'_>) -> String {
    if matches!(value, DeValue::Table(_)) {
        return format!(
            "there is no section \"{}\": all settings stand at the top, without sections",
            cut(key)
        );
    }
    let near = nearest(key).map_or_else(
        || {
            let keys: Vec<String> = ALL.iter().map(|about| about.key()).collect();
            format!("the settings are {}", keys.join(", "))
        },
        |near| format!("did you mean {near}?"),
    );
    format!("there is no setting \"{}\": {near}", cut(key))
}

/// The setting with a similar key or flag.
fn nearest(key: &str) -> Option<String> {
    let given = key.to_ascii_lowercase().replace('-', "_");
    let likeness = |about: &About| {
        let flag = about.flag.map(|flag| flag.name.replace('-', "_"));
        let names = [Some(about.key()), flag].into_iter().flatten();
        names
            .map(|name| strsim::jaro_winkler(&name, &given))
            .fold(0.0, f64::max)
    };
    let best = ALL
        .iter()
        .map(|about| (likeness(about), about))
        .max_by(|(one, _), (other, _)| one.total_cmp(other));
    best.filter(|(likeness, _)| *likeness >= ALIKE)
        .map(|(_, about)| about.key())
}

/// The value as the environment would give it; `None` if it is of the wrong kind.
fn text_of(about: &About, value: &DeValue<'_>) -> Option<String> {
    match (about.shape, value) {
        (Shape::Text | Shape::List, DeValue::String(text)) => Some(text.to_string()),
        (Shape::Number, DeValue::Integer(number)) => {
            // Whatever does not fit is refused as out of range, in the words of the setting.
            let parsed = i128::from_str_radix(number.as_str(), number.radix());
            Some(parsed.map_or_else(|_| number.to_string(), |number| number.to_string()))
        }
        (Shape::List, DeValue::Array(items)) => {
            let texts: Option<Vec<&str>> = items.iter().map(|it| it.get_ref().as_str()).collect();
            texts.map(|texts| texts.join(","))
        }
        _ => None,
    }
}

fn a_kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a point",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a section",
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().iter().take(offset);
    1 + before.filter(|byte| **byte == b'\n').count()
}

fn in_one_line(text: &str) -> String {
    cut(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::table::{MODULES, TIMER_BATCH_SIZE, TIMER_DB_PATH};

    fn parsed(text: &str) -> SettingsFile {
        SettingsFile::parse(Path::new("p.toml"), text)
    }

    fn problems(text: &str) -> Vec<String> {
        let problems = parsed(text).problems;
        problems.into_iter().map(|it| it.sentence).collect()
    }

    #[test]
    fn values_are_read_with_their_lines() {
        let file = parsed(
            "\u{feff}# mine\ntimer_db_path = \"t.db\"\n\ntimer_batch_size = 1_00\nmodules = [\"timer\"]\n",
        );
        assert!(file.problems().is_empty(), "{file:?}");
        let get = |about| {
            file.get(about)
                .map(|(value, line)| (value.to_str().unwrap(), line))
        };
        assert_eq!(get(TIMER_DB_PATH.about), Some(("t.db", 2)));
        assert_eq!(get(TIMER_BATCH_SIZE.about), Some(("100", 4)));
        assert_eq!(get(MODULES.about), Some(("timer", 5)));
        assert!(parsed("").problems().is_empty());
    }

    #[test]
    fn every_problem_is_named_with_its_line_and_what_would_be_right() {
        for (text, sentence) in [
            (
                "\ntimer_batchsize = 5",
                "p.toml line 2: there is no setting \"timer_batchsize\": did you mean timer_batch_size?",
            ),
            (
                "synchronous = \"FULL\"",
                "p.toml line 1: there is no setting \"synchronous\": did you mean db_synchronous?",
            ),
            (
                "TIMER_DB_PATH = \"x\"",
                "p.toml line 1: there is no setting \"TIMER_DB_PATH\": did you mean timer_db_path?",
            ),
            (
                "timer_batch_size = \"5\"",
                "p.toml line 1: timer_batch_size is text: give a whole number without quotes",
            ),
            (
                "timer_batch_size = 5.5",
                "p.toml line 1: timer_batch_size is a number with a point: give a whole number without quotes",
            ),
            (
                "timer_db_path = 7",
                "p.toml line 1: timer_db_path is a number: give text in quotes",
            ),
            (
                "modules = [1]",
                "p.toml line 1: modules is a list: give texts in brackets, like [\"timer\"]",
            ),
            (
                "timer_batch_size = 0",
                "p.toml line 1: timer_batch_size is \"0\": give a number from 1 to 10000",
            ),
            (
                "log_level = \"loud\"",
                "p.toml line 1: log_level is \"loud\": give off, error, warn, info, debug or trace",
            ),
            (
                "database_url = \"postgres://secret\"",
                "p.toml line 1: database_url is wrong: its user: give postgres://user@host:5432/database",
            ),
            (
                "timer_broker_url = \"ws://me:secret@host\"",
                "p.toml line 1: timer_broker_url is wrong: ws:// is not spoken here: give nats://host:4222, or tls://host:4222 for a secure connection",
            ),
            (
                "log_level = \"info\"\nlog_level = \"warn\"",
                "p.toml line 2: log_level stands there twice: keep one of them",
            ),
            (
                "[timer]\nbatch_size = 5",
                "p.toml line 1: there is no section \"timer\": all settings stand at the top, without sections",
            ),
        ] {
            assert_eq!(problems(text), [sentence]);
        }
        let both = problems("nonsense_here = 1\nlog_format = \"xml\"");
        assert_eq!(both.len(), 2, "each of them is said");
        assert!(
            both.iter()
                .any(|it| it.contains("the settings are timer_db_path, "))
        );
    }

    #[test]
    fn what_is_no_toml_is_said_with_its_line() {
        for (text, line) in [
            ("a = 1\ntimer_batch_size: 5\n", 2),
            ("timer_db_path = t.db", 1),
            ("log_level = \"info", 1),
        ] {
            let problems = problems(text);
            let [problem] = problems.as_slice() else {
                panic!("{problems:?}");
            };
            let start = format!("p.toml line {line} is not TOML (");
            assert!(problem.starts_with(&start), "{problem}");
            assert_eq!(problem.lines().count(), 1, "{problem}");
        }
    }

    const SAMPLE: &str = include_str!("../../../../deploy/punctual.toml");

    #[test]
    fn the_sample_gives_every_default_and_names_every_key() {
        let sample = parsed(SAMPLE);
        assert!(sample.problems().is_empty(), "{sample:?}");
        for about in ALL {
            let has_default = (about.check)(OsStr::new(about.default)).is_ok();
            match sample.get(about) {
                Some((value, _)) => assert_eq!(value, about.default, "{}", about.variable),
                // The words for having none would pass for a path.
                None => assert!(
                    !has_default || about.default == "none",
                    "{}",
                    about.variable
                ),
            }
            let flag = about.flag.map(|flag| format!("[flag: --{}]", flag.name));
            assert!(flag.is_none_or(|flag| SAMPLE.contains(&flag)));
        }
        // What is commented out is right as well.
        let line = |line: &str| match line.strip_prefix("# ") {
            Some(rest) if rest.contains(" = ") => format!("{rest}\n"),
            _ => format!("{line}\n"),
        };
        let whole = parsed(&SAMPLE.lines().map(line).collect::<String>());
        assert!(whole.problems().is_empty(), "{whole:?}");
        for about in ALL {
            assert!(whole.get(about).is_some(), "{}", about.variable);
        }
    }
}
