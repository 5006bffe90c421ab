//! Taking locks: one, or a set of them, at once or after a wait.
//!
//! Nobody overtakes those who wait here: a newcomer tries at once only when nobody stands before it, or when it
//! holds the locks already. A caller that hangs up before its answer gets its grant undone; the attempt itself
//! always runs to its end.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ferrolho_core::{Grant, Live, Lock, Resource};
use ferrolho_store::StoreError;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::attempt::{Attempted, Failure};
use super::queue::PlaceKey;
use super::told::Untold;
use super::{AcquireRequest, Acquired, Given, LATEST_START, Refusal, Service, refuse};

impl Service {
    /// Takes one lock, or all of several.
    ///
    /// Dropping the future means that the caller is gone: it is passed over, and a grant that was made for it
    /// meanwhile is undone.
    pub async fn acquire(self: &Arc<Self>, request: AcquireRequest) -> Result<Acquired, Refusal> {
        self.acquire_unless(std::future::pending(), request).await
    }

    /// Takes one lock, or all of several; a wait for them is over when `hurried` resolves, as if its time were up.
    pub async fn acquire_unless(
        self: &Arc<Self>,
        hurried: impl Future<Output = ()> + Send,
        request: AcquireRequest,
    ) -> Result<Acquired, Refusal> {
        let end = self.acquire_or_wait(hurried, &request).await;
        self.meters.acquired(&end);
        end
    }

    async fn acquire_or_wait(
        self: &Arc<Self>,
        hurried: impl Future<Output = ()> + Send,
        request: &AcquireRequest,
    ) -> Result<Acquired, Refusal> {
        if self.is_shutting_down() {
            return Err(Refusal::ShuttingDown);
        }
        let admitted = self
            .ledger
            .as_ref()
            .map(|ledger| ledger.admit(&request.holder, &request.resources));
        let _asked = admitted.transpose().map_err(Refusal::LimitReached)?;
        let grant = request.grant(&self.chance);
        let key = PlaceKey::new(request.holder.clone(), &request.resources);
        let waited_for = self.queues.lock().waited_for(&key);
        if waited_for.is_empty() || self.holds_all(request).await? {
            match self.attempt_now(request, &grant).await? {
                Attempted::Granted { lives, .. } | Attempted::Repeated(lives) => {
                    return self.answer_granted(&request.resources, lives, None).await;
                }
                Attempted::Held { resources, left } if request.wait.is_none() => {
                    return Ok(Acquired::Held {
                        resources,
                        retry_after: left,
                    });
                }
                Attempted::Held { .. } => {}
            }
        } else if request.wait.is_none() {
            return self.held(request, &key).await;
        }
        self.wait_for(request, key, grant, hurried).await
    }

    /// Whether the caller holds all of the locks already: then it need not stand in line.
    async fn holds_all(&self, request: &AcquireRequest) -> Result<bool, Refusal> {
        let lives = self
            .look(&request.resources)
            .await
            .map_err(|error| refuse(&error))?;
        let is_own = |live: &Option<Live>| live.as_ref().is_some_and(|l| l.lock.is_held_by(&request.holder));
        Ok(lives.iter().all(is_own))
    }

    async fn attempt_now(
        self: &Arc<Self>,
        request: &AcquireRequest,
        grant: &Grant,
    ) -> Result<Attempted, Refusal> {
        let work = {
            let service = Arc::clone(self);
            let (resources, grant) = (request.resources.clone(), grant.clone());
            let (origin, not_after) = (request.origin.clone(), request.arrived + LATEST_START);
            Box::pin(async move { service.attempt(&resources, &grant, &origin, not_after).await })
        };
        let attended = Attended {
            work: Some(work),
            service: Arc::clone(self),
            untold: self.untold.begin(grant),
        };
        attended.await.map_err(|failure| match failure {
            Failure::NotDone(error) | Failure::Unknown(error) => refuse(&error),
        })
    }

    /// The refusal of a caller that would have to wait: what others hold or wait for.
    pub(super) async fn held(&self, request: &AcquireRequest, key: &PlaceKey) -> Result<Acquired, Refusal> {
        let lives = self
            .look(&request.resources)
            .await
            .map_err(|error| refuse(&error))?;
        let others: Vec<&Live> = lives
            .iter()
            .flatten()
            .filter(|live| !live.lock.is_held_by(&request.holder))
            .collect();
        let retry_after = others.iter().map(|live| live.left).max().unwrap_or_default();
        let waited_for = self.queues.lock().waited_for(key);
        let is_taken = |resource: &&Resource| {
            waited_for.contains(*resource) || others.iter().any(|live| live.lock.resource == **resource)
        };
        let mut taken: Vec<Resource> = request.resources.iter().filter(is_taken).cloned().collect();
        if taken.is_empty() {
            // Whoever stood in the way has gone in this very moment; the caller's next try will tell.
            taken.clone_from(&request.resources);
        }
        Ok(Acquired::Held {
            resources: taken,
            retry_after,
        })
    }

    /// Answers with a grant, unless it is over already: then it is removed.
    pub(super) async fn answer_granted(
        self: &Arc<Self>,
        asked: &[Resource],
        lives: Vec<Live>,
        untold: Option<Untold>,
    ) -> Result<Acquired, Refusal> {
        let given = Given::new(lives, untold);
        self.answer_given(asked, given).await
    }

    pub(super) async fn answer_given(
        self: &Arc<Self>,
        asked: &[Resource],
        given: Given,
    ) -> Result<Acquired, Refusal> {
        if given.until <= Instant::now() {
            self.undo_given(given).await;
            return Err(Refusal::TooSlow);
        }
        let mut locks: Vec<Lock> = given.lives.into_iter().map(|live| live.lock).collect();
        locks.sort_by_key(|lock| asked.iter().position(|resource| *resource == lock.resource));
        Ok(Acquired::Granted(locks))
    }
}

type Work = Pin<Box<dyn Future<Output = Result<Attempted, Failure>> + Send>>;

/// An attempt with its caller beside it. If the caller leaves, the attempt goes on by itself, and what it newly
/// granted is undone. (A grant again to one who held the lock before stays: the owner may rely on it.)
struct Attended {
    work: Option<Work>,
    service: Arc<Service>,
    untold: Option<Untold>,
}

impl Future for Attended {
    type Output = Result<Attempted, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(work) = self.work.as_mut() else {
            // Polled after its end, which no caller does; say what is true then.
            return Poll::Ready(Err(Failure::NotDone(StoreError::TooLate)));
        };
        let done = std::task::ready!(work.as_mut().poll(context));
        self.work = None;
        Poll::Ready(done)
    }
}

impl Drop for Attended {
    fn drop(&mut self) {
        let (Some(work), Ok(runtime)) = (self.work.take(), Handle::try_current()) else {
            return;
        };
        let (service, untold) = (Arc::clone(&self.service), self.untold.take());
        runtime.spawn(async move {
            if let Ok(Attempted::Granted { lives, is_new }) = work.await {
                let new = lives
                    .into_iter()
                    .zip(is_new)
                    .filter_map(|(live, is_new)| is_new.then_some(live));
                service.undo_given(Given::new(new.collect(), untold)).await;
            }
        });
    }
}
