//! Every `sslmode` with every kind of server: encrypted, plain, or refused as libpq does it.

use punctual_adapters_postgres::{ConnectError, ConnectErrorKind, ConnectionProbe, PostgresUrl};
use punctual_adapters_system::SystemClock;
use punctual_test_servers::{PostgresServer, ServerTls};

use crate::certificates::Certificates;

const TRUST: &str = "host all all 127.0.0.1/32 trust";

/// What came of an attempt.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Encrypted,
    Plain,
    Refused(ConnectErrorKind),
}

use ConnectErrorKind::{Authentication, Settings, Tls};
use Outcome::{Encrypted, Plain, Refused};

struct World {
    clock: SystemClock,
    certificates: Certificates,
    server: PostgresServer,
}

impl World {
    /// With the server's certificate of this name.
    fn start() -> Option<Self> {
        let certificates = Certificates::new();
        let server = PostgresServer::start_with_tls(
            &ServerTls {
                certificate: &certificates.text("server.pem"),
                key: &certificates.text("server-key.pem"),
                client_ca: Some(&certificates.text("ca.pem")),
            },
            &[],
        )?;
        Some(Self {
            clock: SystemClock::start().unwrap(),
            certificates,
            server,
        })
    }

    fn shows(&mut self, certificate: &str) {
        let text = |name| self.certificates.text(&format!("{certificate}{name}.pem"));
        self.server.put_file("server.crt", &text(""));
        self.server.put_file("server.key", &text("-key"));
        // Certificates are read again together with this.
        self.server.set_hba(TRUST);
    }

    /// `{name}` stands for the file of a certificate.
    async fn connect(&self, parameters: &str) -> Result<bool, ConnectError> {
        let mut parameters = parameters.to_owned();
        for name in ["ca", "other-ca", "itself", "client", "other-client"] {
            for suffix in ["", "-key"] {
                let path = self.certificates.path(&format!("{name}{suffix}.pem"));
                parameters = parameters.replace(&format!("{{{name}{suffix}}}"), &path);
            }
        }
        is_encrypted(&self.server, &parameters, &self.clock).await
    }

    async fn expect(&self, parameters: &str, expected: Outcome) {
        let found = outcome(self.connect(parameters).await);
        assert_eq!(found, expected, "{parameters}");
    }
}

async fn is_encrypted(
    server: &PostgresServer,
    parameters: &str,
    clock: &SystemClock,
) -> Result<bool, ConnectError> {
    let url = PostgresUrl::new(&format!("{}?{parameters}", server.url())).unwrap();
    let probe = ConnectionProbe::connect(&url, None, clock).await?;
    assert!(probe.is_direct(), "{parameters}");
    let ours = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let row = probe.client().query_typed_one(ours, &[]).await.unwrap();
    Ok(row.get(0))
}

