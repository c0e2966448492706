//! A cache of values that are the same for everybody, and are computed once for all requests of a moment.
//!
//! They are served without a token, so the work they cause must not grow with the number of requests.

use std::future::Future;
use std::time::Duration;

use punctual_ports::ClockPort;
use tokio::sync::Mutex;

/// The time for which a value is served again.
const MAX_AGE: Duration = Duration::from_millis(100);

/// The last value, and when it was computed on the monotonic clock.
pub(crate) struct Recent<T>(Mutex<Option<(Duration, T)>>);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Clone> Recent<T> {
    /// The last value, if it is recent, or a new one. One is computed at a time.
    pub(crate) async fn get(&self, clock: &dyn ClockPort, compute: impl Future<Output = T>) -> T {
        let mut last = self.0.lock().await;
        if let Some((computed_at, value)) = &*last
            && clock.monotonic().saturating_sub(*computed_at) < MAX_AGE
        {
            return value.clone();
        }
        let value = compute.await;
        *last = Some((clock.monotonic(), value.clone()));
        value
    }
}
