//! The check of the address that the API listens on.

use std::net::SocketAddr;

use crate::Tokens;

/// Checks that the API may listen on an address: without tokens only this machine may reach it.
///
/// # Errors
/// With a sentence that says what would be right.
pub fn check_bind(address: SocketAddr, tokens: &Tokens) -> Result<(), String> {
    // An IPv4-mapped IPv6 address counts as its IPv4 address.
    if !tokens.is_empty() || address.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    let port = address.port();
    Err(format!(
        "{address} can be reached from other machines, and there are no tokens: \
         listen on 127.0.0.1:{port}, or name a file of tokens (API_TOKENS_FILE)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash_token;

    #[test]
    fn only_loopback_goes_without_tokens() {
        let tokens = Tokens::parse(&format!("*:{}", hash_token("t"))).unwrap();
        for (address, alone) in [
            ("127.0.0.1:8080", true),
            ("127.8.0.1:0", true),
            ("[::1]:8080", true),
            ("[::ffff:127.0.0.1]:8080", true),
            ("0.0.0.0:8080", false),
            ("[::]:8080", false),
            ("192.168.1.4:80", false),
            ("[::ffff:10.0.0.1]:80", false),
        ] {
            let address: SocketAddr = address.parse().unwrap();
            assert_eq!(
                check_bind(address, &Tokens::none()).is_ok(),
                alone,
                "{address}"
            );
            assert!(check_bind(address, &tokens).is_ok());
        }
        let said = check_bind("0.0.0.0:80".parse().unwrap(), &Tokens::none()).unwrap_err();
        assert!(said.contains("127.0.0.1:80") && said.contains("API_TOKENS_FILE"));
    }
}
