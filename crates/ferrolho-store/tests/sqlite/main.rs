//! The SQLite engine against the suite, and what only it has to hold.
#![expect(clippy::unwrap_used, reason = "a test: what does not hold is a panic")]

mod clock;
mod files;
mod foreign;
mod log;
mod sweep;
mod tokens;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use ferrolho_store::conformance::{Engine, Restarts};
use ferrolho_store::{SqliteStore, Store};
use tempfile::TempDir;

fn open(path: &Path) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(path).unwrap())
}

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
        let store = open(&Self::path(&directory));
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
        self.store = open(&Self::path(&self.directory));
        self.store()
    }
}

ferrolho_store::conformance_suite!(Sqlite, restarts);
