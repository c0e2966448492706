//! Scripts with which shells complete our commands and flags, made from the command line itself.

use clap::CommandFactory;

use super::output::Answers;
use crate::cli::{Cli, CompletionsArgs};
use crate::failure::Failure;

/// Prints the script for a shell.
pub(crate) fn run(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut definition = Cli::command();
    let name = definition.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut definition, &name, &mut script);
    let script = String::from_utf8_lossy(&script);
    // For bash, the generator spells a name with a hyphen in two ways, and then no command has
    // flags (clap-rs/clap#6421). Where that is mended, nothing is replaced here.
    let (wrong, right) = (name.replace('-', "__subcmd__"), name.replace('-', "__"));
    Answers::open()?.text(&script.replace(&wrong, &right))
}
