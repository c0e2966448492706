//! What is said at the start: what runs, on which data, and what to try.

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::Path;

use punctual::http::AllowedNets;
use punctual_adapters_nats::{NatsAuth, NatsSettings, NatsTls};
use punctual_adapters_sqlite::Synchronous;
use punctual_domain::Topic;

use crate::display;
use crate::logging;
use crate::settings::table::{API_LISTEN, TIMERS_ALONE};
use crate::settings::{CallsSettings, LogFormat, ServeSettings, TimerDatabase};

/// Prints the banner; in the JSON format it is a log line.
pub(super) fn show(settings: &ServeSettings, api: Option<SocketAddr>) {
    let on_terminal = std::io::stderr().is_terminal();
    if logging::format_for(settings.log_format, on_terminal) == LogFormat::Text {
        let program = std::env::args_os().next();
        let program = program.as_deref().and_then(OsStr::to_str);
        crate::say(&text(settings, api, program.unwrap_or("timer-service")));
        return;
    }
    let database = settings.database.sqlite();
    let subjects = settings.broker.as_ref().map(subjects);
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        process = std::process::id(),
        database = place(&settings.database),
        synchronous = database.map(|it| synchronous(it.synchronous).0),
        settings_file = settings.file.as_deref().map(absolute),
        broker = settings.broker.as_ref().map(NatsSettings::redacted_url),
        commands = subjects.as_ref().map(|(commands, _)| commands),
        events = subjects.as_ref().map(|(_, events)| events),
        api = api.map(|address| format!("http://{address}")),
        calls_database = settings
            .calls
            .as_ref()
            .and_then(|calls| calls.database.as_ref())
            .map(|it| absolute(&it.path)),
        "{}: {}",
        serving(settings),
        match (&settings.calls, &settings.broker) {
            (Some(_), Some(_)) if settings.modules.need_a_broker() =>
                "the other modules of service calls communicate with these through the broker",
            (Some(_), _) if settings.modules.are_api_alone() =>
                "calls are submitted into the database, and made by whoever runs its modules",
            (Some(_), _) if settings.writes_lines() =>
                "each call is made once, at or just after its due time; a timer that belongs to no call is one line of JSON on standard output",
            (Some(_), _) => "each call is made once, at or just after its due time",
            (None, Some(_)) => "commands come from the broker, and each firing is an event there",
            (None, None) => "each firing is one line of JSON on standard output",
        }
    );
}

fn serving(settings: &ServeSettings) -> String {
    let modules = settings.modules;
    let what = [
        (modules.orchestration, "orchestration"),
        (modules.timer, "timer"),
        (modules.execution, "execution"),
    ];
    match settings.calls {
        None => "serving timers".to_owned(),
        Some(_) if modules.are_api_alone() => "serving the api of service calls".to_owned(),
        Some(_) if modules.need_a_broker() => {
            let names = what.iter().filter(|(runs, _)| *runs).map(|(_, name)| *name);
            let names: Vec<&str> = names.collect();
            format!("serving {} of service calls", names.join(" and "))
        }
        Some(_) => "serving service calls".to_owned(),
    }
}

/// Where modules that run apart get their messages from.
fn ways_apart(settings: &ServeSettings, broker: &NatsSettings, api: Option<SocketAddr>) -> String {
    let modules = settings.modules;
    let topics = [
        (modules.orchestration, Topic::OrchestrationCommands),
        (modules.timer, Topic::TimerCommands),
        (modules.execution, Topic::ExecutionCommands),
    ];
    let topics = topics.into_iter().filter(|(runs, _)| *runs);
    let topics: Vec<String> = topics
        .map(|(_, topic)| format!("{}.>", broker.prefix.topic(topic)))
        .collect();
    let api = api.map_or_else(String::new, |api| {
        format!("in:    http://{api} (described at /openapi.json)\n")
    });
    let commands = format!(
        "{api}in:    commands on {} of {}",
        topics.join(" and "),
        broker.redacted_url()
    );
    match &settings.calls {
        Some(calls) if modules.execution => {
            format!("{commands}\nout:   calls reach {}", reach(calls))
        }
        _ => commands,
    }
}

