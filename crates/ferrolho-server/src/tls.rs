//! The server's certificate and the authorities of its callers', which may be exchanged while it runs: connections that
//! are open go on with the old ones.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

/// Where the server's certificate is, and what it asks of callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, with those that lead from it to its authority; PEM.
    pub certificate: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// The authorities that vouch for callers, PEM: who shows a certificate must have it from one of them. Without
    /// them nobody is asked for one.
    pub client_authorities: Option<PathBuf>,
}

/// What connections are secured with, from files.
#[derive(Clone)]
pub struct Tls {
    files: TlsFiles,
    config: Arc<RwLock<Arc<ServerConfig>>>,
}

/// A file of the certificate or its key is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {what}", path.display())]
pub struct TlsFileError {
    path: PathBuf,
    what: String,
}

impl Tls {
    /// Reads the files.
    pub fn from_files(files: TlsFiles) -> Result<Self, TlsFileError> {
        let config = Arc::new(RwLock::new(read(&files)?));
        Ok(Self { files, config })
    }

    /// Reads the files again, for connections that come from now on. If that fails, everything stays as it was.
    pub fn reload(&self) -> Result<(), TlsFileError> {
        *self.config.write() = read(&self.files)?;
        Ok(())
    }

    /// What connections that come now are to be secured with.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config.read())
    }
}

fn read(files: &TlsFiles) -> Result<Arc<ServerConfig>, TlsFileError> {
    let TlsFiles { certificate, key, .. } = files;
    let chain = read_certificates(certificate)?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(certificate, &error))?;
    let builder = match &files.client_authorities {
        None => builder.with_no_client_auth(),
        Some(authorities) => builder.with_client_cert_verifier(verifier(authorities, provider)?),
    };
    let mut config = builder
        .with_single_cert(chain, private)
        .map_err(|error| wrong(certificate, &error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    if files.client_authorities.is_some() {
        // A session that is taken up again is not verified again: every connection shows its certificate.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(Arc::new(config))
}

/// Verifies the certificates of callers that show one. Others may show a token instead.
fn verifier(path: &Path, provider: Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>, TlsFileError> {
    let mut roots = RootCertStore::empty();
    for authority in read_certificates(path)? {
        roots.add(authority).map_err(|error| wrong(path, &error))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|error| wrong(path, &error))
}

/// The certificates in a file, of which there must be one.
fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| wrong(path, &error))?;
    if certificates.is_empty() {
        return Err(wrong(path, &"there is no certificate in it"));
    }
    Ok(certificates)
}

fn wrong(path: &Path, what: &dyn Display) -> TlsFileError {
    TlsFileError {
        path: path.to_owned(),
        what: what.to_string(),
    }
}
