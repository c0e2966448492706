//! TLS with the target: trusted certificates, and why one was refused.

use std::sync::{Arc, PoisonError, RwLock};

use punctual_domain::service_call::{ErrorKind, TargetUrl};
use punctual_ports::HttpFailure;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use thiserror::Error;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::failure::failure;
use crate::wire::Wire;

/// Trusted root certificates.
#[derive(Clone)]
pub struct Roots(RootCertStore);

/// Error for root certificates that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RootsError {
    /// There is no certificate in the file, or a damaged one.
    #[error(
        "there is no usable certificate: give one or more in PEM form, each from BEGIN CERTIFICATE to END CERTIFICATE"
    )]
    NotPem,
    /// TLS cannot be set up.
    #[error("TLS cannot be set up with the versions that it has")]
    Config,
}

impl Roots {
    /// The roots of the operating system; `SSL_CERT_FILE` and `SSL_CERT_DIR` name others.
    ///
    /// It reads files: call it at startup.
    pub fn of_this_machine() -> Self {
        let mut roots = Self::none();
        let found = rustls_native_certs::load_native_certs();
        let (taken, _) = roots.0.add_parsable_certificates(found.certs);
        if taken == 0 {
            tracing::warn!(
                errors = found.errors.len(),
                "this machine has no certificate authorities, so calls by https will fail: install its ca-certificates"
            );
        }
        roots
    }

    /// Number of roots.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no certificate is trusted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// No roots: no https target is trusted until one is added.
    pub fn none() -> Self {
        Self(RootCertStore::empty())
    }

    /// Adds the roots of a PEM file.
    ///
    /// # Errors
    /// If there is none in it, or one is damaged.
    pub fn and_pem(mut self, pem: &[u8]) -> Result<Self, RootsError> {
        let mut added = 0;
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|_| RootsError::NotPem)?;
            self.0.add(certificate).map_err(|_| RootsError::NotPem)?;
            added += 1;
        }
        match added {
            0 => Err(RootsError::NotPem),
            _ => Ok(self),
        }
    }
}

fn connector(roots: Roots) -> Result<TlsConnector, RootsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|_| RootsError::Config)?
        .with_root_certificates(roots.0)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Attempts share nothing: a resumed session could also carry early data, which can be replayed.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The TLS client.
pub(crate) struct Tls(RwLock<TlsConnector>);

impl Tls {
    pub(crate) fn new(roots: Roots) -> Result<Self, RootsError> {
        Ok(Self(RwLock::new(connector(roots)?)))
    }

    /// Replaces the roots, from the next connection on.
    pub(crate) fn trust(&self, roots: Roots) -> Result<(), RootsError> {
        let connector = connector(roots)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = connector;
        Ok(())
    }

    fn connector(&self) -> TlsConnector {
        let connector = self.0.read().unwrap_or_else(PoisonError::into_inner);
        connector.clone()
    }

    /// Performs the TLS handshake, before anything of the request is sent.
    pub(crate) async fn secure(
        &self,
        url: &TargetUrl,
        wire: Wire,
    ) -> Result<TlsStream<Wire>, HttpFailure> {
        let host = url.host();
        let Ok(name) = ServerName::try_from(host.to_owned()) else {
            let message = format!("{host} is not a name that a certificate can have");
            return Err(failure(ErrorKind::InvalidRequest, message));
        };
        let connecting = self.connector().connect(name, wire);
        connecting.await.map_err(|error| {
            let inner = error.get_ref();
            match inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
                Some(error) => refused(host, error),
                None => insecure(host, "it ended the connection while one was being made"),
            }
        })
    }
}

/// The failure of a handshake, without the text of the library, which repeats what the target sent.
pub(crate) fn refused(host: &str, error: &rustls::Error) -> HttpFailure {
    use CertificateError as Certificate;
    use rustls::Error;
    let why = match error {
        Error::InvalidCertificate(Certificate::UnknownIssuer) => {
            "no authority that this machine trusts has signed its certificate"
        }
        Error::InvalidCertificate(
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. },
        ) => "its certificate is for another name",
        Error::InvalidCertificate(Certificate::Expired | Certificate::ExpiredContext { .. }) => {
            "its certificate has expired"
        }
        Error::InvalidCertificate(
            Certificate::NotValidYet | Certificate::NotValidYetContext { .. },
        ) => "its certificate is not valid yet",
        Error::InvalidCertificate(_) => "its certificate is not valid",
        Error::AlertReceived(_) => "it refused what we offered",
        Error::InvalidMessage(_) => "what it speaks is not TLS",
        _ => "it does not keep to TLS as we know it",
    };
    insecure(host, why)
}

fn insecure(host: &str, why: &str) -> HttpFailure {
    let message = format!("no secure connection to {host} could be made: {why}");
    failure(ErrorKind::TlsFailed, message)
}
