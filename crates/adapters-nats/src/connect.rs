//! Connecting, and explaining why that failed.

use std::error::Error;
use std::io;
use std::time::Duration;

use async_nats::{Client, ConnectErrorKind, ConnectOptions};

use crate::{NatsAuth, NatsError, NatsSettings};

/// Timeout of one attempt to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval of pings: a broker that disappeared is noticed after two of them.
const PING_INTERVAL: Duration = Duration::from_secs(10);

/// Connects once, without retries in the background.
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

/// Connect options from the settings.
pub(crate) fn options(settings: &NatsSettings) -> Result<ConnectOptions, NatsError> {
    settings.check()?;
    let mut options = ConnectOptions::new()
        .name("punctual")
        .connection_timeout(CONNECT_TIMEOUT)
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
                advice: "give the file that `nsc generate creds` writes, unchanged".to_owned(),
            })?
        }
    })
}

fn explain(settings: &NatsSettings, error: &async_nats::ConnectError) -> NatsError {
    let servers = settings.redacted_url();
    let mut reason = error.kind().to_string();
    let mut is_about_certificates = matches!(error.kind(), ConnectErrorKind::Tls);
    let mut source = error.source();
    while let Some(deeper) = source {
        // A failed handshake, or a wrong certificate, is reported as invalid data.
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
                reason: format!("{reason}; check the user, token, key or credentials"),
            }
        }
        _ if is_about_certificates => NatsError::Tls { servers, reason },
        _ => NatsError::Unreachable { servers, reason },
    }
}
