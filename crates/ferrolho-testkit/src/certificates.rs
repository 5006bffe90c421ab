//! A private authority and the certificates that it signs.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    date_time_ymd,
};
use tempfile::TempDir;

/// An authority that nobody else trusts. Its files go with it.
#[derive(Debug)]
pub struct Authority {
    dir: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// The files of a certificate, PEM.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The certificate alone.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Both, for clients.
    pub identity: PathBuf,
}

impl Authority {
    /// A new authority.
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "ferrolho test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("an authority");
        let dir = tempfile::tempdir().expect("a temporary directory");
        let authority = Self { dir, issuer };
        fs::write(authority.file(), authority.issuer.pem()).expect("the authority's file");
        authority
    }

    /// The file of the authority's own certificate.
    pub fn file(&self) -> PathBuf {
        self.path("authority.pem")
    }

    /// A certificate for these host names and addresses, good for servers and for clients. `name` is its common
    /// name and that of its files.
    pub fn sign(&self, name: &str, hosts: &[&str]) -> Certificate {
        self.sign_until(name, hosts, 4096)
    }

    /// The same, and its time is over.
    pub fn sign_expired(&self, name: &str, hosts: &[&str]) -> Certificate {
        self.sign_until(name, hosts, 2020)
    }

    fn sign_until(&self, name: &str, hosts: &[&str], end: i32) -> Certificate {
        let hosts: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).expect("valid host names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_after = date_time_ymd(end, 1, 1);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().expect("a key");
        let signed = params
            .signed_by(&key, &self.issuer)
            .expect("a signed certificate");
        let files = Certificate {
            certificate: self.path(&format!("{name}.pem")),
            key: self.path(&format!("{name}.key.pem")),
            identity: self.path(&format!("{name}.identity.pem")),
        };
        fs::write(&files.certificate, signed.pem()).expect("the certificate's file");
        fs::write(&files.key, key.serialize_pem()).expect("the key's file");
        fs::write(&files.identity, signed.pem() + &key.serialize_pem()).expect("the file of both");
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::join(self.dir.path(), name)
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}
