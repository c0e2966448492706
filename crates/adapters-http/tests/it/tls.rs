//! Secure connections: to the host that was meant, or none.

use std::sync::Arc;

use punctual_adapters_http::{HyperHttpClient, Roots, RootsError};
use punctual_ports::HttpClientPort;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{HandshakeKind, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use crate::fixture::{Answers, LOOPBACK, Target, client, post, read_request, write};

/// A target with a certificate for these names, its certificate, and what it got.
async fn secure_target(
    names: &[&str],
    answer: &'static [u8],
    is_orderly: bool,
) -> (Target, String, mpsc::UnboundedReceiver<Option<String>>) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let chain = vec![CertificateDer::from(made.cert.der().to_vec())];
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (tell, told) = mpsc::unbounded_channel();
    let target = Target::start(move |socket| {
        let (acceptor, tell) = (acceptor.clone(), tell.clone());
        async move {
            let Ok(mut secured) = acceptor.accept(socket).await else {
                let _ = tell.send(None);
                return;
            };
            let session = secured.get_ref().1;
            let is_full = session.handshake_kind() == Some(HandshakeKind::Full);
            let is_http_1 = session.alpn_protocol() == Some(b"http/1.1");
            let request = read_request(&mut secured).await;
            let _ = tell.send((is_full && is_http_1).then_some(request));
            let _ = secured.write_all(answer).await;
            let _ = secured.flush().await;
            if is_orderly {
                let _ = secured.shutdown().await;
            }
        }
    })
    .await;
    (target, made.cert.pem(), told)
}

