//! How a client is set up.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ferrolho_core::{Owner, Ttl};
use reqwest::Url;
use reqwest::header::HeaderValue;

use crate::client::{Client, Inner};
use crate::clock::{BootClock, Clock};
use crate::{Error, default_owner};

/// Where a server listens when nobody says otherwise.
pub const DEFAULT_URL: &str = "http://127.0.0.1:7400";

/// The longest that one request may take unless the builder says otherwise.
pub const DEFAULT_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Collects how a client shall work. Everything has a default: one server at [`DEFAULT_URL`], no token, an owner
/// that is new for each client.
#[derive(Debug)]
#[must_use]
pub struct ClientBuilder {
    settings: Settings,
}

/// What was asked for, checked.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) servers: Vec<Url>,
    pub(crate) token: Option<Secret>,
    pub(crate) root_certificates: Option<Vec<u8>>,
    pub(crate) identity: Option<Secret>,
    pub(crate) request_timeout: Duration,
    pub(crate) owner: Option<Owner>,
    pub(crate) shared_ttl: Option<Ttl>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl ClientBuilder {
    pub(crate) fn new() -> Self {
        Self {
            settings: Settings {
                servers: Vec::new(),
                token: None,
                root_certificates: None,
                identity: None,
                request_timeout: DEFAULT_REQUEST_TIMEOUT,
                owner: None,
                shared_ttl: None,
                clock: Arc::new(BootClock),
            },
        }
    }

    /// Adds a server, or several with commas between them. All must work on the same store; when one does not
    /// answer, the next is asked. `http://` or `https://`, a path before `/locks` is kept.
    pub fn url(mut self, urls: &str) -> Result<Self, Error> {
        for text in urls.split(',').map(str::trim).filter(|text| !text.is_empty()) {
            let wrong = |why: &str| Error::Setup(format!("not a server's URL: {text:?} ({why})"));
            let url = Url::parse(text).map_err(|error| wrong(&error.to_string()))?;
            if !matches!(url.scheme(), "http" | "https") {
                return Err(wrong("it must begin with http:// or https://"));
            }
            if !url.username().is_empty() || url.password().is_some() {
                return Err(wrong("it must not hold a user or a password: use a token"));
            }
            if url.query().is_some() || url.fragment().is_some() {
                return Err(wrong("it must not have a query or a fragment"));
            }
            self.settings.servers.push(url);
        }
        Ok(self)
    }

    /// The bearer token that proves who calls. It appears in no log and no `Debug` output.
    pub fn token(mut self, token: &str) -> Result<Self, Error> {
        let secret = Secret(token.as_bytes().to_owned());
        secret.header()?;
        self.settings.token = Some(secret);
        Ok(self)
    }

    /// Trusts these certificates (PEM, one or more), and only these, for `https`. Without them: the system's.
    pub fn root_certificates(mut self, pem: &[u8]) -> Self {
        self.settings.root_certificates = Some(pem.to_owned());
        self
    }

    /// The client's own certificate chain and private key (PEM, in one text), for servers that ask for one.
    pub fn identity(mut self, pem: &[u8]) -> Self {
        self.settings.identity = Some(Secret(pem.to_owned()));
        self
    }

    /// The longest that one request may take, apart from time spent waiting for a lock. Renewals take less where
    /// the time that is left demands it.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.settings.request_timeout = timeout;
        self
    }

    /// The owner of all locks of this client. Without it: [`default_owner`], new for each client.
    ///
    /// Two clients with the same owner do not exclude each other: the one that acquires later gets the lock, and
    /// the earlier loses it. Name an owner only where that is what you want.
    pub fn owner(mut self, owner: Owner) -> Self {
        self.settings.owner = Some(owner);
        self
    }

    /// One heartbeat for all guards of this client: they all have this lifetime, and one request renews them all
    /// (`POST /owners/{owner}/renew`), at a third of it.
    ///
    /// For programs that hold many locks at once. It renews whatever the owner holds, so it wants an owner that
    /// nobody else uses, as the default is.
    pub fn one_heartbeat(mut self, ttl: Ttl) -> Self {
        self.settings.shared_ttl = Some(ttl);
        self
    }

    /// Another clock, for tests.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.settings.clock = clock;
        self
    }

    /// Makes the client and starts its thread. Nothing is sent yet.
    pub fn build(mut self) -> Result<Client, Error> {
        if self.settings.servers.is_empty() {
            self = self.url(DEFAULT_URL)?;
        }
        Ok(Client {
            inner: Inner::start(self.settings)?,
        })
    }
}

/// The owner of a client, and whether anybody else may be using it.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) owner: Owner,
    /// Made by this client for itself: whatever this owner holds, this client holds.
    pub(crate) is_unique: bool,
}

impl Identity {
    pub(crate) fn of(settings: &Settings) -> Self {
        match &settings.owner {
            Some(owner) => Self {
                owner: owner.clone(),
                is_unique: false,
            },
            None => Self {
                owner: default_owner(),
                is_unique: true,
            },
        }
    }
}

/// Bytes that must never be shown.
pub(crate) struct Secret(Vec<u8>);

impl Secret {
    /// As the value of an `Authorization` header.
    pub(crate) fn header(&self) -> Result<HeaderValue, Error> {
        let wrong = || Error::Setup("a token is visible ASCII characters".to_owned());
        if self.0.is_empty() || !self.0.iter().all(u8::is_ascii_graphic) {
            return Err(wrong());
        }
        let mut value =
            HeaderValue::from_bytes(&[b"Bearer ", self.0.as_slice()].concat()).map_err(|_| wrong())?;
        value.set_sensitive(true);
        Ok(value)
    }
}

impl std::ops::Deref for Secret {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_checked_and_secrets_are_hidden() {
        let url = |text| Client::builder().url(text);
        for wrong in [
            "127.0.0.1:7400",
            "ftp://h",
            "http://u:p@h",
            "http://h/?a",
            "http://h/#a",
            "http://",
        ] {
            assert!(matches!(url(wrong), Err(Error::Setup(_))), "{wrong}");
        }
        let builder = url("http://a, https://b:1/prefix/ ,")
            .and_then(|b| b.token("very-secret"))
            .unwrap();
        assert_eq!(builder.settings.servers.len(), 2);
        let builder = builder.identity(b"very-secret");
        assert!(!format!("{builder:?}").contains("secret"), "{builder:?}");
        for wrong in ["", "a b", "a\n", "\u{e9}"] {
            assert!(Client::builder().token(wrong).is_err(), "{wrong}");
        }
    }
}
