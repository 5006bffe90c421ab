//! The memory engine against the suite.

use std::sync::Arc;

use async_trait::async_trait;
use ferrolho_store::clock::Clock;
use ferrolho_store::conformance::Engine;
use ferrolho_store::{MemoryStore, Store};

struct Memory(Arc<dyn Store>);

#[async_trait]
impl Engine for Memory {
    async fn start() -> Option<Self> {
        Some(Self(Arc::new(MemoryStore::new(Clock::host()))))
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.0)
    }
}

ferrolho_store::conformance_suite!(Memory);
