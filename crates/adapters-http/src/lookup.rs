//! From names to addresses, a limited number of look-ups at a time.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use punctual_domain::TenantId;
use punctual_domain::service_call::{ErrorKind, TargetUrl};
use punctual_ports::HttpFailure;

use crate::failure::failure;
use crate::permits::Permits;

/// Says which addresses a name has.
///
/// # Contract
/// - `resolve` may block; it is called on a thread for that.
/// - It is asked once for each attempt, and the attempt connects to one of these addresses or to none.
pub trait Resolve: Send + Sync {
    /// The addresses of the host, in the order in which they should be tried.
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

/// Look-ups on threads of their own, of which there is a limited number.
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

    /// The addresses of the target, none of them checked.
    pub(crate) async fn addresses(
        &self,
        tenant_id: &TenantId,
        url: &TargetUrl,
    ) -> Result<Vec<SocketAddr>, HttpFailure> {
        if let Ok(address) = url.host().parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, url.port())]);
        }
        let broken_off = |_| unresolved(url.host(), "the look-up was broken off");
        let permit = self.permits.acquire(tenant_id).await;
        let resolver = Arc::clone(&self.resolver);
        let (host, port) = (url.host().to_owned(), url.port());
        // The thread keeps the permit: a look-up cannot be ended, and goes on when nobody waits for it
        // any longer. Otherwise slow names would take every thread that there is.
        let looked_up = tokio::task::spawn_blocking(move || {
            let found = resolver.resolve(&host, port);
            drop(permit);
            found
        });
        match looked_up.await.map_err(broken_off)? {
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
