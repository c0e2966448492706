//! Bearer tokens, each for one tenant or for all. Only their hashes are known here.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use punctual_domain::TenantId;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

/// The tokens that are accepted, each for one tenant or for all. Clones are the same, also after
/// [`replace`](Self::replace). `Debug` prints their number.
#[derive(Clone, Default)]
pub struct Tokens {
    entries: Arc<RwLock<Arc<[Entry]>>>,
}

#[derive(Clone)]
struct Entry {
    /// The tenant, or none for all tenants.
    tenant: Option<TenantId>,
    hash: [u8; 32],
}

/// The grant of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grant {
    /// The token is unknown.
    Unknown,
    /// The token is valid for something else.
    Elsewhere,
    /// The token is valid for the request.
    Here,
}

impl Tokens {
    /// No tokens: everybody who can reach the API may do everything.
    pub fn none() -> Self {
        Self::default()
    }

    /// Reads lines of `tenant:sha256hex`, where the tenant `*` stands for all; empty lines and those
    /// that begin with `#` count for nothing.
    ///
    /// # Errors
    /// With a sentence on the first line that is wrong, or if there is no token at all. It never has a
    /// part of a token.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut entries = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let entry = Entry::parse(line);
            entries.push(entry.map_err(|reason| format!("line {}: {reason}", number + 1))?);
        }
        if entries.is_empty() {
            return Err("it names no token, so no request would be accepted: give lines of tenant:sha256hex, or * as the tenant for all".to_owned());
        }
        Ok(Self {
            entries: Arc::new(RwLock::new(entries.into())),
        })
    }

    fn entries(&self) -> Arc<[Entry]> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&entries)
    }

    /// Replaces the accepted tokens, and returns their number. No tokens at all are no replacement: once
    /// there is a check, it stays.
    pub fn replace(&self, others: &Self) -> usize {
        let others = others.entries();
        if !others.is_empty() {
            *self.entries.write().unwrap_or_else(PoisonError::into_inner) = others;
        }
        self.len()
    }

    /// Whether there are no tokens, and so no check.
    pub fn is_empty(&self) -> bool {
        self.entries().is_empty()
    }

    /// The number of tokens.
    pub fn len(&self) -> usize {
        self.entries().len()
    }

    /// The grant of a token for a tenant, or for everything if none is named. Every entry is compared to
    /// its end, whatever the others say.
    pub(crate) fn grant(&self, token: &str, tenant: Option<&str>) -> Grant {
        let hash: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let (mut known, mut here) = (Choice::from(0), Choice::from(0));
        for entry in &*self.entries() {
            let same = hash.ct_eq(&entry.hash);
            let is_for_it = match (&entry.tenant, tenant) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(own), Some(tenant)) => own.as_str() == tenant,
            };
            known |= same;
            here |= same & Choice::from(u8::from(is_for_it));
        }
        match (bool::from(known), bool::from(here)) {
            (_, true) => Grant::Here,
            (true, false) => Grant::Elsewhere,
            (false, false) => Grant::Unknown,
        }
    }
}

impl Entry {
    fn parse(line: &str) -> Result<Self, String> {
        let (tenant, hash) = line
            .split_once(':')
            .ok_or("it has no colon: write tenant:sha256hex, or *:sha256hex for all tenants")?;
        let tenant = match tenant.trim() {
            "*" => None,
            // The reason for refusing is not repeated: what stands here may be a token.
            name => Some(TenantId::new(name).map_err(|_| {
                "what stands before the colon is neither a tenant (1 to 128 of A-Z a-z 0-9 _ -) nor *"
            })?),
        };
        let hash = read_hash(hash.trim()).ok_or(
            "what stands after the colon is not a SHA-256 in 64 hexadecimal digits: \
             if it is the token itself, write its hash instead and draw a new token",
        )?;
        Ok(Self { tenant, hash })
    }
}

fn read_hash(text: &str) -> Option<[u8; 32]> {
    let hash = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?;
    hash.try_into().ok()
}

/// The hash of a token, as a file of tokens has it.
pub fn hash_token(token: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(token.as_bytes()))
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_for_its_tenant_and_a_star_for_all() {
        let file = format!(
            "# people\n\n a:{}\nb:{}\n*:{}\nb:{}\n",
            hash_token("of-a"),
            hash_token("of-b"),
            hash_token("of-all").to_uppercase(),
            hash_token("of-a"),
        );
        let tokens = Tokens::parse(&file).unwrap();
        assert_eq!(tokens.len(), 4);
        for (token, tenant, grant) in [
            ("of-a", Some("a"), Grant::Here),
            ("of-a", Some("b"), Grant::Here),
            ("of-a", Some("c"), Grant::Elsewhere),
            ("of-a", None, Grant::Elsewhere),
            ("of-b", Some("a"), Grant::Elsewhere),
            ("of-all", Some("c"), Grant::Here),
            ("of-all", None, Grant::Here),
            ("", Some("a"), Grant::Unknown),
            ("of-A", Some("a"), Grant::Unknown),
        ] {
            assert_eq!(tokens.grant(token, tenant), grant, "{token} {tenant:?}");
        }
    }

    #[test]
    fn a_bad_line_is_named_by_its_number_and_never_repeated() {
        let right = hash_token("x");
        for (line, hint) in [
            ("canary-token", "colon"),
            ("canary token:0000", "neither a tenant"),
            ("a:canary-token", "the token itself"),
            (&format!("a:{right}canary"), "64 hexadecimal"),
            (&format!("a:+{}", &right[1..]), "64 hexadecimal"),
            ("a:ä", "64 hexadecimal"),
        ] {
            let error = Tokens::parse(&format!("# comment\n{line}\n")).unwrap_err();
            assert!(error.starts_with("line 2: "), "{error}");
            assert!(error.contains(hint), "{error}");
            assert!(!error.contains("canary"), "{error}");
        }
    }

    #[test]
    fn a_file_without_tokens_is_refused_rather_than_taken_for_no_check() {
        for text in ["", "\n# a:b\n"] {
            let error = Tokens::parse(text).unwrap_err();
            assert!(error.starts_with("it names no token"), "{error}");
        }
        assert!(Tokens::none().is_empty());
    }

    #[test]
    fn the_hash_is_the_one_that_sha256sum_prints() {
        assert_eq!(
            hash_token("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn a_replacement_counts_for_every_clone_and_none_is_no_replacement() {
        let of = |token: &str| Tokens::parse(&format!("a:{}", hash_token(token))).unwrap();
        let tokens = of("old");
        let shared = tokens.clone();
        assert_eq!(tokens.replace(&of("new")), 1);
        assert_eq!(shared.grant("old", Some("a")), Grant::Unknown);
        assert_eq!(shared.grant("new", Some("a")), Grant::Here);
        assert_eq!(tokens.replace(&Tokens::none()), 1);
        assert_eq!(shared.grant("new", Some("a")), Grant::Here);
    }

    #[test]
    fn debug_prints_no_hash() {
        let tokens = Tokens::parse(&format!("a:{}", hash_token("abc"))).unwrap();
        assert_eq!(format!("{tokens:?}"), "Tokens(1)");
    }
}
