//! Where the database is, who we are there, and how the connection is secured: the address, parsed once.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio_postgres::config::ChannelBinding;

use crate::ConnectError;
use crate::connection_string::{self, Parameters};
use crate::password_file::PasswordFile;

/// Parameters that are understood.
const KNOWN: [&str; 24] = [
    "application_name",
    "channel_binding",
    "client_encoding",
    "connect_timeout",
    "dbname",
    "fallback_application_name",
    "gssencmode",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "options",
    "passfile",
    "password",
    "port",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "target_session_attrs",
    "tcp_user_timeout",
    "user",
];

/// Parameters of libpq that are refused by name: left unused, most of them would weaken what the operator
/// asked for.
const UNSUPPORTED: [&str; 17] = [
    "gssdelegation",
    "gsslib",
    "krbsrvname",
    "load_balance_hosts",
    "replication",
    "require_auth",
    "requirepeer",
    "service",
    "ssl_max_protocol_version",
    "ssl_min_protocol_version",
    "sslcertmode",
    "sslcompression",
    "sslcrl",
    "sslcrldir",
    "sslnegotiation",
    "sslpassword",
    "sslsni",
];

const DEFAULT_PORT: u16 = 5432;

/// What may stay as it is in a displayed name.
const IN_NAMES: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The address of a database: `postgres://user:password@host:5432/database?parameter=value`, or the
/// keywords of libpq, `host=… user=… dbname=…`. Both mean what they mean for libpq, with these differences:
///
/// - A host and a user are required, and nothing is read from the environment or the home folder: no
///   `PGPASSWORD`, `~/.pgpass`, `~/.postgresql/root.crt` or service file.
///   [`with_default_password_file`](Self::with_default_password_file) asks for `~/.pgpass`.
/// - `target_session_attrs` is `read-write` by default, because a store writes: of several hosts the first
///   that takes writes is used. With `any` it is the first that answers. `primary` is `read-write`.
/// - `connect_timeout` is 10 seconds by default, and limits everything that happens with one address of one
///   host, up to the first answer to a query. It cannot be unlimited.
/// - `keepalives_idle`, `keepalives_interval`, `keepalives_count` and `tcp_user_timeout` are 30 s, 10 s, 3
///   and 30 s by default, so that a server that disappeared is noticed within a minute.
/// - `sslmode=allow` is `prefer`. `verify-full` without `sslrootcert` trusts the system's certificates;
///   `verify-ca` needs the file.
/// - `application_name` is `punctual` by default, and is followed by the purpose of each connection.
/// - `options` is refused, because poolers drop it; so is what is not supported, and what is unknown.
///
/// `Debug` and `Display` print no password.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl {
    pub(crate) hosts: Vec<Host>,
    pub(crate) user: String,
    pub(crate) database: String,
    pub(crate) password: Option<String>,
    pub(crate) password_file: Option<PasswordFile>,
    pub(crate) application_name: String,
    pub(crate) connect_timeout: Duration,
    /// Whether the next host is tried when one takes no writes.
    pub(crate) wants_writable: bool,
    pub(crate) channel_binding: ChannelBinding,
    pub(crate) tls: TlsSettings,
    pub(crate) keepalives: Keepalives,
}

/// One place where the server may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    /// A name, an address, or the absolute path of a folder with a Unix socket.
    pub(crate) name: String,
    /// Where to connect to instead of what the name resolves to.
    pub(crate) address: Option<IpAddr>,
    pub(crate) port: u16,
}

impl Host {
    pub(crate) fn is_socket(&self) -> bool {
        self.name.starts_with('/')
    }
}

/// TLS of the connection, in the words of libpq.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsSettings {
    pub(crate) mode: SslMode,
    pub(crate) roots: Option<Roots>,
    /// The certificate and its key.
    pub(crate) client: Option<(PathBuf, PathBuf)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SslMode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Roots {
    System,
    File(PathBuf),
}

/// How a peer that disappeared is noticed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Keepalives {
    pub(crate) is_on: bool,
    pub(crate) idle: Duration,
    pub(crate) interval: Duration,
    pub(crate) count: u32,
    pub(crate) user_timeout: Duration,
}

