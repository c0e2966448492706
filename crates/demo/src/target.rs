//! The target of the calls: a small HTTP server of this process, which reports each request.

use std::net::{Ipv4Addr, SocketAddr};

use axum::Router;
use axum::http::{StatusCode, Uri};
use punctual_adapters_system::SystemClock;
use punctual_ports::ClockPort;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

use crate::Failure;
use crate::engine::Event;

/// The statuses of its responses.
pub(crate) const GOOD: u16 = 200;
pub(crate) const BAD: u16 = 500;
/// One call in this number gets the bad one.
const BAD_EVERY: usize = 10;
/// What belongs before the number of a call.
const PATH: &str = "/calls/";

/// The status of the response to a call.
pub(crate) const fn status(n: usize) -> u16 {
    if n % BAD_EVERY == BAD_EVERY - 1 {
        BAD
    } else {
        GOOD
    }
}

/// Where a call goes.
pub(crate) fn url(address: SocketAddr, n: u32) -> String {
    format!("http://{address}{PATH}{n}")
}

/// A listener on a free port of this machine.
pub(crate) async fn listen() -> Result<(TcpListener, SocketAddr), Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    let bound = listener.and_then(|listener| Ok((listener.local_addr()?, listener)));
    let (address, listener) = bound.map_err(|error| {
        Failure::Refused(format!("the target cannot listen on this machine: {error}"))
    })?;
    Ok((listener, address))
}

/// Responds until it is dropped.
pub(crate) async fn serve(listener: TcpListener, events: mpsc::Sender<Event>, clock: SystemClock) {
    let respond = |uri: Uri| async move {
        let (n, at) = (number(uri.path()), clock.now());
        let (recorded, is_recorded) = oneshot::channel();
        // If the receiver is closed, the demo is over.
        let _ = events.send(Event::Requested { n, at, recorded }).await;
        let _ = is_recorded.await;
        let status = n.map(|n| StatusCode::from_u16(status(n as usize)));
        status.and_then(Result::ok).unwrap_or(StatusCode::NOT_FOUND)
    };
    // It never ends by itself.
    let _ = axum::serve(listener, Router::new().fallback(respond)).await;
}

/// Which call a request is of.
fn number(path: &str) -> Option<u32> {
    path.strip_prefix(PATH)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tenth_call_gets_a_bad_response() {
        let bad: Vec<usize> = (0..30).filter(|n| status(*n) == BAD).collect();
        assert_eq!(bad, [9, 19, 29]);
    }

    #[test]
    fn a_request_names_its_call() {
        let address = SocketAddr::from(([127, 0, 0, 1], 80));
        assert_eq!(url(address, 7), "http://127.0.0.1:80/calls/7");
        assert_eq!(number("/calls/7"), Some(7));
        for path in ["/", "/calls/x", ""] {
            assert_eq!(number(path), None);
        }
    }
}
