//! The URL of a target, parsed strictly: a text that two parsers could read as two hosts is refused.
//!
//! Lenient parsing is how requests reach hosts that were never checked. So only absolute `http` and
//! `https` URLs in plain ASCII without a user are accepted. Whether the host is allowed is decided when
//! the request is made, by the address it then has.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use thiserror::Error;

use crate::excerpt;
use crate::text_forms::json_as_text;

/// Scheme of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Plain text.
    Http,
    /// TLS.
    Https,
}

/// An absolute `http` or `https` URL.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TargetUrl {
    text: String,
    scheme: Scheme,
    /// Without the brackets of an IPv6 address, in lower case.
    host: String,
    port: u16,
    /// Offset of path and query in the text.
    path_at: usize,
}

/// Error for a text that is not a valid target.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TargetUrlError {
    /// It is empty or too long.
    #[error("url has {given} characters: give 1 to {longest}", longest = TargetUrl::LONGEST)]
    Length {
        /// How many it has.
        given: usize,
    },
    /// It has a character that is not allowed in a URL.
    #[error("url has {found:?} at character {at}: write it as %XX")]
    Character {
        /// The character.
        found: char,
        /// Its position, counted from one.
        at: usize,
    },
    /// It is not absolute, or of another scheme.
    #[error("url does not begin with http:// or https://: give an absolute one, not \"{given}\"")]
    Scheme {
        /// The URL, shortened.
        given: String,
    },
    /// It names a user or has a password.
    #[error("url has a user before its host: send an Authorization header instead")]
    User,
    /// It has a fragment, which is never sent.
    #[error("url has a fragment, which is never sent: leave out what begins with #")]
    Fragment,
    /// The host is missing or invalid.
    #[error(
        "url has no valid host: give a name such as example.com, or an address, not \"{given}\""
    )]
    Host {
        /// The host, shortened.
        given: String,
    },
    /// The port is invalid.
    #[error("url has no valid port: give 1 to 65535, not \"{given}\"")]
    Port {
        /// The port, shortened.
        given: String,
    },
}

impl TargetUrl {
    /// Maximum number of characters.
    pub const LONGEST: usize = 2_048;

    /// The URL as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The scheme.
    pub const fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The name or address of the host, in lower case, an IPv6 address without its brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, explicit or of the scheme.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The host and the port, explicit or of the scheme: equal for requests to the same target.
    pub fn host_and_port(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Path and query for the request line: at least `/`.
    pub fn path_and_query(&self) -> std::borrow::Cow<'_, str> {
        match &self.text[self.path_at..] {
            "" => "/".into(),
            query if query.starts_with('?') => format!("/{query}").into(),
            path => path.into(),
        }
    }

    /// Value of the `Host` header: the host, and the port if it is not the default of the scheme.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        match (self.scheme, self.port) {
            (Scheme::Http, 80) | (Scheme::Https, 443) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }
}

impl FromStr for TargetUrl {
    type Err = TargetUrlError;

    fn from_str(text: &str) -> Result<Self, TargetUrlError> {
        if text.is_empty() || text.len() > Self::LONGEST {
            return Err(TargetUrlError::Length { given: text.len() });
        }
        check_characters(text)?;
        let (scheme, after_scheme) = read_scheme(text)?;
        let authority_end = text[after_scheme..]
            .find(['/', '?'])
            .map_or(text.len(), |at| after_scheme + at);
        let authority = &text[after_scheme..authority_end];
        if authority.contains('@') {
            return Err(TargetUrlError::User);
        }
        let (host, port) = split_authority(authority)?;
        Ok(Self {
            scheme,
            host,
            port: port.unwrap_or(match scheme {
                Scheme::Http => 80,
                Scheme::Https => 443,
            }),
            path_at: authority_end,
            text: text.to_owned(),
        })
    }
}

fn check_characters(text: &str) -> Result<(), TargetUrlError> {
    let is_wrong = |c: char| !c.is_ascii_graphic() || "\"<>\\^`{|}".contains(c);
    if let Some((at, found)) = text.chars().enumerate().find(|(_, c)| is_wrong(*c)) {
        return Err(TargetUrlError::Character { found, at: at + 1 });
    }
    if text.contains('#') {
        return Err(TargetUrlError::Fragment);
    }
    Ok(())
}

fn read_scheme(text: &str) -> Result<(Scheme, usize), TargetUrlError> {
    for (prefix, scheme) in [("http://", Scheme::Http), ("https://", Scheme::Https)] {
        let begins = text.get(..prefix.len());
        if begins.is_some_and(|begins| begins.eq_ignore_ascii_case(prefix)) {
            return Ok((scheme, prefix.len()));
        }
    }
    // The query may be secret.
    let given = text.split('?').next().unwrap_or_default();
    Err(TargetUrlError::Scheme {
        given: excerpt(given),
    })
}

