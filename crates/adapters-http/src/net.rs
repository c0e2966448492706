//! A range of IP addresses, as `10.0.0.0/8` or `fc00::/7`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::allowed_nets::NetsError;

/// All addresses that begin with the same bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Net {
    base: IpAddr,
    prefix: u8,
}

impl Net {
    pub(crate) const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Self {
        Self {
            base: IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
            prefix,
        }
    }

    /// By the first 64 bits, which is as far as any range that we know goes.
    pub(crate) const fn v6(a: u16, b: u16, c: u16, d: u16, prefix: u8) -> Self {
        Self {
            base: IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0)),
            prefix,
        }
    }

    /// Whether the address is one of them. The two kinds of addresses have nothing in common.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        match (self.base, address) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                let differing = base.to_bits() ^ address.to_bits();
                differing.leading_zeros() >= u32::from(self.prefix)
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => {
                let differing = base.to_bits() ^ address.to_bits();
                differing.leading_zeros() >= u32::from(self.prefix)
            }
            _ => false,
        }
    }

    /// The same without the bits behind the prefix.
    fn truncated(self) -> Self {
        let base = match self.base {
            IpAddr::V4(base) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix));
                IpAddr::V4(Ipv4Addr::from_bits(base.to_bits() & mask.unwrap_or(0)))
            }
            IpAddr::V6(base) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix));
                IpAddr::V6(Ipv6Addr::from_bits(base.to_bits() & mask.unwrap_or(0)))
            }
        };
        Self { base, ..self }
    }

    /// IPv4 addresses that are written as IPv6 are IPv4 addresses.
    fn unmapped(self) -> Self {
        match (self.base.to_canonical(), self.prefix.checked_sub(96)) {
            (base @ IpAddr::V4(_), Some(prefix)) if self.base.is_ipv6() => Self { base, prefix },
            _ => self,
        }
    }
}

impl FromStr for Net {
    type Err = NetsError;

    fn from_str(text: &str) -> Result<Self, NetsError> {
        let wrong = || NetsError::NotANet {
            given: text.chars().take(64).collect(),
        };
        let Some((base, prefix)) = text.split_once('/') else {
            let Ok(base) = text.parse::<IpAddr>() else {
                return Err(wrong());
            };
            let prefix = if base.is_ipv4() { 32 } else { 128 };
            return Err(NetsError::NoPrefix {
                right: Self { base, prefix }.to_string(),
            });
        };
        let base: IpAddr = base.parse().map_err(|_| wrong())?;
        if prefix.is_empty() || !prefix.bytes().all(|b| b.is_ascii_digit()) {
            return Err(wrong());
        }
        let longest = if base.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.parse().ok().filter(|prefix| *prefix <= longest);
        let given = Self {
            base,
            prefix: prefix.ok_or_else(wrong)?,
        };
        match given.truncated() {
            right if right == given => Ok(given.unmapped()),
            right => Err(NetsError::BitsBehindPrefix {
                given: given.to_string(),
                right: right.to_string(),
            }),
        }
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_ends_where_its_prefix_says() {
        for (net, inside, outside) in [
            ("10.0.0.0/8", "10.255.255.255", "11.0.0.0"),
            ("100.64.0.0/10", "100.127.255.255", "100.128.0.0"),
            ("1.2.3.4/32", "1.2.3.4", "1.2.3.5"),
            ("128.0.0.0/1", "255.255.255.255", "127.255.255.255"),
            ("fc00::/7", "fdff::1", "fe00::"),
            ("::1/128", "::1", "::2"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("::/0", "ffff::", "0.0.0.0"),
        ] {
            let net: Net = net.parse().unwrap();
            assert!(net.contains(inside.parse().unwrap()), "{net} {inside}");
            assert!(!net.contains(outside.parse().unwrap()), "{net} {outside}");
        }
    }

    #[test]
    fn an_ipv4_range_written_as_ipv6_is_an_ipv4_range() {
        let net: Net = "::ffff:10.0.0.0/104".parse().unwrap();
        assert_eq!(net.to_string(), "10.0.0.0/8");
    }
}
