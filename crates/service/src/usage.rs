//! What is said when the command line was not understood: one sentence, and where to read on.

use std::process::ExitCode;

use clap::CommandFactory;
use clap::error::ErrorKind;

use crate::cli::Cli;

/// Prints help and version as asked for, and anything else as a refusal. `asked` is the first
/// argument, which names the command.
pub(crate) fn explain(error: &clap::Error, asked: Option<&str>) -> ExitCode {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    ) {
        // A reader who has seen enough, as in `--help | head`, is no failure.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    crate::say(&sentence(&error.to_string(), asked));
    ExitCode::from(2)
}

/// The parser's text has several paragraphs: what is wrong, perhaps a tip, and the usage.
fn sentence(text: &str, asked: Option<&str>) -> String {
    let paragraphs = text.split("\n\n").take_while(|part| {
        let part = part.trim_start();
        !part.starts_with("Usage:") && !part.starts_with("For more information")
    });
    let words: Vec<&str> = paragraphs.flat_map(str::split_whitespace).collect();
    let definition = Cli::command();
    let command = asked.filter(|name| definition.find_subcommand(name).is_some());
    let command = command.map_or(String::new(), |name| format!("{name} "));
    format!("{}; see `timer-service {command}--help`", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn refusal(line: &str) -> String {
        let error = Cli::try_parse_from(line.split(' ')).unwrap_err();
        sentence(&error.to_string(), line.split(' ').nth(1))
    }

    #[test]
    fn a_refusal_is_one_line_that_names_the_flag_and_where_to_read_on() {
        assert_eq!(
            refusal("timer-service schedule --tenant a --in soon"),
            "error: invalid value 'soon' for '--in <DURATION>': give a whole number and a unit: \
             500ms, 90s, 5m, 2h or 3d; see `timer-service schedule --help`"
        );
        assert_eq!(
            refusal("timer-service get --tenant a"),
            "error: the following required arguments were not provided: --id <UUID>; see \
             `timer-service get --help`"
        );
        for line in [
            "timer-service --nonsense",
            "timer-service gett",
            "timer-service get --tenat a",
        ] {
            let sentence = refusal(line);
            assert_eq!(sentence.lines().count(), 1, "{sentence}");
            assert!(sentence.contains("--help`"), "{sentence}");
        }
    }
}
