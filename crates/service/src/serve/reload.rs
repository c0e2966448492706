//! SIGHUP reloads tokens and certificate authorities. A file that cannot be used changes nothing.
//!
//! The broker's certificates need nothing of this: its client reads them whenever it connects.

use std::path::PathBuf;
use std::sync::Arc;

use punctual::http::{HyperHttpClient, Roots};
use punctual_api::Tokens;
use tokio::signal::unix::Signal;

use crate::listen::{Bound, read_tokens};

/// What can be reloaded while serving.
pub(super) struct Reload {
    /// The tokens of the API, and their file.
    tokens: Option<(PathBuf, Tokens)>,
    /// The client of calls, which trusts the authorities of this machine.
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
            log_error("tokens", read.map(|read| tokens.replace(&read)))
        });
        let authorities = self.client.as_ref().and_then(|client| {
            let roots = Roots::of_this_machine();
            let count = roots.len();
            let trusted = match count {
                0 => Err("this machine has no certificate authorities".to_owned()),
                _ => client.trust(roots).map_err(|error| error.to_string()),
            };
            log_error("certificate authorities", trusted.map(|()| count))
        });
        tracing::info!(
            tokens,
            certificate_authorities = authorities,
            "reloaded on SIGHUP"
        );
    }
}

/// The number of reloaded entries; an error is logged.
fn log_error(what: &str, read: Result<usize, String>) -> Option<usize> {
    read.inspect_err(|reason| {
        tracing::error!(
            reason,
            "{what} were not reloaded: the previous ones stay in effect"
        );
    })
    .ok()
}
