//! Every way in which a broker may ask who we are, and that the wrong answer is told as one.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use punctual_adapters_nats::{NatsAuth, NatsError, NatsEventBus, NatsSettings, NatsTls};
use punctual_ports::{ClockPort, EventBusPort};
use punctual_test_servers::NatsServer;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair as TlsKey};

use crate::fixture::{World, event};

/// Connects and publishes, which is what being let in is good for.
async fn lets_in(settings: NatsSettings) -> Result<(), NatsError> {
    let mut world = World::at("nats://127.0.0.1:1");
    world.settings = settings;
    let bus = NatsEventBus::connect(world.settings.clone(), world.parts()).await?;
    let answers = bus
        .publish(vec![event(1, world.clock.now())])
        .await
        .unwrap();
    assert!(answers[0].is_ok(), "{answers:?}");
    Ok(())
}

fn settings(server: &NatsServer, auth: NatsAuth) -> NatsSettings {
    let mut settings = NatsSettings::new(&server.url()).unwrap();
    settings.auth = auth;
    settings
}

async fn is_denied(settings: NatsSettings) {
    let error = lets_in(settings).await.unwrap_err();
    assert!(matches!(error, NatsError::Denied { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_a_password() {
    let Some(server) = NatsServer::start_with("authorization { user: me, password: \"p@ss\" }")
    else {
        return;
    };
    let as_user = |password: &str| NatsAuth::UserAndPassword {
        user: "me".to_owned(),
        password: password.to_owned(),
    };
    lets_in(settings(&server, as_user("p@ss"))).await.unwrap();
    let address = server.url().replace("nats://", "nats://me:p%40ss@");
    lets_in(NatsSettings::new(&address).unwrap()).await.unwrap();
    is_denied(settings(&server, as_user("other"))).await;
    is_denied(settings(&server, NatsAuth::None)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_knows_a_token() {
    let Some(server) = NatsServer::start_with("authorization { token: abc123 }") else {
        return;
    };
    let token = |token: &str| NatsAuth::Token(token.to_owned());
    lets_in(settings(&server, token("abc123"))).await.unwrap();
    let address = server.url().replace("nats://", "nats://abc123@");
    lets_in(NatsSettings::new(&address).unwrap()).await.unwrap();
    is_denied(settings(&server, token("other"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_has_the_seed_of_an_nkey() {
    let key = KeyPair::new_user();
    let users = format!(
        "authorization {{ users: [ {{ nkey: {} }} ] }}",
        key.public_key()
    );
    let Some(server) = NatsServer::start_with(&users) else {
        return;
    };
    let seed = |key: &KeyPair| NatsAuth::Nkey(format!("{}\n", key.seed().unwrap()));
    lets_in(settings(&server, seed(&key))).await.unwrap();
    is_denied(settings(&server, seed(&KeyPair::new_user()))).await;
}

/// A token as the broker's own tools make them.
fn jwt(issuer: &KeyPair, subject: &KeyPair, nats: &str) -> String {
    let header = "{\"typ\":\"JWT\",\"alg\":\"ed25519-nkey\"}";
    let claims = format!(
        "{{\"jti\":\"x\",\"iat\":1,\"iss\":\"{}\",\"sub\":\"{}\",\"name\":\"n\",\"nats\":{nats}}}",
        issuer.public_key(),
        subject.public_key()
    );
    let signed = [header, &claims]
        .map(|part| URL_SAFE_NO_PAD.encode(part))
        .join(".");
    let signature = issuer.sign(signed.as_bytes()).unwrap();
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_has_a_credentials_file() {
    let operator = KeyPair::new_operator();
    let (system, account, user) = (
        KeyPair::new_account(),
        KeyPair::new_account(),
        KeyPair::new_user(),
    );
    let of_operator = jwt(
        &operator,
        &operator,
        "{\"type\":\"operator\",\"version\":2}",
    );
    let limits = "{\"type\":\"account\",\"version\":2,\"limits\":{\"subs\":-1,\"data\":-1,\"payload\":-1,\
        \"imports\":-1,\"exports\":-1,\"wildcards\":true,\"conn\":-1,\"leaf\":-1,\"mem_storage\":-1,\
        \"disk_storage\":-1,\"streams\":-1,\"consumer\":-1}}";
    let of_system = "{\"type\":\"account\",\"version\":2,\"limits\":{\"conn\":-1}}";
    let configuration = format!(
        "operator: {of_operator}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{ {}: {}, {}: {} }}",
        system.public_key(),
        system.public_key(),
        jwt(&operator, &system, of_system),
        account.public_key(),
        jwt(&operator, &account, limits),
    );
    let Some(server) = NatsServer::start_with(&configuration) else {
        return;
    };
    let of_user = "{\"type\":\"user\",\"version\":2,\"subs\":-1,\"data\":-1,\"payload\":-1,\"pub\":{},\"sub\":{}}";
    let file = |key: &KeyPair| {
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
            jwt(&account, &user, of_user),
            key.seed().unwrap()
        );
        NatsAuth::Credentials(text)
    };
    lets_in(settings(&server, file(&user))).await.unwrap();
    is_denied(settings(&server, file(&KeyPair::new_user()))).await;
    let nonsense = settings(&server, NatsAuth::Credentials("hunter2".to_owned()));
    let error = lets_in(nonsense).await.unwrap_err();
    assert!(matches!(error, NatsError::Setting { .. }), "{error:?}");
    assert!(!error.to_string().contains("hunter2"));
}

/// Certificates for one test, in a folder.
struct Certificates(tempfile::TempDir);

impl Certificates {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = TlsKey::generate().unwrap();
        let authority = CertifiedIssuer::self_signed(authority, key).unwrap();
        let certificates = Self(folder);
        certificates.write("ca.pem", &authority.pem());
        for name in ["server", "client"] {
            let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
            let key = TlsKey::generate().unwrap();
            let parameters = CertificateParams::new(names).unwrap();
            let certificate = parameters.signed_by(&key, &authority).unwrap();
            certificates.write(&format!("{name}.pem"), &certificate.pem());
            certificates.write(&format!("{name}-key.pem"), &key.serialize_pem());
        }
        certificates
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    fn folder(&self) -> &Path {
        self.0.path()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn over_a_secure_connection_with_certificates_of_both_sides() {
    let certificates = Certificates::new();
    let shown = |name: &str| certificates.path(name).display().to_string();
    let tls = format!(
        "tls {{ cert_file: \"{}\", key_file: \"{}\", ca_file: \"{}\", verify: true }}",
        shown("server.pem"),
        shown("server-key.pem"),
        shown("ca.pem")
    );
    let Some(server) = NatsServer::start_with(&tls) else {
        return;
    };
    let address = server.url().replace("nats://", "tls://");
    let with = |tls: NatsTls| {
        let mut settings = NatsSettings::new(&address).unwrap();
        settings.tls = tls;
        settings
    };
    let mut whole = NatsTls::default();
    whole.ca_file = Some(certificates.path("ca.pem"));
    whole.client_certificate = Some((
        certificates.path("client.pem"),
        certificates.path("client-key.pem"),
    ));
    lets_in(with(whole.clone())).await.unwrap();
    for broken in [NatsTls::default(), {
        let mut unknown = whole.clone();
        unknown.ca_file = None;
        unknown
    }] {
        let error = lets_in(with(broken)).await.unwrap_err();
        assert!(matches!(error, NatsError::Tls { .. }), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_cannot_be_reached_securely_is_refused_if_that_is_required() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let mut required = settings(&server, NatsAuth::None);
    required.tls.is_required = true;
    let error = lets_in(required).await.unwrap_err();
    assert!(!error.is_retryable(), "{error:?}");
}