fn outcome(result: Result<bool, ConnectError>) -> Outcome {
    match result {
        Ok(true) => Encrypted,
        Ok(false) => Plain,
        Err(error) => Refused(error.kind()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_server_that_offers_tls() {
    let Some(mut world) = World::start() else {
        return;
    };
    for (parameters, expected) in [
        ("sslmode=disable", Plain),
        ("sslmode=allow", Encrypted),
        ("sslmode=prefer", Encrypted),
        ("sslmode=require", Encrypted),
        ("sslmode=verify-ca&sslrootcert={ca}", Encrypted),
        ("sslmode=verify-full&sslrootcert={ca}", Encrypted),
        (
            "sslmode=verify-full&sslrootcert={ca}&host=localhost&hostaddr=127.0.0.1",
            Encrypted,
        ),
        (
            "sslmode=verify-full&sslrootcert={ca}&host=other&hostaddr=127.0.0.1",
            Refused(Tls),
        ),
        (
            "sslmode=verify-ca&sslrootcert={ca}&host=other&hostaddr=127.0.0.1",
            Encrypted,
        ),
        ("sslmode=require&sslrootcert={ca}", Encrypted),
        ("sslmode=prefer&sslrootcert={ca}", Encrypted),
        // Another authority: libpq verifies whenever it has a file.
        ("sslmode=disable&sslrootcert={other-ca}", Plain),
        ("sslmode=prefer&sslrootcert={other-ca}", Plain),
        ("sslmode=require&sslrootcert={other-ca}", Refused(Tls)),
        ("sslmode=verify-ca&sslrootcert={other-ca}", Refused(Tls)),
        ("sslmode=verify-full&sslrootcert={other-ca}", Refused(Tls)),
        (
            "sslmode=verify-full&sslrootcert=/nowhere.pem",
            Refused(Settings),
        ),
        (
            "sslmode=verify-full&sslrootcert={ca-key}",
            Refused(Settings),
        ),
        (
            "sslmode=require&channel_binding=require",
            Refused(Authentication),
        ),
    ] {
        world.expect(parameters, expected).await;
    }
    let error = world
        .connect("sslmode=verify-full&sslrootcert={other-ca}")
        .await
        .unwrap_err();
    let told = "its certificate is signed by no CA that we trust, give that CA's with sslrootcert";
    assert!(error.to_string().ends_with(told), "{error}");

    world.shows("elsewhere");
    for (parameters, expected) in [
        ("sslmode=prefer", Encrypted),
        ("sslmode=require", Encrypted),
        ("sslmode=require&sslrootcert={ca}", Encrypted),
        ("sslmode=verify-ca&sslrootcert={ca}", Encrypted),
        ("sslmode=verify-ca&sslrootcert={other-ca}", Refused(Tls)),
        ("sslmode=verify-full&sslrootcert={ca}", Refused(Tls)),
    ] {
        world.expect(parameters, expected).await;
    }
    let error = world
        .connect("sslmode=verify-full&sslrootcert={ca}")
        .await
        .unwrap_err();
    assert!(error.to_string().contains("is for another host"), "{error}");

    // The certificate that `openssl req -x509` makes is one of an authority.
    world.shows("itself");
    for (parameters, expected) in [
        ("sslmode=verify-ca&sslrootcert={itself}", Encrypted),
        ("sslmode=verify-full&sslrootcert={itself}", Encrypted),
        (
            "sslmode=verify-full&sslrootcert={itself}&host=other&hostaddr=127.0.0.1",
            Refused(Tls),
        ),
        ("sslmode=verify-full&sslrootcert={ca}", Refused(Tls)),
    ] {
        world.expect(parameters, expected).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_server_that_demands_more_or_less() {
    let Some(mut world) = World::start() else {
        return;
    };
    world
        .server
        .set_hba("hostssl all all 127.0.0.1/32 trust clientcert=verify-ca");
    for (parameters, expected) in [
        ("sslmode=disable", Refused(Authentication)),
        ("sslmode=prefer", Refused(Authentication)),
        ("sslmode=require", Refused(Authentication)),
        (
            "sslmode=prefer&sslcert={client}&sslkey={client-key}",
            Encrypted,
        ),
        (
            "sslmode=require&sslcert={client}&sslkey={client-key}",
            Encrypted,
        ),
        (
            "sslmode=verify-full&sslrootcert={ca}&sslcert={client}&sslkey={client-key}",
            Encrypted,
        ),
        (
            "sslmode=require&sslcert={other-client}&sslkey={other-client-key}",
            Refused(Tls),
        ),
        (
            "sslmode=require&sslcert={client}&sslkey={other-client-key}",
            Refused(Settings),
        ),
        (
            "sslmode=require&sslcert={client}&sslkey={client}",
            Refused(Settings),
        ),
    ] {
        world.expect(parameters, expected).await;
    }
    let error = world
        .connect("sslmode=prefer")
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("valid client certificate"), "{error}");
    world.certificates.make_readable_for_all("client-key.pem");
    let with_key = "sslmode=require&sslcert={client}&sslkey={client-key}";
    let error = world.connect(with_key).await.unwrap_err().to_string();
    assert!(
        error.contains("can be read by others: run chmod 0600"),
        "{error}"
    );

    world.server.set_hba("hostnossl all all 127.0.0.1/32 trust");
    world.expect("sslmode=prefer", Plain).await;
    world
        .expect("sslmode=require", Refused(Authentication))
        .await;

    world.server.set_hba(TRUST);
    world
        .server
        .execute("CREATE ROLE me LOGIN PASSWORD 'hunter2'");
    world
        .server
        .set_hba("host all me 127.0.0.1/32 scram-sha-256");
    for (parameters, expected) in [
        (
            "user=me&password=hunter2&channel_binding=require",
            Encrypted,
        ),
        (
            "user=me&password=hunter2&channel_binding=disable",
            Encrypted,
        ),
        (
            "user=me&password=hunter2&channel_binding=require&sslmode=disable",
            Refused(Authentication),
        ),
        ("user=me&password=other", Refused(Authentication)),
    ] {
        world.expect(parameters, expected).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_server_that_offers_no_tls() {
    let Some(server) = PostgresServer::start() else {
        return;
    };
    let (clock, certificates) = (SystemClock::start().unwrap(), Certificates::new());
    let ca = certificates.path("ca.pem");
    for (parameters, expected) in [
        ("sslmode=disable", Plain),
        ("sslmode=allow", Plain),
        ("sslmode=prefer", Plain),
        ("sslmode=require", Refused(Tls)),
        ("sslmode=verify-ca&sslrootcert={ca}", Refused(Tls)),
        ("sslmode=verify-full&sslrootcert={ca}", Refused(Tls)),
    ] {
        let parameters = parameters.replace("{ca}", &ca);
        let found = outcome(is_encrypted(&server, &parameters, &clock).await);
        assert_eq!(found, expected, "{parameters}");
    }
    let refused = is_encrypted(&server, "sslmode=require", &clock).await;
    let sentence = format!(
        "the database postgres://punctual@127.0.0.1:{}/postgres cannot be reached securely: it offers no TLS, turn it on there (ssl = on), or give sslmode=disable",
        server.port()
    );
    assert_eq!(refused.unwrap_err().to_string(), sentence);
}
