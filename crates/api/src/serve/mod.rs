//! The server: no client can keep the others, or health checks, from being answered.
//!
//! - The head of a request has a deadline, and so has its body; a client that does not read its response
//!   is disconnected.
//! - At the limit of connections, a new one evicts the one that has been idle the longest, so that any
//!   number of half-open connections costs others no more than a new connection. Anonymous connections
//!   are evicted before those that gave a token, as long as they are more than a quarter.
//! - However many requests a client pipelines, each connection has one of them answered in its turn.
//! - Connections with a request that is carried out are never evicted; the number of such requests has a
//!   limit of its own, below that of connections.
//!
//! HTTP/1.1 only: with several requests on one connection these limits would have to be counted twice.

mod clock_timer;
mod connections;
mod write_timeout;

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures_util::future::{Either, select};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use punctual_ports::ClockPort;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub(crate) use clock_timer::sleep;
pub(crate) use connections::Connection;

use crate::ApiSettings;
use clock_timer::ClockTimer;
use connections::{Connections, Open};
use write_timeout::WriteTimeout;

/// Maximum number of bytes of a request's line and headers; a longer one is answered 431.
const MAX_HEAD: usize = 64 * 1_024;
/// The pause before accepting again when the machine has no room for another connection.
const PAUSE: Duration = Duration::from_millis(100);

/// The end of serving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// Connections that were still busy when the time for draining was over, and were cut off.
    pub cut_off: usize,
}

/// Serves until `shutdown` is done; then no connection is accepted any more, and what is under way
/// has `settings.drain` to end.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    settings: ApiSettings,
    clock: Arc<dyn ClockPort>,
    shutdown: impl Future<Output = ()> + Send,
) -> Served {
    let server = Server {
        router,
        settings,
        clock,
        connections: Connections::new(settings.connections),
    };
    let (stop, stopping) = watch::channel(false);
    let mut open = JoinSet::new();
    {
        let accepting = server.accept(listener, &mut open, &stopping);
        select(std::pin::pin!(accepting), std::pin::pin!(shutdown)).await;
    }
    stop.send_replace(true);
    server.drain(&mut open).await
}

struct Server {
    router: Router,
    settings: ApiSettings,
    clock: Arc<dyn ClockPort>,
    connections: Connections,
}

impl Server {
    /// Accepts connections for ever. The listener is closed when this is dropped.
    async fn accept(
        &self,
        listener: TcpListener,
        open: &mut JoinSet<()>,
        stopping: &watch::Receiver<bool>,
    ) {
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    self.not_accepted(&error).await;
                    continue;
                }
            };
            while open.try_join_next().is_some() {}
            let admitted = self.connections.admit().await;
            open.spawn(self.converse(stream, admitted, stopping.clone()));
        }
    }

    /// A failed accept: either the client has left already, or the machine has no room, and a connection
    /// is evicted.
    async fn not_accepted(&self, error: &io::Error) {
        let is_clients = matches!(
            error.kind(),
            io::ErrorKind::ConnectionAborted
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionRefused
        );
        if !is_clients {
            tracing::warn!(%error, "failed to accept a connection");
            self.connections.evict_oldest();
            self.clock.sleep_for(PAUSE).await;
        }
    }

    /// Serves one connection until its end.
    fn converse(
        &self,
        stream: TcpStream,
        admitted: Open,
        mut stopping: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + Send + 'static {
        // A response is written at once: waiting for more to send only delays it.
        stream.set_nodelay(true).ok();
        let io = WriteTimeout::new(stream, Arc::clone(&self.clock), self.settings.write_timeout);
        let (router, extension) = (self.router.clone(), admitted.connection());
        let answer = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
            extension.request_received();
            request.extensions_mut().insert(extension.clone());
            let router = TowerToHyperService::new(router.clone());
            async move {
                tokio::task::yield_now().await;
                router.call(request).await
            }
        });
        let mut builder = http1::Builder::new();
        builder
            .timer(ClockTimer::new(Arc::clone(&self.clock)))
            .header_read_timeout(self.settings.header_timeout)
            .max_buf_size(MAX_HEAD);
        async move {
            let serving = builder.serve_connection(TokioIo::new(io), answer);
            let mut serving = std::pin::pin!(serving);
            let mut is_stopping = false;
            loop {
                tokio::select! {
                    // First of all: no request begins on a connection that is evicted.
                    biased;
                    () = admitted.evicted() => if admitted.confirm_eviction() {
                        break;
                    },
                    ended = serving.as_mut() => {
                        if let Err(error) = ended {
                            tracing::debug!(%error, "a connection ended");
                        }
                        break;
                    }
                    _ = stopping.wait_for(|stop| *stop), if !is_stopping => {
                        is_stopping = true;
                        serving.as_mut().graceful_shutdown();
                    }
                }
            }
        }
    }

    async fn drain(&self, open: &mut JoinSet<()>) -> Served {
        let all_ended = async { while open.join_next().await.is_some() {} };
        let too_late = self.clock.sleep_for(self.settings.drain);
        let in_time = {
            let all_ended = std::pin::pin!(all_ended);
            matches!(select(all_ended, too_late).await, Either::Left(_))
        };
        let cut_off = if in_time { 0 } else { open.len() };
        open.shutdown().await;
        Served { cut_off }
    }
}
