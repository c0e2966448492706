//! What an error of the driver means for whoever has to put it right.

use std::error::Error as _;
use std::io;

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, SqlState};

use crate::driver::words;
use crate::url::PostgresUrl;
use crate::{ConnectError, tls};

/// Explains why there is no connection to `server`, or why the first query on it failed.
pub(crate) fn explain(url: &PostgresUrl, server: String, error: &Error) -> ConnectError {
    if let Some(answer) = error.as_db_error() {
        return of_answer(url, server, answer);
    }
    let cause = error.source();
    if let Some(problem) = tls_problem(error) {
        let reason = tls::explain(problem);
        return ConnectError::Tls { server, reason };
    }
    let cause_text = cause.map(ToString::to_string).unwrap_or_default();
    // The driver does not publish the kinds of its errors.
    match error.to_string().as_str() {
        "error performing TLS handshake" if cause_text == "server does not support TLS" => {
            let reason =
                "it offers no TLS, turn it on there (ssl = on), or give sslmode=disable".to_owned();
            ConnectError::Tls { server, reason }
        }
        "error performing TLS handshake" => ConnectError::Tls {
            server,
            reason: cause_text,
        },
        "authentication error" => ConnectError::Denied {
            server,
            reason: format!("{cause_text}, check channel_binding and its pg_hba.conf"),
        },
        "invalid configuration" if cause_text == "password missing" => ConnectError::Denied {
            server,
            reason: "it asks for a password, give one in the address, or a passfile with one"
                .to_owned(),
        },
        "unexpected message from server" | "error parsing response from server" => {
            ConnectError::WrongServer {
                server,
                found: "no PostgreSQL, by what it answers".to_owned(),
            }
        }
        "error connecting to server" if !cause_text.is_empty() => ConnectError::Unreachable {
            server,
            reason: plain(cause, cause_text),
        },
        _ => ConnectError::Unreachable {
            server,
            reason: words(error),
        },
    }
}

/// The text of an I/O error without the number of the operating system.
fn plain(cause: Option<&(dyn std::error::Error + 'static)>, text: String) -> String {
    let kind = cause
        .and_then(|it| it.downcast_ref::<io::Error>())
        .map(io::Error::kind);
    match kind {
        Some(io::ErrorKind::ConnectionRefused) => {
            "nothing listens there, start it, or check host and port".to_owned()
        }
        Some(io::ErrorKind::NotFound) => {
            "there is no socket in that folder, start it, or check host and port".to_owned()
        }
        _ => text,
    }
}

/// The error of rustls in the chain, if there is one. A certificate that the server refuses is only known
/// after the handshake, as an error of reading.
pub(crate) fn tls_problem(error: &Error) -> Option<&rustls::Error> {
    let mut source = error.source();
    while let Some(deeper) = source {
        if let Some(found) = deeper.downcast_ref::<rustls::Error>() {
            return Some(found);
        }
        let inner = deeper
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        if let Some(found) = inner.and_then(|it| it.downcast_ref::<rustls::Error>()) {
            return Some(found);
        }
        source = deeper.source();
    }
    None
}

fn of_answer(url: &PostgresUrl, server: String, answer: &DbError) -> ConnectError {
    let message = answer.message();
    let said = |advice: &str| format!("{message}, {advice}");
    let code = answer.code();
    if *code == SqlState::INVALID_PASSWORD {
        let reason = said("check user and password");
        return ConnectError::Denied { server, reason };
    }
    if *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION {
        let reason = said("check the user, sslmode and the server's pg_hba.conf");
        return ConnectError::Denied { server, reason };
    }
    if *code == SqlState::INVALID_CATALOG_NAME {
        let database = url.database().to_owned();
        return ConnectError::MissingDatabase { server, database };
    }
    if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        return ConnectError::MissingPrivilege {
            server,
            user: url.user().to_owned(),
            what: format!("lacks a privilege ({message}): run GRANT CONNECT ON DATABASE"),
        };
    }
    if *code == SqlState::TOO_MANY_CONNECTIONS {
        let reason = said("raise max_connections there, or the limit of the role or database");
        return ConnectError::NotReady { server, reason };
    }
    if *code == SqlState::PROTOCOL_VIOLATION {
        return of_pooler(url, server, message);
    }
    if *code == SqlState::FEATURE_NOT_SUPPORTED {
        let found = format!("a server that we cannot use ({message})");
        return ConnectError::WrongServer { server, found };
    }
    ConnectError::NotReady {
        server,
        reason: format!("{message} ({})", code.code()),
    }
}

/// PgBouncer answers almost everything with the code of a protocol violation.
fn of_pooler(url: &PostgresUrl, server: String, message: &str) -> ConnectError {
    let has = |part: &str| message.contains(part);
    if has("no such database") || (has("database") && has("does not exist")) {
        let database = url.database().to_owned();
        return ConnectError::MissingDatabase { server, database };
    }
    let is_denied = ["no such user", "auth", "password", "role"]
        .iter()
        .any(|part| has(part));
    if is_denied {
        let reason = format!("{message}, check user, password and the pooler's users");
        return ConnectError::Denied { server, reason };
    }
    let reason = message.to_owned();
    ConnectError::NotReady { server, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_pooler_says_is_told_apart_by_its_words() {
        let url = PostgresUrl::new("postgres://me@a/t").unwrap();
        let explained = |message| of_pooler(&url, url.redacted(), message);
        for (message, variant) in [
            ("no such database: t", "MissingDatabase"),
            (
                "server login failed: FATAL database \"t\" does not exist",
                "MissingDatabase",
            ),
            ("no such user: me", "Denied"),
            ("password authentication failed", "Denied"),
            ("SASL authentication failed", "Denied"),
            ("pgbouncer cannot connect to server", "NotReady"),
            ("no more connections allowed (max_client_conn)", "NotReady"),
            ("query_wait_timeout", "NotReady"),
        ] {
            let shown = format!("{:?}", explained(message));
            assert!(shown.starts_with(variant), "{message}: {shown}");
        }
    }
}
