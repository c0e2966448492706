//! The client: look up, check, connect, secure, exchange, each once.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use punctual_domain::service_call::Scheme;
use punctual_ports::{HttpAttempt, HttpClientPort, HttpFailure, HttpResponse};

use crate::allowed_nets::AllowedNets;
use crate::connect::{checked, connect};
use crate::exchange::exchange;
use crate::lookup::{Lookups, Resolve, SystemResolver};
use crate::request::request;
use crate::tls::{Roots, RootsError, Tls};
use crate::wire::{Settled, Wire};

/// Makes HTTP/1.1 requests with hyper, each on a connection of its own.
///
/// It needs a tokio runtime with I/O, and has no time limit: who calls it drops what takes too long.
pub struct HyperHttpClient {
    allowed: AllowedNets,
    lookups: Lookups,
    tls: Tls,
    is_of_a_call: bool,
}

impl HyperHttpClient {
    /// So many names are looked up at a time, of which a tenant has its fair share, unless said
    /// otherwise.
    pub const LOOKUPS: usize = 64;

    /// A client for these networks, which believes certificates of these authorities.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub fn new(allowed: AllowedNets, roots: Roots) -> Result<Self, RootsError> {
        Ok(Self {
            allowed,
            lookups: Lookups::new(Arc::new(SystemResolver), Self::LOOKUPS),
            tls: Tls::new(roots)?,
            is_of_a_call: true,
        })
    }

    /// Believes certificates of these authorities instead, from the next connection on.
    ///
    /// # Errors
    /// If TLS cannot be set up; then those of before still hold.
    pub fn trust(&self, roots: Roots) -> Result<(), RootsError> {
        self.tls.trust(roots)
    }

    /// The same for requests that are no attempt of a call, and so have no `Idempotency-Key`: the
    /// service that they go to would take it for the sender's.
    #[must_use]
    pub fn without_idempotency_key(self) -> Self {
        Self {
            is_of_a_call: false,
            ..self
        }
    }

    /// The same with another resolver, and at most `limit` look-ups at a time (at least one).
    #[must_use]
    pub fn with_resolver(self, resolver: Arc<dyn Resolve>, limit: usize) -> Self {
        Self {
            lookups: Lookups::new(resolver, limit),
            ..self
        }
    }
}

impl fmt::Debug for HyperHttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HyperHttpClient")
            .field("allowed", &self.allowed)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl HttpClientPort for HyperHttpClient {
    async fn attempt(&self, attempt: HttpAttempt) -> Result<HttpResponse, HttpFailure> {
        let mut request = request(&attempt)?;
        if !self.is_of_a_call {
            request.headers_mut().remove("idempotency-key");
        }
        let url = &attempt.request.url;
        let found = self.lookups.addresses(&attempt.key.tenant_id, url).await?;
        let addresses = checked(&self.allowed, url, found)?;
        let socket = connect(url, &addresses).await?;
        let settled = Settled::default();
        let wire = Wire::new(socket, settled.clone());
        match url.scheme() {
            Scheme::Http => exchange(url.host(), wire, request, &settled).await,
            Scheme::Https => {
                let secured = self.tls.secure(url, wire).await?;
                exchange(url.host(), secured, request, &settled).await
            }
        }
    }
}
