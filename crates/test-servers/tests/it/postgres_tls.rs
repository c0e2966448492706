//! The private PostgreSQL with TLS: what a client asks for, and what the server asks of a client.

use std::path::Path;
use std::process::Command;

use punctual_test_servers::{PostgresServer, ServerTls, psql};
use tempfile::TempDir;

/// Certificates of an authority of the test's own, made with `openssl`.
struct Authority {
    folder: TempDir,
}

impl Authority {
    /// `None`, with a line that says so, if `openssl` is not installed.
    fn create() -> Option<Self> {
        if Command::new("openssl").arg("version").output().is_err() {
            assert!(std::env::var_os("CI").is_none(), "openssl is not installed");
            eprintln!("skipped: openssl is not installed");
            return None;
        }
        let authority = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        authority
            .openssl("req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -subj /CN=ca");
        Some(authority)
    }

    /// A certificate of the authority, as files `NAME.crt` and `NAME.key`.
    fn issue(&self, name: &str) {
        self.openssl(&format!(
            "req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj /CN={name}"
        ));
        self.openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out {name}.crt"
        ));
    }

    fn openssl(&self, arguments: &str) {
        let output = Command::new("openssl")
            .args(arguments.split(' '))
            .current_dir(self.folder.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.path(file)).unwrap()
    }

    fn path(&self, file: &str) -> String {
        Path::join(self.folder.path(), file).display().to_string()
    }
}

const IS_ENCRYPTED: &str = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";

#[test]
fn clients_choose_tls_and_the_server_can_demand_it_and_their_certificates() {
    let Some(authority) = Authority::create() else {
        return;
    };
    authority.issue("localhost");
    authority.issue("punctual");
    let (certificate, key) = (
        authority.read("localhost.crt"),
        authority.read("localhost.key"),
    );
    let client_ca = authority.read("ca.crt");
    let tls = ServerTls {
        certificate: &certificate,
        key: &key,
        client_ca: Some(&client_ca),
    };
    let Some(mut server) = PostgresServer::start_with_tls(&tls, &[("max_connections", "9")]) else {
        return;
    };
    let ask = |server: &PostgresServer, options: &str| {
        psql(&format!("{}?{options}", server.url()), IS_ENCRYPTED)
    };
    assert_eq!(server.execute("SHOW max_connections"), "9");
    assert_eq!(ask(&server, "sslmode=disable").as_deref(), Ok("f"));
    assert_eq!(ask(&server, "sslmode=require").as_deref(), Ok("t"));
    let verified = format!("sslmode=verify-ca&sslrootcert={}", authority.path("ca.crt"));
    assert_eq!(ask(&server, &verified).as_deref(), Ok("t"));
    let mistaken = format!(
        "sslmode=verify-ca&sslrootcert={}",
        authority.path("punctual.crt")
    );
    let refused = ask(&server, &mistaken).unwrap_err();
    assert!(refused.contains("certificate verify failed"), "{refused}");

    server.set_hba("hostssl all all 127.0.0.1/32 cert");
    let refused = ask(&server, "sslmode=disable").unwrap_err();
    assert!(refused.contains("no encryption"), "{refused}");
    let refused = ask(&server, "sslmode=require").unwrap_err();
    assert!(refused.contains("valid client certificate"), "{refused}");
    let with_certificate = format!(
        "sslmode=require&sslcert={}&sslkey={}",
        authority.path("punctual.crt"),
        authority.path("punctual.key")
    );
    assert_eq!(ask(&server, &with_certificate).as_deref(), Ok("t"));
}
