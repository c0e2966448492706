//! The caller's handler, and what its answers mean to a firing.

use std::fmt::Display;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use futures_util::future::{BoxFuture, join_all};
use punctual_domain::{DueTimeReached, Message, MessageEnvelope};
use punctual_ports::{Answer, MessageHandler};

use crate::Punctual;
use crate::engine::Engine;

/// Why a handler did not handle an event, and what is to become of it.
///
/// Whatever can be displayed becomes one by `?` or `into()`: an error of any library, a `String`, a
/// `&str`. The event then comes again: after about a second, then after twice as long
/// each time, up to an hour. If the handler has scheduled its own key anew before, that schedule stands
/// instead.
///
/// ```
/// use punctual::{DueTimeReached, HandlerError};
///
/// async fn remind(due: DueTimeReached) -> Result<(), HandlerError> {
///     // Data of another shape will have that shape for ever.
///     let name: String = due.read().map_err(HandlerError::poison)?;
///     let text = std::fs::read_to_string(name)?; // may work next time
///     if text.is_empty() {
///         return Err("there is nothing to say yet".into());
///     }
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct HandlerError {
    reason: String,
    is_poison: bool,
}

impl HandlerError {
    /// Not this time: let the event come again later.
    pub fn retry(reason: impl Display) -> Self {
        Self {
            reason: format!("{reason:#}"),
            is_poison: false,
        }
    }

    /// Never: keep the event as a [dead letter](crate::Punctual::dead_letters) and do not send it
    /// again. If the handler has scheduled its own key anew before, that schedule stands, and there is
    /// no letter.
    pub fn poison(reason: impl Display) -> Self {
        Self {
            reason: format!("{reason:#}"),
            is_poison: true,
        }
    }
}

// No `Display` for `HandlerError` itself: that would make this overlap with `From<T> for T`.
impl<E: Display> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self::retry(error)
    }
}

/// A handler as it is kept.
pub(crate) type Handle =
    dyn Fn(DueTimeReached, Punctual) -> BoxFuture<'static, Result<(), HandlerError>> + Send + Sync;

/// The receiver of due timers.
pub(crate) enum Receiver {
    Function(Arc<Handle>),
    /// With the maximum number of messages in one call.
    Subscriber(Arc<dyn MessageHandler>, usize),
}

/// The caller's function as the bus knows it.
pub(crate) struct OnDue {
    pub(crate) handle: Arc<Handle>,
    /// Weak, because the engine holds the bus, which holds this.
    pub(crate) engine: Weak<Engine>,
}

impl OnDue {
    async fn answer(&self, envelope: MessageEnvelope) -> Answer {
        let Message::DueTimeReached(event) = envelope.message else {
            let name = envelope.message.type_name();
            return poison(format!("{name} is not an event of the timer"));
        };
        let Some(engine) = self.engine.upgrade() else {
            return Answer::Pause {
                reason: "the engine was dropped".to_owned(),
            };
        };
        match (self.handle)(event, Punctual::of(engine)).await {
            Ok(()) => Answer::Done,
            Err(error) if error.is_poison => poison(error.reason),
            Err(error) => Answer::RetryLater {
                reason: error.reason,
            },
        }
    }
}

fn poison(reason: String) -> Answer {
    Answer::Poison { reason }
}

#[async_trait]
impl MessageHandler for OnDue {
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        join_all(batch.into_iter().map(|one| self.answer(one))).await
    }
}
