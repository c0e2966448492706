//! From an address to a connection that timers can be entrusted to.

use std::net::IpAddr;
use std::time::Duration;

use punctual_ports::ClockPort;
use tokio::sync::OnceCell;
use tokio_postgres::config::SslMode as DriverSslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Notification, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::ConnectError;
use crate::direct_session::is_direct;
use crate::driver::{Driver, RawConnection};
use crate::explain::{explain, tls_problem};
use crate::server_facts::{FactsError, ServerFacts};
use crate::tls;
use crate::url::{Host, PostgresUrl, SslMode};

/// Maximum length of an `application_name`; the server cuts longer ones.
const LONGEST_NAME: usize = 63;

/// An established connection.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) client: Client,
    /// Ends the connection when it is dropped.
    pub(crate) driver: Driver,
    /// What the server said about itself.
    pub(crate) facts: ServerFacts,
    /// Whether the session is ours alone, so that settings and statements stay.
    pub(crate) is_direct: bool,
    /// The one statement that is then kept prepared.
    pub(crate) prepared: OnceCell<Statement>,
    /// How long the server may work on a statement of a transaction.
    pub(crate) statement_timeout: Duration,
}

impl Connected {
    /// Takes leave of the server when everything under way is done, and returns how that ended. The
    /// caller limits the time; dropping the future, as dropping the connection, ends it at once.
    pub(crate) async fn close(self) -> String {
        drop(self.client);
        self.driver.ended().await
    }
}

/// Connects to the first of the hosts that can keep timers, and reads in one round trip whether it can.
///
/// Nothing relies on settings of the session, startup options or named statements unless
/// [`is_direct`](Connected::is_direct), so that it works behind a pooler in transaction mode, too. `schema` is where the tables are, by default the first of the search
/// path; `purpose` follows the application name.
///
/// # Errors
/// With the reason of the only host, or those of all if each may work later.
pub(crate) async fn connect(
    url: &PostgresUrl,
    schema: Option<&str>,
    clock: &dyn ClockPort,
    purpose: &'static str,
) -> Result<Connected, ConnectError> {
    connect_listening(url, schema, clock, purpose, |_| ()).await
}

/// The same with a function that the connection's task calls with each notification; it must not block.
pub(crate) async fn connect_listening(
    url: &PostgresUrl,
    schema: Option<&str>,
    clock: &dyn ClockPort,
    purpose: &'static str,
    on_notification: impl FnMut(Notification) + Clone + Send + 'static,
) -> Result<Connected, ConnectError> {
    let dialled = Dialler {
        url,
        schema,
        clock,
        purpose,
        is_checked: true,
    };
    dialled.connect(on_notification).await
}

/// Connects without refusing a server for what it says about itself, to report that instead.
pub(crate) async fn connect_unchecked(
    url: &PostgresUrl,
    schema: Option<&str>,
    clock: &dyn ClockPort,
    purpose: &'static str,
) -> Result<Connected, ConnectError> {
    let dialled = Dialler {
        url,
        schema,
        clock,
        purpose,
        is_checked: false,
    };
    dialled.connect(|_| ()).await
}

struct Dialler<'a> {
    url: &'a PostgresUrl,
    schema: Option<&'a str>,
    clock: &'a dyn ClockPort,
    purpose: &'static str,
    is_checked: bool,
}

