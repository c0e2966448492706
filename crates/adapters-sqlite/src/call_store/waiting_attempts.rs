//! Waiting attempts in memory, so that hardly any claim reads the file.
//!
//! Only one process makes the attempts of a file, and the writer hands over what it accepts. The list is whole
//! from a claim on that has found nothing waiting in the file, until it has no room. Other programs may accept
//! attempts too. So a list without anything to choose says nothing, and then, and once in a while, the
//! file is read.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_domain::service_call::RequestBody;
use punctual_domain::{EnvelopeId, TenantId, Timestamp};
use punctual_ports::{AttemptQueue, Execution, WaitingQuery};

/// Maximum number of attempts in the list.
const MOST: usize = 4_096;
/// Maximum size of their requests.
const MOST_BYTES: usize = 8 * 1024 * 1024;
/// Maximum number of consecutive claims that do not read the file.
const MOST_WITHOUT_READING: u32 = 64;
/// Approximate size of an attempt without the body of its request.
const BYTES_OF_EACH: usize = 1_024;

/// The list of one store. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct WaitingAttempts {
    list: Arc<Mutex<List>>,
    /// Held while attempts are claimed, so that no two claims choose the same.
    pub(super) claiming: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct List {
    attempts: AttemptQueue<(Timestamp, EnvelopeId), Execution>,
    count: usize,
    bytes: usize,
    state: State,
    without_reading: u32,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The file has attempts that are not in the list.
    #[default]
    Closed,
    /// The list has what was accepted since the file began to be read.
    Open,
    /// The list has all that this process has accepted.
    Whole,
}

impl WaitingAttempts {
    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds attempts whose acceptance is committed.
    pub(crate) fn hand_over(&self, accepted: Vec<Execution>) {
        let mut list = self.lock();
        for execution in accepted {
            if list.state == State::Closed {
                return;
            }
            list.add(execution);
        }
    }

    /// Records that the file may have attempts that were not handed over.
    pub(crate) fn close(&self) {
        *self.lock() = List::default();
    }

    /// Chooses attempts, which stay in the list; `None` if the file has to be read.
    pub(super) fn choose(
        &self,
        query: &WaitingQuery,
        last_host: impl Fn(&TenantId) -> Option<String>,
    ) -> Option<Vec<Execution>> {
        let mut list = self.lock();
        if list.state == State::Whole && list.without_reading < MOST_WITHOUT_READING {
            list.without_reading += 1;
            let chosen = list.attempts.in_turn(query, last_host);
            if !chosen.is_empty() {
                return Some(chosen.into_iter().cloned().collect());
            }
        }
        list.without_reading = 0;
        if list.state != State::Whole {
            *list = List {
                state: State::Open,
                ..List::default()
            };
        }
        None
    }

    /// Records that nothing was waiting in the file when it was read.
    pub(super) fn nothing_waits(&self) {
        let mut list = self.lock();
        if list.state == State::Open {
            list.state = State::Whole;
        }
    }

    /// Removes an attempt that does not wait any more.
    pub(super) fn remove(&self, execution: &Execution) {
        let mut list = self.lock();
        let (tenant, host) = place(execution);
        if list
            .attempts
            .remove(&tenant, &host, &position(execution))
            .is_some()
        {
            list.count -= 1;
            list.bytes -= bytes(execution);
        }
    }
}

impl List {
    fn add(&mut self, execution: Execution) {
        let (count, bytes) = (self.count + 1, self.bytes + bytes(&execution));
        if count > MOST || bytes > MOST_BYTES {
            *self = Self::default();
            return;
        }
        let ((tenant, host), position) = (place(&execution), position(&execution));
        let replaced = self.attempts.insert(tenant, host, position, execution);
        if replaced.is_none() {
            (self.count, self.bytes) = (count, bytes);
        }
    }
}

fn place(execution: &Execution) -> (TenantId, String) {
    let tenant = execution.key.call.tenant_id.clone();
    (tenant, execution.request.url.host_and_port())
}

