//! The etcd engine against the suite, on one member.
#![cfg(feature = "etcd")]

use std::sync::Arc;

use async_trait::async_trait;
use ferrolho_store::Store;
use ferrolho_store::conformance::{Engine, Restarts, Servers};
use ferrolho_store::etcd::{EtcdConfig, EtcdStore};
use ferrolho_testkit::Etcd;

struct OneMember {
    etcd: Etcd,
    store: Arc<dyn Store>,
}

impl OneMember {
    async fn open(etcd: &Etcd) -> Arc<dyn Store> {
        let config: EtcdConfig = etcd.url().parse().unwrap();
        Arc::new(EtcdStore::open(&config).await.unwrap())
    }
}

#[async_trait]
impl Engine for OneMember {
    async fn start() -> Self {
        let etcd = Etcd::start().unwrap();
        let store = Self::open(&etcd).await;
        Self { etcd, store }
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }
}

#[async_trait]
impl Restarts for OneMember {
    async fn reopen(&mut self) -> Arc<dyn Store> {
        self.store.close().await;
        self.store = Self::open(&self.etcd).await;
        Arc::clone(&self.store)
    }
}

#[async_trait]
impl Servers for OneMember {
    async fn another(&self) -> Arc<dyn Store> {
        Self::open(&self.etcd).await
    }
}

ferrolho_store::conformance_suite!(OneMember, restarts, servers);
