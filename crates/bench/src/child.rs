//! Processes that the benchmark starts beside itself: to be killed, or so that what is counted of a
//! process (memory, processor time) is the engine's and not the benchmark's.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::stats::Rounds;
use crate::{Outcome, lines};

/// What another process does with a file, and with two numbers whose meaning is its own.
pub(crate) struct Child {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Path, [u64; 2]) -> Outcome<()>,
}

/// We are the other process.
pub(crate) fn become_child(name: &str, path: &Path, numbers: [u64; 2]) -> Outcome<()> {
    let child = lines::CHILDREN.iter().find(|child| child.name == name);
    let child = child.ok_or_else(|| format!("there is no child {name}"))?;
    (child.run)(path, numbers)
}

/// A child process of this program, with a command.
pub(crate) fn command(name: &str, path: &Path, numbers: [u64; 2]) -> Outcome<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--child").arg(name).arg(path);
    command.args(numbers.map(|number| number.to_string()));
    Ok(command)
}

/// Runs a command to its end, and returns the JSON that it printed.
pub(crate) fn output_of(name: &str, path: &Path, numbers: [u64; 2]) -> Outcome<Value> {
    let output = command(name, path, numbers)?
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("the process for {name} ended with {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// A number of an answer.
pub(crate) fn number(answer: &Value, name: &str) -> Outcome<f64> {
    let number = answer.get(name).and_then(Value::as_f64);
    number.ok_or_else(|| format!("the answer {answer} has no number {name}").into())
}

/// A number of each answer.
pub(crate) fn rounds(answers: &[Value], name: &str) -> Outcome<Rounds> {
    Rounds::of(answers, |answer| number(answer, name))
}