impl PostgresUrl {
    /// Parses an address.
    ///
    /// # Errors
    /// With the invalid part and what is allowed, without repeating a value.
    pub fn new(address: &str) -> Result<Self, ConnectError> {
        let mut given = connection_string::parse(address)?;
        refuse_options(&mut given)?;
        let user = text(&mut given, "user")?
            .ok_or_else(|| setting("user", "give postgres://user@host:5432/database"))?;
        let database = text(&mut given, "dbname")?.unwrap_or_else(|| user.clone());
        let password_file = path(&mut given, "passfile")?.map(PasswordFile::named);
        let fallback = text(&mut given, "fallback_application_name")?;
        let application_name = text(&mut given, "application_name")?.or(fallback);
        let parsed = Self {
            hosts: hosts(&mut given)?,
            user,
            database,
            password: given.take("password").filter(|it| !it.is_empty()),
            password_file,
            application_name: application_name.unwrap_or_else(|| "punctual".to_owned()),
            connect_timeout: connect_timeout(&mut given)?,
            wants_writable: wants_writable(&mut given)?,
            channel_binding: channel_binding(&mut given)?,
            tls: tls(&mut given)?,
            keepalives: keepalives(&mut given)?,
        };
        match given.any_name() {
            None => Ok(parsed),
            Some(name) => Err(unknown(name)),
        }
    }

    /// Uses this password instead of that of the address, if any.
    pub fn with_password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Takes the password from this file (`host:port:database:user:password`, mode 0600) if the address has
    /// none, as the parameter `passfile` does. It is read for each connection, so that a changed password
    /// needs no restart.
    pub fn with_password_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.password_file = Some(PasswordFile::named(file.into()));
        self
    }

    /// Takes the password from `~/.pgpass` if neither the address nor `passfile` gives one, as libpq does
    /// unasked. A file that does not exist is no error.
    pub fn with_default_password_file(mut self) -> Self {
        self.password_file = self.password_file.or_else(PasswordFile::default_of_user);
        self
    }

    /// The name of the database.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// The user.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The address without password and parameters, for display and logs:
    /// `postgres://user@host:5432/database`.
    pub fn redacted(&self) -> String {
        self.redacted_with(&self.hosts)
    }

    /// The same with one of the hosts.
    pub(crate) fn redacted_at(&self, host: &Host) -> String {
        self.redacted_with(std::slice::from_ref(host))
    }

    fn redacted_with(&self, hosts: &[Host]) -> String {
        let encoded = |text| utf8_percent_encode(text, IN_NAMES);
        let hosts: Vec<String> = hosts
            .iter()
            .map(|host| {
                if host.name.contains(':') && !host.is_socket() {
                    format!("[{}]:{}", host.name, host.port)
                } else {
                    format!("{}:{}", encoded(&host.name), host.port)
                }
            })
            .collect();
        let (user, database) = (encoded(&self.user), encoded(&self.database));
        format!("postgres://{user}@{}/{database}", hosts.join(","))
    }
}

impl FromStr for PostgresUrl {
    type Err = ConnectError;

    fn from_str(address: &str) -> Result<Self, ConnectError> {
        Self::new(address)
    }
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.redacted())
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresUrl")
            .field("address", &self.redacted())
            .field("password", &self.password.as_ref().map(|_| ".."))
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

pub(crate) fn is_known(name: &str) -> bool {
    KNOWN.contains(&name) || UNSUPPORTED.contains(&name)
}

fn unknown(name: &str) -> ConnectError {
    if let Some(name) = UNSUPPORTED.iter().find(|it| **it == name) {
        return setting(name, "it is not supported here, leave it out");
    }
    let likeness = |known: &&&str| (strsim::jaro_winkler(known, name) * 1000.0).round();
    let nearest = KNOWN
        .iter()
        .filter(|it| **it != "options")
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    ConnectError::UnknownParameter {
        name: name.to_owned(),
        nearest: nearest.copied().unwrap_or(KNOWN[0]),
    }
}

fn setting(field: &'static str, advice: &str) -> ConnectError {
    ConnectError::setting(field, advice)
}

