//! The two notations of libpq, a URL and a list of keywords, taken apart into parameters and values.
//!
//! What is wrong is said without repeating any of the text: the piece that cannot be understood is often
//! a part of the password.

use percent_encoding::percent_decode_str;

use crate::ConnectError;

/// Maximum length of an address in bytes.
const LONGEST: usize = 8 * 1024;

const EXAMPLE: &str = "give postgres://user:password@host:5432/database";

/// Parameters with their values, each at most once.
#[derive(Default)]
pub(crate) struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Takes a value out.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.swap_remove(at).1)
    }

    /// A name that nobody took.
    pub(crate) fn any_name(&self) -> Option<&str> {
        self.0.first().map(|(name, _)| name.as_str())
    }

    fn set(&mut self, name: &str, value: String) {
        self.take(name);
        self.0.push((name.to_owned(), value));
    }
}

/// Takes an address apart.
pub(crate) fn parse(text: &str) -> Result<Parameters, ConnectError> {
    // A secret that is kept in a file often ends in a newline.
    let text = text.trim_ascii();
    if text.is_empty() {
        return Err(wrong(&format!("it is empty: {EXAMPLE}")));
    }
    if text.len() > LONGEST {
        return Err(wrong(&format!("it is longer than {LONGEST} bytes")));
    }
    if text.chars().any(char::is_control) {
        let advice =
            "it has a line break or another control character: percent-encode it, or remove it";
        return Err(wrong(advice));
    }
    for scheme in ["postgres://", "postgresql://"] {
        if let Some(rest) = text.strip_prefix(scheme) {
            return of_url(rest);
        }
    }
    if text.contains("://") && !text.contains('=') {
        return Err(wrong(&format!(
            "it does not begin with postgres://: {EXAMPLE}"
        )));
    }
    of_keywords(text)
}

fn wrong(advice: &str) -> ConnectError {
    let advice = advice.to_owned();
    ConnectError::Address { advice }
}

fn encode_advice() -> ConnectError {
    wrong(
        "an @, / or ? is in the wrong place: write %40, %2F and %3F for those in a user, password or name",
    )
}

/// `user:password@host:port,host:port/database?parameter=value&…`, as libpq reads it.
fn of_url(rest: &str) -> Result<Parameters, ConnectError> {
    let mut parameters = Parameters::default();
    // The first `@` ends the credentials unless a `/` comes before it.
    let authority_end = rest.find('/').unwrap_or(rest.len());
    let rest = match rest[..authority_end].split_once('@') {
        Some((credentials, _)) => {
            let (user, password) = match credentials.split_once(':') {
                Some((user, password)) => (user, Some(password)),
                None => (credentials, None),
            };
            if !user.is_empty() {
                parameters.set("user", decoded(user)?);
            }
            if let Some(password) = password.filter(|it| !it.is_empty()) {
                parameters.set("password", decoded(password)?);
            }
            &rest[credentials.len() + 1..]
        }
        // An `@` further on shows that a password has a `/`, and what seems to be a port is a part of it.
        None if rest.contains('@') => return Err(encode_advice()),
        None => rest,
    };
    let (place, query) = match rest.split_once('?') {
        Some((place, query)) => (place, Some(query)),
        None => (rest, None),
    };
    if place.contains('@') {
        return Err(encode_advice());
    }
    let (hosts, database) = match place.split_once('/') {
        Some((hosts, database)) => (hosts, database),
        None => (place, ""),
    };
    set_hosts(&mut parameters, hosts)?;
    if database.contains('/') {
        return Err(encode_advice());
    }
    if !database.is_empty() {
        parameters.set("dbname", decoded(database)?);
    }
    set_query(&mut parameters, query.unwrap_or_default())?;
    Ok(parameters)
}

/// `host:port,[::1]:port`, into the lists that the keywords have.
fn set_hosts(parameters: &mut Parameters, hosts: &str) -> Result<(), ConnectError> {
    if hosts.is_empty() {
        return Ok(());
    }
    let (mut names, mut ports) = (Vec::new(), Vec::new());
    for piece in hosts.split(',') {
        let (name, port) = if let Some(inner) = piece.strip_prefix('[') {
            let (name, after) = inner
                .split_once(']')
                .ok_or_else(|| wrong("an IPv6 address has no closing bracket: write [::1]:5432"))?;
            let port = match after.strip_prefix(':') {
                None if !after.is_empty() => {
                    return Err(wrong("only a port may follow the ] of an IPv6 address"));
                }
                port => port.unwrap_or_default(),
            };
            (name, port)
        } else {
            piece.split_once(':').unwrap_or((piece, ""))
        };
        if port.contains(':') {
            return Err(wrong(
                "a host has two ports: write an IPv6 address in brackets, as [::1]:5432",
            ));
        }
        let name = decoded(name)?;
        // Otherwise it would be read as two hosts in the list.
        if name.contains(',') {
            return Err(wrong("a host has a comma in its name"));
        }
        names.push(name);
        ports.push(decoded(port)?);
    }
    // Without any host, or any port, both may come from the parameters.
    if names.iter().any(|it| !it.is_empty()) {
        parameters.set("host", names.join(","));
    }
    if ports.iter().any(|it| !it.is_empty()) {
        parameters.set("port", ports.join(","));
    }
    Ok(())
}

