//! The etcd engine against the suite, on one member.

use std::sync::Arc;

use async_trait::async_trait;
use ferrolho_store::Store;
use ferrolho_store::conformance::histories::behave_as_one_map;
use ferrolho_store::conformance::{Engine, Restarts, Servers};
use ferrolho_testkit::Etcd;

use crate::kit::open;

struct OneMember {
    etcd: Etcd,
    store: Arc<dyn Store>,
}

#[async_trait]
impl Engine for OneMember {
    async fn start() -> Option<Self> {
        let etcd = Etcd::start()?;
        let store = open(&etcd).await;
        Some(Self { etcd, store })
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }
}

#[async_trait]
impl Restarts for OneMember {
    async fn reopen(&mut self) -> Arc<dyn Store> {
        self.store.close().await;
        self.store = open(&self.etcd).await;
        Arc::clone(&self.store)
    }
}

#[async_trait]
impl Servers for OneMember {
    async fn another(&self) -> Arc<dyn Store> {
        open(&self.etcd).await
    }
}

ferrolho_store::conformance_suite!(OneMember, restarts, servers);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_servers_of_three_members_behave_as_one_map() {
    let Some(etcd) = Etcd::start_cluster() else { return };
    behave_as_one_map(&[open(&etcd).await, open(&etcd).await, open(&etcd).await]).await;
}
