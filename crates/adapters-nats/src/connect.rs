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
    Ok(match settings.auth.clone() {
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
        if text.contains("InvalidContentType") {
            "it does not seem to speak TLS".clone_into(&mut reason);
        } else if text.contains(&reason) {
            reason = text;
        } else if !reason.contains(&text) {
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
