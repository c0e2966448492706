//! The allowed addresses of calls: those of the public internet, and what the operator adds.
//!
//! Callers make this machine send requests (SSRF): without a rule they could reach services on its
//! loopback, its private network, and the metadata of its cloud. So only public addresses are allowed, and
//! none that embed another address and are translated on the way.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use thiserror::Error;

use crate::net::Net;

/// The name of the setting, for messages that say what would help.
pub(crate) const SETTING: &str = "EXECUTION_ALLOW_NETS";

/// The addresses that calls may reach besides global unicast ones.
///
/// ```
/// use punctual_adapters_http::AllowedNets;
/// let nets: AllowedNets = "127.0.0.0/8, ::1/128".parse()?;
/// assert!(nets.allows("127.0.0.1".parse()?));
/// assert!(!AllowedNets::default().allows("127.0.0.1".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct AllowedNets {
    added: Vec<Net>,
}

/// Error for a text that is no list of networks.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NetsError {
    /// One of them is no network.
    #[error(
        "\"{given}\" is not a network: give an address and the length of its prefix, such as 10.0.0.0/8 or fd00::/8, several with commas"
    )]
    NotANet {
        /// The given text.
        given: String,
    },
    /// One of them is an address.
    #[error("a network has a prefix: write {right} for that address alone")]
    NoPrefix {
        /// The network that has only this address.
        right: String,
    },
    /// One of them has bits beyond its prefix, so that it is ambiguous.
    #[error("{given} is not the beginning of a network: write {right} if that is meant")]
    BitsBehindPrefix {
        /// The given text.
        given: String,
        /// The network that contains it.
        right: String,
    },
}

/// IPv4 addresses that are not public.
const NOT_PUBLIC_V4: [Net; 16] = [
    // This machine, private networks, and the shared space of carriers.
    Net::v4(0, 0, 0, 0, 8),
    Net::v4(127, 0, 0, 0, 8),
    Net::v4(10, 0, 0, 0, 8),
    Net::v4(172, 16, 0, 0, 12),
    Net::v4(192, 168, 0, 0, 16),
    Net::v4(100, 64, 0, 0, 10),
    // The link, where most clouds have their metadata, and two that have it elsewhere: in
    // 192.0.0.0/24, and at a public address that never leaves the machine's own network.
    Net::v4(169, 254, 0, 0, 16),
    Net::v4(192, 0, 0, 0, 24),
    Net::v4(168, 63, 129, 16, 32),
    // Documentation and measurements.
    Net::v4(192, 0, 2, 0, 24),
    Net::v4(198, 51, 100, 0, 24),
    Net::v4(203, 0, 113, 0, 24),
    Net::v4(198, 18, 0, 0, 15),
    // Relays into IPv6, groups, and what is reserved, the broadcast included.
    Net::v4(192, 88, 99, 0, 24),
    Net::v4(224, 0, 0, 0, 4),
    Net::v4(240, 0, 0, 0, 4),
];

/// All public IPv6 addresses are within this: loopback, private, link-local, site-local, groups, and
/// those that carry IPv4 addresses (`::/96`, `::ffff:0:0:0/96`, `64:ff9b::/96`) lie outside.
const PUBLIC_V6: Net = Net::v6(0x2000, 0, 0, 0, 3);

/// Ranges within it that are not public.
const NOT_PUBLIC_V6: [Net; 4] = [
    // Protocols of their own; Teredo among them, which carries an IPv4 address.
    Net::v6(0x2001, 0, 0, 0, 23),
    // 6to4, which carries one too.
    Net::v6(0x2002, 0, 0, 0, 16),
    // Documentation.
    Net::v6(0x2001, 0xdb8, 0, 0, 32),
    Net::v6(0x3fff, 0, 0, 0, 20),
];

impl AllowedNets {
    /// Whether a call may connect to the address.
    pub fn allows(&self, address: IpAddr) -> bool {
        // A mapped address is an IPv4 address.
        let address = address.to_canonical();
        self.added.iter().any(|net| net.contains(address)) || is_public(address)
    }
}

fn is_public(address: IpAddr) -> bool {
    let is_in = |nets: &[Net]| nets.iter().any(|net| net.contains(address));
    match address {
        IpAddr::V4(_) => !is_in(&NOT_PUBLIC_V4),
        IpAddr::V6(_) => PUBLIC_V6.contains(address) && !is_in(&NOT_PUBLIC_V6),
    }
}

impl FromStr for AllowedNets {
    type Err = NetsError;

    fn from_str(text: &str) -> Result<Self, NetsError> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let nets = text.split(',').map(|net| net.trim().parse());
        Ok(Self {
            added: nets.collect::<Result<_, _>>()?,
        })
    }
}

