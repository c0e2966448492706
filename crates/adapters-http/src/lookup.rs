//! Name resolution, with a limited number of concurrent lookups.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use punctual_domain::TenantId;
use punctual_domain::service_call::{ErrorKind, TargetUrl};
use punctual_ports::HttpFailure;

use crate::failure::failure;
use crate::permits::Permits;

/// Resolves names to addresses.
///
/// # Contract
/// - `resolve` may block; it is called on a thread for that.
/// - It is called once per attempt, and the attempt connects to one of these addresses or to none.
pub trait Resolve: Send + Sync {
    /// The addresses of the host, in the order in which they are to be tried.
    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>>;
}

/// The resolver of the operating system. It also reads `127.1`, `0x7f.1` and `2130706433` as addresses.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok((host, port).to_socket_addrs()?.collect())
    }
}

/// Lookups on a limited number of blocking threads.
pub(crate) struct Lookups {
    resolver: Arc<dyn Resolve>,
    permits: Arc<Permits>,
}

impl Lookups {
    pub(crate) fn new(resolver: Arc<dyn Resolve>, limit: usize) -> Self {
        Self {
            resolver,
            permits: Permits::new(limit),
        }
    }

    /// The unchecked addresses of the target.
    pub(crate) async fn addresses(
        &self,
        tenant_id: &TenantId,
        url: &TargetUrl,
    ) -> Result<Vec<SocketAddr>, HttpFailure> {
        if let Ok(address) = url.host().parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, url.port())]);
        }
        let aborted = |_| unresolved(url.host(), "the lookup was aborted");
        let permit = self.permits.acquire(tenant_id).await;
        let resolver = Arc::clone(&self.resolver);
        let (host, port) = (url.host().to_owned(), url.port());
        // The thread keeps the permit: a lookup cannot be cancelled, and continues after its attempt was
        // dropped. Otherwise slow names would take all threads.
        let lookup = tokio::task::spawn_blocking(move || {
            let found = resolver.resolve(&host, port);
            drop(permit);
            found
        });
        match lookup.await.map_err(aborted)? {
            Ok(found) if found.is_empty() => Err(unresolved(url.host(), "the name has none")),
            Ok(found) => Ok(found),
            Err(error) => Err(unresolved(url.host(), &error.to_string())),
        }
    }
}

fn unresolved(host: &str, why: &str) -> HttpFailure {
    let message = format!("no address of {host} was found: {why}");
    failure(ErrorKind::NameNotResolved, message)
}
