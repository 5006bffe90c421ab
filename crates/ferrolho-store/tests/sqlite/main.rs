//! The SQLite engine against the suite, and what only it has to hold.
#![expect(clippy::unwrap_used, reason = "a test: what does not hold is a panic")]

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use ferrolho_store::conformance::{Engine, Restarts};
use ferrolho_store::{SqliteStore, Store};
use tempfile::TempDir;

struct Sqlite {
    directory: TempDir,
    store: Arc<dyn Store>,
}

impl Sqlite {
    fn path(directory: &TempDir) -> PathBuf {
        directory.path().join("ferrolho.db")
    }
}

#[async_trait]
impl Engine for Sqlite {
    async fn start() -> Option<Self> {
        let directory = TempDir::new().unwrap();
        let store = Arc::new(SqliteStore::open(&Self::path(&directory)).unwrap());
        Some(Self { directory, store })
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }
}

#[async_trait]
impl Restarts for Sqlite {
    async fn reopen(&mut self) -> Arc<dyn Store> {
        self.store.close().await;
        self.store = Arc::new(SqliteStore::open(&Self::path(&self.directory)).unwrap());
        self.store()
    }
}

ferrolho_store::conformance_suite!(Sqlite, restarts);