fn set_query(parameters: &mut Parameters, query: &str) -> Result<(), ConnectError> {
    let mut seen: Vec<String> = Vec::new();
    for piece in query.split('&').filter(|it| !it.is_empty()) {
        let Some((name, value)) = piece.split_once('=') else {
            return Err(wrong(
                "a parameter after the ? has no value: write ?name=value&name=value",
            ));
        };
        let (mut name, mut value) = (decoded(name)?, decoded(value)?);
        is_name(&name)?;
        // As libpq does for addresses that come from JDBC.
        if name == "ssl" && value == "true" {
            (name, value) = ("sslmode".to_owned(), "require".to_owned());
        }
        if seen.contains(&name) {
            return Err(twice(&name));
        }
        // A parameter wins over the part before it: postgres://localhost/db?host=/run/postgresql.
        parameters.set(&name, value);
        seen.push(name);
    }
    Ok(())
}

fn twice(name: &str) -> ConnectError {
    wrong(&format!("{name} is given twice: give it once"))
}

/// Refuses what cannot be the name of a parameter, so that no secret is repeated as one.
fn is_name(name: &str) -> Result<(), ConnectError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if (1..=32).contains(&name.len()) && name.chars().all(is_plain) {
        return Ok(());
    }
    Err(wrong(
        "something in it is no parameter: quote values with spaces in a list of keywords, and percent-encode & in a URL",
    ))
}

/// Percent-decodes strictly: libpq, too, refuses what is no valid sequence, and NUL.
fn decoded(text: &str) -> Result<String, ConnectError> {
    let mut rest = text;
    while let Some((_, after)) = rest.split_once('%') {
        let is_valid = after.len() >= 2 && after.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit);
        if !is_valid {
            return Err(wrong(
                "a % is not followed by two hexadecimal digits: write %25 for a percent sign",
            ));
        }
        rest = &after[2..];
    }
    let decoded = percent_decode_str(text).decode_utf8();
    let decoded = decoded.map_err(|_| wrong("a percent-encoded part is not UTF-8"))?;
    if decoded.contains('\0') {
        return Err(wrong("%00 is not allowed"));
    }
    Ok(decoded.into_owned())
}

/// `host=a password='with spaces and \' quotes'`, as libpq reads it.
fn of_keywords(text: &str) -> Result<Parameters, ConnectError> {
    let mut parameters = Parameters::default();
    let mut is_after_bare_password = false;
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let Some((name, after)) = rest.split_once('=') else {
            return Err(no_keyword(is_after_bare_password));
        };
        let name = name.trim_end();
        if name.contains(char::is_whitespace) {
            return Err(no_keyword(is_after_bare_password));
        }
        is_name(name)?;
        let (value, is_quoted, after) = value(after.trim_start())?;
        if parameters.0.iter().any(|(known, _)| known == name) {
            return Err(twice(name));
        }
        if is_after_bare_password && !crate::url::is_known(name) {
            return Err(no_keyword(true));
        }
        is_after_bare_password = name == "password" && !is_quoted;
        parameters.set(name, value);
        rest = after.trim_start();
    }
    Ok(parameters)
}

fn no_keyword(is_after_bare_password: bool) -> ConnectError {
    wrong(if is_after_bare_password {
        "what follows the password is no parameter: write a password with spaces in single quotes"
    } else {
        "it is neither postgres://user:password@host:5432/database nor host=… user=… dbname=…"
    })
}

/// A value, whether it was quoted, and what follows it. A backslash escapes any character.
fn value(text: &str) -> Result<(String, bool, &str), ConnectError> {
    let is_quoted = text.starts_with('\'');
    let mut value = String::new();
    let mut characters = text.char_indices().skip(usize::from(is_quoted));
    while let Some((at, c)) = characters.next() {
        match c {
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            '\'' if is_quoted => return Ok((value, true, &text[at + 1..])),
            c if c.is_whitespace() && !is_quoted => return Ok((value, false, &text[at..])),
            c => value.push(c),
        }
    }
    if is_quoted {
        return Err(wrong("a quoted value has no closing quote"));
    }
    Ok((value, false, ""))
}
