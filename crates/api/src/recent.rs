//! Answers that are the same for everybody, and take work to find: found once for all who ask at once.
//!
//! They are shown without a token, so the work they cause must not grow with the number of requests.

use std::future::Future;
use std::time::Duration;

use punctual_ports::ClockPort;
use tokio::sync::Mutex;

/// How long an answer is good for whoever asks next.
const GOOD_FOR: Duration = Duration::from_millis(100);

/// The last answer, and when it was found on the monotonic clock.
pub(crate) struct Recent<T>(Mutex<Option<(Duration, T)>>);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Clone> Recent<T> {
    /// The last answer, if it is good still, or a new one. One is looked for at a time.
    pub(crate) async fn get(&self, clock: &dyn ClockPort, find: impl Future<Output = T>) -> T {
        let mut last = self.0.lock().await;
        if let Some((found_at, answer)) = &*last
            && clock.monotonic().saturating_sub(*found_at) < GOOD_FOR
        {
            return answer.clone();
        }
        let answer = find.await;
        *last = Some((clock.monotonic(), answer.clone()));
        answer
    }
}
