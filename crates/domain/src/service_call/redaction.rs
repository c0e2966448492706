//! Keeping secrets out of what is shown, logged, published or kept for longer than needed.
//!
//! Two things make a text secret: the name of the header or parameter that carries it, and that it
//! is the same text as one that such a header carried. The second is for targets that repeat in
//! their answer what they were sent.

use std::collections::BTreeSet;

use super::{RequestSpec, TargetUrl};

/// What stands in the place of a secret.
pub const REDACTED: &str = "[redacted]";

/// Whether a header or parameter of this name carries a secret.
pub fn is_sensitive(name: &str) -> bool {
    const WORDS: &[&str] = &[
        "authorization",
        "cookie",
        "token",
        "secret",
        "password",
        "passwd",
        "pwd",
        "credential",
        "signature",
        "session",
        "apikey",
        "accesskey",
        "privatekey",
        "auth",
    ];
    let plain: String = name
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect();
    // `sig` and `key` alone are too short to be looked for inside other words.
    matches!(plain.as_str(), "sig" | "key") || WORDS.iter().any(|word| plain.contains(word))
}

/// The beginning of a text, for people to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snippet(String);

impl Snippet {
    /// The most bytes that are kept.
    pub const LONGEST: usize = 4_096;

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text itself.
    pub fn into_string(self) -> String {
        self.0
    }
}

/// The secrets of one request, to be blotted out wherever they turn up.
#[derive(Clone)]
pub struct Redaction {
    /// Longest first, so that a secret which contains another goes as a whole.
    secrets: Vec<String>,
}

impl Redaction {
    /// Shorter ones turn up by chance in any text, and say nothing.
    const SHORTEST: usize = 4;

    /// What is secret about a request.
    pub fn of(request: &RequestSpec) -> Self {
        let mut secrets = BTreeSet::new();
        for (name, value) in request.headers.iter() {
            if is_sensitive(name) {
                // `Bearer x`, `a=b; c=d`: the parts are as secret as the whole.
                secrets.insert(value.to_owned());
                secrets.extend(value.split([' ', ';', ',', '=']).map(str::to_owned));
            }
        }
        for (name, value) in query_of(&request.url) {
            if is_sensitive(&percent_decoded(name)) {
                secrets.insert(value.to_owned());
                secrets.insert(percent_decoded(value));
            }
        }
        let mut secrets: Vec<String> = secrets
            .into_iter()
            .filter(|secret| secret.len() >= Self::SHORTEST && !is_open(secret))
            .collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self { secrets }
    }

    /// The text without the secrets.
    pub fn blot(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), REDACTED);
            }
        }
        text
    }

    /// The beginning of a body without the secrets, cut so that none is cut in two.
    ///
    /// What is no text becomes `\u{fffd}`, and so do control characters beyond line breaks and tabs.
    pub fn snippet(&self, body: &[u8]) -> Snippet {
        // Whatever begins before the cut is blotted out whole.
        let longest = self.secrets.first().map_or(0, String::len);
        let taken = &body[..body.len().min(Snippet::LONGEST + longest)];
        let text: String = String::from_utf8_lossy(taken)
            .chars()
            .map(|c| match c {
                '\n' | '\t' | '\r' => c,
                c if c.is_control() => char::REPLACEMENT_CHARACTER,
                c => c,
            })
            .collect();
        let mut text = self.blot(&text);
        truncate(&mut text, Snippet::LONGEST);
        Snippet(text)
    }

    /// A header's value as it may be shown.
    pub fn header(&self, name: &str, value: &str) -> String {
        if is_sensitive(name) {
            REDACTED.to_owned()
        } else {
            self.blot(value)
        }
    }
}

/// The URL with the values of secret parameters blotted out.
pub(super) fn redacted_url(url: &TargetUrl) -> String {
    let Some((before, query)) = url.as_str().split_once('?') else {
        return url.as_str().to_owned();
    };
    let shown = |parameter: &str| match parameter.split_once('=') {
        Some((name, _)) if is_sensitive(&percent_decoded(name)) => {
            format!("{name}={REDACTED_IN_URL}")
        }
        _ => parameter.to_owned(),
    };
    let query: Vec<String> = query.split('&').map(shown).collect();
    format!("{before}?{}", query.join("&"))
}

