//! The flags of the settings, made from the table of settings.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::table::{ALL, About, DATABASE_URL, DB_PATH, TIMER_BROKER_URL, TIMER_DB_PATH};
use crate::parse;

const CONFIG: &str = "config";
const HEADING: &str = "Settings";
/// The variable that names the settings file.
pub(crate) const CONFIG_VARIABLE: &str = "PUNCTUAL_CONFIG";
/// The settings file that is read if none is named.
pub(crate) const CONFIG_DEFAULT: &str = "./punctual.toml";

/// What the command line says about settings. Each value has been found to be one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flags(ArgMatches);

impl Flags {
    pub(crate) fn config(&self) -> Option<&Path> {
        let given: Option<&PathBuf> = self.0.try_get_one(CONFIG).ok().flatten();
        given.map(PathBuf::as_path)
    }

    pub(crate) fn get(&self, about: &About) -> Option<&OsStr> {
        // A setting without a flag, or with one that the command does not have, is not given.
        let given: Option<&OsString> = self.0.try_get_one(about.variable).ok().flatten();
        given.map(OsString::as_os_str)
    }
}

/// The flags of `serve`: every setting that has one.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServeFlags(pub(crate) Flags);

/// The flags of commands that need the timers' database only.
#[derive(Debug, Clone, Default)]
pub(crate) struct DatabaseFlags(pub(crate) Flags);

/// The flags of the commands that read service calls and timers.
#[derive(Debug, Clone, Default)]
pub(crate) struct TraceFlags(pub(crate) Flags);

impl TraceFlags {
    /// Whether flags name the timers' database and that of calls.
    pub(crate) fn named(&self) -> (bool, bool) {
        let is_given = |about| self.0.get(about).is_some();
        (is_given(TIMER_DB_PATH.about), is_given(DB_PATH.about))
    }
}

/// The flags of commands that need the broker only.
#[derive(Debug, Clone, Default)]
pub(crate) struct BrokerFlags(pub(crate) Flags);

fn add<'a>(command: Command, settings: impl IntoIterator<Item = &'a &'static About>) -> Command {
    let named_file = Arg::new(CONFIG)
        .long(CONFIG)
        .value_name("FILE")
        .help_heading(HEADING)
        .value_parser(OsStringValueParser::new().try_map(|raw| parse::path(&raw)))
        .help(format!(
            "The settings file [env: {CONFIG_VARIABLE}] [default: {CONFIG_DEFAULT} if there is one]"
        ));
    let mut command = command;
    for about in settings {
        let Some(flag) = about.flag else { continue };
        let check = about.check;
        let checked = move |raw: OsString| check(&raw).map(|()| raw);
        command = command.arg(
            Arg::new(about.variable)
                .long(flag.name)
                .value_name(flag.value_name)
                .help_heading(HEADING)
                .value_parser(OsStringValueParser::new().try_map(checked))
                .help(help(about)),
        );
    }
    command.arg(named_file)
}

/// The meaning as a sentence of the help, which begins with a capital.
fn help(about: &About) -> String {
    let mut letters = about.meaning.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    let meaning: String = first.into_iter().chain(letters).collect();
    format!(
        "{meaning} [env: {}] [default: {}]",
        about.variable, about.default
    )
}

macro_rules! flags_of {
    ($type:ident, $settings:expr) => {
        impl FromArgMatches for $type {
            fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
                Ok(Self(Flags(matches.clone())))
            }

            fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
                *self = Self::from_arg_matches(matches)?;
                Ok(())
            }
        }

        impl Args for $type {
            fn augment_args(command: Command) -> Command {
                add(command, $settings)
            }

            fn augment_args_for_update(command: Command) -> Command {
                add(command, $settings)
            }
        }
    };
}

flags_of!(ServeFlags, ALL);
flags_of!(DatabaseFlags, &[TIMER_DB_PATH.about, DATABASE_URL.about]);
flags_of!(
    TraceFlags,
    &[DB_PATH.about, TIMER_DB_PATH.about, DATABASE_URL.about]
);
flags_of!(BrokerFlags, &[TIMER_BROKER_URL.about]);