const fn position(execution: &Execution) -> (Timestamp, EnvelopeId) {
    (execution.accepted_at, execution.key.execution_id)
}

fn bytes(execution: &Execution) -> usize {
    let body = execution.request.body.as_ref().map(RequestBody::as_str);
    BYTES_OF_EACH + body.map_or(0, str::len)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use punctual_domain::service_call::{Headers, Method, RequestSpec};
    use punctual_domain::{CorrelationId, TimerKey};
    use punctual_ports::ExecutionKey;

    use super::*;

    fn attempt(tenant: &str, number: u64) -> Execution {
        let tenant = TenantId::new(tenant).unwrap();
        let id = EnvelopeId::from_uuid(uuid::Uuid::from_u64_pair(7, number));
        Execution {
            key: ExecutionKey {
                call: TimerKey::named(tenant, &number.to_string()),
                execution_id: id,
            },
            correlation_id: CorrelationId::from_uuid(id.as_uuid()),
            request: RequestSpec {
                method: Method::Post,
                url: "https://example.com/".parse().unwrap(),
                headers: Headers::default(),
                body: None,
            },
            timeout: Duration::from_secs(1),
            accepted_at: Timestamp::MIN,
        }
    }

    fn query(limit: usize) -> WaitingQuery {
        WaitingQuery {
            limit,
            per_tenant: limit,
            per_host: limit,
            without_tenants: Vec::new(),
            without_hosts: Vec::new(),
            without: BTreeSet::new(),
            after_tenant: None,
            after_host: None,
        }
    }

    /// What a claim chooses without reading the file.
    fn choose(list: &WaitingAttempts, limit: usize) -> Option<Vec<Execution>> {
        list.choose(&query(limit), |_| None)
    }

    #[test]
    fn a_list_is_whole_once_nothing_waits_in_the_file() {
        let list = WaitingAttempts::default();
        list.hand_over(vec![attempt("a", 1)]);
        assert_eq!(choose(&list, 9), None);
        // Accepted while the file is being read.
        list.hand_over(vec![attempt("a", 2)]);
        assert_eq!(choose(&list, 9), None, "the read has found the first one");
        list.hand_over(vec![attempt("a", 3)]);
        list.nothing_waits();
        list.hand_over(vec![attempt("b", 4)]);
        let chosen = choose(&list, 9).unwrap();
        assert_eq!(chosen, [attempt("a", 3), attempt("b", 4)]);
        list.remove(&chosen[0]);
        assert_eq!(choose(&list, 9).unwrap(), [attempt("b", 4)]);
    }

    #[test]
    fn the_file_is_read_when_nothing_is_to_be_chosen_and_once_in_a_while() {
        let list = WaitingAttempts::default();
        assert_eq!(choose(&list, 9), None);
        list.nothing_waits();
        assert_eq!(choose(&list, 9), None);
        list.hand_over(vec![attempt("a", 1)]);
        for _ in 0..MOST_WITHOUT_READING {
            assert!(choose(&list, 9).is_some());
        }
        assert_eq!(choose(&list, 9), None);
        assert!(choose(&list, 9).is_some());
    }

    #[test]
    fn a_list_without_room_begins_anew() {
        let list = WaitingAttempts::default();
        choose(&list, 9);
        list.nothing_waits();
        for number in 0..=MOST as u64 {
            list.hand_over(vec![attempt("a", number)]);
        }
        assert_eq!(choose(&list, 9), None);
        list.hand_over(vec![attempt("a", 9_999)]);
        assert_eq!(choose(&list, 9), None, "older ones wait in the file");
        list.nothing_waits();
        list.hand_over(vec![attempt("a", 10_000)]);
        assert!(choose(&list, 9).is_some());
        // A commit that failed may have happened nevertheless.
        list.close();
        list.hand_over(vec![attempt("a", 10_001)]);
        assert_eq!(choose(&list, 9), None);
    }
}
