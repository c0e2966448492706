//! The project's own commands, so that a laptop and the CI machine run exactly the same thing.
//!
//! It depends on no product crate: the tool that judges the tree must build when the tree does not.

mod args;
mod bench;
mod ci;
mod embedding;
mod mutants;
mod process;
mod python;
mod servers;
mod test_command;
mod tidy;
mod torture;
mod workspace;

use std::process::ExitCode;

use args::Command;

fn main() -> ExitCode {
    let command = match args::parse(std::env::args().skip(1)) {
        Ok(command) => command,
        Err(sentence) => {
            eprintln!("{sentence}");
            return ExitCode::from(2);
        }
    };
    match carry_out(&command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Answers whether all is well. `false` means that the command has already said what is not.
fn carry_out(command: &Command) -> anyhow::Result<bool> {
    if *command == Command::Help {
        print!("{}", args::HELP);
        return Ok(true);
    }
    let root = workspace::root()?;
    match command {
        Command::Help => Ok(true),
        Command::Test(options) => test_command::run(&root, options),
        Command::Ci => ci::run(&root),
        Command::Tidy => tidy::run(&root),
        Command::Embedding => embedding::run(&root),
        Command::Mutants { names } => mutants::run(&root, names),
        Command::Bench { arguments } => bench::run(&root, arguments),
        Command::Torture {
            victim,
            rounds,
            fleet,
        } => torture::run(&root, *victim, *rounds, *fleet),
    }
}
