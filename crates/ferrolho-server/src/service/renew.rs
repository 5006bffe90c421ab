//! Moving a lock's end.

use std::sync::Arc;

use ferrolho_core::rules::{self, RenewResult};
use ferrolho_core::{Cause, Live};
use ferrolho_store::{Attempt, Outcome};
use tokio::time::Instant;

use super::end::Ending;
use super::{LATEST_START, Refusal, RenewRequest, Renewal, Service, refuse};

impl Service {
    /// Moves a lock's end to now and its new lifetime, earlier or later, if the claim is true.
    pub async fn renew(self: &Arc<Self>, request: RenewRequest) -> Result<Renewal, Refusal> {
        let end = self.renew_if_held(request).await;
        self.meters.renewed(&end);
        end
    }

    async fn renew_if_held(self: &Arc<Self>, request: RenewRequest) -> Result<Renewal, Refusal> {
        let RenewRequest {
            resource,
            claim,
            ttl,
            arrived,
        } = request;
        let decide = |current: Option<&Live>| match rules::renew(current, &claim) {
            RenewResult::Renewed => None,
            RenewResult::NotFound => Some(Renewal::NotFound),
            RenewResult::Forbidden => Some(Renewal::Forbidden),
        };
        if self.store.traits().looking_is_free {
            let current = self.store.find(&resource).await.map_err(|error| refuse(&error))?;
            if let Some(no) = decide(current.as_ref()) {
                return Ok(no);
            }
        }
        loop {
            let attempt = Attempt {
                changes: vec![rules::renew_change(&resource, &claim, ttl)],
                not_after: arrived + LATEST_START,
            };
            let current = match self.store.apply(attempt).await.map_err(|error| refuse(&error))? {
                Outcome::Applied(mut lives) => match lives.pop().flatten() {
                    Some(live) => return self.answer_renewed(live).await,
                    None => None,
                },
                Outcome::Stale(mut now) => now.pop().flatten(),
            };
            if let Some(no) = decide(current.as_ref()) {
                return Ok(no);
            }
        }
    }

    async fn answer_renewed(self: &Arc<Self>, live: Live) -> Result<Renewal, Refusal> {
        if live.left.is_zero() {
            let ending = Ending::of(&live.lock, Cause::Undo, Instant::now() + LATEST_START);
            self.end(&ending).await.map_err(|error| refuse(&error))?;
            return Err(Refusal::TooSlow);
        }
        Ok(Renewal::Renewed(live.lock))
    }
}
