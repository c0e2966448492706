//! Who makes an attempt, in memory.
//!
//! Only one process makes the attempts of a file, so a claim needs neither a column nor a clock: whatever
//! was started and is not claimed here was started by a process that has ended.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_domain::TimerKey;
use punctual_ports::{ClaimToken, ExecutionClaim, ExecutionKey};

/// The claims of this process, by call: a call has one attempt. Clones share them.
#[derive(Clone, Default)]
pub(super) struct AttemptClaims(Arc<Mutex<Claims>>);

#[derive(Default)]
struct Claims {
    tokens: HashMap<TimerKey, ClaimToken>,
    last_token: u64,
}

impl AttemptClaims {
    fn lock(&self) -> MutexGuard<'_, Claims> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims an attempt, in place of whoever has claimed it before.
    pub(super) fn claim(&self, key: ExecutionKey) -> ExecutionClaim {
        let mut claims = self.lock();
        claims.last_token += 1;
        let token = ClaimToken(claims.last_token);
        claims.tokens.insert(key.call.clone(), token);
        ExecutionClaim { key, token }
    }

    pub(super) fn is_current(&self, claim: &ExecutionClaim) -> bool {
        self.lock().tokens.get(&claim.key.call) == Some(&claim.token)
    }

    /// Ends a claim, once its attempt is known to be attempted no more.
    pub(super) fn end(&self, claim: &ExecutionClaim) {
        let mut claims = self.lock();
        if claims.tokens.get(&claim.key.call) == Some(&claim.token) {
            claims.tokens.remove(&claim.key.call);
        }
    }
}
