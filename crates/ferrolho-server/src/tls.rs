//! The server's certificate, which may be exchanged while it runs: connections that are open go on with the old one.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A certificate with its key, from files.
#[derive(Clone)]
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
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
    /// Reads a certificate, with those that lead from it to its authority, and its key; both PEM.
    pub fn from_files(certificate: PathBuf, key: PathBuf) -> Result<Self, TlsFileError> {
        let config = Arc::new(RwLock::new(read(&certificate, &key)?));
        Ok(Self {
            certificate,
            key,
            config,
        })
    }

    /// Reads the files again, for connections that come from now on. If that fails, everything stays as it was.
    pub fn reload(&self) -> Result<(), TlsFileError> {
        *self.config.write() = read(&self.certificate, &self.key)?;
        Ok(())
    }

    /// What connections that come now are to be secured with.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config.read())
    }
}

fn read(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsFileError> {
    let wrong = |path: &Path, what: &dyn Display| TlsFileError {
        path: path.to_owned(),
        what: what.to_string(),
    };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| wrong(certificate, &error))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(certificate, &error))?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|error| wrong(certificate, &error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
