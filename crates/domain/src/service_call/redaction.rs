//! Redaction: keeps secrets out of everything that is displayed, logged, published or stored for long.
//!
//! A text is secret if the name of its header or parameter says so, or if it equals the value of such a
//! header or parameter: a target may repeat in its response what it was sent.

use std::collections::BTreeSet;

use super::{RequestSpec, TargetUrl};

/// Replacement of a secret.
pub const REDACTED: &str = "[redacted]";

/// Which names of headers and query parameters carry a secret.
#[derive(Debug, Clone, Copy)]
enum Name {
    /// Any name that contains this.
    With(&'static str),
    /// This name only: it is too short, or too common, to be searched for inside others.
    Is(&'static str),
    /// Any name whose last word is this one.
    Ends(&'static str),
}

/// Every name that carries a secret, by its letters and digits in lower case.
const SECRET_NAMES: &[Name] = &[
    Name::With("auth"),
    Name::With("cookie"),
    Name::With("token"),
    Name::With("secret"),
    Name::With("password"),
    Name::With("passwd"),
    Name::With("passphrase"),
    Name::With("passcode"),
    Name::With("pwd"),
    Name::With("credential"),
    Name::With("signature"),
    Name::With("session"),
    Name::With("sessid"),
    Name::With("apikey"),
    Name::With("accesskey"),
    Name::With("accountkey"),
    Name::With("functionskey"),
    Name::With("masterkey"),
    Name::With("privatekey"),
    Name::With("sharedkey"),
    Name::With("subscriptionkey"),
    Name::With("assertion"),
    Name::With("samlresponse"),
    Name::With("verifier"),
    Name::With("hmac"),
    Name::With("jwt"),
    Name::Is("bearer"),
    Name::Is("code"),
    Name::Is("otp"),
    Name::Is("pass"),
    Name::Is("pin"),
    Name::Is("sas"),
    Name::Is("sid"),
    Name::Is("sig"),
    Name::Ends("key"),
];

/// Headers that carry a URL, whose query, fragment and user are secret.
const URL_NAMES: &[&str] = &[
    "content-location",
    "link",
    "location",
    "origin",
    "referer",
    "refresh",
];

impl Name {
    fn fits(self, name: &str, plain: &str) -> bool {
        match self {
            Self::With(word) => plain.contains(word),
            Self::Is(word) => plain == word,
            Self::Ends(word) => {
                let mut words = name.rsplit(|c: char| !c.is_ascii_alphanumeric());
                words
                    .next()
                    .is_some_and(|last| last.eq_ignore_ascii_case(word))
            }
        }
    }
}

/// Whether a header or parameter of this name carries a secret.
pub fn is_sensitive(name: &str) -> bool {
    let plain: String = name
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect();
    SECRET_NAMES.iter().any(|it| it.fits(name, &plain))
}

/// Where the secret part of a header's value begins, if it has one.
pub(super) fn secret_part(name: &str, value: &str) -> Option<usize> {
    if is_sensitive(name) {
        return Some(0);
    }
    if !URL_NAMES.iter().any(|it| name.eq_ignore_ascii_case(it)) {
        return None;
    }
    if value.contains('@') {
        return Some(0);
    }
    value.find(['?', '#']).map(|at| at + 1)
}

/// The start of a text, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snippet {
    text: String,
    is_cut: bool,
}

impl Snippet {
    /// Maximum number of bytes.
    pub const LONGEST: usize = 4_096;

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The text itself.
    pub fn into_string(self) -> String {
        self.text
    }

    /// Whether there was more.
    pub const fn is_cut(&self) -> bool {
        self.is_cut
    }
}

/// The secrets of one request, to be redacted wherever they appear.
#[derive(Clone)]
pub struct Redaction {
    /// Longest first, so that a secret which contains another is redacted completely.
    secrets: Vec<String>,
}

impl Redaction {
    /// Minimum length of a secret: shorter ones appear by chance in any text.
    const SHORTEST: usize = 4;

    /// The secrets of a request.
    pub fn of(request: &RequestSpec) -> Self {
        let mut secrets = BTreeSet::new();
        for (name, value) in request.headers.iter() {
            if is_sensitive(name) {
                // `Bearer x`, `a=b; c=d`: the parts are secret, too.
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
    pub fn redact(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), REDACTED);
            }
        }
        text
    }

    /// The start of a body without the secrets, truncated so that no part of a secret is left.
    ///
    /// Invalid UTF-8 becomes `\u{fffd}`, and so do control characters other than line breaks and tabs.
    pub fn snippet(&self, body: &[u8]) -> Snippet {
        // A secret that starts before the end of the snippet is redacted completely.
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
        let mut text = self.redact(&text);
        let is_cut = taken.len() < body.len() || text.len() > Snippet::LONGEST;
        truncate(&mut text, Snippet::LONGEST);
        Snippet { text, is_cut }
    }

    /// The value of a header without secrets.
    pub fn header(&self, name: &str, value: &str) -> String {
        match secret_part(name, value) {
            Some(from) => self.redact(&value[..from]) + REDACTED,
            None => self.redact(value),
        }
    }
}

/// The URL with the values of secret parameters redacted.
pub(super) fn redacted_url(url: &TargetUrl) -> String {
    let Some((before, query)) = url.as_str().split_once('?') else {
        return url.as_str().to_owned();
    };
    let redact = |parameter: &str| match parameter.split_once('=') {
        Some((name, _)) if is_sensitive(&percent_decoded(name)) => {
            format!("{name}={REDACTED_IN_URL}")
        }
        _ => parameter.to_owned(),
    };
    let query: Vec<String> = query.split('&').map(redact).collect();
    format!("{before}?{}", query.join("&"))
}

/// Replacement of a secret, in characters allowed in a URL.
const REDACTED_IN_URL: &str = "redacted";

fn query_of(url: &TargetUrl) -> impl Iterator<Item = (&str, &str)> {
    let query = url.as_str().split_once('?').map_or("", |(_, query)| query);
    query.split('&').filter_map(|one| one.split_once('='))
}

/// Whether a text is not secret: the name of an authentication scheme, which would be redacted everywhere,
/// or a replacement.
fn is_open(word: &str) -> bool {
    // A short secret is replaced by the start of the replacement.
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
            "X-Amz-Security-Token",
            "X-Goog-Credential",
            "X-Hub-Signature-256",
            "Ocp-Apim-Subscription-Key",
            "subscriptionKey",
            "X-Functions-Key",
            "X-Master-Key",
            "client_assertion",
            "code_verifier",
            "PHPSESSID",
            "code",
            "Code",
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
            "monkey",
            "page",
            "design",
            "encode",
            "zipcode",
            "location",
        ] {
            assert!(!is_sensitive(name), "{name}");
        }
    }

    /// Each row hides a header, a parameter and what a target repeats of either.
    #[test]
    fn every_row_of_the_table_hides_what_it_names() {
        for row in SECRET_NAMES {
            let name = match row {
                Name::With(word) => format!("X-{word}-1"),
                Name::Is(word) => (*word).to_owned(),
                Name::Ends(word) => format!("x_some_{word}"),
            };
            assert!(
                is_sensitive(&name) && is_sensitive(&name.to_uppercase()),
                "{row:?}"
            );
            let request = request(&format!(
                r#"{{"method":"GET","url":"http://a/?{name}=canary-1&q=open",
                    "headers":{{"{name}":"canary-2"}},"body":"canary-1 canary-2"}}"#
            ));
            let shown = serde_json::to_string(&request.redacted()).unwrap();
            assert!(!shown.contains("canary"), "{row:?}: {shown}");
            assert!(shown.contains("q=open"), "{row:?}: {shown}");
            let redaction = Redaction::of(&request);
            assert_eq!(redaction.header(&name, "any"), REDACTED, "{row:?}");
            assert!(!redaction.redact("canary-1 canary-2").contains("canary"));
        }
    }

    #[test]
    fn the_document_names_every_row_of_the_table() {
        let document = include_str!("../../../../docs/messages.md");
        for row in SECRET_NAMES {
            let (Name::With(word) | Name::Is(word) | Name::Ends(word)) = row;
            assert!(document.contains(&format!("`{word}`")), "{row:?}");
        }
        for name in URL_NAMES {
            let named = document.to_ascii_lowercase().contains(&format!("`{name}`"));
            assert!(named, "{name}");
        }
    }

    #[test]
    fn of_a_url_in_a_header_its_query_its_fragment_and_its_user_are_secret() {
        let redaction = Redaction::of(&with_secrets());
        for name in URL_NAMES {
            for (value, shown) in [
                ("https://a/cb?code=canary&x=1", "https://a/cb?[redacted]"),
                (
                    "https://a/cb#access_token=canary",
                    "https://a/cb#[redacted]",
                ),
                ("0; url=/next?canary", "0; url=/next?[redacted]"),
                ("<https://a/?canary>; rel=next", "<https://a/?[redacted]"),
                ("https://user:canary@a/", "[redacted]"),
                ("https://a/auth-canary/", "https://a/[redacted]/"),
                ("https://a/b/c", "https://a/b/c"),
            ] {
                assert_eq!(redaction.header(name, value), shown, "{name}: {value}");
                assert_eq!(redaction.header(&name.to_uppercase(), value), shown);
            }
        }
        let sent = request(
            r#"{"method":"GET","url":"http://a/","headers":{"Referer":"http://b/?canary-1=2"}}"#,
        );
        let shown = serde_json::to_string(&sent.redacted()).unwrap();
        assert!(
            !shown.contains("canary") && shown.contains("http://b/?"),
            "{shown}"
        );
    }

    #[test]
    fn secrets_repeated_by_a_target_are_redacted_completely_and_in_part() {
        let redaction = Redaction::of(&with_secrets());
        let echo = "you sent Bearer auth-canary, sid=cookie-canary, api-canary, k%65y-canary, key-canary, odd-canary";
        let shown = redaction.redact(echo);
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
    fn a_secret_across_the_end_of_a_snippet_leaves_no_part() {
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