/// Where calls may go.
fn reach(calls: &CallsSettings) -> String {
    if calls.allowed == AllowedNets::default() {
        "public addresses only; others with --allow-nets, like 127.0.0.0/8".to_owned()
    } else {
        format!("public addresses, and {}", calls.allowed)
    }
}

/// Where calls come from, where they may go, and how to see one.
fn ways_of_calls(calls: &CallsSettings, api: Option<SocketAddr>, program: &str) -> String {
    let Some(api) = api else {
        return "in:    commands on orchestration.commands.> of the broker".to_owned();
    };
    let elsewhere = if api.to_string() == API_LISTEN.about.default {
        String::new()
    } else {
        format!(" --api http://{api}")
    };
    let target = if calls.allowed == AllowedNets::default() {
        "https://example.com".to_owned()
    } else {
        format!("http://{api}/healthz")
    };
    let reach = reach(calls);
    format!(
        "in:    http://{api} (described at /openapi.json)\n\
         out:   calls reach {reach}\n\
         try:   {program} call --tenant demo --in 2s --url {target}{elsewhere}"
    )
}

/// The subjects that commands come from, and that events go to.
fn subjects(broker: &NatsSettings) -> (String, String) {
    let topic = |topic| broker.prefix.topic(topic);
    (
        format!("{}.>", topic(Topic::TimerCommands)),
        format!("{}.<tenant>", topic(Topic::TimerEvents)),
    )
}

/// Where timers come from, where firings go, and how to see one.
fn ways(settings: &ServeSettings, api: Option<SocketAddr>, program: &str) -> String {
    let api = api.map_or_else(String::new, |api| {
        format!("in:    http://{api} (described at /openapi.json)\n")
    });
    if let Some(broker) = &settings.broker {
        let (commands, events) = subjects(broker);
        return format!(
            "{api}in:    commands on {commands} of {}\n\
             out:   each firing is an event on {events} there\n\
             try:   {}",
            broker.redacted_url(),
            to_send(broker, program)
        );
    }
    let elsewhere = match &settings.database {
        TimerDatabase::Sqlite(file) if file.path == Path::new(TIMERS_ALONE) => String::new(),
        TimerDatabase::Sqlite(file) => format!(" --db {}", for_a_shell(&absolute(&file.path))),
        TimerDatabase::Postgres(database) => format!(
            " --database-url {}  # and the password and schema of this one",
            for_a_shell(&database.url.redacted())
        ),
    };
    format!(
        "{api}out:   each firing is one line of JSON on standard output\n\
         try:   {program} schedule --tenant demo --in 5s{elsewhere}"
    )
}

/// A command to try through the broker, without the secrets.
fn to_send(broker: &NatsSettings, program: &str) -> String {
    let prefix = match broker.prefix.as_str() {
        "" => String::new(),
        prefix => format!("TIMER_BROKER_PREFIX={prefix} "),
    };
    let more = if broker.auth != NatsAuth::None || broker.tls != NatsTls::default() {
        "  # and the credentials and certificates of this one"
    } else {
        ""
    };
    format!(
        "{prefix}{program} send --tenant demo --in 5s --broker {}{more}",
        for_a_shell(&broker.redacted_url())
    )
}

fn text(settings: &ServeSettings, api: Option<SocketAddr>, program: &str) -> String {
    let on = match &settings.database {
        TimerDatabase::Sqlite(file) => {
            let (setting, survives) = synchronous(file.synchronous);
            format!("SQLite, synchronous {setting}: what is acknowledged survives {survives}")
        }
        TimerDatabase::Postgres(_) => {
            "PostgreSQL, together with every instance on the same database".to_owned()
        }
    };
    let file = settings.file.as_deref().map_or_else(String::new, |file| {
        format!("from:  {} (settings)\n", absolute(file))
    });
    let what = serving(settings).replacen("serving", "serves", 1);
    let ways = match &settings.calls {
        Some(_)
            if settings.modules.need_a_broker()
                && let Some(broker) = &settings.broker =>
        {
            ways_apart(settings, broker, api)
        }
        Some(calls) if settings.writes_lines() => format!(
            "{}\nand:   timers that belong to no call, each a line of JSON on standard output",
            ways_of_calls(calls, api, program)
        ),
        Some(calls) => ways_of_calls(calls, api, program),
        None => ways(settings, api, program),
    };
    format!(
        "timer-service {} {what} (process {})\n\
         on:    {on}\n\
         data:  {}\n\
         {file}\
         {}\n\
         stop:  Ctrl-C finishes what is in flight",
        env!("CARGO_PKG_VERSION"),
        std::process::id(),
        place(&settings.database),
        ways,
    )
}

