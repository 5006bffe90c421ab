//! Reading everything at once: at the start, and when the watch has lost its place.
//!
//! A lock that is first seen this way may be old. How long it still has is what its lease still has, less what
//! the lease outlives the lock by, which its writer put down, and never more than its whole life, whatever etcd
//! says of the lease while its leader changes. The sum errs on the late side.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::warn;

use super::commit::Committer;
use super::failure::Failure;
use super::record::Version;
use super::requests::Cluster;
use crate::ENGINE_TIMEOUT;

/// How many leases are asked about at once.
const MAX_LEASE_QUESTIONS: usize = 16;

/// By how much a lease's time, which comes in whole seconds rounded down, may be more than it says.
const LEASE_ROUNDING: Duration = Duration::from_secs(1);

/// Reads all locks and takes them in. Returns whether anything has happened since what was known before.
pub(super) async fn load(committer: &Committer) -> Result<bool, Failure> {
    let locks = &committer.locks;
    let before = locks.revision();
    let (start, end) = committer.keys.locks();
    let (revision, values) = committer.cluster.read_range(&start, &end, ENGINE_TIMEOUT).await?;
    let mut versions = Vec::with_capacity(values.len());
    for kv in &values {
        let Some(resource) = committer.keys.resource(kv.key()) else {
            warn!("a key among the locks in etcd is none of ours");
            continue;
        };
        match Version::read(&resource, kv) {
            Ok(version) => versions.push(version),
            Err(error) => warn!(%error, "a lock in etcd is not shown"),
        }
    }
    let unknown = versions.iter().filter(|version| !locks.knows(version));
    let leases: HashSet<i64> = unknown
        .map(|version| version.lease)
        .filter(|lease| *lease != 0)
        .collect();
    let lease_left = lease_times(&committer.cluster, leases).await;
    let timed = versions
        .into_iter()
        .map(|version| {
            let left = lease_left.get(&version.lease).map(|time| left(&version, *time));
            (version, left)
        })
        .collect();
    // Whatever came and went again in between has left its mark on the note.
    let noted = committer.read_noted(Instant::now() + ENGINE_TIMEOUT).await?;
    let differs = locks.replace(revision, timed);
    Ok(differs || noted > before)
}

/// How long a lock still has whose lease has so much left; none: the lease has ended.
fn left(version: &Version, lease_left: Option<Duration>) -> Duration {
    match lease_left {
        Some(lease_left) => (lease_left + LEASE_ROUNDING + ENGINE_TIMEOUT)
            .saturating_sub(version.spare)
            .min(version.ttl.duration()),
        None => Duration::ZERO,
    }
}

/// What leases still have. One that cannot be asked about is left out: its locks are given their whole life.
async fn lease_times(cluster: &Arc<Cluster>, leases: HashSet<i64>) -> HashMap<i64, Option<Duration>> {
    let mut times = HashMap::with_capacity(leases.len());
    let mut questions = JoinSet::new();
    let mut leases = leases.into_iter();
    loop {
        while questions.len() < MAX_LEASE_QUESTIONS
            && let Some(id) = leases.next()
        {
            let cluster = Arc::clone(cluster);
            questions
                .spawn(async move { (id, cluster.lease_left(id, Instant::now() + ENGINE_TIMEOUT).await) });
        }
        match questions.join_next().await {
            Some(Ok((id, Ok(left)))) => {
                times.insert(id, left);
            }
            Some(_) => {}
            None => return times,
        }
    }
}

#[cfg(test)]
mod tests {
    use ferrolho_core::{Grant, Holder, Mark, Owner, Resource, Timestamp, Ttl};

    use super::super::record::{Pen, Record};
    use super::*;

    fn version(ttl: i128, spare: Duration) -> Version {
        let grant = Grant {
            holder: Holder {
                owner: Owner::new("a").unwrap(),
                principal: None,
            },
            ttl: Ttl::new(ttl, Ttl::MAX).unwrap(),
            metadata: None,
            mark: Mark::Random(1),
        };
        let pen = Pen {
            by: 1,
            now: Timestamp::from_micros(0),
            clock: Duration::ZERO,
            base: 0,
            spare,
        };
        let resource = Resource::new("r").unwrap();
        Record::grant(&grant, pen).into_version(&resource, 7, 1).unwrap()
    }

    #[test]
    fn a_lease_times_its_lock_late_but_never_absurdly() {
        let seconds = Duration::from_secs;
        let version = version(60, seconds(20));
        assert_eq!(left(&version, Some(seconds(46))), seconds(30));
        assert_eq!(left(&version, Some(seconds(80))), seconds(60));
        assert_eq!(left(&version, Some(seconds(9_000_000_000))), seconds(60));
        assert_eq!(left(&version, Some(seconds(16))), seconds(0));
        assert_eq!(left(&version, None), seconds(0));
    }
}
