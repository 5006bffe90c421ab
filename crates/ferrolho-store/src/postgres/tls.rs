//! TLS to the database, with the modes of libpq: encrypted to whoever answers, to one that an authority has signed,
//! or to one that an authority has signed under its own name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Whom to take for the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// Whoever answers.
    Anybody,
    /// Whoever has a certificate that one of this file has signed.
    SignedBy(PathBuf),
    /// The same, if the certificate has the host's name.
    Named(PathBuf),
}

/// The file of the authority's certificate is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {what}", path.display())]
pub struct RootFileError {
    path: PathBuf,
    what: String,
}

/// What makes connections secure in this way.
pub(super) fn connector(trust: &Trust) -> Result<MakeRustlsConnect, RootFileError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let signed = match trust {
        Trust::Anybody => None,
        Trust::SignedBy(path) | Trust::Named(path) => Some(authority(path, &provider)?),
    };
    let verifier = Verifier {
        provider: Arc::clone(&provider),
        signed,
        is_name_checked: matches!(trust, Trust::Named(_)),
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| RootFileError::new(Path::new(""), error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

fn authority(
    path: &Path,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, RootFileError> {
    let wrong = |what: &dyn std::fmt::Display| RootFileError::new(path, what);
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))? {
        let certificate = certificate.map_err(|error| wrong(&error))?;
        roots.add(certificate).map_err(|error| wrong(&error))?;
    }
    if roots.is_empty() {
        return Err(wrong(&"there is no certificate in it"));
    }
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|error| wrong(&error))
}

impl RootFileError {
    fn new(path: &Path, what: impl std::fmt::Display) -> Self {
        Self {
            path: path.to_owned(),
            what: what.to_string(),
        }
    }
}

/// Looks at the database's certificate as closely as it was told to.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    signed: Option<Arc<WebPkiServerVerifier>>,
    is_name_checked: bool,
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
        let Some(signed) = &self.signed else {
            return Ok(ServerCertVerified::assertion());
        };
        match signed.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.is_name_checked => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
