//! What happens to calls, in the order in which it happens.

use punctual_domain::Timestamp;
use tokio::sync::oneshot;

use super::books::Ending;

/// Something that happened. All of it goes through one queue, so that a request is known before
/// anybody can be told of its outcome.
#[derive(Debug)]
pub(super) enum Event {
    /// The service has taken a call.
    Accepted { n: usize },
    /// No answer came to a submission, and it is sent again.
    SentAgain,
    /// The service does not want what it was asked, or answers nonsense.
    Refused(String),
    /// The target was asked for a call; `None`: for something else. It answers when `seen` is used
    /// or dropped, so a kill that this event leads to comes before the answer.
    Requested {
        n: Option<usize>,
        at: Timestamp,
        seen: oneshot::Sender<()>,
    },
    /// The service says how a call ended.
    Ended { n: usize, ending: Ending },
}
