//! SIGHUP: what is in files that others renew is read again. What cannot be used changes nothing.
//!
//! The broker's certificates need nothing of this: its client reads them whenever it connects.

use std::path::PathBuf;
use std::sync::Arc;

use punctual::http::{HyperHttpClient, Roots};
use punctual_api::Tokens;
use tokio::signal::unix::Signal;

use crate::listen::{Bound, read_tokens};

/// What can be read again while we serve.
pub(super) struct Reload {
    /// The tokens of the API, and their file.
    tokens: Option<(PathBuf, Tokens)>,
    /// Who makes calls, and trusts the authorities of this machine.
    client: Option<Arc<HyperHttpClient>>,
}

impl Reload {
    /// What an API and calls were started with, if there are any.
    pub(super) fn new(api: Option<&Bound>, client: Option<Arc<HyperHttpClient>>) -> Self {
        let tokens = api.and_then(|api| {
            let file = api.tokens_file.clone()?;
            Some((file, api.tokens.clone()))
        });
        Self { tokens, client }
    }

    /// Reads again whenever the signal comes, for as long as it is polled.
    pub(super) async fn on(self, mut hangup: Signal) {
        let files = Arc::new(self);
        while hangup.recv().await.is_some() {
            let files = Arc::clone(&files);
            // It reads files. If it were to panic, the process would end as it does on any panic.
            let _ = tokio::task::spawn_blocking(move || files.read_again()).await;
        }
    }

    fn read_again(&self) {
        let tokens = self.tokens.as_ref().and_then(|(path, tokens)| {
            let read = read_tokens(path);
            said("tokens", read.map(|read| tokens.replace(&read)))
        });
        let authorities = self.client.as_ref().and_then(|client| {
            let roots = Roots::of_this_machine();
            let count = roots.len();
            let trusted = match count {
                0 => Err("this machine has no certificate authorities".to_owned()),
                _ => client.trust(roots).map_err(|error| error.to_string()),
            };
            said("certificate authorities", trusted.map(|()| count))
        });
        tracing::info!(
            tokens,
            certificate_authorities = authorities,
            "reloaded on SIGHUP"
        );
    }
}

/// How many there are now; what went wrong is said.
fn said(what: &str, read: Result<usize, String>) -> Option<usize> {
    read.inspect_err(|reason| {
        tracing::error!(
            reason,
            "{what} were not reloaded: those of before still hold"
        );
    })
    .ok()
}
