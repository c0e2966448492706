//! Address of the broker, credentials, TLS, and names of its streams.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use async_nats::ServerAddr;
use percent_encoding::percent_decode_str;
use punctual_domain::Topic;

use crate::NatsError;

/// Settings of the connection to a broker. [`NatsSettings::new`] is enough for most.
///
/// `Debug` prints no secret.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NatsSettings {
    /// Without credentials, which are in `auth`.
    pub(crate) servers: Vec<ServerAddr>,
    /// The credentials; by default those of the address.
    pub auth: NatsAuth,
    /// TLS of the connection.
    pub tls: NatsTls,
    /// Prefix of streams and subjects, for several installations on one broker.
    pub prefix: Prefix,
    /// Maximum number of messages in flight without an acknowledgement, 1 to 10000.
    pub publish_window: usize,
    /// Timeout of an acknowledgement. After it, whether the message was stored is unknown, and it is
    /// published again under the same id.
    pub ack_timeout: Duration,
    /// Time after which the broker redelivers a message that was not acknowledged. It is extended while a
    /// handler works. After a crash, commands in flight wait this long.
    pub ack_wait: Duration,
    /// Delay before the first retry of a failed message. It doubles with each failure, up to 120 times as
    /// long; after twenty failures the message is dead-lettered.
    pub retry_delay: Duration,
    /// The database that the messages of each consumer go into, by its id. The durable consumer at the broker
    /// says so, and a service with another database is refused. Without an id nobody checks.
    pub owners: BTreeMap<String, String>,
}

/// Credentials for a broker.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum NatsAuth {
    /// No credentials.
    #[default]
    None,
    /// A user with a password.
    UserAndPassword {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
    /// A token.
    Token(String),
    /// The seed of an nkey.
    Nkey(String),
    /// The content of a credentials file, not its path.
    Credentials(String),
}

/// TLS of the connection, which a `tls://` address always requires.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NatsTls {
    /// Refuse a connection without TLS.
    pub is_required: bool,
    /// CA certificates to trust besides those of the system, in PEM.
    pub ca_file: Option<PathBuf>,
    /// Client certificate and its key, in PEM, for brokers that request one.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
}

impl NatsSettings {
    /// Settings for an address such as `nats://host:4222`, with defaults for the rest. Several addresses of
    /// one cluster are separated by commas; `tls://` requires TLS, and `nats://user:password@host` or
    /// `nats://token@host` has the credentials.
    ///
    /// # Errors
    /// If the address is invalid.
    pub fn new(url: &str) -> Result<Self, NatsError> {
        let servers = url
            .split(',')
            .map(|address| server(address.trim()))
            .collect::<Result<Vec<_>, _>>()?;
        let auth = servers.iter().find_map(named_by).unwrap_or_default();
        let servers = servers.iter().map(without_secrets);
        Ok(Self {
            servers: servers.collect::<Result<_, _>>()?,
            auth,
            tls: NatsTls::default(),
            prefix: Prefix::default(),
            publish_window: 256,
            ack_timeout: Duration::from_secs(5),
            ack_wait: Duration::from_secs(10),
            retry_delay: Duration::from_millis(500),
            owners: BTreeMap::new(),
        })
    }

    /// Addresses of the broker without secrets, for display and logs.
    pub fn redacted_url(&self) -> String {
        let shown: Vec<String> = self
            .servers
            .iter()
            .map(|server| {
                let (scheme, host, port) = (server.scheme(), server.host(), server.port());
                // An IPv6 address needs brackets to separate it from the port.
                if host.contains(':') && !host.starts_with('[') {
                    format!("{scheme}://[{host}]:{port}")
                } else {
                    format!("{scheme}://{host}:{port}")
                }
            })
            .collect();
        shown.join(",")
    }