impl Dialler<'_> {
    async fn connect(
        &self,
        on_notification: impl FnMut(Notification) + Clone + Send + 'static,
    ) -> Result<Connected, ConnectError> {
        let tls = self.connector().await?;
        let mut failures = Vec::new();
        for host in &self.url.hosts {
            let addresses = match self.resolve(host).await {
                Ok(addresses) => addresses,
                Err(error) => {
                    failures.push(error);
                    continue;
                }
            };
            for address in addresses {
                let attempt = self.attempt(host, address, &tls, on_notification.clone());
                match self.limited(host, attempt).await {
                    Ok(connected) => return Ok(connected),
                    Err(error) if self.may_another_work(&error) => failures.push(error),
                    Err(error) => return Err(error),
                }
            }
        }
        Err(of_all(self.url, failures))
    }

    /// Reads files, and therefore not on a thread of the runtime.
    async fn connector(&self) -> Result<MakeRustlsConnect, ConnectError> {
        let settings = self.url.tls.clone();
        let read = tokio::task::spawn_blocking(move || tls::connector(&settings)).await;
        read.unwrap_or_else(|error| Err(ConnectError::setting("sslmode", error.to_string())))
    }

    /// Whether another host is worth a try. One that denies us, or is of the wrong kind, is an error of
    /// the configuration that the others should not hide.
    fn may_another_work(&self, error: &ConnectError) -> bool {
        match error {
            ConnectError::Unreachable { .. } | ConnectError::NotReady { .. } => true,
            ConnectError::ReadOnly { .. } => self.url.wants_writable,
            _ => false,
        }
    }

    async fn limited<T>(
        &self,
        host: &Host,
        work: impl Future<Output = Result<T, ConnectError>>,
    ) -> Result<T, ConnectError> {
        let limit = self.url.connect_timeout;
        tokio::select! {
            biased;
            outcome = work => outcome,
            () = self.clock.sleep_for(limit) => Err(ConnectError::Unreachable {
                server: self.url.redacted_at(host),
                reason: format!(
                    "no connection within {} s, check host, port, firewalls and poolers, or raise connect_timeout",
                    limit.as_secs()
                ),
            }),
        }
    }

    /// The addresses of a host; none for a socket.
    async fn resolve(&self, host: &Host) -> Result<Vec<Option<IpAddr>>, ConnectError> {
        if host.is_socket() {
            return Ok(vec![None]);
        }
        if let Some(address) = host.address {
            return Ok(vec![Some(address)]);
        }
        let server = self.url.redacted_at(host);
        let unknown = |reason: String| ConnectError::Unreachable {
            server: server.clone(),
            reason,
        };
        let found = async {
            match tokio::net::lookup_host((host.name.as_str(), host.port)).await {
                Ok(found) => Ok(found.map(|it| Some(it.ip())).collect::<Vec<_>>()),
                Err(error) => Err(unknown(format!("its host is not found ({error})"))),
            }
        };
        let found = self.limited(host, found).await?;
        if found.is_empty() {
            return Err(unknown("its host has no address".to_owned()));
        }
        Ok(found)
    }

    /// One try at one address, and with `prefer` a second one without TLS.
    async fn attempt(
        &self,
        host: &Host,
        address: Option<IpAddr>,
        tls: &MakeRustlsConnect,
        on_notification: impl FnMut(Notification) + Send + 'static,
    ) -> Result<Connected, ConnectError> {
        let server = self.url.redacted_at(host);
        let mode = match self.url.tls.mode {
            // As libpq: a socket needs no TLS.
            _ if host.is_socket() => DriverSslMode::Disable,
            SslMode::Disable => DriverSslMode::Disable,
            SslMode::Prefer => DriverSslMode::Prefer,
            SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => DriverSslMode::Require,
        };
        let mut config = self.config(host, address).await?;
        config.ssl_mode(mode);
        let explained = |error| explain(self.url, server.clone(), &error);
        let (client, connection) = match config.connect(tls.clone()).await {
            Ok(connected) => connected,
            Err(error) if mode == DriverSslMode::Prefer && may_work_without_tls(&error) => {
                config.ssl_mode(DriverSslMode::Disable);
                let error = explained(error);
                // That nothing is for plain connections, either, is not what has to be changed.
                let plain = config.connect(tls.clone()).await.map_err(|plain| {
                    if is_unknown_to_hba(&plain) {
                        error.clone()
                    } else {
                        explained(plain)
                    }
                })?;
                tracing::warn!(
                    reason = %error,
                    "PostgreSQL is used without TLS, as sslmode=prefer allows: give sslmode=require to refuse that"
                );
                plain
            }
            Err(error) => return Err(explained(error)),
        };
        let connected = self.check(client, connection, server.clone(), on_notification);
        connected.await.map_err(|error| match error {
            FactsError::Refused(error) => error,
            FactsError::Driver(error) => explained(error),
        })
    }

    async fn check(
        &self,
        client: Client,
        connection: RawConnection,
        server: String,
        on_notification: impl FnMut(Notification) + Send + 'static,
    ) -> Result<Connected, FactsError> {
        let driver = Driver::spawn(connection, self.purpose, on_notification);
        let facts = ServerFacts::read(&client, server, self.schema).await?;
        if self.is_checked {
            facts.check().map_err(FactsError::Refused)?;
        } else {
            facts.check_server().map_err(FactsError::Refused)?;
        }
        let is_direct = is_direct(&client, facts.process).await;
        Ok(Connected {
            client,
            driver,
            facts,
            is_direct,
            prepared: OnceCell::new(),
            statement_timeout: Duration::from_secs(8),
        })
    }

    async fn config(&self, host: &Host, address: Option<IpAddr>) -> Result<Config, ConnectError> {
        let url = self.url;
        let mut config = Config::new();
        config
            .host(&host.name)
            .port(host.port)
            .user(&url.user)
            .dbname(&url.database)
            .application_name(application_name(&url.application_name, self.purpose))
            .channel_binding(url.channel_binding)
            .keepalives(url.keepalives.is_on)
            .keepalives_idle(url.keepalives.idle)
            .keepalives_interval(url.keepalives.interval)
            .keepalives_retries(url.keepalives.count)
            .tcp_user_timeout(url.keepalives.user_timeout);
        if let Some(address) = address {
            config.hostaddr(address);
        }
        if let Some(password) = self.password(host).await? {
            config.password(password);
        }
        Ok(config)
    }

    async fn password(&self, host: &Host) -> Result<Option<String>, ConnectError> {
        if let Some(password) = &self.url.password {
            return Ok(Some(password.clone()));
        }
        let Some(file) = self.url.password_file.clone() else {
            return Ok(None);
        };
        let (host, database, user) = (
            host.clone(),
            self.url.database.clone(),
            self.url.user.clone(),
        );
        let read = tokio::task::spawn_blocking(move || file.password(&host, &database, &user));
        let failed = |error: tokio::task::JoinError| {
            Err(ConnectError::setting("passfile", error.to_string()))
        };
        read.await.unwrap_or_else(failed)
    }
}