/// The same mark, of characters that a URL may have.
const REDACTED_IN_URL: &str = "redacted";

fn query_of(url: &TargetUrl) -> impl Iterator<Item = (&str, &str)> {
    let query = url.as_str().split_once('?').map_or("", |(_, query)| query);
    query.split('&').filter_map(|one| one.split_once('='))
}

/// The names of ways to authenticate are no secret, and would be blotted out everywhere; nor is what
/// has been blotted out already.
fn is_open(word: &str) -> bool {
    // A short secret is stood for by the beginning of the mark.
    REDACTED.starts_with(word)
        || [
            "basic",
            "bearer",
            "digest",
            "negotiate",
            "path",
            "expires",
            REDACTED_IN_URL,
        ]
        .iter()
        .any(|open| word.eq_ignore_ascii_case(open))
}

fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes
            .get(at + 1..at + 3)
            .and_then(|h| std::str::from_utf8(h).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if bytes[at] == b'%' => {
                decoded.push(byte);
                at += 3;
            }
            _ => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

fn truncate(text: &mut String, longest: usize) {
    if text.len() > longest {
        text.truncate(text.floor_char_boundary(longest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(json: &str) -> RequestSpec {
        serde_json::from_str(json).unwrap()
    }

    fn with_secrets() -> RequestSpec {
        request(
            r#"{"method":"GET","url":"http://a/?api_key=k%65y-canary&%74oken=odd-canary&q=open",
                "headers":{"Authorization":"Bearer auth-canary","Cookie":"sid=cookie-canary; a=b",
                           "X-Api-Key":"api-canary","Accept":"text/plain"}}"#,
        )
    }

    #[test]
    fn names_that_carry_secrets_are_known_in_any_spelling() {
        for name in [
            "Authorization",
            "Cookie",
            "Set-Cookie",
            "X-Api-Key",
            "apikey",
            "X-Auth-Token",
            "access_token",
            "client_secret",
            "Password",
            "X-Amz-Signature",
            "sig",
            "key",
            "sessionid",
        ] {
            assert!(is_sensitive(name), "{name}");
        }
        for name in [
            "Accept",
            "Content-Type",
            "X-Request-Id",
            "keyboard",
            "page",
            "design",
        ] {
            assert!(!is_sensitive(name), "{name}");
        }
    }

    #[test]
    fn what_a_target_repeats_is_blotted_out_in_whole_and_in_part() {
        let redaction = Redaction::of(&with_secrets());
        let echo = "you sent Bearer auth-canary, sid=cookie-canary, api-canary, k%65y-canary, key-canary, odd-canary";
        let shown = redaction.blot(echo);
        assert!(!shown.contains("canary"), "{shown}");
        assert!(shown.starts_with("you sent "), "{shown}");
        assert_eq!(redaction.header("Set-Cookie", "new=one"), REDACTED);
        assert_eq!(
            redaction.header("X-Echo", "auth-canary!"),
            format!("{REDACTED}!")
        );
        assert_eq!(
            redacted_url(&with_secrets().url),
            "http://a/?api_key=redacted&%74oken=redacted&q=open"
        );
    }

    #[test]
    fn a_secret_across_the_cut_is_not_half_shown() {
        let redaction = Redaction::of(&with_secrets());
        for before in Snippet::LONGEST - 20..Snippet::LONGEST + 2 {
            let body = format!("{}auth-canary and more", "x".repeat(before));
            let snippet = redaction.snippet(body.as_bytes());
            assert!(!snippet.as_str().contains("auth"), "{before}");
            assert!(snippet.as_str().len() <= Snippet::LONGEST);
        }
    }

    proptest! {
        #[test]
        fn a_snippet_of_anything_is_short_printable_text(body in prop::collection::vec(any::<u8>(), 0..9_000)) {
            let snippet = Redaction::of(&with_secrets()).snippet(&body);
            prop_assert!(snippet.as_str().len() <= Snippet::LONGEST);
            prop_assert!(!snippet.as_str().contains('\0'));
        }
    }
}
