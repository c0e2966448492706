//! The task that moves the bytes of one connection, and what the server says on it unasked.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_postgres::error::{DbError, Severity};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Connection, Notification, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

/// A connection of the driver, with TLS or without.
pub(crate) type RawConnection =
    Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// The function of the server that waits for synchronous standbys. Unlike the text of its warning it is
/// not translated.
const SYNC_WAIT: &str = "SyncRepWaitForLSN";

/// The handle of the task. Dropping it ends the connection at once, whatever is under way.
#[derive(Debug)]
pub(crate) struct Driver {
    task: JoinHandle<()>,
    cancelled_sync_waits: Arc<AtomicU64>,
    ended: watch::Receiver<Option<String>>,
}

impl Driver {
    /// Spawns the task. `on_notification` is called by it, and must not block.
    pub(crate) fn spawn(
        mut connection: RawConnection,
        purpose: &'static str,
        mut on_notification: impl FnMut(Notification) + Send + 'static,
    ) -> Self {
        let cancelled_sync_waits = Arc::new(AtomicU64::new(0));
        let cancelled = Arc::clone(&cancelled_sync_waits);
        let (end, ended) = watch::channel(None);
        let task = tokio::spawn(async move {
            let reason = loop {
                match poll_fn(|cx| connection.poll_message(cx)).await {
                    Some(Ok(AsyncMessage::Notification(notification))) => {
                        on_notification(notification);
                    }
                    // The driver hands out what follows only after this: whoever awaits a commit
                    // sees the count of its own warning.
                    Some(Ok(AsyncMessage::Notice(notice))) => report(purpose, &notice, &cancelled),
                    Some(Ok(_)) => {}
                    Some(Err(error)) => break words(&error),
                    None => break "it was closed".to_owned(),
                }
            };
            tracing::debug!(purpose, reason, "a connection to PostgreSQL has ended");
            end.send_replace(Some(reason));
        });
        Self {
            task,
            cancelled_sync_waits,
            ended,
        }
    }

    /// Number of commits on this connection that the server confirmed without having waited for its
    /// synchronous standbys, because the wait was cancelled. If it has grown when a commit returns, the
    /// outcome of that commit is unknown: it may be lost in a failover.
    pub(crate) fn cancelled_sync_waits(&self) -> u64 {
        self.cancelled_sync_waits.load(Ordering::Acquire)
    }

    /// Waits until the connection has ended, and returns why.
    pub(crate) async fn ended(&self) -> String {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_) => "its task was ended".to_owned(),
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn report(purpose: &'static str, notice: &DbError, cancelled_sync_waits: &AtomicU64) {
    if is_cancelled_sync_wait(notice.routine(), notice.message()) {
        cancelled_sync_waits.fetch_add(1, Ordering::Release);
    }
    // A field named `message` would be taken for the text of the event.
    let (code, said) = (notice.code().code(), notice.message());
    if notice.parsed_severity() == Some(Severity::Warning) {
        tracing::warn!(purpose, code, said, "PostgreSQL warns");
    } else {
        tracing::debug!(purpose, code, said, "PostgreSQL notes");
    }
}

fn is_cancelled_sync_wait(routine: Option<&str>, message: &str) -> bool {
    routine == Some(SYNC_WAIT) || message.contains("wait for synchronous replication")
}

/// The error with its cause, which the driver's own text leaves out.
pub(crate) fn words(error: &tokio_postgres::Error) -> String {
    use std::error::Error;
    match (error.as_db_error(), error.source()) {
        (Some(answer), _) => answer.message().to_owned(),
        (None, Some(cause)) => format!("{error}: {cause}"),
        (None, None) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancelled_wait_is_noticed_in_every_language() {
        for (routine, message, expected) in [
            (
                None,
                "canceling wait for synchronous replication due to user request",
                true,
            ),
            (
                Some(SYNC_WAIT),
                "storniere Warten auf synchrone Replikation",
                true,
            ),
            (Some("ProcessInterrupts"), "canceling statement", false),
            (None, "there is no transaction in progress", false),
        ] {
            let found = is_cancelled_sync_wait(routine, message);
            assert_eq!(found, expected, "{message}");
        }
    }
}
