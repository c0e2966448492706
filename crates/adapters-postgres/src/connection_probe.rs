//! A connection as the stores use it, for the tests of this crate; no part of its interface.

use punctual_ports::ClockPort;
use tokio_postgres::{Client, Notification};

use crate::connect::{Connected, connect, connect_listening};
use crate::{ConnectError, PostgresUrl};

/// A connection for tests.
#[doc(hidden)]
#[derive(Debug)]
pub struct ConnectionProbe(Connected);

impl ConnectionProbe {
    /// Connects as a store does.
    pub async fn connect(
        url: &PostgresUrl,
        schema: Option<&str>,
        clock: &dyn ClockPort,
    ) -> Result<Self, ConnectError> {
        connect(url, schema, clock, "test").await.map(Self)
    }

    /// Connects as a listener does.
    pub async fn connect_listening(
        url: &PostgresUrl,
        clock: &dyn ClockPort,
        on_notification: impl FnMut(Notification) + Clone + Send + 'static,
    ) -> Result<Self, ConnectError> {
        let connected = connect_listening(url, None, clock, "listen", on_notification);
        connected.await.map(Self)
    }

    /// The client of the driver.
    pub fn client(&self) -> &Client {
        &self.0.client
    }

    /// The host that answered.
    pub fn server(&self) -> &str {
        &self.0.facts.server
    }

    /// Whether no pooler is in between.
    pub fn is_direct(&self) -> bool {
        self.0.is_direct
    }

    /// Refuses a schema in which no table can be created.
    pub fn check_may_create(&self) -> Result<(), ConnectError> {
        self.0.facts.check_may_create()
    }

    /// Number of commits that the server confirmed without its standbys.
    pub fn cancelled_sync_waits(&self) -> u64 {
        self.0.driver.cancelled_sync_waits()
    }

    /// Waits until the connection has ended, and returns why.
    pub async fn ended(&self) -> String {
        self.0.driver.ended().await
    }

    /// Takes leave of the server, and returns how that ended.
    pub async fn close(self) -> String {
        self.0.close().await
    }

    /// The client alone; the connection is ended.
    pub fn into_client(self) -> Client {
        self.0.client
    }
}
