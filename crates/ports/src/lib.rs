//! The traits through which Punctual reaches clocks, stores, buses and HTTP targets.
//!
//! Each port is narrow and states in its `# Contract` what every adapter guarantees: order, atomicity,
//! idempotence, precision. The crate `conformance` has the same statements as test cases, which every
//! adapter runs. Arguments are owned, so that an adapter can move them to another thread, and methods
//! take batches, so that one call can be one transaction.
//!
//! # Batches
//! A batch method returns one result per item, in the order of the input ([`BatchResult`]). An outer
//! error means that the outcome of every item is unknown. Items with equal keys apply in the order
//! given. An empty batch returns an empty list.
//!
//! # Time
//! Every call returns. An adapter bounds each of its waits and then returns a retryable error; only
//! sleeping on a clock, and an in-process bus that waits for its handlers, are unbounded. The caller may
//! drop the future: as after an error, the operation may or may not have been applied.

mod attempt_queue;
mod backend;
mod bus_position;
mod clock;
mod dead_letter;
mod elsewhere;
mod error;
mod event_bus;
mod execution_log;
mod http_client;
mod ids;
mod instance;
mod outbox;
mod service_calls;
mod stepped;
mod timer_persistence;
mod timer_queue;

pub use attempt_queue::AttemptQueue;
pub use backend::{Backend, CallStores, Capabilities, OnChange, TimerStores, WriteHealth};
pub use bus_position::{BusPosition, BusPositionPort};
pub use clock::ClockPort;
pub use dead_letter::{DeadLetter, DeadLetterPort, RecordOutcome, RemoveOutcome, StoredDeadLetter};
pub use elsewhere::{CallsElsewhere, TimersElsewhere};
pub use error::{PortError, PortErrorKind};
pub use event_bus::{
    Answer, ConsumerName, DataLoss, EventBusPort, MessageHandler, PublishOutcome, Subscribe,
    Subscription,
};
pub use execution_log::{
    AbandonedExecution, AcceptOutcome, ClaimedExecution, DeletedCall, Execution, ExecutionClaim,
    ExecutionEntry, ExecutionKey, ExecutionLogPort, ExecutionOutcome, ExecutionState,
    FinishExecution, StartExecution, WaitingQuery,
};
pub use http_client::{HttpAttempt, HttpClientPort, HttpFailure, HttpResponse};
pub use ids::IdPort;
pub use instance::{ClaimedWork, Instance};
pub use outbox::{
    DeadLetterMessage, OutboxBatch, OutboxOutcome, OutboxPort, OutboxPosition, OutboxRow,
    PublishLater, PublishedMessage, Unreadable,
};
pub use service_calls::{
    CallChange, CallDeletion, CallPage, CallPageQuery, ChangeOutcome, NewCall,
    ServiceCallPersistencePort, StoredCall, StuckCalls,
};
pub use stepped::Stepped;
pub use timer_persistence::{
    FiredTimer, PageCursor, SaveOutcome, SaveTimer, TimerPage, TimerPageQuery, TimerPersistencePort,
};
pub use timer_queue::{
    Backlog, Claim, ClaimBatch, ClaimOutcome, ClaimRef, ClaimToken, DeadLetterClaim, FiredCursor,
    FiredPage, RetryLater, TimerQueuePort,
};

pub use punctual_domain::service_call::{ConflictField, Fingerprint, Receipt, SubmitOutcome};
pub use punctual_domain::{DeleteOutcome, MarkOutcome};

/// Result of a batch method: an outcome or an error for each item.
pub type BatchResult<T> = Result<Vec<Result<T, PortError>>, PortError>;

/// The result of a batch of one item.
///
/// # Errors
/// Those of the batch and of the item; `Unavailable` if the item has no answer.
pub fn only_answer<T>(answers: BatchResult<T>, operation: &'static str) -> Result<T, PortError> {
    let missing = || PortError::new(PortErrorKind::Unavailable, operation, "there was no answer");
    answers?.pop().unwrap_or_else(|| Err(missing()))
}
