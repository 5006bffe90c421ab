//! Whom a client certificate is about.
//!
//! A subject is compared as the text of its whole distinguished name (RFC 4514), not by its common name alone: an
//! authority may vouch for two of one common name in different organisations. In that text whatever could be taken for
//! the border between two parts is escaped, so no two names have one text.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::Decode;

/// The subject of a certificate: `CN=worker-1,O=Example`. Not empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Subject(Arc<str>);

impl Subject {
    /// The subject of this certificate; nothing when it has none.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = Certificate::from_der(certificate).ok()?;
        Self::from_text(&certificate.tbs_certificate.subject.to_string())
    }

    /// A subject as it is written.
    pub(super) fn from_text(text: &str) -> Option<Self> {
        let is_fit = text.contains('=') && text == text.trim();
        is_fit.then(|| Self(text.into()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}
