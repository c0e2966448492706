//! Who is let in where, which hosts are tried, and which servers are refused.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use punctual_adapters_postgres::{ConnectError, ConnectErrorKind, ConnectionProbe, PostgresUrl};
use punctual_adapters_system::SystemClock;
use punctual_domain::Timestamp;
use punctual_ports::ClockPort;
use punctual_test_servers::{PgBouncer, PostgresServer};

async fn connect(address: &str) -> Result<ConnectionProbe, ConnectError> {
    let url = PostgresUrl::new(address).unwrap();
    let clock = SystemClock::start().unwrap();
    ConnectionProbe::connect(&url, None, &clock).await
}

/// The error, which never has the password.
async fn refusal(address: &str) -> ConnectError {
    let error = connect(address).await.unwrap_err();
    assert!(!error.to_string().contains("hunter2"), "{error}");
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    error
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_let_in_and_what_the_others_are_told() {
    let Some(mut server) = PostgresServer::start() else {
        return;
    };
    server.execute(
        "CREATE ROLE me LOGIN PASSWORD 'hunter2@:/%';
         CREATE ROLE guest LOGIN; CREATE ROLE nobody NOLOGIN;
         CREATE DATABASE closed; REVOKE CONNECT ON DATABASE closed FROM PUBLIC;
         CREATE DATABASE limited CONNECTION LIMIT 0",
    );
    server.set_hba(
        "host all me 127.0.0.1/32 scram-sha-256\nhost all forbidden 127.0.0.1/32 reject\n\
         host all all 127.0.0.1/32 trust",
    );
    let at = |user: &str, database: &str| {
        format!("postgres://{user}@127.0.0.1:{}/{database}", server.port())
    };
    let let_in = connect(&at("me:hunter2%40%3A%2F%25", "postgres"))
        .await
        .unwrap();
    let name = "SELECT current_setting('application_name')";
    let row = let_in.client().query_typed_one(name, &[]).await.unwrap();
    assert_eq!(row.get::<_, &str>(0), "punctual test");

    let base = |user: &str, database| format!("the database {}", at(user, database));
    for (address, sentence) in [
        (
            at("me:hunter2", "postgres"),
            format!(
                "{} does not let us in: password authentication failed for user \"me\", check user and password",
                base("me", "postgres")
            ),
        ),
        (
            at("me", "postgres"),
            format!(
                "{} does not let us in: it asks for a password, give one in the address, or a passfile with one",
                base("me", "postgres")
            ),
        ),
        (
            at("missing", "postgres"),
            format!(
                "{} does not let us in: role \"missing\" does not exist, check the user, sslmode and the server's pg_hba.conf",
                base("missing", "postgres")
            ),
        ),
        (
            at("guest", "none"),
            format!(
                "there is no database none at {}: create it with CREATE DATABASE, encoding UTF8, or name another",
                at("guest", "none")
            ),
        ),
    ] {
        let error = refusal(&address).await;
        assert_eq!(error.to_string(), sentence);
        assert_eq!(error.kind(), ConnectErrorKind::Authentication);
    }
    for (address, kind) in [
        (at("nobody", "postgres"), ConnectErrorKind::Authentication),
        (
            at("forbidden", "postgres"),
            ConnectErrorKind::Authentication,
        ),
        (at("guest", "closed"), ConnectErrorKind::Privilege),
        (at("guest", "limited"), ConnectErrorKind::Unreachable),
    ] {
        let error = refusal(&address).await;
        assert_eq!(error.kind(), kind, "{error}");
        let is_busy = kind == ConnectErrorKind::Unreachable;
        assert_eq!(error.is_retryable(), is_busy, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_file_is_read_for_each_connection() {
    let Some(mut server) = PostgresServer::start() else {
        return;
    };
    server.execute("CREATE ROLE me LOGIN PASSWORD 'hunter2:\\'");
    server.set_hba("host all all 127.0.0.1/32 scram-sha-256");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pgpass");
    let address = format!("{}?passfile={}", server.url_as("me"), file.display());
    let write = |text: String| {
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    };
    assert_eq!(refusal(&address).await.kind(), ConnectErrorKind::Settings);
    write("127.0.0.1:*:*:*:hunter2-old\n".to_owned());
    assert_eq!(
        refusal(&address).await.kind(),
        ConnectErrorKind::Authentication
    );
    write(format!(
        "127.0.0.1:{}:postgres:me:hunter2\\:\\\\\n",
        server.port()
    ));
    connect(&address).await.unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let error = refusal(&address).await.to_string();
    assert!(error.contains("can be read by others"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_would_lose_timers_or_cannot_keep_them_is_refused() {
    let Some(server) = PostgresServer::start() else {
        return;
    };
    server.execute(
        "CREATE ROLE lazy LOGIN; ALTER ROLE lazy SET synchronous_commit = off;
         CREATE ROLE reader LOGIN; ALTER ROLE reader SET default_transaction_read_only = on;
         CREATE ROLE lost LOGIN; ALTER ROLE lost SET search_path = nowhere;
         CREATE ROLE guest LOGIN; CREATE SCHEMA mine; CREATE SCHEMA \"Theirs\";
         GRANT USAGE ON SCHEMA mine TO guest;
         CREATE DATABASE ascii ENCODING 'SQL_ASCII' TEMPLATE template0",
    );
    for (user, part) in [
        ("lazy", "has synchronous_commit = off"),
        (
            "reader",
            "is read-only: set default_transaction_read_only = off",
        ),
        (
            "lost",
            "has no schema that its search_path (nowhere) names and lost may use",
        ),
    ] {
        let error = refusal(&server.url_as(user)).await;
        assert!(error.to_string().contains(part), "{error}");
        assert!(!error.is_retryable(), "{error}");
    }
    let ascii = server.url().replace("/postgres", "/ascii");
    let error = refusal(&ascii).await.to_string();
    assert!(error.contains("has the encoding SQL_ASCII"), "{error}");

    let clock = SystemClock::start().unwrap();
    let url = PostgresUrl::new(&server.url_as("guest")).unwrap();
    let in_schema = |schema| ConnectionProbe::connect(&url, Some(schema), &clock);
    let error = in_schema("none").await.unwrap_err().to_string();
    assert!(
        error.ends_with("create it with CREATE SCHEMA none AUTHORIZATION guest"),
        "{error}"
    );
    let error = in_schema("Theirs").await.unwrap_err();
    assert_eq!(error.kind(), ConnectErrorKind::Privilege);
    assert!(
        error
            .to_string()
            .ends_with("run GRANT USAGE ON SCHEMA \"Theirs\" TO guest"),
        "{error}"
    );
    let probe = in_schema("mine").await.unwrap();
    let error = probe.check_may_create().unwrap_err().to_string();
    assert!(
        error.ends_with("run GRANT CREATE ON SCHEMA mine TO guest"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_hosts_the_first_that_takes_writes_is_used() {
    let read_only = PostgresServer::start_with(&[("default_transaction_read_only", "on")]);
    let (Some(read_only), Some(server)) = (read_only, PostgresServer::start()) else {
        return;
    };
    // Bound and dropped: nothing listens there.
    let down = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let hosts = |ports: &[u16]| {
        let hosts: Vec<String> = ports
            .iter()
            .map(|port| format!("127.0.0.1:{port}"))
            .collect();
        format!("postgres://punctual@{}/postgres", hosts.join(","))
    };
    let all = hosts(&[down, read_only.port(), server.port()]);
    let probe = connect(&all).await.unwrap();
    assert_eq!(probe.server(), server.url());

    let error = refusal(&hosts(&[down])).await;
    let sentence = format!(
        "the database {} does not answer: nothing listens there, start it, or check host and port",
        hosts(&[down])
    );
    assert_eq!(error.to_string(), sentence);
    assert!(error.is_retryable());

    let error = refusal(&format!("{all}?target_session_attrs=any")).await;
    assert_eq!(error.kind(), ConnectErrorKind::ReadOnly);
    let error = refusal(&hosts(&[read_only.port(), read_only.port()])).await;
    assert_eq!(error.kind(), ConnectErrorKind::ReadOnly);
    let error = refusal(&hosts(&[read_only.port(), down])).await;
    assert_eq!(error.kind(), ConnectErrorKind::Unreachable);
    assert!(error.to_string().contains("is read-only"), "{error}");
    // Whoever is denied by the first is not let in by the second.
    let denied = hosts(&[server.port(), down]).replace("punctual@", "missing@");
    assert_eq!(
        refusal(&denied).await.kind(),
        ConnectErrorKind::Authentication
    );
    let error = refusal("postgres://me@nowhere.invalid/t").await;
    assert!(error.is_retryable(), "{error}");
    assert!(
        error.to_string().contains("its host is not found"),
        "{error}"
    );
}

/// The machine's clock, on which the first sleep is over at once.
struct Impatient(SystemClock, AtomicBool);

#[async_trait]
impl ClockPort for Impatient {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }

    async fn sleep_until(&self, instant: Timestamp) {
        self.0.sleep_until(instant).await;
    }

    async fn sleep_for(&self, duration: Duration) {
        if self.1.swap(true, Ordering::Relaxed) {
            self.0.sleep_for(duration).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_says_nothing_is_given_up_after_a_while() {
    let Some(server) = PostgresServer::start() else {
        return;
    };
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let first = silent.local_addr().unwrap().port();
    let address =
        |hosts: String| PostgresUrl::new(&format!("postgres://punctual@{hosts}/postgres"));
    let clock = || Impatient(SystemClock::start().unwrap(), AtomicBool::new(false));
    let both = address(format!("127.0.0.1:{first},127.0.0.1:{}", server.port())).unwrap();
    let probe = ConnectionProbe::connect(&both, None, &clock())
        .await
        .unwrap();
    assert_eq!(probe.server(), server.url());
    let one = address(format!("127.0.0.1:{first}")).unwrap();
    let error = ConnectionProbe::connect(&one, None, &clock())
        .await
        .unwrap_err();
    let sentence = format!(
        "the database {one} does not answer: no connection within 10 s, check host, port, firewalls and poolers, or raise connect_timeout"
    );
    assert_eq!(error.to_string(), sentence);
}

#[tokio::test(flavor = "multi_thread")]
async fn over_a_socket_and_without_tls_on_it() {
    let Some(mut server) = PostgresServer::start() else {
        return;
    };
    let folder = server.data_dir().display().to_string();
    server.set("unix_socket_directories", &folder);
    server.restart();
    let encoded = folder.replace('/', "%2F");
    let address = format!("postgres://punctual@{encoded}:{}/postgres", server.port());
    connect(&format!("{address}?sslmode=verify-full"))
        .await
        .unwrap();
    let keywords = format!(
        "host={folder} port={} user=punctual dbname=postgres",
        server.port()
    );
    connect(&keywords).await.unwrap();
    let error = refusal(&address.replace(&server.port().to_string(), "1")).await;
    assert!(
        error
            .to_string()
            .contains("there is no socket in that folder"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn through_a_pooler_in_transaction_mode() {
    let Some(server) = PostgresServer::start() else {
        return;
    };
    let Some(pooler) = PgBouncer::start(&server.url()) else {
        return;
    };
    assert!(connect(&server.url()).await.unwrap().is_direct());
    // So nothing relies on settings or statements of the session.
    assert!(!connect(&pooler.url()).await.unwrap().is_direct());
    let error = refusal(&pooler.url().replace("/postgres", "/none")).await;
    assert!(
        matches!(error, ConnectError::MissingDatabase { .. }),
        "{error}"
    );
    let error = refusal(&pooler.url().replace("punctual@", "none@")).await;
    assert!(matches!(error, ConnectError::Denied { .. }), "{error}");
}
