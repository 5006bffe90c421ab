//! All that one owner holds, at once: each lock on its own.

use std::sync::Arc;

use ferrolho_core::rules::ReleaseResult;
use ferrolho_core::{Claim, Holder, Lock, Resource, Ttl};
use ferrolho_store::ListQuery;
use futures_util::StreamExt;
use futures_util::stream;
use tokio::time::Instant;

use super::{Refusal, ReleaseRequest, RenewRequest, Renewal, Service};
use crate::audit::Origin;

/// How many locks of an owner are listed at a time.
const PAGE_LOCKS: usize = 1_000;

/// How many of an owner's changes are under way at a time; the store commits them together.
const TOGETHER: usize = 64;

impl Service {
    /// Renews every lock that the holder has and that is meant: one heartbeat for all of them. Returns those renewed.
    pub async fn renew_owner(
        self: &Arc<Self>,
        holder: &Holder,
        is_meant: impl Fn(&Resource) -> bool,
        ttl: Ttl,
        arrived: Instant,
    ) -> Result<Vec<Lock>, Refusal> {
        let resources = self.held_by(holder, is_meant).await?;
        let renewals = stream::iter(resources.into_iter().map(|resource| {
            self.renew(RenewRequest {
                resource,
                claim: any_grant_of(holder),
                ttl,
                arrived,
            })
        }));
        let mut renewals = renewals.buffered(TOGETHER);
        let mut renewed = Vec::new();
        while let Some(renewal) = renewals.next().await {
            match renewal? {
                Renewal::Renewed(lock) => renewed.push(lock),
                Renewal::NotFound | Renewal::Forbidden => {}
            }
        }
        Ok(renewed)
    }

    /// Releases every lock that the holder has and that is meant. Returns those released.
    pub async fn release_owner(
        self: &Arc<Self>,
        holder: &Holder,
        is_meant: impl Fn(&Resource) -> bool,
        arrived: Instant,
        origin: &Origin,
    ) -> Result<Vec<Resource>, Refusal> {
        let resources = self.held_by(holder, is_meant).await?;
        let releases = stream::iter(resources.into_iter().map(|resource| {
            let claim = any_grant_of(holder);
            let origin = origin.clone();
            async move {
                let request = ReleaseRequest {
                    resource: resource.clone(),
                    claim,
                    arrived,
                    origin,
                };
                (resource, self.release(request).await)
            }
        }));
        let mut releases = releases.buffered(TOGETHER);
        let mut done = Vec::new();
        while let Some((resource, release)) = releases.next().await {
            match release? {
                ReleaseResult::Released => done.push(resource),
                ReleaseResult::NotFound | ReleaseResult::Forbidden => {}
            }
        }
        Ok(done)
    }

    async fn held_by(
        &self,
        holder: &Holder,
        is_meant: impl Fn(&Resource) -> bool,
    ) -> Result<Vec<Resource>, Refusal> {
        let mut query = ListQuery {
            holder: Some(holder.clone()),
            limit: PAGE_LOCKS,
            ..ListQuery::default()
        };
        let mut resources = Vec::new();
        loop {
            let page = self.list(query.clone()).await?;
            resources.extend(page.locks.into_iter().map(|live| live.lock.resource));
            query.after = resources.last().cloned();
            if !page.more {
                resources.retain(is_meant);
                return Ok(resources);
            }
        }
    }
}

fn any_grant_of(holder: &Holder) -> Claim {
    Claim {
        holder: holder.clone(),
        token: None,
    }
}
