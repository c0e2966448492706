//! The parts of a server's URL that tests replace: where the server is, and its database.

use std::ops::Range;

/// Host and port.
///
/// # Panics
/// If the URL does not name both.
pub(crate) fn endpoint(url: &str) -> (String, u16) {
    let place = &url[endpoint_range(url)];
    let parsed = place
        .rsplit_once(':')
        .and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
    parsed.unwrap_or_else(|| panic!("failed to find host and port in `{url}`"))
}

/// The user, without the password.
pub(crate) fn user(url: &str) -> Option<&str> {
    let authority = url.find("://").map_or(0, |at| at + 3);
    let login = url[authority..endpoint_range(url).start].strip_suffix('@')?;
    Some(login.split_once(':').map_or(login, |(user, _)| user))
}

/// The same URL at a port on loopback.
pub(crate) fn at_port(url: &str, port: u16) -> String {
    let range = endpoint_range(url);
    let (before, after) = (&url[..range.start], &url[range.end..]);
    format!("{before}127.0.0.1:{port}{after}")
}

/// The same URL with another database; what follows a `?` stays.
pub(crate) fn with_database(url: &str, database: &str) -> String {
    let end = endpoint_range(url).end;
    let query = url[end..].find('?').map_or("", |at| &url[end + at..]);
    format!("{}/{database}{query}", &url[..end])
}

/// Where `host:port` is: behind the user, before the path.
fn endpoint_range(url: &str) -> Range<usize> {
    let authority = url.find("://").map_or(0, |at| at + 3);
    let end = url[authority..]
        .find(['/', '?', '#'])
        .map_or(url.len(), |at| authority + at);
    let start = url[authority..end]
        .rfind('@')
        .map_or(authority, |at| authority + at + 1);
    start..end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_port_are_found_behind_the_user_and_before_the_path() {
        for url in [
            "postgres://punctual:p@ss@localhost:5433/postgres?sslmode=disable",
            "nats://localhost:5433",
            "postgres://localhost:5433?user=x@y",
        ] {
            assert_eq!(endpoint(url), ("localhost".to_owned(), 5433), "{url}");
        }
    }

    #[test]
    #[should_panic(expected = "failed to find host and port")]
    fn a_url_without_a_port_is_refused() {
        endpoint("postgres://localhost/postgres");
    }

    #[test]
    fn a_user_is_found_without_the_password() {
        assert_eq!(user("postgres://u:p@ss@h:1/d"), Some("u"));
        assert_eq!(user("postgres://u@h:1"), Some("u"));
        assert_eq!(user("postgres://h:1/d?user=x@y"), None);
    }

    #[test]
    fn one_part_is_replaced_and_the_others_stay() {
        let url = "postgres://u:p@localhost:5433/postgres?sslmode=disable";
        assert_eq!(
            at_port(url, 7),
            "postgres://u:p@127.0.0.1:7/postgres?sslmode=disable"
        );
        assert_eq!(
            with_database(url, "other"),
            "postgres://u:p@localhost:5433/other?sslmode=disable"
        );
        assert_eq!(
            with_database("postgres://u@h:1", "other"),
            "postgres://u@h:1/other"
        );
    }
}
