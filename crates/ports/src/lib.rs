//! The traits through which Punctual reaches clocks, stores and buses, with their contracts.
//!
//! A port is narrow and says in its `# Contract` what every adapter guarantees: order, atomicity,
//! idempotence, precision. The crate `conformance` holds the same sentences as test cases, and
//! every adapter runs them. Arguments are owned, so that an adapter can move them to a thread of
//! its own, and methods take batches, so that one call can be one transaction.
//!
//! # Batches
//! A batch method answers with one result for each item, of the same length and in the same order
//! as the input ([`BatchResult`]). An outer error means that nothing is known to have happened to
//! any item. Items with equal keys apply in the order given. An empty batch is answered with an
//! empty list.
//!
//! # Time
//! Every call returns. An adapter bounds whatever it waits for and then answers with a retryable
//! error; only sleeping on a clock, and an in-process bus that waits for its handlers, take as long
//! as they take. Whoever calls may drop the future: what was asked for may then have happened or
//! not, as with an error.

mod backend;
mod bus_position;
mod clock;
mod dead_letter;
mod error;
mod event_bus;
mod execution_log;
mod http_client;
mod ids;
mod outbox;
mod service_calls;
mod stepped;
mod timer_persistence;
mod timer_queue;

pub use backend::{Backend, CallStores, Capabilities, OnChange, WriteHealth};
pub use bus_position::{BusPosition, BusPositionPort};
pub use clock::ClockPort;
pub use dead_letter::{DeadLetter, DeadLetterPort, RecordOutcome, RemoveOutcome, StoredDeadLetter};
pub use error::{PortError, PortErrorKind};
pub use event_bus::{
    Answer, ConsumerName, DataLoss, EventBusPort, MessageHandler, PublishOutcome, Subscribe,
    Subscription,
};
pub use execution_log::{
    AcceptOutcome, BeginExecution, Execution, ExecutionEntry, ExecutionKey, ExecutionLogPort,
    ExecutionOutcome, ExecutionState, FinishExecution, OpenExecution, WaitingQuery,
};
pub use http_client::{HttpAttempt, HttpClientPort, HttpFailure, HttpResponse};
pub use ids::IdPort;
pub use outbox::{
    DeadLetterMessage, OutboxOutcome, OutboxPort, OutboxPosition, OutboxRow, PublishedMessage,
    Unreadable,
};
pub use service_calls::{
    CallChange, CallDeletion, CallPage, CallPageQuery, ChangeOutcome, ConflictField, Fingerprint,
    NewCall, Receipt, ServiceCallPersistencePort, StoredCall, StuckCalls, SubmitOutcome,
};
pub use stepped::Stepped;
pub use timer_persistence::{
    DeleteOutcome, FiredTimer, MarkOutcome, PageCursor, SaveOutcome, SaveTimer, TimerPage,
    TimerPageQuery, TimerPersistencePort,
};
pub use timer_queue::{
    Backlog, Claim, ClaimBatch, ClaimOutcome, ClaimRef, ClaimToken, DeadLetterClaim, FiredCursor,
    FiredPage, RetryLater, TimerQueuePort,
};

/// What a batch method answers: an outcome or an error for each item.
pub type BatchResult<T> = Result<Vec<Result<T, PortError>>, PortError>;
