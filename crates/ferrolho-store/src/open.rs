//! Which store: from the text that an operator gives to a store that is open.
//!
//! The text is parsed once, into a [`StoreUrl`] that cannot be wrong in form. Neither it nor any error here shows
//! a password: the text itself is in no message.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use crate::clock::Clock;
#[cfg(feature = "etcd")]
use crate::etcd::{EtcdConfig, EtcdOpenError, EtcdStore, EtcdUrlError};
use crate::postgres::{PostgresConfig, PostgresOpenError, PostgresStore, PostgresUrlError};
use crate::{MemoryStore, SqliteOpenError, SqliteStore, Store};

/// Where the locks are to live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// `memory:`: in this process, and gone with it.
    Memory,
    /// `sqlite:PATH`: in this file.
    Sqlite(PathBuf),
    /// `postgres://host/database`: in this database.
    Postgres(Box<PostgresConfig>),
    /// `etcd://host,host`: in this cluster.
    #[cfg(feature = "etcd")]
    Etcd(EtcdConfig),
}

/// Why a text names no store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreUrlError {
    /// It begins with nothing that is known.
    #[error("a store is memory:, sqlite:PATH, postgres://… or etcd://…")]
    Unknown,
    /// There is more than `memory:`.
    #[error("the memory store is memory:, with nothing after the colon")]
    Memory,
    /// There is no path, or something that is none.
    #[error("a SQLite store is sqlite:PATH, with the path of a file and no parameters")]
    Sqlite,
    /// A program that was built without the engine for this store.
    #[error("this ferrolho was built without etcd; build it with: cargo build --release --features etcd")]
    WithoutEtcd,
    /// Something in a PostgreSQL URL.
    #[error(transparent)]
    Postgres(#[from] PostgresUrlError),
    /// A connection to listen over, for a store that has none.
    #[error("only a PostgreSQL store listens over a connection of its own, named as postgres://…")]
    Listen,
    /// Something in an etcd URL.
    #[cfg(feature = "etcd")]
    #[error(transparent)]
    Etcd(#[from] EtcdUrlError),
}

impl FromStr for StoreUrl {
    type Err = StoreUrlError;

    fn from_str(text: &str) -> Result<Self, StoreUrlError> {
        let (scheme, rest) = text.split_once(':').ok_or(StoreUrlError::Unknown)?;
        match scheme {
            "memory" if rest.is_empty() => Ok(Self::Memory),
            "memory" => Err(StoreUrlError::Memory),
            "sqlite" => parse_path(rest).map(Self::Sqlite).ok_or(StoreUrlError::Sqlite),
            "postgres" | "postgresql" => Ok(Self::Postgres(Box::new(text.parse()?))),
            #[cfg(feature = "etcd")]
            "etcd" => Ok(Self::Etcd(text.parse()?)),
            #[cfg(not(feature = "etcd"))]
            "etcd" => Err(StoreUrlError::WithoutEtcd),
            _ => Err(StoreUrlError::Unknown),
        }
    }
}

impl StoreUrl {
    /// Hears of changes over this direct connection, where the store's own leads through a pooler.
    pub fn listen_over(&mut self, direct: &Self) -> Result<(), StoreUrlError> {
        let (Self::Postgres(config), Self::Postgres(direct)) = (self, direct) else {
            return Err(StoreUrlError::Listen);
        };
        config.listen_over(direct);
        Ok(())
    }

    /// Leaves it to others to compact etcd's history, as a cluster needs that others use too. Other stores have no
    /// such history.
    pub fn leave_etcd_history(&mut self) {
        #[cfg(feature = "etcd")]
        if let Self::Etcd(config) = self {
            config.history = None;
        }
    }
}

/// The path after `sqlite:`. Three slashes are the other usual way to write an absolute path. Two, `:memory:` and
/// parameters mean something to other programs and would each make a file of an odd name here.
fn parse_path(text: &str) -> Option<PathBuf> {
    let path = match text.strip_prefix("//") {
        Some(rest) if rest.starts_with('/') => rest,
        Some(_) => return None,
        None => text,
    };
    let is_odd = path.is_empty() || path.ends_with('/') || path.contains(['?', '\0']) || path == ":memory:";
    (!is_odd).then(|| PathBuf::from(path))
}

/// The store's name for people, with nothing secret.
impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(config) => config.fmt(f),
            #[cfg(feature = "etcd")]
            Self::Etcd(config) => config.fmt(f),
        }
    }
}

