//! A service call: an HTTP request that is to be made once, at its due time.
//!
//! - [`Submission`] is a request for a call, validated completely so that all errors are reported at
//!   once;
//! - [`SubmissionRecord`] decides whether a submission is new, repeated or in conflict;
//! - [`call`] has the states of a call and the transitions between them;
//! - [`Redaction`] keeps secrets out of everything that is displayed or stored for long.

pub mod call;
mod deduplication;
mod drawn_id;
mod field_errors;
mod headers;
mod labels;
mod outcome;
mod redaction;
mod request_spec;
mod submission;
mod target_url;

pub use call::{
    CallDetails, CallStatus, CallStep, FinishedCall, RunningCall, ScheduledCall, ServiceCall,
};
pub use deduplication::{ConflictField, Fingerprint, Receipt, SubmissionRecord, SubmitOutcome};
pub use field_errors::{FieldError, FieldErrors};
pub use headers::{Headers, HeadersError};
pub use labels::{CallName, IdempotencyKey, LabelError, Tag, Tags};
pub use outcome::{ErrorKind, ErrorMeta, FailureKind, Outcome, ResponseMeta};
pub use redaction::{REDACTED, Redaction, Snippet, is_sensitive};
pub use request_spec::{Method, RequestBody, RequestSpec};
pub use submission::{Submission, UnknownFields};
pub use target_url::{Scheme, TargetUrl, TargetUrlError};
