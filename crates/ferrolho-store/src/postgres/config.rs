//! `postgres://user:password@host:port/database?…`: which database, and how it is reached.
//!
//! Our own parameters are `schema`, and `sslmode` with `sslrootcert`, which mean what they mean to libpq; the client
//! library knows only some of the modes. All others are the library's. Nothing here shows a password.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use tokio_postgres::config::{Host, SslMode};

use super::tls::Trust;
use crate::ENGINE_TIMEOUT;

/// The schema of the tables, unless it is named.
const SCHEMA: &str = "public";

/// Where PostgreSQL listens, unless the URL says so.
const PORT: u16 = 5432;

/// A database for locks.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresConfig {
    pub(super) session: SessionConfig,
    /// How the connection that hears of changes is made, when not as the others are.
    pub(super) listen: Option<SessionConfig>,
    /// The schema of the tables.
    pub(super) schema: String,
}

/// How one connection is made.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct SessionConfig {
    pub(super) client: tokio_postgres::Config,
    pub(super) trust: Trust,
}

/// What is wrong with the URL of a database. It shows nothing of the URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostgresUrlError {
    /// It is not a URL of this kind.
    #[error("a PostgreSQL store is postgres://user:password@host:port/database, with parameters of libpq")]
    Form,
    /// It has no host or no database in it.
    #[error("a PostgreSQL store needs a host and a database: postgres://user@host/database")]
    Incomplete,
    /// A mode of TLS that there is not.
    #[error("sslmode is disable, prefer, require, verify-ca or verify-full")]
    SslMode,
    /// A server is to be verified, and nothing says by whom.
    #[error("sslmode verify-ca and verify-full need sslrootcert, the file of the authority's certificate")]
    NoRoot,
    /// A schema whose name would need quotes.
    #[error("schema must be lower-case letters, digits and _, not beginning with a digit")]
    Schema,
}

impl FromStr for PostgresConfig {
    type Err = PostgresUrlError;

    fn from_str(text: &str) -> Result<Self, PostgresUrlError> {
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        let mut rest = Vec::new();
        let (mut mode, mut root, mut schema) = ("prefer".to_owned(), None, SCHEMA.to_owned());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or(PostgresUrlError::Form)?;
            let value = percent_decode_str(value)
                .decode_utf8()
                .map_err(|_| PostgresUrlError::Form)?;
            match key {
                "sslmode" => mode = value.into_owned(),
                "sslrootcert" => root = Some(PathBuf::from(value.into_owned())),
                "schema" => schema = value.into_owned(),
                _ => rest.push(pair),
            }
        }
        let url = format!("{base}?{}", rest.join("&"));
        let mut client: tokio_postgres::Config = url.parse().map_err(|_| PostgresUrlError::Form)?;
        if client.get_hosts().is_empty() || client.get_dbname().is_none() {
            return Err(PostgresUrlError::Incomplete);
        }
        let (ssl, trust) = match (mode.as_str(), root) {
            ("disable", _) => (SslMode::Disable, Trust::Anybody),
            // As libpq: a root that is named is looked at.
            ("prefer", None) => (SslMode::Prefer, Trust::Anybody),
            ("prefer", Some(root)) => (SslMode::Prefer, Trust::SignedBy(root)),
            ("require", None) => (SslMode::Require, Trust::Anybody),
            ("require" | "verify-ca", Some(root)) => (SslMode::Require, Trust::SignedBy(root)),
            ("verify-full", Some(root)) => (SslMode::Require, Trust::Named(root)),
            ("verify-ca" | "verify-full", None) => return Err(PostgresUrlError::NoRoot),
            _ => return Err(PostgresUrlError::SslMode),
        };
        let is_plain =
            |(at, c): (usize, char)| c.is_ascii_lowercase() || c == '_' || (at > 0 && c.is_ascii_digit());
        if schema.is_empty() || !schema.chars().enumerate().all(is_plain) {
            return Err(PostgresUrlError::Schema);
        }
        client
            .ssl_mode(ssl)
            .application_name("ferrolho")
            // For each host: one that is silent leaves time for the next.
            .connect_timeout(ENGINE_TIMEOUT / 3)
            .tcp_user_timeout(2 * ENGINE_TIMEOUT)
            .keepalives_idle(2 * ENGINE_TIMEOUT);
        Ok(Self {
            session: SessionConfig { client, trust },
            listen: None,
            schema,
        })
    }
}

impl PostgresConfig {
    /// Hears of changes over this connection: past a pooler in transaction mode, over which nobody can listen.
    pub fn listen_over(&mut self, direct: &Self) {
        self.listen = Some(direct.session.clone());
    }
}

impl fmt::Display for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let client = &self.session.client;
        f.write_str("postgres://")?;
        for (number, host) in client.get_hosts().iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            let ports = client.get_ports();
            let port = ports.get(number).or(ports.first()).unwrap_or(&PORT);
            match host {
                Host::Tcp(name) => write!(f, "{comma}{name}:{port}")?,
                Host::Unix(path) => write!(f, "{comma}{}:{port}", path.display())?,
            }
        }
        write!(f, "/{}", client.get_dbname().unwrap_or_default())
    }
}

impl fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_named_without_its_secrets() {
        let config: PostgresConfig =
            "postgres://me:sEcReT@one:6000,two/locks?sslmode=require&schema=our_locks"
                .parse()
                .unwrap();
        assert_eq!(config.to_string(), "postgres://one:6000,two:5432/locks");
        assert!(!format!("{config:?}").contains("sEcReT"));
        assert_eq!(config.schema, "our_locks");
        assert_eq!(config.session.client.get_ssl_mode(), SslMode::Require);
        let config: PostgresConfig = "postgresql://h/d?sslmode=verify-full&sslrootcert=%2Fetc%2Fca.pem"
            .parse()
            .unwrap();
        assert_eq!(config.session.trust, Trust::Named("/etc/ca.pem".into()));
    }

    #[test]
    fn what_names_no_database_is_refused_without_its_secrets() {
        for (text, error) in [
            ("postgres:", PostgresUrlError::Form),
            ("postgres://u:sEcReT@h:port/d", PostgresUrlError::Form),
            ("postgres://u:sEcReT@h/d?nonsense=1", PostgresUrlError::Form),
            ("postgres://u:sEcReT@h", PostgresUrlError::Incomplete),
            (
                "postgres://u:sEcReT@h/d?sslmode=sEcReT",
                PostgresUrlError::SslMode,
            ),
            (
                "postgres://u:sEcReT@h/d?sslmode=verify-ca",
                PostgresUrlError::NoRoot,
            ),
            ("postgres://u:sEcReT@h/d?schema=a-b", PostgresUrlError::Schema),
            ("postgres://u:sEcReT@h/d?schema=", PostgresUrlError::Schema),
        ] {
            let refused = text.parse::<PostgresConfig>().unwrap_err();
            assert_eq!(refused, error, "{text}");
            assert!(!refused.to_string().contains("sEcReT"));
        }
    }
}
