//! Ports on loopback: free ones, below those that a reconnecting client could take from a server.

use std::net::TcpListener;

use crate::shared;

/// Below the range from which systems take the ports of outgoing connections: a client that tries
/// to reconnect while the server is away would otherwise take its port one day, by connecting to
/// itself.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// How often another port is tried, if somebody else was faster.
const TRIES: usize = 10;

/// Starts a server on a free port, and on another one if somebody else was faster.
///
/// # Panics
/// If it does not start for another reason.
pub(crate) fn on_a_free_port<T>(
    name: &str,
    mut start: impl FnMut(u16) -> Result<T, String>,
) -> (u16, T) {
    for _ in 0..TRIES {
        let port = free_port();
        match start(port) {
            Ok(server) => return (port, server),
            Err(said) if said.to_lowercase().contains("address already in use") => {}
            Err(said) => panic!("failed to start {name}:\n{said}"),
        }
    }
    panic!("failed to find a free port for {name} in {TRIES} tries");
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let span = u64::from(PORTS.end - PORTS.start);
    loop {
        let offset = u16::try_from(shared::random() % span).unwrap();
        let port = PORTS.start + offset;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_port_is_tried_if_somebody_else_was_faster() {
        let mut tried = Vec::new();
        let (port, answer) = on_a_free_port("a server", |port| {
            tried.push(port);
            if tried.len() < 3 {
                return Err("bind(): Address already in use".to_owned());
            }
            Ok("ready")
        });
        assert_eq!((tried.len(), port, answer), (3, tried[2], "ready"));
    }

    #[test]
    #[should_panic(expected = "failed to start a server:\nno such file")]
    fn any_other_reason_is_told_at_once() {
        on_a_free_port::<()>("a server", |_| Err("no such file".to_owned()));
    }
}
