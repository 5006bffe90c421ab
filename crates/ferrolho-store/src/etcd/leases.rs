//! The net: leases that remove locks whose servers have all gone.
//!
//! While a server lives that has seen a lock, that server ends it, on time. A lease only catches what nobody is
//! left to end, and it must never be first. So it outlives the lock by at least 10 s and a hundredth of its life,
//! counted from before the lease was asked for to after the write could last be acknowledged. That etcd refills
//! leases when its leader changes, and grants none below 2 s, then does not matter. Locks that end within the
//! same few seconds share a lease; the next one is made ahead of need.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ferrolho_core::Ttl;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::debug;

use super::failure::{Failure, Kind};
use super::requests::{Cluster, Lease};
use crate::ENGINE_TIMEOUT;
use crate::clock::Moment;

/// How far apart the ends of locks that share a lease can lie.
const SPREAD: Duration = Duration::from_secs(10);

/// By how much a lease outlives a lock at the least, apart from a hundredth of its life.
const MARGIN: Duration = Duration::from_secs(10);

/// By how much a lease has to outlive a lock with this life.
pub(super) fn margin(ttl: Ttl) -> Duration {
    MARGIN + ttl.duration() / 100
}

/// The leases that this server has made and that may hold further locks.
pub(super) struct Leases {
    cluster: Arc<Cluster>,
    /// By their ends.
    pool: Mutex<BTreeMap<Moment, i64>>,
    /// One is being made ahead of need.
    is_refilling: AtomicBool,
}

impl Leases {
    pub(super) fn new(cluster: Arc<Cluster>) -> Self {
        Self {
            cluster,
            pool: Mutex::default(),
            is_refilling: AtomicBool::new(false),
        }
    }

    /// A lease for a lock with this life whose write begins now.
    pub(super) async fn cover(self: &Arc<Self>, ttl: Ttl, until: Instant) -> Result<Lease, Failure> {
        // The write is acknowledged within ENGINE_TIMEOUT, or its outcome is reported as unknown.
        let needed = Moment::now() + ENGINE_TIMEOUT + ttl.duration() + margin(ttl);
        let mut pool = self.pool.lock().await;
        let best = pool.range(needed..=needed + SPREAD).next_back();
        if let Some((ends, id)) = best {
            let lease = Lease { id: *id, ends: *ends };
            if lease.ends < needed + SPREAD / 2 {
                self.refill(needed + SPREAD);
            }
            return Ok(lease);
        }
        let lease = self.make(needed + SPREAD, until).await?;
        if lease.ends < needed {
            return Err(Failure::new(
                Kind::Denied,
                "etcd grants leases that are shorter than asked for",
            ));
        }
        pool.insert(lease.ends, lease.id);
        Ok(lease)
    }

    /// Has leases that are said to have ended used no more.
    pub(super) async fn forget(&self, ids: &[i64]) {
        self.pool.lock().await.retain(|_, id| !ids.contains(id));
    }

    async fn make(&self, ends: Moment, until: Instant) -> Result<Lease, Failure> {
        let span = ends.since(Moment::now());
        let seconds = i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
        self.cluster.grant_lease(seconds, until).await
    }

    /// Makes a lease in the background, and forgets those that are of no use any more.
    fn refill(self: &Arc<Self>, ends: Moment) {
        if self.is_refilling.swap(true, Ordering::AcqRel) {
            return;
        }
        let leases = Arc::clone(self);
        tokio::spawn(async move {
            let now = Moment::now();
            match leases.make(ends, Instant::now() + ENGINE_TIMEOUT).await {
                Ok(lease) => {
                    let mut pool = leases.pool.lock().await;
                    *pool = pool.split_off(&now);
                    pool.insert(lease.ends, lease.id);
                }
                // It is made when it is needed, and whoever needs it learns what is wrong.
                Err(failure) => debug!(%failure, "no lease made ahead of need"),
            }
            leases.is_refilling.store(false, Ordering::Release);
        });
    }
}
