//! The client: resolve, check, connect, secure, exchange, each once.

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

/// Makes HTTP/1.1 requests with hyper, each on its own connection.
///
/// It needs a tokio runtime with I/O, and has no timeout: the caller drops an attempt that takes too long.
pub struct HyperHttpClient {
    allowed: AllowedNets,
    lookups: Lookups,
    tls: Tls,
    is_of_a_call: bool,
}

impl HyperHttpClient {
    /// Default maximum number of concurrent lookups, of which each tenant has its fair share.
    pub const LOOKUPS: usize = 64;

    /// A client for these networks, which trusts these root certificates.
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

    /// Replaces the trusted root certificates, from the next connection on.
    ///
    /// # Errors
    /// If TLS cannot be set up; then the previous ones stay.
    pub fn trust(&self, roots: Roots) -> Result<(), RootsError> {
        self.tls.trust(roots)
    }

    /// The same client for requests that are no attempt of a call, without `Idempotency-Key`, which the
    /// receiving service would take for that of the sender.
    #[must_use]
    pub fn without_idempotency_key(self) -> Self {
        Self {
            is_of_a_call: false,
            ..self
        }
    }

    /// The same client with another resolver, and at most `limit` concurrent lookups (at least one).
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
