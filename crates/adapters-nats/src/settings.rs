//! Where the broker is, who we are to it, and how its streams are named.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use async_nats::ServerAddr;
use punctual_domain::Topic;

use crate::NatsError;

/// Everything that has to be known about a broker. [`NatsSettings::new`] is enough for most.
///
/// Its `Debug` shows no secret.
#[derive(Clone)]
#[non_exhaustive]
pub struct NatsSettings {
    pub(crate) servers: Vec<ServerAddr>,
    /// Who we are: at first whoever the address names.
    pub auth: NatsAuth,
    /// How the connection is made secure.
    pub tls: NatsTls,
    /// What the names of streams and subjects begin with, for several installations on one broker.
    pub prefix: Prefix,
    /// How many messages may be on the way to the broker without an acknowledgement, 1 to 10000.
    pub publish_window: usize,
    /// How long an acknowledgement is waited for. Then it is unknown whether the message was
    /// stored, and it is published again under the same id.
    pub ack_timeout: Duration,
    /// How long a message may be with us without a word before the broker gives it out again; while
    /// a handler works, the broker hears from us. After a crash this is how long commands in hand
    /// have to wait.
    pub ack_wait: Duration,
    /// How long a message that failed by itself is put off the first time. It doubles with each
    /// failure, up to 120 times as long; after twenty failures the message is a dead letter.
    pub retry_delay: Duration,
}

/// Who we are to a broker.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum NatsAuth {
    /// Nobody in particular.
    #[default]
    None,
    /// A user with a password.
    UserAndPassword {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
    /// Whoever knows this token.
    Token(String),
    /// Whoever has this seed of an nkey.
    Nkey(String),
    /// What a credentials file says: its text, not its path.
    Credentials(String),
}

/// How the connection is made secure. With a `tls://` address it always is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NatsTls {
    /// Refuse a connection that is not secure.
    pub is_required: bool,
    /// Certificates of authorities to trust besides the system's, in PEM.
    pub ca_file: Option<PathBuf>,
    /// Our own certificate and its key, in PEM, for brokers that ask for one.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
}

impl NatsSettings {
    /// The broker at an address such as `nats://host:4222`, with all else as usual. Several
    /// addresses of one cluster are separated by commas; `tls://` asks for a secure connection, and
    /// `nats://user:password@host` or `nats://token@host` says who we are.
    ///
    /// # Errors
    /// If it is no such address.
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
        })
    }

    /// Where the broker is, without any secret: for logs and for people.
    pub fn shown(&self) -> String {
        let shown: Vec<String> = self
            .servers
            .iter()
            .map(|server| {
                let (scheme, host, port) = (server.scheme(), server.host(), server.port());
                // Only in brackets can the colons of such an address be told from the port's.
                if host.contains(':') && !host.starts_with('[') {
                    format!("{scheme}://[{host}]:{port}")
                } else {
                    format!("{scheme}://{host}:{port}")
                }
            })
            .collect();
        shown.join(",")
    }

    /// Checks that the settings make sense together.
    ///
    /// # Errors
    /// With the first field that does not, and what would be right.
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
    // The address itself is not repeated: it may hold a password.
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

/// Who we are by an address that says so: `nats://user:password@host`, or `nats://token@host`.
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

/// The address alone. The client does not look for credentials in it, but writes it to its log.
fn without_secrets(server: &ServerAddr) -> Result<ServerAddr, NatsError> {
    let mut url = server.clone().into_inner();
    let is_done = url.set_username("").is_ok() && url.set_password(None).is_ok();
    let left = is_done.then(|| ServerAddr::from_url(url).ok()).flatten();
    left.ok_or_else(|| wrong_address("it cannot be understood"))
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

impl fmt::Debug for NatsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsSettings")
            .field("servers", &self.shown())
            .field("auth", &self.auth)
            .field("tls", &self.tls)
            .field("prefix", &self.prefix)
            .field("publish_window", &self.publish_window)
            .field("ack_timeout", &self.ack_timeout)
            .field("ack_wait", &self.ack_wait)
            .field("retry_delay", &self.retry_delay)
            .finish()
    }
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

/// What the names of streams and subjects begin with: nothing, or 1 to 32 letters, digits, `_` and
/// `-`.
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

    /// What the subjects of a topic's messages begin with, and where a message may be published
    /// without naming tenant and service call.
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
    fn an_address_is_enough_and_its_secrets_are_shown_to_nobody() {
        let settings = NatsSettings::new("nats://me:hunter2@a:4222, tls://b,nats://[::1]:7");
        let settings = settings.unwrap();
        let shown = "nats://a:4222,tls://b:4222,nats://[::1]:7";
        assert_eq!(settings.shown(), shown);
        assert!(settings.auth != NatsAuth::None);
        assert!(!format!("{:?}", settings.servers).contains("hunter2"));
        let plain = NatsSettings::new(shown).unwrap();
        assert_eq!(plain.shown(), shown);
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
    fn an_address_may_say_who_we_are() {
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
    fn what_is_no_address_is_refused_without_repeating_it() {
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
    fn what_makes_no_sense_is_named() {
        let good = NatsSettings::new("nats://a").unwrap();
        let window = NatsSettings {
            publish_window: 0,
            ..good.clone()
        };
        let patience = NatsSettings {
            ack_timeout: Duration::ZERO,
            ..good.clone()
        };
        let wait = NatsSettings {
            ack_wait: Duration::ZERO,
            ..good.clone()
        };
        let delay = NatsSettings {
            retry_delay: Duration::ZERO,
            ..good
        };
        let sentences =
            [window, patience, wait, delay].map(|bad| bad.check().unwrap_err().to_string());
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
