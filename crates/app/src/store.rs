//! Where the timers are, and what each place needs besides its ports.

#[cfg(feature = "sqlite")]
use punctual_adapters_sqlite::{OpenError, Role, SchemaSet, SqliteSettings, SqliteTimerStore};

#[cfg(feature = "sqlite")]
use crate::hints::Hints;
#[cfg(feature = "sqlite")]
use crate::write_check::{Probe, WriteCheck};

/// The store of an engine.
pub(crate) enum Store {
    #[cfg(feature = "sqlite")]
    Sqlite(Box<SqliteStore>),
    #[cfg(feature = "testing")]
    Memory(
        #[cfg_attr(
            not(feature = "calls"),
            expect(dead_code, reason = "only service calls are put beside it")
        )]
        punctual_adapters_memory::MemoryTimerStore,
    ),
}

#[cfg(feature = "sqlite")]
pub(crate) struct SqliteStore {
    pub(crate) store: SqliteTimerStore,
    pub(crate) role: Role,
    pub(crate) set: SchemaSet,
    /// The file of the service calls, if it is another.
    #[cfg(feature = "calls")]
    pub(crate) calls: Option<SqliteTimerStore>,
    pub(crate) hints: std::sync::Arc<Hints>,
    pub(crate) write_check: WriteCheck,
    #[cfg(feature = "calls")]
    pub(crate) calls_write_check: WriteCheck,
}

#[cfg(feature = "sqlite")]
impl SqliteStore {
    /// Why nothing new can be stored now, if so: the first of the files that cannot be written.
    pub(crate) async fn write_problem(
        &self,
        clock: &dyn punctual_ports::ClockPort,
        probe: Probe,
    ) -> Option<String> {
        let problem = self.write_check.problem(&self.store, clock, probe).await;
        #[cfg(feature = "calls")]
        if let (None, Some(calls)) = (&problem, &self.calls) {
            return self.calls_write_check.problem(calls, clock, probe).await;
        }
        problem
    }

    /// Waits until one of the files is renamed, removed or replaced.
    pub(crate) async fn file_moved(
        &self,
        clock: &dyn punctual_ports::ClockPort,
    ) -> punctual_ports::PortError {
        #[cfg(feature = "calls")]
        if let Some(calls) = &self.calls {
            return tokio::select! {
                moved = self.store.file_moved(clock) => moved,
                moved = calls.file_moved(clock) => moved,
            };
        }
        self.store.file_moved(clock).await
    }
}

impl Store {
    /// Whether it schedules beside the process that fires.
    pub(crate) const fn is_client(&self) -> bool {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(sqlite) => matches!(sqlite.role, Role::Client),
            #[cfg(feature = "testing")]
            Self::Memory(_) => false,
        }
    }

    /// Whether timers need not belong to a service call.
    pub(crate) const fn has_timers_of_their_own(&self) -> bool {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(sqlite) => matches!(sqlite.set, SchemaSet::TimersOnly),
            #[cfg(feature = "testing")]
            Self::Memory(_) => true,
        }
    }

    /// Gives the file back.
    pub(crate) async fn close(&self) {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(sqlite) => {
                sqlite.store.close().await;
                #[cfg(feature = "calls")]
                if let Some(calls) = &sqlite.calls {
                    calls.close().await;
                }
            }
            #[cfg(feature = "testing")]
            Self::Memory(_) => {}
        }
    }

    /// Gives the file back a moment later, whether or not there is a runtime.
    pub(crate) fn close_soon(&self) {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(sqlite) => {
                sqlite.store.close_soon();
                #[cfg(feature = "calls")]
                if let Some(calls) = &sqlite.calls {
                    calls.close_soon();
                }
            }
            #[cfg(feature = "testing")]
            Self::Memory(_) => {}
        }
    }
}

#[cfg(feature = "sqlite")]
mod opening {
    use std::time::Duration;

    use punctual_ports::ClockPort;

    use super::{OpenError, SqliteSettings, SqliteTimerStore};
    use crate::clock::{Clock, current_runtime};
    use crate::{Error, ErrorKind};

    /// How long to wait for a role that another process has: long enough for one that is about to
    /// end, as in a restart.
    const PATIENCE: Duration = Duration::from_secs(1);
    const BETWEEN_TRIES: Duration = Duration::from_millis(50);

    /// Opens the file on a thread where waiting for it holds nobody up.
    pub(crate) async fn open(
        settings: &SqliteSettings,
        clock: &Clock,
    ) -> Result<SqliteTimerStore, Error> {
        current_runtime()?;
        let port = clock.port();
        let give_up = port.monotonic() + PATIENCE;
        loop {
            let (wish, now) = (settings.clone(), port.now());
            let opening = tokio::task::spawn_blocking(move || SqliteTimerStore::open(&wish, now));
            match opening.await {
                Ok(Ok(store)) => return Ok(store),
                Ok(Err(OpenError::RoleTaken { .. })) if may_wait(clock, &*port, give_up) => {
                    port.sleep_for(BETWEEN_TRIES).await;
                }
                Ok(Err(error)) => return Err(error.into()),
                Err(error) => {
                    let what = format!("opening the database was broken off: {error}");
                    return Err(Error::new(ErrorKind::Unavailable, what));
                }
            }
        }
    }

    /// Nobody moves a fake clock while an engine is being built.
    fn may_wait(clock: &Clock, port: &dyn ClockPort, give_up: Duration) -> bool {
        matches!(clock, Clock::System { .. }) && port.monotonic() < give_up
    }
}
#[cfg(feature = "sqlite")]
pub(crate) use opening::open;
