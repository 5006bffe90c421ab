//! How an act is carried out: on a guess if one fits, on what is read if none does, and again when others were
//! faster.

use std::sync::Arc;

use ferrolho_core::{Change, Live, Resource};
use tokio::time::Instant;

use super::EtcdStore;
use super::batch::Reply;
use super::failure::Failure;
use super::fates::Fate;
use super::known::Seen;
use super::plan::all_hold;
use crate::clock::Moment;
use crate::{ENGINE_TIMEOUT, ListQuery, Outcome, StoreError};

/// How many locks are looked at in one go for a list, while nobody else can use the map.
const SCAN_BUDGET: usize = 4096;

impl EtcdStore {
    /// The locks as they are in etcd now.
    pub(super) async fn read(
        &self,
        resources: &[&Resource],
        until: Instant,
    ) -> Result<Vec<Option<Seen>>, StoreError> {
        let keys: Vec<_> = resources
            .iter()
            .map(|resource| self.committer.keys.lock(resource))
            .collect();
        let reading = self
            .committer
            .cluster
            .read(&keys, until)
            .await
            .map_err(Failure::of_read)?;
        let resources = resources.iter().copied();
        self.committer
            .learn_all(resources, reading.revision, &reading.values)
    }

    /// Sees to it that locks whose life is over are removed. Returns whether there were any.
    ///
    /// A lock is over when its removal is committed, so nobody is told of its end, nor that it still lives, before.
    pub(super) async fn end_overdue(
        &self,
        locks: &[Option<Seen>],
        until: Instant,
    ) -> Result<bool, StoreError> {
        let now = Moment::now();
        let overdue: Vec<_> = locks
            .iter()
            .flatten()
            .filter(|seen| seen.is_overdue(now))
            .collect();
        for seen in &overdue {
            self.committer.locks.hasten(&seen.version);
        }
        for seen in &overdue {
            if !self.committer.locks.ended(&seen.version, until).await {
                return Err(StoreError::unavailable(
                    "a lock is over and cannot be removed yet",
                ));
            }
        }
        Ok(!overdue.is_empty())
    }

    /// Tries changes once: on a guess that fits, or else on what is read. Nothing when they have to be tried again.
    pub(super) async fn round(
        &self,
        changes: &Arc<[Change]>,
        not_after: Instant,
    ) -> Result<Option<Outcome>, StoreError> {
        let until = Instant::now() + ENGINE_TIMEOUT;
        let resources: Vec<_> = changes.iter().map(|change| &change.resource).collect();
        let guess: Vec<_> = resources
            .iter()
            .map(|resource| self.committer.locks.guess(resource))
            .collect();
        if self.end_overdue(&guess, until).await? {
            return Ok(None);
        }
        if !all_hold(changes, &guess) {
            let found = self.read(&resources, until).await?;
            if self.end_overdue(&found, until).await? {
                return Ok(None);
            }
            if !all_hold(changes, &found) {
                return Ok(Some(Outcome::Stale(live(&found))));
            }
        }
        match self.works.submit(Arc::clone(changes), not_after).await? {
            Reply::Fate(Fate::Done(now)) => Ok(Some(Outcome::Applied(live(&now)))),
            Reply::Fate(Fate::Lost(found)) => {
                let overdue = self.end_overdue(&found, until).await?;
                let stale = !overdue && !all_hold(changes, &found);
                Ok(stale.then(|| Outcome::Stale(live(&found))))
            }
            Reply::Fate(Fate::Failed(error)) => Err(error),
            Reply::NotAsGuessed => Ok(None),
        }
    }

    /// The locks that a query wants, at most its limit and one more, by the map.
    pub(super) async fn scan(&self, query: &ListQuery) -> Vec<Seen> {
        let enough = query.limit.saturating_add(1);
        let mut page = Vec::new();
        let mut after = query.after.clone();
        loop {
            let (mut wanted, last) = self.committer.locks.scan(query, after.as_ref(), SCAN_BUDGET);
            page.append(&mut wanted);
            after = last;
            if page.len() >= enough || after.is_none() {
                page.truncate(enough);
                return page;
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Locks as they are reported.
pub(super) fn live(locks: &[Option<Seen>]) -> Vec<Option<Live>> {
    let now = Moment::now();
    locks
        .iter()
        .map(|seen| seen.as_ref().map(|seen| seen.live(now)))
        .collect()
}