fn place(database: &TimerDatabase) -> String {
    match database {
        TimerDatabase::Sqlite(file) => absolute(&file.path),
        TimerDatabase::Postgres(settings) => match &settings.schema {
            Some(schema) => format!("the schema {schema} of {}", settings.url),
            None => settings.url.to_string(),
        },
    }
}

fn absolute(path: &Path) -> String {
    let absolute = std::path::absolute(path);
    display::path(absolute.as_deref().unwrap_or(path))
}

/// A path as it can be pasted into a command.
fn for_a_shell(path: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+,:@%".contains(c);
    if path.chars().all(is_plain) {
        path.to_owned()
    } else {
        format!("'{}'", path.replace('\'', "'\\''"))
    }
}

/// The setting's name, and what an acknowledged timer survives with it.
const fn synchronous(setting: Synchronous) -> (&'static str, &'static str) {
    match setting {
        Synchronous::Full => ("FULL", "power failures"),
        Synchronous::Normal => ("NORMAL", "crashes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use crate::settings::tests::serve_with;
    use clap::Parser;

    /// The banner of a command line and of variables.
    fn shown_with(line: &str, variables: &[(&str, &str)], api: Option<&str>) -> String {
        let cli = Cli::try_parse_from(line.split(' ')).unwrap();
        let settings = serve_with(variables, &cli.serve).unwrap();
        text(&settings, api.map(|api| api.parse().unwrap()), "ts")
    }

    fn shown(line: &str) -> String {
        shown_with(line, &[("MODULES", "timer")], None)
    }

    #[test]
    fn with_a_broker_it_says_where_commands_come_from_and_events_go() {
        let text = shown("ts --broker nats://me:hunter2@broker:4222");
        for words in [
            "in:    commands on timer.commands.> of nats://broker:4222\n",
            "out:   each firing is an event on timer.events.<tenant> there\n",
            "try:   ts send --tenant demo --in 5s --broker nats://broker:4222  # and the credentials",
        ] {
            assert!(text.contains(words), "{text}");
        }
        assert!(!text.contains("hunter2"), "{text}");
        assert!(shown("ts --broker nats://[::1]").contains("--broker 'nats://[::1]:4222'\n"));
    }

    #[test]
    fn with_calls_it_says_how_to_submit_one_that_may_be_made() {
        let usual = shown_with("ts", &[], Some("127.0.0.1:8080"));
        for words in [
            "serves service calls (process",
            "in:    http://127.0.0.1:8080 (",
            "out:   calls reach public addresses only;",
            "try:   ts call --tenant demo --in 2s --url https://example.com\n",
        ] {
            assert!(usual.contains(words), "{usual}");
        }
        let local = shown_with("ts --allow-nets 127.0.0.0/8", &[], Some("127.0.0.1:9"));
        let words = "--url http://127.0.0.1:9/healthz --api http://127.0.0.1:9\n";
        assert!(local.contains(words), "{local}");
    }

    #[test]
    fn the_prefix_is_in_the_subjects_and_in_what_to_try() {
        let variables = [("TIMER_BROKER_PREFIX", "acme"), ("MODULES", "timer")];
        let text = shown_with("ts --broker a", &variables, None);
        for words in [
            "commands on acme.timer.commands.> of",
            "an event on acme.timer.events.<tenant> there",
            "try:   TIMER_BROKER_PREFIX=acme ts send ",
        ] {
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn the_command_to_try_finds_the_same_database() {
        assert!(shown("ts").contains("try:   ts schedule --tenant demo --in 5s\n"));
        assert!(shown("ts --db /x/t.db").contains("--in 5s --db /x/t.db\n"));
        let elsewhere = std::path::absolute("t.db").unwrap();
        let elsewhere = for_a_shell(&elsewhere.display().to_string());
        assert!(shown("ts --db t.db").contains(&format!(" --db {elsewhere}\n")));
        assert_eq!(for_a_shell("/my files/it's.db"), "'/my files/it'\\''s.db'");
    }
}
