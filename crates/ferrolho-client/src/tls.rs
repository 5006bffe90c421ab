//! TLS, where a server's URL asks for it.

use rustls::crypto::{CryptoProvider, ring};

use crate::Error;
use crate::builder::Settings;

/// Gives the HTTP client its roots. Reading the system's costs milliseconds, so it is done only for `https`.
pub(crate) fn prepare(
    http: reqwest::ClientBuilder,
    settings: &Settings,
) -> Result<reqwest::ClientBuilder, Error> {
    if CryptoProvider::get_default().is_none() {
        // Another thread that was faster has installed one as well: any will do.
        let _beaten = ring::default_provider().install_default();
    }
    let uses_tls = settings.servers.iter().any(|url| url.scheme() == "https");
    let setup = |error: reqwest::Error| Error::Setup(format!("TLS: {error}"));
    let mut http = http;
    if let Some(pem) = &settings.root_certificates {
        let roots = reqwest::Certificate::from_pem_bundle(pem).map_err(setup)?;
        if roots.is_empty() {
            return Err(Error::Setup("TLS: no certificate in the given roots".to_owned()));
        }
        http = http.tls_certs_only(roots);
    } else if !uses_tls {
        http = http.tls_certs_only([]);
    }
    if let Some(pem) = &settings.identity {
        http = http.identity(reqwest::Identity::from_pem(pem).map_err(setup)?);
    }
    Ok(http)
}