/// Every name is on loopback.
fn trusting(pem: Option<&str>) -> HyperHttpClient {
    let roots = match pem {
        Some(pem) => Roots::none().and_pem(pem.as_bytes()).unwrap(),
        None => Roots::none(),
    };
    HyperHttpClient::new(LOOPBACK.parse().unwrap(), roots)
        .unwrap()
        .with_resolver(
            Arc::new(Answers(|_: &str, port: u16| {
                Ok(vec![([127, 0, 0, 1], port).into()])
            })),
            1,
        )
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn a_target_with_a_trusted_certificate_gets_the_request() {
    // A dot at the end is the root's, and not part of the certificate's name.
    for host in ["target.test", "127.0.0.1", "TARGET.test."] {
        let name = host.trim_end_matches('.').to_lowercase();
        let (target, pem, mut told) = secure_target(&[&name], OK, true).await;
        let url = format!("https://{host}:{}/p", target.address.port());
        let answered = trusting(Some(&pem)).attempt(post(&url, "body")).await;
        assert_eq!(answered.unwrap().body, b"ok");
        let request = told.recv().await.unwrap().unwrap();
        assert!(request.starts_with("POST /p HTTP/1.1\r\n") && request.ends_with("body"));
        assert_eq!(target.connections().await, 1);
    }
}

/// Each handshake is a whole one, for the protocol that we speak.
#[tokio::test]
async fn attempts_share_no_session() {
    let (target, pem, mut told) = secure_target(&["target.test"], OK, true).await;
    let url = format!("https://target.test:{}/", target.address.port());
    let client = trusting(Some(&pem));
    for _ in 0..2 {
        client.attempt(post(&url, "")).await.unwrap();
        assert!(told.recv().await.unwrap().is_some());
    }
}

/// Such a target says so only after the connection is made.
#[tokio::test]
async fn a_target_that_wants_to_know_who_we_are_refuses_us() {
    let made = rcgen::generate_simple_self_signed(["target.test".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let chain = vec![CertificateDer::from(made.cert.der().to_vec())];
    let mut roots = RootCertStore::empty();
    roots.add(chain[0].clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(chain, key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let target = Target::start(move |socket| {
        let acceptor = acceptor.clone();
        async move {
            let refused = acceptor.accept(socket).into_fallible().await;
            // It hears the request out, so that its word is not lost with the connection.
            let (_, mut socket) = refused.err().unwrap();
            let _ = socket.read_to_end(&mut Vec::new()).await;
        }
    })
    .await;
    let url = format!("https://target.test:{}/", target.address.port());
    let failure = trusting(Some(&made.cert.pem()))
        .attempt(post(&url, ""))
        .await;
    let failure = failure.unwrap_err();
    assert_eq!(failure.kind.as_str(), "TlsFailed");
    assert!(
        failure.message.ends_with("it refused what we offered"),
        "{failure:?}"
    );
    assert_eq!(target.connections().await, 1);
}

#[tokio::test]
async fn a_certificate_that_nobody_signed_or_for_another_name_gets_nothing() {
    let signed = "no authority that this machine trusts has signed its certificate";
    let named = "its certificate is for another name";
    for (host, is_trusted, why) in [
        ("target.test", false, signed),
        ("other.test", true, named),
        ("127.0.0.1", true, named),
    ] {
        let (target, pem, mut told) = secure_target(&["target.test"], OK, true).await;
        let url = format!("https://{host}:{}/", target.address.port());
        let client = trusting(is_trusted.then_some(pem.as_str()));
        let failure = client.attempt(post(&url, "body")).await.unwrap_err();
        assert_eq!(failure.kind.as_str(), "TlsFailed");
        assert_eq!(
            failure.message,
            format!("no secure connection to {host} could be made: {why}")
        );
        assert_eq!(told.recv().await.unwrap(), None);
        assert_eq!(target.connections().await, 1);
    }
}

#[tokio::test]
async fn a_target_without_tls_gets_nothing_of_the_request() {
    for answer in [b"HTTP/1.1 400 Bad Request\r\n\r\n".as_slice(), b""] {
        let (tell, mut told) = mpsc::unbounded_channel();
        let target = Target::start(move |mut socket| {
            let tell = tell.clone();
            async move {
                let mut got = vec![0; 16_384];
                let length = socket.read(&mut got).await.unwrap();
                got.truncate(length);
                write(&mut socket, answer).await;
                let _ = socket.shutdown().await;
                let _ = socket.read_to_end(&mut got).await;
                let _ = tell.send(got);
            }
        })
        .await;
        let url = format!("https://target.test:{}/canary", target.address.port());
        let failure = trusting(None)
            .attempt(post(&url, "canary"))
            .await
            .unwrap_err();
        assert_eq!(failure.kind.as_str(), "TlsFailed", "{failure:?}");
        let got = told.recv().await.unwrap();
        assert!(!got.windows(6).any(|window| window == b"canary"));
        assert_eq!(target.connections().await, 1);
    }
}

/// Whoever is between us and the target could have cut it.
#[tokio::test]
async fn a_body_that_ends_with_the_connection_is_whole_only_if_the_target_says_so() {
    for (is_orderly, expected) in [
        (true, Ok(b"to the end".to_vec())),
        (false, Err("ConnectionLost".to_owned())),
    ] {
        let answer = b"HTTP/1.1 200 OK\r\n\r\nto the end";
        let (target, pem, _told) = secure_target(&["target.test"], answer, is_orderly).await;
        let url = format!("https://target.test:{}/", target.address.port());
        let answered = trusting(Some(&pem)).attempt(post(&url, "")).await;
        let body = answered.map(|response| response.body);
        let body = body.map_err(|failure| failure.kind.to_string());
        assert_eq!(body, expected);
    }
}

#[tokio::test]
async fn a_host_that_no_certificate_can_name_gets_nothing() {
    let (target, pem, _told) = secure_target(&["target.test"], OK, true).await;
    let url = format!("https://2130706433:{}/", target.address.port());
    let failure = trusting(Some(&pem)).attempt(post(&url, "")).await;
    let failure = failure.unwrap_err();
    assert_eq!(failure.kind.as_str(), "InvalidRequest");
    assert_eq!(
        failure.message,
        "2130706433 is not a name that a certificate can have"
    );
}

#[tokio::test]
async fn an_address_that_is_not_allowed_is_not_reached_by_https_either() {
    let (target, _, _told) = secure_target(&["target.test"], OK, true).await;
    let url = format!("https://127.0.0.1:{}/", target.address.port());
    let failure = client("").attempt(post(&url, "")).await.unwrap_err();
    assert_eq!(failure.kind.as_str(), "TargetNotAllowed");
    assert_eq!(target.connections().await, 0);
}

#[test]
fn authorities_are_read_from_pem_only() {
    for bad in [
        "",
        "garbage",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        let refused = Roots::none().and_pem(bad.as_bytes()).err();
        assert_eq!(refused, Some(RootsError::NotPem), "{bad}");
    }
    // Whatever this machine trusts, a client can be made with it.
    HyperHttpClient::new("".parse().unwrap(), Roots::of_this_machine()).unwrap();
}
