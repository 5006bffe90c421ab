//! The PostgreSQL engine against the suite.

use std::sync::Arc;

use async_trait::async_trait;
use ferrolho_store::Store;
use ferrolho_store::conformance::{Engine, Restarts, Servers};
use ferrolho_testkit::Postgres;

use crate::kit::{open, server};

struct OneDatabase {
    server: Postgres,
    store: Arc<dyn Store>,
}

#[async_trait]
impl Engine for OneDatabase {
    async fn start() -> Option<Self> {
        let server = server()?;
        let store = open(&server.url("locks")).await;
        Some(Self { server, store })
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }
}

#[async_trait]
impl Restarts for OneDatabase {
    async fn reopen(&mut self) -> Arc<dyn Store> {
        self.store.close().await;
        self.store = open(&self.server.url("locks")).await;
        Arc::clone(&self.store)
    }
}

#[async_trait]
impl Servers for OneDatabase {
    async fn another(&self) -> Arc<dyn Store> {
        open(&self.server.url("locks")).await
    }
}

ferrolho_store::conformance_suite!(OneDatabase, restarts, servers);
