//! The host of a request: without tokens, a web page must not reach the API through a browser.
//!
//! A page on a name of its own may let that name lead to this machine, and its requests are then
//! allowed by the browser as if they were for the page's own server. The name still stands in `Host`.
//! Whoever speaks to a service without tokens speaks to this machine, by an address or as `localhost`.

use std::net::IpAddr;

use axum::http::HeaderMap;
use axum::http::header::HOST;

/// Whether the requested host is this machine, by an address or as `localhost`. A client that sends no
/// host is no browser.
pub(crate) fn is_of_this_machine(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST) else {
        return true;
    };
    let Ok(host) = host.to_str() else {
        return false;
    };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_localhost_are_this_machine_and_names_are_not() {
        let is_ours = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, host.parse().unwrap());
            is_of_this_machine(&headers)
        };
        for host in [
            "127.0.0.1:8080",
            "localhost",
            "LocalHost:80",
            "[::1]:8080",
            "10.1.2.3",
        ] {
            assert!(is_ours(host), "{host}");
        }
        for host in [
            "evil.example:8080",
            "localhost.evil.example",
            "",
            "[evil]",
            "127.0.0.1.evil",
        ] {
            assert!(!is_ours(host), "{host}");
        }
        assert!(is_of_this_machine(&HeaderMap::new()));
    }
}
