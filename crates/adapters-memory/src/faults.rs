//! Makes any call of any port fail, take long, or be the last thing that the process does.
//!
//! ```
//! # use punctual_adapters_memory::{FakeClock, MemoryTimerStore, faults::{Fault, Faults, Faulty}};
//! # use punctual_domain::{TenantId, Timestamp, TimerKey};
//! # use punctual_ports::{PortErrorKind, TimerPersistencePort};
//! # use std::sync::Arc;
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let faults = Faults::new(Arc::new(FakeClock::new(Timestamp::MIN)));
//! faults.at_call_of("find", 2, Fault::FailBefore(PortErrorKind::Busy));
//! let store = Faulty::new(Arc::new(MemoryTimerStore::new()), &faults);
//! let key = TimerKey::named(TenantId::default(), "order-123");
//! assert!(store.find(key.clone()).await.is_ok());
//! assert!(store.find(key.clone()).await.is_err());
//! assert!(store.find(key).await.is_ok());
//! # });
//! ```

use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use punctual_ports::{ClockPort, PortError, PortErrorKind};
use tokio::sync::watch;

use crate::{Intercepted, Interceptor, lock};

/// A port whose calls go wrong as [`Faults`] say.
pub type Faulty<P> = Intercepted<P, Faults>;

/// Fault of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It fails and has no effect.
    FailBefore(PortErrorKind),
    /// It takes effect, and still returns an error.
    FailAfter(PortErrorKind),
    /// It takes effect only after this time.
    DelayBefore(Duration),
    /// It takes effect at once, but its answer arrives only after this time.
    DelayAfter(Duration),
    /// The process ends just before it takes effect.
    CrashBefore,
    /// The process ends just after the call took effect, before it returns.
    CrashAfter,
}

/// A call of a port, as a [`Faults::decide`] function sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The method's name, as [`Interceptor::around`] has it.
    pub operation: &'static str,
    /// Which call it is of all that these faults see, from one.
    pub number: u64,
    /// Which call it is of this method, from one.
    pub number_of_operation: u64,
}

type Decide = Box<dyn FnMut(Call) -> Option<Fault> + Send>;

/// Decides which calls go wrong, for all ports that are wrapped with it. Clones are the same.
#[derive(Clone)]
pub struct Faults {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Arc<dyn ClockPort>,
    plan: Mutex<Plan>,
    crashed: watch::Sender<bool>,
}

#[derive(Default)]
struct Plan {
    deciders: Vec<Decide>,
    calls: u64,
    calls_of: BTreeMap<&'static str, u64>,
    fired: Vec<(Call, Fault)>,
}

impl Plan {
    fn next(&mut self, operation: &'static str) -> Option<Fault> {
        self.calls += 1;
        let calls_of_operation = self.calls_of.entry(operation).or_default();
        *calls_of_operation += 1;
        let call = Call {
            operation,
            number: self.calls,
            number_of_operation: *calls_of_operation,
        };
        // All functions are called, also those after the first fault: some only count.
        let answers = self.deciders.iter_mut().map(|decide| decide(call));
        let fault = answers.fold(None, Option::or)?;
        self.fired.push((call, fault));
        Some(fault)
    }
}

impl Faults {
    /// No faults yet. Delays are waited for on `clock`.
    pub fn new(clock: Arc<dyn ClockPort>) -> Self {
        Self {
            shared: Arc::new(Shared {
                clock,
                plan: Mutex::default(),
                crashed: watch::Sender::new(false),
            }),
        }
    }

    /// Adds a fault at the `n`-th call of all, counted from one.
    pub fn at_call(&self, n: u64, fault: Fault) {
        self.decide(move |call| (call.number == n).then_some(fault));
    }

    /// Adds a fault at the `n`-th call of a method, counted from one.
    pub fn at_call_of(&self, operation: &'static str, n: u64, fault: Fault) {
        self.decide(move |call| {
            (call.operation == operation && call.number_of_operation == n).then_some(fault)
        });
    }

    /// Adds a function that decides about every call.
    pub fn decide(&self, decide: impl FnMut(Call) -> Option<Fault> + Send + 'static) {
        lock(&self.shared.plan).deciders.push(Box::new(decide));
    }

    /// Removes all faults; a crashed process stays crashed.
    pub fn clear(&self) {
        lock(&self.shared.plan).deciders.clear();
    }

    /// Which faults have happened.
    pub fn fired(&self) -> Vec<(Call, Fault)> {
        lock(&self.shared.plan).fired.clone()
    }

    /// Whether the process has "ended". Every call then hangs for ever.
    pub fn has_crashed(&self) -> bool {
        *self.shared.crashed.borrow()
    }

    /// Waits for the process to "end".
    pub async fn crashed(&self) {
        let mut crashed = self.shared.crashed.subscribe();
        // The sender lives as long as we do, so this fails never.
        _ = crashed.wait_for(|crashed| *crashed).await;
    }

    async fn crash<T>(&self) -> T {
        self.shared.crashed.send_replace(true);
        pending().await
    }
}

impl Interceptor for Faults {
    async fn around<T: Send + 'static>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T, PortError>> + Send,
    ) -> Result<T, PortError> {
        if self.has_crashed() {
            return pending().await;
        }
        let fault = lock(&self.shared.plan).next(operation);
        match fault {
            None => call.await,
            Some(Fault::FailBefore(kind)) => Err(injected(kind, operation)),
            Some(Fault::FailAfter(kind)) => {
                call.await?;
                Err(injected(kind, operation))
            }
            Some(Fault::DelayBefore(by)) => {
                self.shared.clock.sleep_for(by).await;
                call.await
            }
            Some(Fault::DelayAfter(by)) => {
                let answer = call.await;
                self.shared.clock.sleep_for(by).await;
                answer
            }
            Some(Fault::CrashBefore) => self.crash().await,
            Some(Fault::CrashAfter) => {
                _ = call.await;
                self.crash().await
            }
        }
    }

    async fn listen<T: Send>(&self, notification: impl Future<Output = T> + Send) -> T {
        let notified = notification.await;
        if self.has_crashed() {
            return pending().await;
        }
        notified
    }
}

fn injected(kind: PortErrorKind, operation: &'static str) -> PortError {
    PortError::new(kind, operation, "a fault was injected")
}
