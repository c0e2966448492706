//! Reports an invalid command line: one sentence, and a pointer to the help.

use std::ffi::OsStr;
use std::process::ExitCode;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::cli::Cli;
use crate::display::{self, cut};
use crate::settings::table::{ALL, About};

/// Prints help and version on request, and anything else as a refusal. `first` is the first
/// argument, which names the command.
pub(crate) fn explain(error: clap::Error, first: Option<&str>) -> ExitCode {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    ) {
        // A reader who has seen enough, as in `--help | head`, is no failure.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let mut said = sentence(error, first);
    for given in std::env::args_os().filter(|given| given.to_str().is_none()) {
        // The parser has replaced invalid UTF-8.
        said = said.replace(&*given.to_string_lossy(), &display::os(&given));
    }
    crate::say(&display::one_line(&said));
    ExitCode::from(2)
}

fn sentence(error: clap::Error, first: Option<&str>) -> String {
    let definition = Cli::command();
    let command = first.filter(|name| definition.find_subcommand(name).is_some());
    let command = command.map_or(String::new(), |name| format!("{name} "));
    let what = missing(&error).unwrap_or_else(|| first_words(error));
    format!("error: {what}; see `timer-service {command}--help`")
}

/// What has to be given, with the choices where there are some.
fn missing(error: &clap::Error) -> Option<String> {
    let (ErrorKind::MissingRequiredArgument, Some(ContextValue::Strings(missing))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
    else {
        return None;
    };
    let each = missing.iter().map(|one| {
        // A choice comes as <--id <UUID>|--name <KEY>>, a single one as --tenant <TENANT>.
        let choice = one
            .strip_prefix('<')
            .and_then(|one| one.strip_suffix('>'))
            .filter(|one| one.starts_with('-'));
        choice.map_or_else(|| one.clone(), |choice| choice.replace("|--", " or --"))
    });
    Some(format!("give {}", each.collect::<Vec<_>>().join(", and ")))
}

/// The parser's text has several paragraphs: what is wrong, perhaps a tip, and the usage.
fn first_words(mut error: clap::Error) -> String {
    hide_secrets(&mut error);
    for kind in [
        ContextKind::InvalidValue,
        ContextKind::InvalidArg,
        ContextKind::InvalidSubcommand,
    ] {
        if let Some(ContextValue::String(given)) = error.get(kind) {
            let shorter = cut(given);
            error.insert(kind, ContextValue::String(shorter));
        }
    }
    let text = error.to_string();
    let paragraphs = text.split("\n\n").take_while(|part| {
        let part = part.trim_start();
        !part.starts_with("Usage:") && !part.starts_with("For more information")
    });
    let parts = paragraphs.map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
    let text = parts.collect::<Vec<_>>().join("; ");
    text.strip_prefix("error: ").unwrap_or(&text).to_owned()
}

/// Redacts the value of a setting that is secret.
fn hide_secrets(error: &mut clap::Error) {
    let (Some(ContextValue::String(value)), Some(ContextValue::String(arg))) = (
        error.get(ContextKind::InvalidValue),
        error.get(ContextKind::InvalidArg),
    ) else {
        return;
    };
    let named = arg.split_whitespace().next().unwrap_or(arg);
    let is_it = |about: &&&About| {
        let name = named.strip_prefix("--");
        about.flag.is_some_and(|flag| name == Some(flag.name))
    };
    if let Some(about) = ALL.iter().find(is_it) {
        let value = (about.display)(OsStr::new(value)).unwrap_or_else(|| "…".to_owned());
        error.insert(ContextKind::InvalidValue, ContextValue::String(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn refusal(line: &str) -> String {
        let error = Cli::try_parse_from(line.split(' ')).unwrap_err();
        sentence(error, line.split(' ').nth(1))
    }

    #[test]
    fn a_refusal_is_one_line_that_names_the_flag_and_where_to_read_on() {
        assert_eq!(
            refusal("timer-service schedule --tenant a --in soon"),
            "error: invalid value 'soon' for '--in <DURATION>': give a whole number and a unit: \
             500ms, 90s, 5m, 2h or 3d; see `timer-service schedule --help`"
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

    #[test]
    fn a_tip_is_a_part_of_the_sentence() {
        assert_eq!(
            refusal("timer-service migrte"),
            "error: unrecognized subcommand 'migrte'; tip: a similar subcommand exists: \
             'migrate'; see `timer-service --help`"
        );
    }

    #[test]
    fn what_is_missing_is_named_with_its_choices() {
        assert_eq!(
            refusal("timer-service get --tenant a"),
            "error: give --id <UUID> or --name <KEY>; see `timer-service get --help`"
        );
        assert_eq!(
            refusal("timer-service schedule"),
            "error: give --tenant <TENANT>, and --due <RFC3339> or --in <DURATION> or \
             --batch <FILE>; see `timer-service schedule --help`"
        );
        assert_eq!(
            refusal("timer-service completions"),
            "error: give <SHELL>; see `timer-service completions --help`"
        );
    }

    #[test]
    fn a_broker_address_is_not_repeated() {
        for line in [
            "timer-service --broker ws://me:hunter2@host",
            "timer-service send --tenant a --in 1s --broker nats://me:hunter2@host:99999",
        ] {
            let sentence = refusal(line);
            assert!(!sentence.contains("hunter2"), "{sentence}");
            assert!(sentence.contains("--broker"), "{sentence}");
            assert!(sentence.contains("give nats://host:4222"), "{sentence}");
        }
    }

    #[test]
    fn a_long_value_is_cut() {
        let long = "x".repeat(10_000);
        for line in [
            format!("timer-service list --tenant a --limit {long}"),
            format!("timer-service list --tenant {long}"),
            format!("timer-service list --{long}"),
            format!("timer-service list {long}"),
            format!("timer-service {long}"),
            format!("timer-service list --tenant a --output {long}"),
        ] {
            let sentence = refusal(&line);
            assert!(sentence.contains("xxx…"), "{sentence}");
            assert!(sentence.len() < 300, "{sentence}");
        }
    }
}
