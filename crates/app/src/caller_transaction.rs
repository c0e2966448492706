//! Scheduling inside a caller's own transaction, whatever the database is.

use punctual_domain::{CorrelationId, ScheduleOrigin};
use punctual_ports::SaveTimer;

use crate::{Error, Punctual, Timer};

/// A transaction of your own, on your own connection to the database of the timers. Those of the drivers of
/// SQLite and PostgreSQL are; nothing else can be.
pub trait CallerTransaction: sealed::Sealed {
    /// What [`Punctual::schedule_in`] returns: the outcome, or on an asynchronous driver its future.
    type Scheduled;

    #[doc(hidden)]
    fn schedule(self, punctual: &Punctual, timer: Timer) -> Self::Scheduled;
}

mod sealed {
    pub trait Sealed {}

    #[cfg(feature = "sqlite")]
    impl Sealed for &punctual_adapters_sqlite::rusqlite::Transaction<'_> {}

    #[cfg(feature = "postgres")]
    impl Sealed for &punctual_adapters_postgres::tokio_postgres::Transaction<'_> {}
}

impl Punctual {
    /// Schedules a timer inside your own transaction, on your own connection to the same database: your rows
    /// and the timer commit together, or neither does.
    ///
    /// A transaction is that [of `rusqlite`](trait.CallerTransaction.html#foreign-impls), and this returns the
    /// outcome; or that of `tokio_postgres`, and this returns a future of the outcome. What each of them
    /// needs, and an example, is beside it on that page.
    ///
    /// The worker of this engine polls when the timer is due, and at growing intervals after that, in case
    /// the transaction is committed later.
    ///
    /// # Errors
    /// If it cannot be stored, has fired already, or the transaction is on another database. On SQLite, what
    /// the transaction did before still stands, and you decide what becomes of it; PostgreSQL accepts nothing
    /// more in a transaction in which a statement has failed.
    pub fn schedule_in<T: CallerTransaction>(&self, transaction: T, timer: Timer) -> T::Scheduled {
        transaction.schedule(self, timer)
    }

    /// What is to be stored in a transaction.
    pub(crate) fn save_in_transaction(&self, timer: Timer) -> Result<SaveTimer, Error> {
        let (key, request) = self.request(timer)?;
        let new_id = || CorrelationId::from_uuid(self.engine.ports.ids.next_id());
        Ok(SaveTimer {
            key,
            correlation_id: request.correlation_id.unwrap_or_else(new_id),
            due_at: request.due_at,
            data: request.data,
            origin: ScheduleOrigin::Direct,
        })
    }
}
