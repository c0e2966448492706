//! Passwords from a file, in the format of libpq's `.pgpass`.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::ConnectError;
use crate::url::Host;

/// Maximum size of the file in bytes.
const LARGEST: u64 = 1 << 20;

const FIELD: &str = "passfile";

/// A file with lines `host:port:database:user:password`. The first line that matches is taken; `*` matches
/// everything, and a backslash escapes `:` and `\`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PasswordFile {
    path: PathBuf,
    is_optional: bool,
}

impl PasswordFile {
    /// A file that has to exist.
    pub(crate) fn named(path: PathBuf) -> Self {
        Self {
            path,
            is_optional: false,
        }
    }

    /// `~/.pgpass`, which need not exist.
    pub(crate) fn default_of_user() -> Option<Self> {
        let path = std::env::home_dir()?.join(".pgpass");
        Some(Self {
            path,
            is_optional: true,
        })
    }

    /// The password for a connection, if the file has one.
    ///
    /// # Errors
    /// If the file cannot be read, or can be read by others.
    pub(crate) fn password(
        &self,
        host: &Host,
        database: &str,
        user: &str,
    ) -> Result<Option<String>, ConnectError> {
        let Some(text) = self.read()? else {
            return Ok(None);
        };
        let port = host.port.to_string();
        let names = [host.name.as_str(), "localhost"];
        // The server of a socket is on this machine.
        let names = &names[..if host.is_socket() { 2 } else { 1 }];
        let found = text.lines().find_map(|line| {
            names
                .iter()
                .find_map(|name| password_of(line, &[name, &port, database, user]))
        });
        Ok(found.filter(|it| !it.is_empty()))
    }

    fn read(&self) -> Result<Option<String>, ConnectError> {
        let shown = self.path.display();
        let wrong = |advice: String| Err(ConnectError::setting(FIELD, advice));
        // Opening a pipe would wait for whoever writes to it.
        if fs::metadata(&self.path).is_ok_and(|it| !it.is_file()) {
            return wrong(format!("{shown} is no file, name another"));
        }
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if self.is_optional && error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(None);
            }
            Err(error) => return wrong(format!("{shown} cannot be read ({error}), name another")),
        };
        // Of the open file, not of the path: another file may be there by now.
        let metadata = match file.metadata() {
            Ok(metadata) if metadata.is_file() => metadata,
            _ => return wrong(format!("{shown} is no file, name another")),
        };
        if is_open_to_others(&metadata) {
            return wrong(format!(
                "{shown} can be read by others: run chmod 0600 on it"
            ));
        }
        if metadata.len() > LARGEST {
            return wrong(format!("{shown} is larger than {LARGEST} bytes"));
        }
        let mut text = String::new();
        match file.by_ref().take(LARGEST).read_to_string(&mut text) {
            Ok(_) => Ok(Some(text)),
            Err(error) => wrong(format!("{shown} cannot be read ({error})")),
        }
    }
}

/// Whether group or others may read, write or execute.
#[cfg(unix)]
fn is_open_to_others(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    metadata.mode() & 0o077 != 0
}

#[cfg(not(unix))]
fn is_open_to_others(_metadata: &fs::Metadata) -> bool {
    false
}

/// Refuses a private key that others can read: of root it may be readable for a group, as libpq allows it.
pub(crate) fn check_key(path: &Path) -> Result<(), ConnectError> {
    let shown = path.display();
    let wrong = |advice: String| Err(ConnectError::setting("sslkey", advice));
    let metadata = match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => metadata,
        Ok(_) => return wrong(format!("{shown} is no file, name another")),
        Err(error) => return wrong(format!("{shown} cannot be read ({error}), name another")),
    };
    if is_key_open_to_others(&metadata) {
        return wrong(format!(
            "{shown} can be read by others: run chmod 0600 on it, or 0640 if root owns it"
        ));
    }
    Ok(())
}

#[cfg(unix)]
fn is_key_open_to_others(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    let refused = if metadata.uid() == 0 { 0o037 } else { 0o077 };
    metadata.mode() & refused != 0
}

#[cfg(not(unix))]
fn is_key_open_to_others(_metadata: &fs::Metadata) -> bool {
    false
}