fn split_authority(authority: &str) -> Result<(String, Option<u16>), TargetUrlError> {
    let wrong_host = || TargetUrlError::Host {
        given: excerpt(authority),
    };
    if let Some(rest) = authority.strip_prefix('[') {
        let (address, port) = rest.split_once(']').ok_or_else(wrong_host)?;
        let address: Ipv6Addr = address.parse().map_err(|_| wrong_host())?;
        let port = match port {
            "" => None,
            port => Some(read_port(port.strip_prefix(':').ok_or_else(wrong_host)?)?),
        };
        return Ok((address.to_string(), port));
    }
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, Some(read_port(port)?)),
        None => (authority, None),
    };
    if is_host_name(host) {
        Ok((host.to_ascii_lowercase(), port))
    } else {
        Err(wrong_host())
    }
}

fn read_port(text: &str) -> Result<u16, TargetUrlError> {
    let wrong = || TargetUrlError::Port {
        given: excerpt(text),
    };
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    text.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)
}

/// Names as DNS has them, with the underscores that private networks use. One dot at the end is
/// the root's.
fn is_host_name(host: &str) -> bool {
    let name = host.strip_suffix('.').unwrap_or(host);
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

impl fmt::Display for TargetUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Without the query, which may be secret.
impl fmt::Debug for TargetUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.text.split('?').next().unwrap_or_default();
        write!(f, "TargetUrl({shown})")
    }
}

json_as_text!(TargetUrl);

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> TargetUrl {
        text.parse().unwrap()
    }

    #[test]
    fn its_parts_are_read() {
        let plain = url("http://Example.com");
        assert_eq!(
            (plain.scheme(), plain.host(), plain.port()),
            (Scheme::Http, "example.com", 80)
        );
        assert_eq!(plain.path_and_query(), "/");
        assert_eq!(plain.authority(), "example.com");
        assert_eq!(plain.host_and_port(), "example.com:80");
        let full = url("HTTPS://[2001:DB8::1]:8443/a/b?c=d&e");
        assert_eq!(
            (full.scheme(), full.host(), full.port()),
            (Scheme::Https, "2001:db8::1", 8443)
        );
        assert_eq!(full.path_and_query(), "/a/b?c=d&e");
        assert_eq!(full.authority(), "[2001:db8::1]:8443");
        assert_eq!(full.host_and_port(), full.authority());
        assert_eq!(url("http://a?b=c").path_and_query(), "/?b=c");
        assert_eq!(url("https://a:443/").authority(), "a");
        assert_eq!(url("http://a:443/").authority(), "a:443");
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for bad in [
            "",
            "/path",
            "example.com",
            "//example.com",
            "ftp://a",
            "file:///etc/passwd",
            "http:/a",
            "http:///a",
            "http://",
            "http://:80",
            "http://a:0",
            "http://a:65536",
            "http://a:",
            "http://a:8a",
            "http://a:80:80",
            "http://user@a",
            "http://u:p@a",
            "http://a@b@c",
            "http://[::1",
            "http://::1",
            "http://[::1]x",
            "http://[fe80::1%25eth0]",
            "http://[1.2.3.4]",
            "http://a b",
            "http://a\\b",
            "http://a/\r\nX: y",
            "http://ä",
            "http://a/ä",
            "http://a#b",
            "http://%61",
            "http://a..b",
            "http://.a",
            "http://a/{b}",
            "http://a/\0",
            "http://a,b",
            "http://a;b",
            "javascript:alert(1)",
            "http://a/\u{a0}",
        ] {
            assert!(bad.parse::<TargetUrl>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn its_length_is_limited() {
        for (length, is_right) in [(2_047, true), (2_048, true), (2_049, false)] {
            let text = format!("http://a/{}", "b".repeat(length - 9));
            assert_eq!(text.parse::<TargetUrl>().is_ok(), is_right, "{length}");
        }
        let label = "a".repeat(63);
        assert!(
            format!("http://{label}.{label}.{label}.{label}")
                .parse::<TargetUrl>()
                .is_err()
        );
        assert!(format!("http://{label}a").parse::<TargetUrl>().is_err());
        assert!(format!("http://{label}").parse::<TargetUrl>().is_ok());
    }

    #[test]
    fn an_error_says_what_would_be_right_and_shows_no_query() {
        let error = "ftp://a/?password=hunter2"
            .parse::<TargetUrl>()
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "url does not begin with http:// or https://: give an absolute one, not \"ftp://a/\""
        );
        assert!(!format!("{:?}", url("http://a/?key=hunter2")).contains("hunter2"));
    }
}