    /// Validates the settings.
    ///
    /// # Errors
    /// With the first invalid field, and what is allowed.
    pub fn check(&self) -> Result<(), NatsError> {
        let wrong = |field, advice: &str| {
            Err(NatsError::Setting {
                field,
                advice: advice.to_owned(),
            })
        };
        if !(1..=10_000).contains(&self.publish_window) {
            return wrong("publish_window", "give 1 to 10000");
        }
        let (least, most) = (Duration::from_millis(100), Duration::from_mins(1));
        if !(least..=most).contains(&self.ack_timeout) {
            return wrong("ack_timeout", "give 100 ms to a minute");
        }
        if !(Duration::from_secs(1)..=Duration::from_mins(10)).contains(&self.ack_wait) {
            return wrong("ack_wait", "give a second to ten minutes");
        }
        if !(Duration::from_millis(1)..=Duration::from_mins(1)).contains(&self.retry_delay) {
            return wrong("retry_delay", "give a millisecond to a minute");
        }
        Ok(())
    }
}

fn server(address: &str) -> Result<ServerAddr, NatsError> {
    let wrong = wrong_address;
    if address.is_empty() {
        return Err(wrong("it is empty"));
    }
    // The address is not repeated: it may contain a password.
    let parsed = ServerAddr::from_str(address).map_err(|_| wrong("it cannot be understood"))?;
    if !matches!(parsed.scheme(), "nats" | "tls") {
        return Err(wrong(&format!("{}:// is not spoken here", parsed.scheme())));
    }
    if parsed.host().is_empty() {
        return Err(wrong("it names no host"));
    }
    let has_path = !matches!(parsed.clone().into_inner().path(), "" | "/");
    if has_path {
        return Err(wrong("something follows the port"));
    }
    Ok(parsed)
}

fn wrong_address(what: &str) -> NatsError {
    NatsError::Setting {
        field: "the broker's address",
        advice: format!(
            "{what}: give nats://host:4222, or tls://host:4222 for a secure connection"
        ),
    }
}

/// Credentials of an address: `nats://user:password@host`, or `nats://token@host`.
fn named_by(server: &ServerAddr) -> Option<NatsAuth> {
    let user = decoded(server.username()?);
    Some(match server.password() {
        Some(password) => NatsAuth::UserAndPassword {
            user,
            password: decoded(password),
        },
        None => NatsAuth::Token(user),
    })
}

/// The address without credentials: the client does not use those, but logs the address.
fn without_secrets(server: &ServerAddr) -> Result<ServerAddr, NatsError> {
    let mut url = server.clone().into_inner();
    let is_done = url.set_username("").is_ok() && url.set_password(None).is_ok();
    let left = is_done.then(|| ServerAddr::from_url(url).ok()).flatten();
    left.ok_or_else(|| wrong_address("it cannot be understood"))
}

/// Percent-decodes a part of an address. Invalid sequences stay as they are.
fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

impl fmt::Debug for NatsAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::UserAndPassword { .. } => "UserAndPassword(..)",
            Self::Token(_) => "Token(..)",
            Self::Nkey(_) => "Nkey(..)",
            Self::Credentials(_) => "Credentials(..)",
        })
    }
}

/// Prefix of streams and subjects: empty, or 1 to 32 letters, digits, `_` and `-`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prefix(String);

impl Prefix {
    const LONGEST: usize = 32;

    /// The prefix as text, empty if there is none.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The stream of that name: `acme-EVENTS`, or just `EVENTS`.
    pub fn stream(&self, name: &str) -> String {
        match self.as_str() {
            "" => name.to_owned(),
            prefix => format!("{prefix}-{name}"),
        }
    }

    /// The subject of that name: `acme.timer.events`, or just `timer.events`.
    pub(crate) fn subject(&self, name: &str) -> String {
        match self.as_str() {
            "" => name.to_owned(),
            prefix => format!("{prefix}.{name}"),
        }
    }

    /// Prefix of the subjects of a topic, and itself the subject of messages published without a tenant.
    pub fn topic(&self, topic: Topic) -> String {
        self.subject(topic.as_str())
    }
}