/// Nothing but the name of the parameter is wrong with these.
fn refuse_options(given: &mut Parameters) -> Result<(), ConnectError> {
    if given.take("options").is_some() {
        return Err(setting(
            "options",
            "it is lost behind a pooler such as PgBouncer: use ALTER ROLE … SET for settings, and DATABASE_SCHEMA for the schema",
        ));
    }
    let encoding = given.take("client_encoding").unwrap_or_default();
    if !matches!(
        encoding.to_ascii_lowercase().as_str(),
        "" | "auto" | "utf8" | "utf-8" | "unicode"
    ) {
        return Err(setting("client_encoding", "give UTF8, or leave it out"));
    }
    match given.take("gssencmode").as_deref() {
        None | Some("" | "disable" | "prefer") => Ok(()),
        Some(_) => Err(setting(
            "gssencmode",
            "GSSAPI is not supported here: give disable, or leave it out",
        )),
    }
}

/// A value without control characters, which would break the lines of a log.
fn text(given: &mut Parameters, name: &'static str) -> Result<Option<String>, ConnectError> {
    let value = given.take(name).filter(|it| !it.is_empty());
    match value {
        Some(value) if value.chars().any(char::is_control) => Err(setting(
            name,
            "it has a control character: give a name without",
        )),
        value => Ok(value),
    }
}

fn path(given: &mut Parameters, name: &'static str) -> Result<Option<PathBuf>, ConnectError> {
    Ok(text(given, name)?.map(PathBuf::from))
}

fn number(
    given: &mut Parameters,
    name: &'static str,
    most: u32,
) -> Result<Option<u32>, ConnectError> {
    let Some(value) = given.take(name).filter(|it| !it.is_empty()) else {
        return Ok(None);
    };
    let number = value.trim().parse().ok().filter(|it| *it <= most);
    let number = number.ok_or_else(|| setting(name, &format!("give a number from 0 to {most}")))?;
    Ok(Some(number))
}

/// One of the allowed words, or none.
fn choice(
    given: &mut Parameters,
    name: &'static str,
    allowed: &[&'static str],
) -> Result<Option<&'static str>, ConnectError> {
    let Some(value) = given.take(name).filter(|it| !it.is_empty()) else {
        return Ok(None);
    };
    let found = allowed.iter().find(|it| **it == value);
    let found = found.ok_or_else(|| setting(name, &format!("give {}", allowed.join(", "))))?;
    Ok(Some(found))
}

fn hosts(given: &mut Parameters) -> Result<Vec<Host>, ConnectError> {
    let listed = |value: Option<String>| -> Vec<String> {
        value.map_or_else(Vec::new, |it| {
            it.split(',').map(|it| it.trim().to_owned()).collect()
        })
    };
    let names = listed(text(given, "host")?);
    let addresses = listed(text(given, "hostaddr")?);
    let ports = listed(text(given, "port")?);
    let count = names.len().max(addresses.len());
    if count == 0 {
        return Err(setting(
            "host",
            "give postgres://user@host:5432/database, or the folder of the server's socket as host=/run/postgresql",
        ));
    }
    if !names.is_empty() && !addresses.is_empty() && names.len() != addresses.len() {
        return Err(setting(
            "hostaddr",
            "give an address for each host, or none",
        ));
    }
    if ports.len() > 1 && ports.len() != count {
        return Err(setting("port", "give one port, or one for each host"));
    }
    (0..count)
        .map(|at| {
            let address = addresses.get(at).filter(|it| !it.is_empty());
            let address = address.map(|it| it.parse::<IpAddr>()).transpose();
            let address =
                address.map_err(|_| setting("hostaddr", "give IP addresses, such as 127.0.0.1"))?;
            let name = names.get(at).filter(|it| !it.is_empty()).cloned();
            let name = name.or_else(|| address.map(|it| it.to_string()));
            Ok(Host {
                name: host_name(name)?,
                address,
                port: port(ports.get(at).or(ports.first()))?,
            })
        })
        .collect()
}

fn host_name(name: Option<String>) -> Result<String, ConnectError> {
    let name = name.ok_or_else(|| setting("host", "one of the hosts is empty, name each"))?;
    if name.starts_with('/') {
        return Ok(name);
    }
    if name.starts_with('@') {
        return Err(setting("host", "abstract sockets are not supported here"));
    }
    let is_odd = |c: char| c.is_whitespace() || "/@?#[]\\".contains(c);
    if name.contains(is_odd) {
        return Err(setting(
            "host",
            "give names or addresses, and percent-encode what is special in a user or password before them",
        ));
    }
    Ok(name)
}