/// The password of a line if its fields match.
fn password_of(line: &str, wanted: &[&str; 4]) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let mut rest = line.trim_end_matches('\r');
    for value in wanted {
        let (field, after) = field(rest);
        let (field, after) = (field, after?);
        // Only a bare asterisk matches everything: an escaped one is a name.
        let is_wildcard = rest.starts_with("*:");
        if !is_wildcard && field != *value {
            return None;
        }
        rest = after;
    }
    Some(field(rest).0)
}

/// A field without its escapes, and what follows its colon.
fn field(text: &str) -> (String, Option<&str>) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            ':' => return (value, Some(&text[at + 1..])),
            // A backslash at the very end stands for itself.
            '\\' => value.push(characters.next().map_or('\\', |(_, escaped)| escaped)),
            c => value.push(c),
        }
    }
    (value, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> Host {
        Host {
            name: name.to_owned(),
            address: None,
            port: 5432,
        }
    }

    #[test]
    fn the_first_line_that_matches_has_the_password() {
        let wanted = ["db.example", "5432", "timers", "me"];
        for (line, password) in [
            ("db.example:5432:timers:me:hunter2", Some("hunter2")),
            ("*:*:*:*:hunter2", Some("hunter2")),
            ("*:5432:*:me:a b\\:c\\\\d\\e", Some("a b:c\\de")),
            ("*:*:*:*:hunter2\r", Some("hunter2")),
            ("*:*:*:*:one:two", Some("one")),
            ("*:*:*:*:end\\", Some("end\\")),
            ("*:*:*:*:", Some("")),
            ("d\\b.example:5432:timers:me:x", Some("x")),
            ("\\*:*:*:*:x", None),
            ("#*:*:*:*:x", None),
            ("db.example:5432:timers:me", None),
            ("db.example:5433:timers:me:x", None),
            ("db.example:5432:timer:me:x", None),
            ("db.example:5432:timers:you:x", None),
            ("db.exampl*:*:*:*:x", None),
            ("", None),
            (":::::", None),
        ] {
            assert_eq!(password_of(line, &wanted).as_deref(), password, "{line}");
        }
        let v6 = ["::1", "5432", "d:b", "me"];
        assert_eq!(
            password_of("\\:\\:1:5432:d\\:b:me:x", &v6).as_deref(),
            Some("x")
        );
        assert_eq!(password_of("::1:5432:d:b:me:x", &v6), None);
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pgpass");
        fs::write(
            &path,
            "# mine\n/run/pg:*:*:*:path\nlocalhost:*:*:*:local\n*:*:d:*:any\n",
        )
        .unwrap();
        let file = PasswordFile::named(path.clone());
        let read = |mode: u32, name: &str| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            file.password(&host(name), "d", "me")
        };
        for mode in [0o600, 0o400] {
            assert_eq!(read(mode, "localhost"), Ok(Some("local".to_owned())));
            assert_eq!(read(mode, "/run/pg"), Ok(Some("path".to_owned())));
            assert_eq!(read(mode, "/other"), Ok(Some("local".to_owned())));
            assert_eq!(read(mode, "far"), Ok(Some("any".to_owned())));
            assert_eq!(file.password(&host("far"), "e", "me"), Ok(None));
        }
        for mode in [0o640, 0o604, 0o644, 0o660, 0o611] {
            let error = read(mode, "localhost").unwrap_err().to_string();
            assert!(error.contains("run chmod 0600"), "{mode:o}: {error}");
            assert!(!error.contains("local\n"), "{error}");
        }
    }

    #[test]
    fn a_missing_file_is_an_error_only_if_it_was_named() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = PasswordFile::named(folder.path().join("none"));
        let error = file.password(&host("a"), "d", "me").unwrap_err();
        assert!(
            error.to_string().starts_with("passfile is wrong: "),
            "{error}"
        );
        file.is_optional = true;
        assert_eq!(file.password(&host("a"), "d", "me"), Ok(None));
        let no_file = PasswordFile::named(folder.path().to_owned());
        let error = no_file.password(&host("a"), "d", "me").unwrap_err();
        assert!(error.to_string().contains("is no file"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_key_that_others_can_read_is_refused_but_for_a_group_of_root() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        fs::write(&path, "").unwrap();
        let is_root = fs::metadata(&path).unwrap().uid() == 0;
        for (mode, is_fine) in [
            (0o600, true),
            (0o400, true),
            (0o640, is_root),
            (0o660, false),
            (0o604, false),
            (0o644, false),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(check_key(&path).is_ok(), is_fine, "{mode:o}");
        }
    }
}
