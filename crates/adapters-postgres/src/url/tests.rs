//! Addresses that people write, those that they mistype, and those that would betray a password.

use super::*;

fn url(address: &str) -> PostgresUrl {
    PostgresUrl::new(address).unwrap_or_else(|error| panic!("{address}: {error}"))
}

fn refusal(address: &str) -> String {
    match PostgresUrl::new(address) {
        Ok(url) => panic!("{address}: {url:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn an_address_means_what_it_means_for_libpq() {
    for (address, shown, password) in [
        (
            "postgres://me@db/timers",
            "postgres://me@db:5432/timers",
            None,
        ),
        ("postgresql://me@db", "postgres://me@db:5432/me", None),
        ("postgres://me@db/", "postgres://me@db:5432/me", None),
        (
            "  postgres://me:pw@db:6432/timers\n",
            "postgres://me@db:6432/timers",
            Some("pw"),
        ),
        (
            "postgres://me:a:b?c#d%40%2F%25%0A@db/t",
            "postgres://me@db:5432/t",
            Some("a:b?c#d@/%\n"),
        ),
        (
            "postgres://m%40e:@db/t%2Fx",
            "postgres://m%40e@db:5432/t%2Fx",
            None,
        ),
        (
            "postgres://me@a:1,b,[::1]:3/t",
            "postgres://me@a:1,b:5432,[::1]:3/t",
            None,
        ),
        ("postgres://me@[::1]/t", "postgres://me@[::1]:5432/t", None),
        (
            "postgres:///t?host=/run/pg&user=me&port=7",
            "postgres://me@%2Frun%2Fpg:7/t",
            None,
        ),
        (
            "postgres://me@%2Frun%2Fpg/t",
            "postgres://me@%2Frun%2Fpg:5432/t",
            None,
        ),
        (
            "postgres://me@localhost/t?host=/cloudsql/x:y:z",
            "postgres://me@%2Fcloudsql%2Fx%3Ay%3Az:5432/t",
            None,
        ),
        (
            "postgres://me:one@db/t?password=tw%26o&dbname=u&",
            "postgres://me@db:5432/u",
            Some("tw&o"),
        ),
        (
            "postgres://?hostaddr=127.0.0.1,::1&port=1,2&user=me",
            "postgres://me@127.0.0.1:1,[::1]:2/me",
            None,
        ),
        (
            "host=a,b port=1,2 user=me dbname = t",
            "postgres://me@a:1,b:2/t",
            None,
        ),
        (
            "host=a,b port=7 user=me password='it\\'s \\\\ a = b' dbname=t",
            "postgres://me@a:7,b:7/t",
            Some("it's \\ a = b"),
        ),
        (
            "user=me password=a\\ b host=::1",
            "postgres://me@[::1]:5432/me",
            Some("a b"),
        ),
        (
            "host=a user=me password=''",
            "postgres://me@a:5432/me",
            None,
        ),
        (
            "host=a user=me password=postgres://x",
            "postgres://me@a:5432/me",
            Some("postgres://x"),
        ),
    ] {
        let parsed = url(address);
        assert_eq!(parsed.redacted(), shown, "{address}");
        assert_eq!(parsed.password.as_deref(), password, "{address}");
    }
}

#[test]
fn what_is_displayed_is_again_the_same_address() {
    for address in [
        "postgres://me@a:1,b,[::1]:3/t",
        "postgres://m%40e@%2Frun%2Fpg:7/t%20%3F%26x",
        "postgres://me@db/%E2%82%AC",
    ] {
        let parsed = url(address);
        assert_eq!(url(&parsed.to_string()), parsed);
    }
}

#[test]
fn the_defaults_are_those_of_a_store() {
    let parsed = url("postgres://me@a/t");
    assert_eq!(parsed.application_name, "punctual");
    assert_eq!(parsed.connect_timeout, Duration::from_secs(10));
    assert!(parsed.wants_writable);
    assert_eq!(parsed.tls.mode, SslMode::Prefer);
    assert_eq!(parsed.channel_binding, ChannelBinding::Prefer);
    assert_eq!(parsed.keepalives.user_timeout, Duration::from_secs(30));
    assert_eq!(parsed.password_file, None);
    assert_eq!((parsed.user(), parsed.database()), ("me", "t"));
}

#[test]
fn each_parameter_is_taken_over() {
    let parsed = url(
        "postgres://me@a/t?application_name=a%20b&connect_timeout=7&target_session_attrs=any\
         &channel_binding=require&sslmode=verify-ca&sslrootcert=/ca.pem&sslcert=/c.pem&sslkey=/k.pem\
         &passfile=/pass&keepalives=0&keepalives_idle=1&keepalives_interval=2&keepalives_count=3\
         &tcp_user_timeout=4500&client_encoding=UTF8&gssencmode=disable&fallback_application_name=x\
         &hostaddr=10.0.0.1",
    );
    assert_eq!(parsed.application_name, "a b");
    assert_eq!(parsed.connect_timeout, Duration::from_secs(7));
    assert!(!parsed.wants_writable);
    assert_eq!(parsed.channel_binding, ChannelBinding::Require);
    let expected = TlsSettings {
        mode: SslMode::VerifyCa,
        roots: Some(Roots::File("/ca.pem".into())),
        client: Some(("/c.pem".into(), "/k.pem".into())),
    };
    assert_eq!(parsed.tls, expected);
    let expected = Keepalives {
        is_on: false,
        idle: Duration::from_secs(1),
        interval: Duration::from_secs(2),
        count: 3,
        user_timeout: Duration::from_millis(4500),
    };
    assert_eq!(parsed.keepalives, expected);
    assert_eq!(
        parsed.password_file,
        Some(PasswordFile::named("/pass".into()))
    );
    assert_eq!(parsed.hosts[0].address, Some([10, 0, 0, 1].into()));
}

#[test]
fn each_sslmode_is_that_of_libpq() {
    let mode = |parameters: &str| url(&format!("postgres://me@a/t?{parameters}")).tls.mode;
    for (parameters, expected) in [
        ("sslmode=disable", SslMode::Disable),
        ("sslmode=allow", SslMode::Prefer),
        ("sslmode=prefer", SslMode::Prefer),
        ("sslmode=require", SslMode::Require),
        ("ssl=true", SslMode::Require),
        ("sslmode=verify-ca&sslrootcert=x", SslMode::VerifyCa),
        ("sslmode=verify-full", SslMode::VerifyFull),
        ("sslrootcert=system", SslMode::VerifyFull),
        (
            "sslmode=verify-full&sslrootcert=system",
            SslMode::VerifyFull,
        ),
        ("sslrootcert=x", SslMode::Prefer),
    ] {
        assert_eq!(mode(parameters), expected, "{parameters}");
    }
}

#[test]
fn what_is_wrong_is_named_with_what_would_be_right() {
    for (parameters, sentence) in [
        ("port=0", "port is wrong: give 1 to 65535"),
        ("port=65536", "port is wrong: give 1 to 65535"),
        (
            "port=1,2",
            "port is wrong: give one port, or one for each host",
        ),
        (
            "hostaddr=x",
            "hostaddr is wrong: give IP addresses, such as 127.0.0.1",
        ),
        (
            "hostaddr=::1,::2",
            "hostaddr is wrong: give an address for each host, or none",
        ),
        (
            "host=a,,b",
            "host is wrong: one of the hosts is empty, name each",
        ),
        (
            "host=@abstract",
            "host is wrong: abstract sockets are not supported here",
        ),
        (
            "connect_timeout=0",
            "connect_timeout is wrong: give 1 to 3600 seconds",
        ),
        (
            "connect_timeout=-1",
            "connect_timeout is wrong: give a number from 0 to 3600",
        ),
        (
            "keepalives=2",
            "keepalives is wrong: give a number from 0 to 1",
        ),
        (
            "sslmode=on",
            "sslmode is wrong: give disable, allow, prefer, require, verify-ca, verify-full",
        ),
        (
            "sslmode=require&sslrootcert=system",
            "sslmode is wrong: give verify-full if sslrootcert is system",
        ),
        (
            "sslcert=x",
            "sslkey is wrong: give the key's file besides sslcert",
        ),
        (
            "sslkey=x",
            "sslcert is wrong: give the certificate's file besides sslkey",
        ),
        (
            "channel_binding=on",
            "channel_binding is wrong: give disable, prefer, require",
        ),
        (
            "target_session_attrs=x",
            "target_session_attrs is wrong: give read-write or any",
        ),
        (
            "client_encoding=LATIN1",
            "client_encoding is wrong: give UTF8, or leave it out",
        ),
        (
            "sslcrl=x",
            "sslcrl is wrong: it is not supported here, leave it out",
        ),
        (
            "ssl_mode=x",
            "the database address has an unknown parameter ssl_mode: did you mean sslmode?",
        ),
        (
            "aplication_name=x",
            "the database address has an unknown parameter aplication_name: did you mean application_name?",
        ),
        (
            "database=x",
            "the database address has an unknown parameter database: did you mean dbname?",
        ),
        (
            "passwrod=hunter2",
            "the database address has an unknown parameter passwrod: did you mean password?",
        ),
        (
            "sslmode=require&sslmode=disable",
            "the database address is wrong: sslmode is given twice: give it once",
        ),
        (
            "application_name=a%0Ab",
            "application_name is wrong: it has a control character: give a name without",
        ),
    ] {
        assert_eq!(
            refusal(&format!("postgres://me:hunter2@a/t?{parameters}")),
            sentence
        );
    }
}

#[test]
fn what_is_refused_is_told_why() {
    for (parameters, part) in [
        ("options=-c%20x", "PgBouncer"),
        ("target_session_attrs=read-only", "give read-write"),
        ("target_session_attrs=standby", "give read-write"),
        ("sslmode=verify-ca", "sslmode=verify-ca needs the file"),
        ("gssencmode=require", "GSSAPI is not supported"),
        ("x", "has no value"),
        ("a b=c", "no parameter"),
    ] {
        let error = refusal(&format!("postgres://me:hunter2@a/t?{parameters}"));
        assert!(error.contains(part), "{parameters}: {error}");
    }
}

#[test]
fn an_address_that_cannot_be_understood_is_refused_without_repeating_it() {
    for address in [
        "",
        " \n",
        "postgres://",
        "postgres://me@",
        "postgres://db/t",
        "postgres://@db/t",
        "mysql://me:hunter2@db/t",
        "hunter2",
        "hunter2=",
        "postgres://me:hunter2/x@db/t",
        "postgres://me:123/hunter2@db/t",
        "postgres://me:hunter2@x@db/t",
        "postgres://me:hunter2@db@x",
        "postgres://me:x/?hunter2=1@db/t",
        "postgres://me:%zzhunter2@db/t",
        "postgres://me:hunter2%@db/t",
        "postgres://me:hunter2%0@db/t",
        "postgres://me:hunter2%€@db/t",
        "postgres://me:hunter2%00@db/t",
        "postgres://me:hunter2%FF@db/t",
        "postgres://me:hunter2\r\n@db/t",
        "postgres://me:hunter2@db/t\nx",
        "postgres://me:hunter2@db:hunter2/t",
        "postgres://me:hunter2@db:99999/t",
        "postgres://me:hunter2@a,,b/t",
        "postgres://me:hunter2@a,/t",
        "postgres://me:hunter2@:5432/t",
        "postgres://me:hunter2@[::1/t",
        "postgres://me:hunter2@[::1]x/t",
        "postgres://me:hunter2@::1/t",
        "postgres://me:hunter2@a%2Cb/t",
        "postgres://me:hunter2@a b/t",
        "postgres://me:hunter2@db/t/u",
        "host=a user=me password=hunter2 hunter2",
        "host=a user=me password=x hunter2=y",
        "host=a user=me password=x hunter2 = y",
        "host=a user=me password='hunter2",
        "host=a user=me password=hunter2 password=x",
        "host=a user='m\\\ne' password=hunter2",
        "host=a password=hunter2",
        "user=me password=hunter2",
        "host='' user=me password=hunter2",
        &format!("postgres://me:hunter2@db/{}", "x".repeat(9000)),
    ] {
        let error = refusal(address);
        assert!(!error.contains("hunter2"), "{address}: {error}");
        assert!(error.contains(" is wrong: "), "{address}: {error}");
    }
}

#[test]
fn no_form_of_an_address_prints_its_password() {
    let parsed = url("postgres://me:hunter2@a,b/t?sslmode=require");
    for shown in [
        format!("{parsed}"),
        format!("{parsed:?}"),
        format!("{parsed:#?}"),
        parsed.redacted(),
        format!("{:?}", parsed.clone().with_password("hunter2")),
    ] {
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(shown.contains("postgres://me@a:5432,b:5432/t"), "{shown}");
    }
}

#[test]
fn the_default_password_file_is_read_only_if_asked_for() {
    let parsed = url("postgres://me@a/t?passfile=/mine");
    let mine = Some(PasswordFile::named("/mine".into()));
    assert_eq!(parsed.with_default_password_file().password_file, mine);
    let parsed = url("postgres://me@a/t").with_password_file("/mine");
    assert_eq!(parsed.password_file, mine);
}
