//! The settings of the broker, put together: who we are to it, and how the connection is secured.
//!
//! Secrets come from files, so that they stand in no environment and in no list of processes. A
//! file that holds one is named in a refusal, and nothing that is in it.

use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use punctual_adapters_nats::async_nats::ServerAddr;
use punctual_adapters_nats::{NatsAuth, NatsError, NatsSettings, Prefix};

use super::table::{self, ALL, About, Setting};
use super::{Sources, file, refusal};
use crate::display::reason;
use crate::failure::Failure;

/// Whether the connection has to be secure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tls {
    /// If the address or the broker says so.
    Auto,
    /// In any case.
    Require,
}

pub(super) fn address(text: &str) -> Result<NatsSettings, String> {
    NatsSettings::new(text).map_err(advice)
}

/// An address without what may be secret in it. One that cannot be understood may be secret as a
/// whole.
pub(super) fn redacted_address(raw: &OsStr) -> Option<String> {
    let settings = NatsSettings::new(raw.to_str()?).ok()?;
    Some(settings.redacted_url())
}

pub(super) fn prefix(text: &str) -> Result<Prefix, String> {
    text.parse().map_err(advice)
}

pub(super) fn user(text: &str) -> Result<String, String> {
    if text.is_empty() {
        Err("give the name of a user".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

pub(super) fn tls(text: &str) -> Result<Tls, String> {
    match text {
        "auto" => Ok(Tls::Auto),
        "require" => Ok(Tls::Require),
        _ => Err("give auto or require".to_owned()),
    }
}

/// What would be right; the name of the setting is known already.
fn advice(error: NatsError) -> String {
    match error {
        NatsError::Setting { advice, .. } => advice,
        other => other.to_string(),
    }
}

/// The broker, if one is set, or all that is wrong with what was said of it.
pub(crate) fn read(sources: &Sources<'_>) -> Result<Option<NatsSettings>, Vec<Failure>> {
    let mut reading = Reading {
        sources,
        problems: Vec::new(),
    };
    let settings = reading.settings();
    match reading.problems {
        problems if problems.is_empty() => Ok(settings),
        problems => Err(problems),
    }
}

struct Reading<'a> {
    sources: &'a Sources<'a>,
    problems: Vec<Failure>,
}

impl Reading<'_> {
    fn settings(&mut self) -> Option<NatsSettings> {
        let Some(mut settings) = self.get(&table::TIMER_BROKER_URL) else {
            if !self.is_given(table::TIMER_BROKER_URL.about) {
                self.refuse_what_needs_a_broker();
            }
            return None;
        };
        if let Some(prefix) = self.get(&table::TIMER_BROKER_PREFIX) {
            settings.prefix = prefix;
        }
        if let Some(auth) = self.auth(&settings.auth) {
            settings.auth = auth;
        }
        settings.tls.is_required = self.get(&table::TIMER_BROKER_TLS) == Some(Tls::Require);
        settings.tls.ca_file = self.certificates();
        settings.tls.client_certificate = self.client_certificate();
        Some(settings)
    }

    /// Refuses settings that have no effect without a broker. A value that equals the default is accepted.
    fn refuse_what_needs_a_broker(&mut self) {
        for about in ALL
            .iter()
            .filter(|it| it.variable.starts_with("TIMER_BROKER_"))
        {
            let Some((raw, source)) = self.sources.given(about) else {
                continue;
            };
            if let Err(advice) = (about.check)(&raw) {
                self.refuse(refusal(about, &raw, &source, &advice));
            } else if raw != about.default {
                self.refuse(format!(
                    "{} is set, but no broker: set TIMER_BROKER_URL too, or remove it",
                    source.name_of(about)
                ));
            }
        }
    }

    /// Who we are by settings of their own, if there are some beside the address.
    fn auth(&mut self, in_address: &NatsAuth) -> Option<NatsAuth> {
        let user = self.get(&table::TIMER_BROKER_USER);
        self.refuse_one_without_the_other(
            (table::TIMER_BROKER_USER.about, "a user"),
            (table::TIMER_BROKER_PASSWORD_FILE.about, "a password"),
        );
        let kinds = self.kinds_of_credentials(in_address);
        if kinds.len() > 1 {
            self.refuse(format!(
                "there is more than one kind of credentials for the broker ({}): keep one of them",
                kinds.join(", ")
            ));
            return None;
        }
        let password = self.secret(&table::TIMER_BROKER_PASSWORD_FILE);
        if let (Some(user), Some(password)) = (user, password) {
            return Some(NatsAuth::UserAndPassword { user, password });
        }
        let token = self.secret(&table::TIMER_BROKER_TOKEN_FILE);
        let nkey = self.secret(&table::TIMER_BROKER_NKEY_FILE);
        let credentials = self.secret(&table::TIMER_BROKER_CREDS_FILE);
        None.or(token.map(NatsAuth::Token))
            .or(nkey.map(NatsAuth::Nkey))
            .or(credentials.map(NatsAuth::Credentials))
    }

    /// Under which names credentials were given.
    fn kinds_of_credentials(&self, in_address: &NatsAuth) -> Vec<&'static str> {
        let user = [
            table::TIMER_BROKER_USER.about,
            table::TIMER_BROKER_PASSWORD_FILE.about,
        ];
        let files = [
            table::TIMER_BROKER_TOKEN_FILE.about,
            table::TIMER_BROKER_NKEY_FILE.about,
            table::TIMER_BROKER_CREDS_FILE.about,
        ];
        let user = user.into_iter().find(|it| self.is_given(it));
        let files = files.into_iter().filter(|it| self.is_given(it));
        let by_settings = user.into_iter().chain(files).map(|it| it.variable);
        let has_own = *in_address != NatsAuth::None;
        let by_address = has_own.then_some("the address in TIMER_BROKER_URL");
        by_address.into_iter().chain(by_settings).collect()
    }

    fn certificates(&mut self) -> Option<PathBuf> {
        let path = self.get(&table::TIMER_BROKER_CA_FILE)?;
        // A bundle of many authorities may be long; the client reads it when it connects.
        let first = File::open(&path).and_then(|mut file| file.read(&mut [0]));
        if !matches!(first, Ok(1..)) {
            let error = first.as_ref().err();
            self.refuse(unusable(table::TIMER_BROKER_CA_FILE.about, &path, error));
        }
        Some(path)
    }

    fn client_certificate(&mut self) -> Option<(PathBuf, PathBuf)> {
        let certificate = self.get(&table::TIMER_BROKER_CERT_FILE);
        let key = self.get(&table::TIMER_BROKER_KEY_FILE);
        self.refuse_one_without_the_other(
            (table::TIMER_BROKER_CERT_FILE.about, "its certificate"),
            (table::TIMER_BROKER_KEY_FILE.about, "its key"),
        );
        let both = certificate.zip(key)?;
        self.secret(&table::TIMER_BROKER_CERT_FILE);
        self.secret(&table::TIMER_BROKER_KEY_FILE);
        Some(both)
    }

    /// Refuses one of two settings that belong together if the other is not set.
    fn refuse_one_without_the_other(
        &mut self,
        one: (&About, &'static str),
        other: (&About, &'static str),
    ) {
        for (is, missing) in [(one, other), (other, one)] {
            if self.is_given(is.0) && !self.is_given(missing.0) {
                self.refuse(format!(
                    "{} is set without {}: set {} too",
                    is.0.variable, missing.1, missing.0.variable
                ));
            }
        }
    }

    /// What is in the file that a setting names.
    fn secret(&mut self, setting: &Setting<PathBuf>) -> Option<String> {
        let path = self.get(setting)?;
        let error = match read_secret(&path) {
            Ok(text) if !text.is_empty() => return Some(text),
            read => read.err(),
        };
        self.refuse(unusable(setting.about, &path, error.as_ref()));
        None
    }

    fn get<T>(&mut self, setting: &Setting<T>) -> Option<T> {
        let read = self.sources.get(setting);
        read.unwrap_or_else(|failure| {
            self.problems.push(failure);
            None
        })
    }

    fn is_given(&self, about: &About) -> bool {
        self.sources.given(about).is_some()
    }

    fn refuse(&mut self, sentence: impl Display) {
        self.problems.push(Failure::refused(sentence));
    }
}

/// Where the broker is, as it was given.
pub(crate) fn servers(sources: &Sources<'_>) -> Vec<ServerAddr> {
    let given = sources.given(table::TIMER_BROKER_URL.about);
    let text = given.map(|(raw, _)| raw.to_string_lossy().into_owned());
    let text = text.unwrap_or_default();
    let servers = text.split(',').map(|it| ServerAddr::from_str(it.trim()));
    servers.filter_map(Result::ok).collect()
}

/// What is wrong with a file: it is empty, or cannot be read.
fn unusable(about: &About, path: &Path, error: Option<&io::Error>) -> String {
    let file = format!(
        "the file {} that {} names",
        crate::display::path(path),
        about.variable
    );
    match error {
        None => format!("{file} is empty: name another"),
        Some(error) => format!("{file} cannot be read: {}", reason(error)),
    }
}

/// A secret is one line, or the whole file, without the end of its last line.
pub(super) fn read_secret(path: &Path) -> io::Result<String> {
    let text = file::read(path)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::serve;
    use punctual_workflows::WorkerSettings;
    use tempfile::TempDir;

    fn with_url(variables: &[(&str, &str)]) -> Result<NatsSettings, String> {
        let url = [("TIMER_BROKER_URL", "nats://broker")];
        let served = serve(&[&url, variables].concat());
        let served = served.map_err(|failure| {
            assert_eq!(failure.exit_code(), 3);
            failure.to_string()
        });
        served.map(|settings| settings.broker.unwrap())
    }

    fn file(folder: &TempDir, name: &str, content: &[u8]) -> String {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    #[test]
    fn everything_that_is_set_is_heeded() {
        let folder = tempfile::tempdir().unwrap();
        let pem = file(&folder, "pem", b"a certificate");
        let password = file(&folder, "password", b"hunter2\n");
        let settings = with_url(&[
            ("TIMER_BROKER_PREFIX", "acme"),
            ("TIMER_BROKER_USER", "me"),
            ("TIMER_BROKER_PASSWORD_FILE", &password),
            ("TIMER_BROKER_CA_FILE", &pem),
            ("TIMER_BROKER_CERT_FILE", &pem),
            ("TIMER_BROKER_KEY_FILE", &pem),
            ("TIMER_BROKER_TLS", "require"),
        ]);
        let settings = settings.unwrap();
        assert_eq!(settings.redacted_url(), "nats://broker:4222");
        assert_eq!(settings.prefix.as_str(), "acme");
        let me = NatsAuth::UserAndPassword {
            user: "me".to_owned(),
            password: "hunter2".to_owned(),
        };
        assert!(settings.auth == me);
        assert!(settings.tls.is_required);
        let pem = PathBuf::from(pem);
        assert_eq!(settings.tls.ca_file, Some(pem.clone()));
        assert_eq!(settings.tls.client_certificate, Some((pem.clone(), pem)));
    }

    #[test]
    fn each_kind_of_credentials_comes_from_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let secret = file(&folder, "secret", b"\xef\xbb\xbf hunter2 \r\n\n");
        let text = || " hunter2 ".to_owned();
        for (name, auth) in [
            ("TIMER_BROKER_TOKEN_FILE", NatsAuth::Token(text())),
            ("TIMER_BROKER_NKEY_FILE", NatsAuth::Nkey(text())),
            ("TIMER_BROKER_CREDS_FILE", NatsAuth::Credentials(text())),
        ] {
            assert!(with_url(&[(name, &secret)]).unwrap().auth == auth, "{name}");
        }
    }

    #[test]
    fn more_than_one_kind_of_credentials_is_refused_with_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let secret = file(&folder, "secret", b"hunter2");
        let named = ("TIMER_BROKER_USER", "me");
        let password = ("TIMER_BROKER_PASSWORD_FILE", secret.as_str());
        let token = ("TIMER_BROKER_TOKEN_FILE", secret.as_str());
        let nkey = ("TIMER_BROKER_NKEY_FILE", secret.as_str());
        let in_url = ("TIMER_BROKER_URL", "nats://hunter2@broker");
        for (given, names) in [
            (
                vec![named, password, token],
                "(TIMER_BROKER_USER, TIMER_BROKER_TOKEN_FILE)",
            ),
            (
                vec![token, nkey],
                "(TIMER_BROKER_TOKEN_FILE, TIMER_BROKER_NKEY_FILE)",
            ),
            (
                vec![in_url, nkey],
                "(the address in TIMER_BROKER_URL, TIMER_BROKER_NKEY_FILE)",
            ),
        ] {
            let url = ("TIMER_BROKER_URL", "nats://broker");
            let given = [given, vec![url]].concat();
            let sentence = serve(&given).unwrap_err().to_string();
            assert!(sentence.contains(names), "{sentence}");
            assert!(!sentence.contains("hunter2"), "{sentence}");
        }
    }

    #[test]
    fn what_belongs_together_is_missed() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(&folder, "file", b"hunter2");
        for (name, missing) in [
            ("TIMER_BROKER_USER", "set TIMER_BROKER_PASSWORD_FILE too"),
            ("TIMER_BROKER_PASSWORD_FILE", "set TIMER_BROKER_USER too"),
            ("TIMER_BROKER_CERT_FILE", "set TIMER_BROKER_KEY_FILE too"),
            ("TIMER_BROKER_KEY_FILE", "set TIMER_BROKER_CERT_FILE too"),
        ] {
            let sentence = with_url(&[(name, &file)]).unwrap_err();
            assert!(sentence.starts_with(name), "{sentence}");
            assert!(sentence.ends_with(missing), "{sentence}");
        }
    }

    #[test]
    fn without_an_address_every_other_setting_is_refused() {
        let all = ALL.iter().map(|about| about.variable);
        let others = all.filter(|it| it.starts_with("TIMER_BROKER_") && *it != "TIMER_BROKER_URL");
        for name in others {
            let value = match name {
                "TIMER_BROKER_TLS" => "require",
                _ => "x",
            };
            let sentence = serve(&[(name, value)]).unwrap_err().to_string();
            assert_eq!(
                sentence,
                format!("{name} is set, but no broker: set TIMER_BROKER_URL too, or remove it")
            );
        }
        assert!(serve(&[("TIMER_BROKER_TLS", "auto")]).is_ok());
    }

    #[test]
    fn a_file_that_holds_no_secret_is_named_and_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let long = vec![b'x'; file::LONGEST + 1];
        for (path, problem) in [
            (file(&folder, "empty", b"\n"), "is empty"),
            (file(&folder, "long", &long), "it has more than 65536 bytes"),
            (file(&folder, "binary", b"hunter2\xff"), "it is not UTF-8"),
            (path.to_owned(), "Is a directory"),
            (format!("{path}/absent"), "No such file"),
        ] {
            for name in ["TIMER_BROKER_TOKEN_FILE", "TIMER_BROKER_CREDS_FILE"] {
                let sentence = with_url(&[(name, &path)]).unwrap_err();
                for words in [name, &path, problem] {
                    assert!(sentence.contains(words), "{sentence}");
                }
                assert!(!sentence.contains("hunter2"), "{sentence}");
            }
        }
        for (path, problem) in [
            (file(&folder, "empty", b""), "is empty"),
            (format!("{path}/absent"), "No such file"),
        ] {
            let sentence = with_url(&[("TIMER_BROKER_CA_FILE", &path)]).unwrap_err();
            assert!(sentence.contains(problem), "{sentence}");
        }
    }

    #[test]
    fn a_worker_beside_a_broker_publishes_in_batches() {
        let given = [("TIMER_BROKER_URL", "a")];
        let worker = serve(&given).unwrap().worker;
        let numbers = (
            worker.publish_batch,
            worker.publishes_in_flight,
            worker.max_in_flight,
        );
        assert_eq!(numbers, (256, 8, 2_048));
        let large = ("TIMER_BATCH_SIZE", "3000");
        let worker = serve(&[given[0], large]).unwrap().worker;
        assert_eq!(worker.max_in_flight, 3_000, "a batch fits in flight");
        assert_eq!(serve(&[]).unwrap().worker, WorkerSettings::for_calls());
    }
}
