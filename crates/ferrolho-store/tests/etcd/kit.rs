//! Short words for what the tests do.

use std::sync::Arc;

use ferrolho_store::Store;
use ferrolho_store::etcd::{EtcdConfig, EtcdStore};
use ferrolho_testkit::Etcd;

/// A server's handle on this cluster.
pub(crate) async fn open(etcd: &Etcd) -> Arc<dyn Store> {
    let config: EtcdConfig = etcd.url().parse().unwrap();
    Arc::new(EtcdStore::open(&config).await.unwrap())
}
