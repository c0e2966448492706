//! Connecting to a checked address, and to no other.

use std::net::SocketAddr;

use punctual_domain::service_call::{ErrorKind, TargetUrl};
use punctual_ports::HttpFailure;
use tokio::net::TcpStream;

use crate::allowed_nets::{AllowedNets, SETTING};
use crate::failure::failure;

/// Maximum number of addresses tried for one name.
const MAX_TRIED: usize = 8;

/// The allowed ones of the addresses, without duplicates.
///
/// A name may have both kinds, by mistake or by malice; the others are ignored.
pub(crate) fn checked(
    allowed: &AllowedNets,
    url: &TargetUrl,
    found: Vec<SocketAddr>,
) -> Result<Vec<SocketAddr>, HttpFailure> {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in found {
        if !allowed.allows(address.ip()) {
            tracing::debug!(host = url.host(), address = %address.ip(), "calls may not reach an address");
        } else if !addresses.contains(&address) && addresses.len() < MAX_TRIED {
            addresses.push(address);
        }
    }
    if addresses.is_empty() {
        // Without the address: callers must not learn internal addresses.
        let message = format!(
            "{} has no address that calls may reach, which are public ones: if it should be reached, the operator adds its network to {SETTING}, for example 10.1.2.0/24",
            url.host()
        );
        return Err(failure(ErrorKind::TargetNotAllowed, message));
    }
    Ok(addresses)
}

/// Connects to the first address that accepts. Nothing is sent here, so trying the next one is no second
/// attempt.
pub(crate) async fn connect(
    url: &TargetUrl,
    checked: &[SocketAddr],
) -> Result<TcpStream, HttpFailure> {
    let mut last = None;
    for address in checked {
        match TcpStream::connect(address).await {
            Ok(socket) => return Ok(socket),
            Err(error) => last = Some(error.kind()),
        }
    }
    let why = last.map_or_else(|| "no address".to_owned(), |kind| kind.to_string());
    let message = format!(
        "no connection to {} at port {} could be made: {why}",
        url.host(),
        url.port()
    );
    Err(failure(ErrorKind::ConnectFailed, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(found: &[&str]) -> Result<Vec<String>, HttpFailure> {
        let found = found.iter().map(|address| address.parse().unwrap());
        let url = "http://a.test/".parse().unwrap();
        let kept = checked(&AllowedNets::default(), &url, found.collect())?;
        Ok(kept.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn allowed_addresses_are_kept_in_their_order_and_each_once() {
        let found = [
            "[::1]:1",
            "9.9.9.9:1",
            "10.0.0.1:1",
            "8.8.8.8:1",
            "9.9.9.9:1",
        ];
        assert_eq!(kept(&found).unwrap(), ["9.9.9.9:1", "8.8.8.8:1"]);
        assert!(kept(&["[::1]:1", "10.0.0.1:1"]).is_err());
    }

    #[test]
    fn the_number_of_addresses_tried_is_limited() {
        let many: Vec<String> = (0..100).map(|n| format!("9.9.9.{n}:1")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(kept(&many).unwrap(), many[..MAX_TRIED]);
        // Addresses that are not allowed do not count.
        let hidden: Vec<&str> = std::iter::repeat_n("10.0.0.1:1", 100)
            .chain(["9.9.9.9:1"])
            .collect();
        assert_eq!(kept(&hidden).unwrap(), ["9.9.9.9:1"]);
    }
}
