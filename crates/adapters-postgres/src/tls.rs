//! TLS in the words of libpq, on rustls: which certificates are verified, and how far.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::ConnectError;
use crate::password_file::check_key;
use crate::url::{Roots, SslMode, TlsSettings};

/// How far the certificate of the server is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verified {
    Nothing,
    Chain,
    ChainAndName,
}

/// Makes the connector, and reads the files that it needs.
///
/// # Errors
/// If a file cannot be read, or does not hold what it should.
pub(crate) fn connector(settings: &TlsSettings) -> Result<MakeRustlsConnect, ConnectError> {
    // The process may have no default provider, or one that the host has chosen for itself.
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| ConnectError::setting("sslmode", error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(verifier(settings, provider)?);
    let client = settings.client.as_ref();
    let config = match client.filter(|_| settings.mode != SslMode::Disable) {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates("sslcert", certificate)?;
            let config = builder.with_client_auth_cert(chain, private_key(key)?);
            config.map_err(|error| {
                let shown = key.display();
                let advice = format!("{shown} is no key for the certificate of sslcert ({error})");
                ConnectError::setting("sslkey", advice)
            })?
        }
    };
    Ok(MakeRustlsConnect::new(config))
}

fn verifier(
    settings: &TlsSettings,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, ConnectError> {
    // A root certificate is used even where nothing asks for it, as libpq does.
    let (verified, roots) = match (settings.mode, &settings.roots) {
        (SslMode::Disable, _) | (SslMode::Prefer | SslMode::Require, None) => {
            (Verified::Nothing, Vec::new())
        }
        (SslMode::VerifyFull, None | Some(Roots::System)) => {
            (Verified::ChainAndName, system_roots()?)
        }
        (mode, Some(Roots::File(file))) => {
            let verified = match mode {
                SslMode::VerifyFull => Verified::ChainAndName,
                _ => Verified::Chain,
            };
            (verified, certificates("sslrootcert", file)?)
        }
        // `PostgresUrl` refuses these two.
        (_, Some(Roots::System)) | (SslMode::VerifyCa, None) => {
            return Err(ConnectError::setting("sslmode", "give verify-full"));
        }
    };
    let chain = match verified {
        Verified::Nothing => None,
        _ => Some(chain_verifier(&roots, Arc::clone(&provider))?),
    };
    Ok(Arc::new(Verifier {
        verified,
        chain,
        roots,
        provider,
    }))
}

fn chain_verifier(
    certificates: &[CertificateDer<'static>],
    provider: Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, ConnectError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates.iter().cloned());
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|_| {
            ConnectError::setting(
                "sslrootcert",
                "none of its certificates can be used: give CA certificates in PEM, X.509 v3",
            )
        })
}

fn system_roots() -> Result<Vec<CertificateDer<'static>>, ConnectError> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        return Err(ConnectError::setting(
            "sslrootcert",
            "this system has no CA certificates: install them (ca-certificates), or name a file",
        ));
    }
    Ok(found.certs)
}

fn certificates(
    field: &'static str,
    file: &Path,
) -> Result<Vec<CertificateDer<'static>>, ConnectError> {
    let wrong = |reason: String| {
        let shown = file.display();
        let advice = format!("{shown} {reason}, name a file with certificates in PEM");
        ConnectError::setting(field, advice)
    };
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let read: Vec<_> = read.map_err(|error| wrong(format!("cannot be read ({error})")))?;
    if read.is_empty() {
        return Err(wrong("has no certificate".to_owned()));
    }
    Ok(read)
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, ConnectError> {
    check_key(file)?;
    PrivateKeyDer::from_pem_file(file).map_err(|error| {
        let shown = file.display();
        let advice = format!("{shown} cannot be read ({error}), name an unencrypted key in PEM");
        ConnectError::setting("sslkey", advice)
    })
}

/// Verifies as far as the `sslmode` demands.
#[derive(Debug)]
struct Verifier {
    verified: Verified,
    chain: Option<Arc<WebPkiServerVerifier>>,
    roots: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    /// Whether the certificate is itself one of the trusted ones, and that it is a CA's is all that webpki
    /// has against it. OpenSSL makes such certificates by default, and libpq accepts them. Its dates have
    /// been checked before.
    fn is_trusted_itself(&self, certificate: &CertificateDer<'_>, error: &Error) -> bool {
        let Error::InvalidCertificate(CertificateError::Other(other)) = error else {
            return false;
        };
        format!("{other:?}").contains("CaUsedAsEndEntity") && self.roots.contains(certificate)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chain) = &self.chain else {
            return Ok(ServerCertVerified::assertion());
        };
        let verdict =
            chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verdict {
            Err(error) if self.is_trusted_itself(end_entity, &error) => {
                if self.verified == Verified::ChainAndName {
                    verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                }
                Ok(ServerCertVerified::assertion())
            }
            // The name is verified last, so that everything else is right.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.verified == Verified::Chain => Ok(ServerCertVerified::assertion()),
            verdict => verdict,
        }
    }

    // Signatures are verified in every mode: channel binding relies on the server having the key of the
    // certificate that it shows.
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

/// What an error of a handshake means, and what would help.
pub(crate) fn explain(error: &Error) -> String {
    match error {
        // The latter with another CA of the same name, such as the one before it.
        Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => "its certificate is signed by no CA that we trust, give that CA's with sslrootcert"
            .to_owned(),
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "its certificate is for another host, connect by a name that is in its subjectAltName"
            .to_owned(),
        Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => "its certificate has expired, renew it".to_owned(),
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "it asks for a client certificate, give sslcert and sslkey".to_owned()
        }
        Error::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired,
        ) => format!("it does not accept our client certificate ({error}), check sslcert"),
        Error::InvalidMessage(_) => "it does not seem to speak TLS".to_owned(),
        error => error.to_string(),
    }
}