/// Whether `prefer` falls back: the handshake failed, or `pg_hba.conf` has nothing for encrypted
/// connections. A wrong password is none of both, and is not sent again in the clear.
fn may_work_without_tls(error: &tokio_postgres::Error) -> bool {
    tls_problem(error).is_some()
        || error.to_string() == "error performing TLS handshake"
        || is_unknown_to_hba(error)
}

fn is_unknown_to_hba(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION)
}

/// `punctual claim`: the name and the purpose, as far as there is room for both.
fn application_name(name: &str, purpose: &str) -> String {
    let full = format!("{name} {purpose}");
    if full.len() <= LONGEST_NAME {
        return full;
    }
    let mut room = LONGEST_NAME.saturating_sub(purpose.len() + 1);
    while !name.is_char_boundary(room) {
        room -= 1;
    }
    format!("{} {purpose}", &name[..room])
}

/// One error for the failures of all addresses, each of which may work later.
fn of_all(url: &PostgresUrl, mut failures: Vec<ConnectError>) -> ConnectError {
    failures.dedup();
    if failures.len() < 2 {
        let none = || ConnectError::setting("host", "give at least one");
        return failures.pop().unwrap_or_else(none);
    }
    let is_read_only = |it: &ConnectError| matches!(it, ConnectError::ReadOnly { .. });
    let server = url.redacted();
    if failures.iter().all(is_read_only) {
        return ConnectError::ReadOnly {
            server,
            reason: "none of its hosts takes writes, add the primary".to_owned(),
            is_standby: failures.iter().any(ConnectError::is_retryable),
        };
    }
    let reasons: Vec<String> = failures.iter().map(ToString::to_string).collect();
    ConnectError::Unreachable {
        server,
        reason: reasons.join("; "),
    }
}
