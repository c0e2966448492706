//! Making a connection, and saying in words why there is none.

use std::error::Error;
use std::io;
use std::time::Duration;

use async_nats::{Client, ConnectErrorKind, ConnectOptions};

use crate::{NatsAuth, NatsError, NatsSettings};

/// How long one try to connect may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// How often a silent connection is tried out: a broker that is gone without a word is noticed after
/// two of these.
const PING_INTERVAL: Duration = Duration::from_secs(10);

/// Connects once, for a command that somebody waits for.
///
/// # Errors
/// If there is no connection, with what to do about it.
pub async fn connect(settings: &NatsSettings) -> Result<Client, NatsError> {
    dial(settings, options(settings)?).await
}

pub(crate) async fn dial(
    settings: &NatsSettings,
    options: ConnectOptions,
) -> Result<Client, NatsError> {
    let connecting = options.connect(settings.servers.clone());
    connecting.await.map_err(|error| explain(settings, &error))
}

/// How to connect, with everything that the settings say.
pub(crate) fn options(settings: &NatsSettings) -> Result<ConnectOptions, NatsError> {
    settings.check()?;
    let mut options = ConnectOptions::new()
        .name("punctual")
        .connection_timeout(CONNECT_LIMIT)
        .ping_interval(PING_INTERVAL)
        .require_tls(settings.tls.is_required);
    if let Some(file) = &settings.tls.ca_file {
        options = options.add_root_certificates(file.clone());
    }
    if let Some((certificate, key)) = &settings.tls.client_certificate {
        options = options.add_client_certificate(certificate.clone(), key.clone());
    }
    let auth = match settings.auth.clone() {
        NatsAuth::None => url_auth(settings),
        given => given,
    };
    Ok(match auth {
        NatsAuth::None => options,
        NatsAuth::UserAndPassword { user, password } => options.user_and_password(user, password),
        NatsAuth::Token(token) => options.token(token),
        NatsAuth::Nkey(seed) => options.nkey(seed.trim().to_owned()),
        NatsAuth::Credentials(text) => {
            options.credentials(&text).map_err(|_| NatsError::Setting {
                field: "the credentials file",
                advice: "give the file that `nsc generate creds` writes, whole".to_owned(),
            })?
        }
    })
}

/// Who we are by the first address that says so, which the client itself does not look at:
/// `nats://user:password@host`, or `nats://token@host`.
fn url_auth(settings: &NatsSettings) -> NatsAuth {
    let named = settings.servers.iter().find_map(|server| {
        let user = decoded(server.username()?);
        Some(match server.password() {
            Some(password) => NatsAuth::UserAndPassword {
                user,
                password: decoded(password),
            },
            None => NatsAuth::Token(user),
        })
    });
    named.unwrap_or_default()
}

/// A part of an address, where `%40` stands for `@`. What is no such sign stays as it is.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..2).filter(|_| *first == b'%');
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        // A sign before the digits would be taken for part of a number.
        let code = code.filter(|code| code.bytes().all(|it| it.is_ascii_hexdigit()));
        if let Some(byte) = code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            bytes.push(byte);
            rest = after.get(2..).unwrap_or_default();
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn explain(settings: &NatsSettings, error: &async_nats::ConnectError) -> NatsError {
    let servers = settings.shown();
    let mut reason = error.kind().to_string();
    let mut is_about_certificates = matches!(error.kind(), ConnectErrorKind::Tls);
    let mut source = error.source();
    while let Some(deeper) = source {
        // What is no secure connection, or one with the wrong certificate, comes as bad data.
        let data = deeper.downcast_ref::<io::Error>();
        is_about_certificates |= data.is_some_and(|it| it.kind() == io::ErrorKind::InvalidData);
        let text = deeper.to_string();
        if !reason.contains(&text) {
            reason = format!("{reason}: {text}");
        }
        source = deeper.source();
    }
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            NatsError::Denied {
                servers,
                reason: format!("{reason}; look at the user, token, key or credentials"),
            }
        }
        _ if is_about_certificates => NatsError::Tls { servers, reason },
        _ => NatsError::Unreachable { servers, reason },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_say_who_we_are() {
        let auth = |address| url_auth(&NatsSettings::new(address).unwrap());
        assert!(auth("nats://a") == NatsAuth::None);
        assert!(auth("nats://s%40cret@a") == NatsAuth::Token("s@cret".to_owned()));
        let both = NatsAuth::UserAndPassword {
            user: "me".to_owned(),
            password: "p:%ä".to_owned(),
        };
        assert!(auth("nats://a,nats://me:p%3A%25%C3%A4@b") == both);
        assert_eq!(decoded("100%"), "100%");
        assert_eq!(decoded("%+1%zz"), "%+1%zz");
    }
}
