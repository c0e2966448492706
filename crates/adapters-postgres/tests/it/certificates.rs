//! Certificates of one test, in a folder.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// Two authorities, `ca` and `other-ca`, and certificates that they signed, each with its key:
/// `server` for loopback, `elsewhere` for another host, `client`, `other-client`, and `itself`, which is
/// its own authority.
pub(crate) struct Certificates(tempfile::TempDir);

impl Certificates {
    pub(crate) fn new() -> Self {
        let certificates = Self(tempfile::tempdir().unwrap());
        let loopback = ["localhost", "127.0.0.1"];
        let ca = certificates.authority("ca", &[]);
        let other = certificates.authority("other-ca", &[]);
        certificates.authority("itself", &loopback);
        certificates.signed("server", &loopback, &ca);
        certificates.signed("elsewhere", &["elsewhere.example"], &ca);
        certificates.signed("client", &["me"], &ca);
        certificates.signed("other-client", &["me"], &other);
        certificates
    }

    /// Where a file is, such as `client.pem` or `client-key.pem`.
    pub(crate) fn path(&self, name: &str) -> String {
        self.folder(name).display().to_string()
    }

    pub(crate) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.folder(name)).unwrap()
    }

    pub(crate) fn make_readable_for_all(&self, name: &str) {
        let readable = fs::Permissions::from_mode(0o644);
        fs::set_permissions(self.folder(name), readable).unwrap();
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn authority(&self, name: &str, hosts: &[&str]) -> CertifiedIssuer<'static, KeyPair> {
        let mut parameters = parameters(name, hosts);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap());
        let issuer = issuer.unwrap();
        self.write(name, &issuer.pem(), &issuer.key().serialize_pem());
        issuer
    }

    fn signed(&self, name: &str, hosts: &[&str], issuer: &CertifiedIssuer<'static, KeyPair>) {
        let key = KeyPair::generate().unwrap();
        let certificate = parameters(name, hosts).signed_by(&key, issuer).unwrap();
        self.write(name, &certificate.pem(), &key.serialize_pem());
    }

    fn write(&self, name: &str, certificate: &str, key: &str) {
        fs::write(self.folder(&format!("{name}.pem")), certificate).unwrap();
        let path = self.folder(&format!("{name}-key.pem"));
        fs::write(&path, key).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }
}

fn parameters(name: &str, hosts: &[&str]) -> CertificateParams {
    let hosts: Vec<String> = hosts.iter().map(|&it| it.to_owned()).collect();
    let mut parameters = CertificateParams::new(hosts).unwrap();
    // Of the same name, a certificate would seem to have signed itself.
    let subject = &mut parameters.distinguished_name;
    subject.push(DnType::CommonName, name);
    parameters
}