fn port(value: Option<&String>) -> Result<u16, ConnectError> {
    match value.map_or("", String::as_str) {
        "" => Ok(DEFAULT_PORT),
        value => {
            // The value may be a part of a password that has a colon.
            let port = value.parse().ok().filter(|it| *it > 0);
            port.ok_or_else(|| setting("port", "give 1 to 65535"))
        }
    }
}

fn connect_timeout(given: &mut Parameters) -> Result<Duration, ConnectError> {
    match number(given, "connect_timeout", 3600)? {
        None => Ok(Duration::from_secs(10)),
        Some(0) => Err(setting("connect_timeout", "give 1 to 3600 seconds")),
        // As libpq: less than two seconds may be no more than one.
        Some(seconds) => Ok(Duration::from_secs(u64::from(seconds.max(2)))),
    }
}

fn wants_writable(given: &mut Parameters) -> Result<bool, ConnectError> {
    const FIELD: &str = "target_session_attrs";
    match given.take(FIELD).as_deref() {
        None | Some("" | "read-write" | "primary") => Ok(true),
        Some("any") => Ok(false),
        Some("read-only" | "standby" | "prefer-standby") => Err(setting(
            FIELD,
            "timers are written, and a server for reading cannot keep them: give read-write",
        )),
        Some(_) => Err(setting(FIELD, "give read-write or any")),
    }
}

fn channel_binding(given: &mut Parameters) -> Result<ChannelBinding, ConnectError> {
    let value = choice(given, "channel_binding", &["disable", "prefer", "require"])?;
    Ok(match value {
        Some("disable") => ChannelBinding::Disable,
        Some("require") => ChannelBinding::Require,
        _ => ChannelBinding::Prefer,
    })
}

fn tls(given: &mut Parameters) -> Result<TlsSettings, ConnectError> {
    let roots = text(given, "sslrootcert")?.map(|value| match value.as_str() {
        "system" => Roots::System,
        _ => Roots::File(PathBuf::from(value)),
    });
    let modes = [
        "disable",
        "allow",
        "prefer",
        "require",
        "verify-ca",
        "verify-full",
    ];
    let mode = match choice(given, "sslmode", &modes)? {
        Some("disable") => SslMode::Disable,
        Some("require") => SslMode::Require,
        Some("verify-ca") => SslMode::VerifyCa,
        Some("verify-full") => SslMode::VerifyFull,
        None if roots == Some(Roots::System) => SslMode::VerifyFull,
        _ => SslMode::Prefer,
    };
    // Whoever gets a certificate of a public CA for any name would pass.
    if roots == Some(Roots::System) && mode != SslMode::VerifyFull {
        return Err(setting(
            "sslmode",
            "give verify-full if sslrootcert is system",
        ));
    }
    if mode == SslMode::VerifyCa && roots.is_none() {
        return Err(setting(
            "sslrootcert",
            "sslmode=verify-ca needs the file with the CA's certificates; verify-full can do without",
        ));
    }
    let client = match (path(given, "sslcert")?, path(given, "sslkey")?) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (Some(_), None) => return Err(setting("sslkey", "give the key's file besides sslcert")),
        (None, Some(_)) => {
            return Err(setting(
                "sslcert",
                "give the certificate's file besides sslkey",
            ));
        }
    };
    Ok(TlsSettings {
        mode,
        roots,
        client,
    })
}

fn keepalives(given: &mut Parameters) -> Result<Keepalives, ConnectError> {
    // Zero is the default, as for libpq; here that is ours and not that of the system.
    let mut some = |name, default: u32, most| {
        let value = number(given, name, most)?.filter(|it| *it > 0);
        Ok::<_, ConnectError>(value.unwrap_or(default))
    };
    let seconds = |it: u32| Duration::from_secs(u64::from(it));
    Ok(Keepalives {
        idle: seconds(some("keepalives_idle", 30, 32_767)?),
        interval: seconds(some("keepalives_interval", 10, 32_767)?),
        count: some("keepalives_count", 3, 127)?,
        user_timeout: Duration::from_millis(u64::from(some(
            "tcp_user_timeout",
            30_000,
            3_600_000,
        )?)),
        is_on: number(given, "keepalives", 1)? != Some(0),
    })
}

#[cfg(test)]
mod tests;