impl FromStr for Prefix {
    type Err = NatsError;

    fn from_str(text: &str) -> Result<Self, NatsError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if (1..=Self::LONGEST).contains(&text.len()) && text.chars().all(is_plain) {
            return Ok(Self(text.to_owned()));
        }
        Err(NatsError::Setting {
            field: "the broker prefix",
            advice: format!(
                "give 1 to {} letters, digits, underscores and hyphens",
                Self::LONGEST
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_enough_and_its_secrets_are_never_printed() {
        let settings = NatsSettings::new("nats://me:hunter2@a:4222, tls://b,nats://[::1]:7");
        let settings = settings.unwrap();
        let shown = "nats://a:4222,tls://b:4222,nats://[::1]:7";
        assert_eq!(settings.redacted_url(), shown);
        assert!(settings.auth != NatsAuth::None);
        assert!(!format!("{:?}", settings.servers).contains("hunter2"));
        let plain = NatsSettings::new(shown).unwrap();
        assert_eq!(plain.redacted_url(), shown);
        assert!(plain.auth == NatsAuth::None);
        assert!(!format!("{settings:?}").contains("hunter2"));
        assert_eq!(settings.check(), Ok(()));
        for (auth, shown) in [
            (NatsAuth::Token("hunter2".to_owned()), "Token(..)"),
            (NatsAuth::Nkey("hunter2".to_owned()), "Nkey(..)"),
        ] {
            assert_eq!(format!("{auth:?}"), shown);
        }
    }

    #[test]
    fn an_address_may_have_credentials() {
        let auth = |address| NatsSettings::new(address).unwrap().auth;
        assert!(auth("nats://s%40cret@a") == NatsAuth::Token("s@cret".to_owned()));
        let both = NatsAuth::UserAndPassword {
            user: "me".to_owned(),
            password: "p:%ä".to_owned(),
        };
        assert!(auth("nats://a,nats://me:p%3A%25%C3%A4@b") == both);
        assert_eq!(decoded("100%"), "100%");
        assert_eq!(decoded("%+1%zz"), "%+1%zz");
    }

    #[test]
    fn an_invalid_address_is_refused_without_repeating_it() {
        for bad in [
            "",
            "nats://",
            "http://me:hunter2@a",
            "ws://me:hunter2@a",
            "nats://me:hunter2@a:99999",
            "nats://me:hunter2@a:1/path",
            "nats://a,,nats://b",
        ] {
            let error = NatsSettings::new(bad).unwrap_err().to_string();
            assert!(error.contains("give nats://host:4222"), "{bad}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_prefix_is_part_of_streams_and_subjects() {
        let prefix: Prefix = "acme".parse().unwrap();
        assert_eq!(prefix.stream("EVENTS"), "acme-EVENTS");
        assert_eq!(prefix.topic(Topic::TimerEvents), "acme.timer.events");
        assert_eq!(Prefix::default().stream("EVENTS"), "EVENTS");
        assert_eq!(Prefix::default().topic(Topic::TimerEvents), "timer.events");
        for bad in ["", "a.b", "a>", "ä", &"x".repeat(33)] {
            assert!(bad.parse::<Prefix>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_invalid_setting_is_named() {
        let with = |change: fn(&mut NatsSettings)| {
            let mut settings = NatsSettings::new("nats://a").unwrap();
            change(&mut settings);
            settings.check().unwrap_err().to_string()
        };
        let sentences = [
            with(|it| it.publish_window = 0),
            with(|it| it.ack_timeout = Duration::ZERO),
            with(|it| it.ack_wait = Duration::ZERO),
            with(|it| it.retry_delay = Duration::ZERO),
        ];
        assert_eq!(
            sentences,
            [
                "publish_window is wrong: give 1 to 10000",
                "ack_timeout is wrong: give 100 ms to a minute",
                "ack_wait is wrong: give a second to ten minutes",
                "retry_delay is wrong: give a millisecond to a minute"
            ]
        );
    }
}