/// As it is written in the setting.
impl fmt::Display for AllowedNets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, net) in self.added.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(f, "{comma}{net}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for AllowedNets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AllowedNets({self})")
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn nets(text: &str) -> AllowedNets {
        text.parse().unwrap()
    }

    fn allows(nets: &AllowedNets, address: &str) -> bool {
        nets.allows(address.parse().unwrap())
    }

    #[test]
    fn every_range_is_refused_from_its_first_address_to_its_last_and_no_further() {
        let public = AllowedNets::default();
        for (first, last) in [
            ("0.0.0.0", "0.255.255.255"),
            ("10.0.0.0", "10.255.255.255"),
            ("100.64.0.0", "100.127.255.255"),
            ("127.0.0.0", "127.255.255.255"),
            ("168.63.129.16", "168.63.129.16"),
            ("169.254.0.0", "169.254.255.255"),
            ("172.16.0.0", "172.31.255.255"),
            ("192.0.0.0", "192.0.0.255"),
            ("192.0.2.0", "192.0.2.255"),
            ("192.88.99.0", "192.88.99.255"),
            ("192.168.0.0", "192.168.255.255"),
            ("198.18.0.0", "198.19.255.255"),
            ("198.51.100.0", "198.51.100.255"),
            ("203.0.113.0", "203.0.113.255"),
            ("224.0.0.0", "255.255.255.255"),
            ("::", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("4000::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ] {
            let [first, last] = [first, last].map(|address| address.parse().unwrap());
            for refused in [first, last] {
                assert!(!public.allows(refused), "{refused}");
            }
            for allowed in [beside(first, -1), beside(last, 1)].into_iter().flatten() {
                assert!(public.allows(allowed), "{allowed}");
            }
        }
    }

    /// The address that follows or precedes another of its kind.
    fn beside(address: IpAddr, step: i8) -> Option<IpAddr> {
        Some(match address {
            IpAddr::V4(it) => Ipv4Addr::from(it.to_bits().checked_add_signed(step.into())?).into(),
            IpAddr::V6(it) => Ipv6Addr::from(it.to_bits().checked_add_signed(step.into())?).into(),
        })
    }

    #[test]
    fn what_the_operator_lists_is_allowed_and_nothing_beside_it() {
        let listed = nets("127.0.0.0/8, ::1/128,10.1.0.0/16");
        for address in [
            "127.0.0.1",
            "::1",
            "10.1.2.3",
            "::ffff:127.0.0.1",
            "8.8.8.8",
        ] {
            assert!(allows(&listed, address), "{address}");
        }
        for address in ["10.2.0.0", "::2", "::127.0.0.1", "64:ff9b::7f00:1", "::"] {
            assert!(!allows(&listed, address), "{address}");
        }
        // An IPv6 range says nothing about IPv4, in whatever form it is written.
        assert!(!allows(&nets("::/0"), "::ffff:127.0.0.1"));
        assert!(allows(&nets("64:ff9b::/96"), "64:ff9b::a00:1"));
    }

    #[test]
    fn the_list_parses_back_from_its_display() {
        assert_eq!(
            nets(" 127.0.0.0/8 ,fd00::/8 ").to_string(),
            "127.0.0.0/8,fd00::/8"
        );
        for none in ["", "  "] {
            assert_eq!(nets(none), AllowedNets::default());
        }
    }

    #[test]
    fn a_wrong_network_is_named_with_what_would_be_right() {
        for (text, said) in [
            (
                "127.0.0.0/8,x",
                "\"x\" is not a network: give an address and the length of its prefix, such as 10.0.0.0/8 or fd00::/8, several with commas",
            ),
            (
                "10.0.0.1/8",
                "10.0.0.1/8 is not the beginning of a network: write 10.0.0.0/8 if that is meant",
            ),
            (
                "fd00::1/8",
                "fd00::1/8 is not the beginning of a network: write fd00::/8 if that is meant",
            ),
            (
                "10.0.0.1",
                "a network has a prefix: write 10.0.0.1/32 for that address alone",
            ),
            (
                "::1",
                "a network has a prefix: write ::1/128 for that address alone",
            ),
        ] {
            assert_eq!(text.parse::<AllowedNets>().unwrap_err().to_string(), said);
        }
        for bad in [
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "/8",
            "10.0.0.0/+8",
            "10.0.0.0/-1",
            "10.0.0.0/8/8",
            "10/8",
            "010.0.0.0/8",
            "0x0a.0.0.0/8",
            "10.0.0.0/8,",
            ",10.0.0.0/8",
            "10.0.0.0/8;::1/128",
            "localhost/8",
            "10.0.0.0/8 ::1/128",
            "10.0.0.0/300",
        ] {
            assert!(bad.parse::<AllowedNets>().is_err(), "{bad}");
        }
    }
}