/// Why a store was not opened. Each message is one line without secrets.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file.
    #[error(transparent)]
    Sqlite(#[from] SqliteOpenError),
    /// The database.
    #[error(transparent)]
    Postgres(#[from] PostgresOpenError),
    /// The cluster.
    #[cfg(feature = "etcd")]
    #[error(transparent)]
    Etcd(#[from] EtcdOpenError),
    /// The thread that worked on it has ended.
    #[error("the work on the store was cut short")]
    CutShort,
}

/// Opens the store. Must be called within a tokio runtime.
pub async fn open(url: &StoreUrl) -> Result<Arc<dyn Store>, OpenError> {
    match url {
        StoreUrl::Memory => Ok(Arc::new(MemoryStore::new(Clock::host()))),
        StoreUrl::Sqlite(path) => {
            let path = path.clone();
            let opening = tokio::task::spawn_blocking(move || SqliteStore::open(&path));
            Ok(Arc::new(opening.await.map_err(|_| OpenError::CutShort)??))
        }
        StoreUrl::Postgres(config) => Ok(Arc::new(PostgresStore::open(config).await?)),
        #[cfg(feature = "etcd")]
        StoreUrl::Etcd(config) => Ok(Arc::new(EtcdStore::open(config).await?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_that_can_be_named() {
        for (text, shown) in [
            ("memory:", "memory:"),
            ("sqlite:ferrolho.db", "sqlite:ferrolho.db"),
            ("sqlite:/var/lib/x.db", "sqlite:/var/lib/x.db"),
            ("sqlite:///var/lib/x.db", "sqlite:/var/lib/x.db"),
            ("sqlite:with space: and é.db", "sqlite:with space: and é.db"),
        ] {
            assert_eq!(text.parse::<StoreUrl>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn what_names_no_store_is_refused_in_one_line_without_secrets() {
        for text in [
            "",
            "memory",
            "memory:x",
            "ferrolho.db",
            "sqlite:",
            "sqlite://x.db",
            "sqlite:dir/",
            "sqlite::memory:",
            "sqlite:x.db?mode=ro",
            "redis://user:secret@host",
            "mysql:secret",
            "SQLITE:x.db",
            "user:secret@host/db",
        ] {
            let message = text.parse::<StoreUrl>().unwrap_err().to_string();
            assert!(
                !message.contains("secret") && !message.contains('\n'),
                "{text}: {message}"
            );
        }
    }

    #[test]
    fn a_broken_url_is_refused_or_named_without_its_secret() {
        use ferrolho_testkit::fuzz::{broken, try_all};
        use proptest::prelude::*;

        const URLS: &[&str] = &[
            "etcd://user:sEcReT@one:2379,two:2379?prefix=p",
            "postgres://user:sEcReT@host:5432/locks?sslmode=require",
            "redis://:sEcReT@host",
            "memory:",
            "user:sEcReT@host/db",
        ];
        try_all(2_000, &broken(URLS), |bytes| {
            let text = String::from_utf8_lossy(&bytes);
            let said = match text.parse::<StoreUrl>() {
                // Where it is no password any more, but part of a path, a host or a prefix, it is shown as those are.
                Ok(url) => match text.strip_prefix("etcd://user:sEcReT@") {
                    Some(rest) if !rest.contains("sEcReT") => format!("{url} {url:?}"),
                    _ => return Ok(()),
                },
                Err(error) => format!("{error} {error:?}"),
            };
            prop_assert!(!said.contains("sEcReT") && !said.contains('\n'), "{}", said);
            Ok(())
        });
    }

    #[test]
    #[cfg(feature = "etcd")]
    fn etcd_is_named_without_its_secrets_and_its_history_may_be_left_alone() {
        let mut url: StoreUrl = "etcd://user:secret@one:1,two?prefix=p".parse().unwrap();
        assert_eq!(url.to_string(), "etcd://one:1,two:2379");
        assert!(!format!("{url:?}").contains("secret"));
        let history = |url: &StoreUrl| match url {
            StoreUrl::Etcd(config) => config.history,
            other => panic!("{other}"),
        };
        assert!(history(&url).is_some());
        url.leave_etcd_history();
        assert_eq!(history(&url), None);
        let message = "etcd://user:secret@one:x"
            .parse::<StoreUrl>()
            .unwrap_err()
            .to_string();
        assert!(!message.contains("secret"), "{message}");
    }

    #[tokio::test]
    async fn a_store_is_opened_by_its_name() {
        assert_eq!(open(&StoreUrl::Memory).await.unwrap().traits().name, "memory");
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", directory.path().join("x.db").display());
        let store = open(&url.parse().unwrap()).await.unwrap();
        assert_eq!(store.traits().name, "sqlite");
        store.close().await;
        let nowhere = format!("sqlite:{}", directory.path().join("no/x.db").display());
        let refused = open(&nowhere.parse().unwrap()).await.err().unwrap().to_string();
        assert!(
            refused.contains("no/x.db") && !refused.contains('\n'),
            "{refused}"
        );
    }
}
