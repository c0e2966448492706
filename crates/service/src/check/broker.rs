//! The broker: whether it answers and lets us in, and whether it keeps what it acknowledges.
//!
//! Nothing is made or changed there.

use std::net::IpAddr;

use punctual_adapters_nats::async_nats::jetstream::context::GetStreamErrorKind;
use punctual_adapters_nats::async_nats::jetstream::{self, ErrorCode};
use punctual_adapters_nats::async_nats::{Client, ServerAddr};
use punctual_adapters_nats::{NatsAuth, NatsSettings, connect, examine};

use super::disk;
use super::report::Report;
use crate::settings::Sources;
use crate::settings::broker::{read, servers};
use crate::settings::table::ALL;

/// Minimum message size: the envelope of a timer with the largest data has to fit.
const LEAST_MESSAGE: usize = 64 * 1024;

/// Minimum number of replicas that survive a power failure of one machine.
const SAFE_REPLICAS: usize = 3;

/// Checks the broker that `serve` would use.
pub(super) async fn check(sources: &Sources<'_>, report: &mut Report) {
    let is_wrong = ALL.iter().any(|about| {
        let given = sources.given(about);
        about.variable.starts_with("TIMER_BROKER_")
            && given.is_some_and(|(raw, _)| (about.check)(&raw).is_err())
    });
    if is_wrong {
        // It was reported as a setting.
        return;
    }
    match read(sources) {
        Ok(None) => {}
        Ok(Some(settings)) => check_broker(&settings, &servers(sources), report).await,
        Err(problems) => {
            for problem in problems {
                report.wrong("broker", problem.to_string());
            }
        }
    }
}

async fn check_broker(settings: &NatsSettings, servers: &[ServerAddr], report: &mut Report) {
    let client = match connect(settings).await {
        Ok(client) => client,
        Err(error) => return report.wrong("broker", error.to_string()),
    };
    let info = client.server_info();
    let said = format!(
        "{} answers, nats-server {}",
        settings.redacted_url(),
        info.version
    );
    if client.is_server_compatible(2, 9, 0) {
        report.ok("broker", said);
    } else {
        report.wrong("broker", format!("{said}: 2.9 or newer is needed"));
    }
    let who = credentials(&settings.auth);
    match who {
        Some(who) => report.ok("credentials", format!("{who} accepted")),
        None => report.ok("credentials", "none were required"),
    }
    let is_secure = info.tls_required
        || settings.tls.is_required
        || servers.iter().all(ServerAddr::tls_required);
    check_security(is_secure, who.is_some(), servers, report);
    let largest = disk::size(u64::try_from(info.max_payload).unwrap_or(u64::MAX));
    if info.max_payload < LEAST_MESSAGE {
        report.warn(
            "largest message",
            format!("{largest}: set the server's max_payload to 64KB or more, since timers with much data do not fit"),
        );
    } else {
        report.ok("largest message", largest);
    }
    if info.jetstream {
        check_streams(&client, settings, report).await;
    } else {
        report.wrong(
            "JetStream",
            "the broker runs without it: start nats-server with -js, or give its configuration a jetstream section",
        );
    }
}

/// The kind of credentials, in words; `None` if there are none.
const fn credentials(auth: &NatsAuth) -> Option<&'static str> {
    match auth {
        NatsAuth::None => None,
        NatsAuth::UserAndPassword { .. } => Some("user and password were"),
        NatsAuth::Token(_) => Some("the token was"),
        NatsAuth::Nkey(_) => Some("the nkey was"),
        _ => Some("the credentials file was"),
    }
}

fn check_security(
    is_secure: bool,
    has_credentials: bool,
    servers: &[ServerAddr],
    report: &mut Report,
) {
    const WHAT: &str = "secure";
    if is_secure {
        report.ok(WHAT, "the connection is");
    } else if servers.iter().all(is_this_machine) {
        report.ok(WHAT, "the connection is not, but it stays on this machine");
    } else if has_credentials {
        report.warn(
            WHAT,
            "credentials go over a connection that anybody on the way can read: give the broker a tls section, and set TIMER_BROKER_TLS to require",
        );
    } else {
        report.ok(WHAT, "the connection is not, and no credentials go over it");
    }
}

fn is_this_machine(server: &ServerAddr) -> bool {
    let host = server.host().trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|it: IpAddr| it.is_loopback())
}

async fn check_streams(client: &Client, settings: &NatsSettings, report: &mut Report) {
    const WHAT: &str = "streams";
    match examine(client, &settings.prefix).await {
        Ok(problems) if problems.is_empty() => {}
        Ok(problems) => {
            for problem in problems {
                report.wrong(WHAT, problem);
            }
            return;
        }
        Err(error) => return report.wrong(WHAT, error.to_string()),
    }
    let context = jetstream::new(client.clone());
    let (mut there, mut missing, mut are_copied) = (Vec::new(), Vec::new(), true);
    for name in ["COMMANDS", "EVENTS"].map(|name| settings.prefix.stream(name)) {
        match context.get_stream(&name).await {
            Ok(stream) => {
                are_copied &= stream.cached_info().config.num_replicas >= SAFE_REPLICAS;
                there.push(name);
            }
            Err(error) if matches!(error.kind(), GetStreamErrorKind::JetStream(it) if it.error_code() == ErrorCode::STREAM_NOT_FOUND) =>
            {
                missing.push(name);
            }
            Err(error) => return report.wrong(WHAT, error.to_string()),
        }
    }
    let are_there = there.join(" and ");
    let are_missing = format!("{}: made at the start", missing.join(" and "));
    report.ok(
        WHAT,
        match (there.is_empty(), missing.is_empty()) {
            (_, true) => format!("{are_there} are as they have to be"),
            (true, false) => are_missing,
            (false, false) => format!("{are_there} is as it has to be, {are_missing}"),
        },
    );
    check_durability(client, are_copied && missing.is_empty(), report);
}

/// A client cannot see how a server syncs, so the report leaves that to the operator.
fn check_durability(client: &Client, are_copied: bool, report: &mut Report) {
    const WHAT: &str = "power failure";
    if are_copied {
        return report.ok(WHAT, "the streams have three copies");
    }
    let version = client.server_info().version;
    if client.is_server_compatible(2, 10, 0) {
        report.warn(
            WHAT,
            format!("nats-server {version} loses the last messages it acknowledged unless its configuration has `sync_interval: always`, or the streams have 3 replicas; that cannot be seen from here"),
        );
    } else {
        report.warn(
            WHAT,
            format!("nats-server {version} syncs its files every two minutes, so a power failure loses the last messages it acknowledged: use 2.10 or newer with `sync_interval: always`, or 3 replicas"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(address: &str) -> ServerAddr {
        address.parse().unwrap()
    }

    fn said(is_secure: bool, has_credentials: bool, address: &str) -> bool {
        let mut report = Report::default();
        check_security(is_secure, has_credentials, &[server(address)], &mut report);
        report.has_warnings()
    }

    #[test]
    fn credentials_in_the_clear_are_warned_of_unless_they_stay_here() {
        assert!(said(false, true, "nats://broker.example"));
        assert!(!said(true, true, "nats://broker.example"));
        assert!(!said(false, false, "nats://broker.example"));
        for here in ["localhost", "127.0.0.1:4222", "127.1.2.3", "[::1]:4222"] {
            assert!(!said(false, true, here), "{here}");
        }
    }
}
