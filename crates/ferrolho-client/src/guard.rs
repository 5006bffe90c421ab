//! Guards: what a holder has in its hands.

use std::sync::Arc;
use std::time::Duration;

use ferrolho_core::{FencingToken, Lock, Resource};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::belief::Belief;
use crate::claims::Claim;
use crate::client::Inner;
use crate::clock::Moment;
use crate::{Error, Loss, heartbeat};

/// A lock that this program holds, renewed in the background until it is lost, released or dropped.
///
/// All looks ask the clock, so that they are right even after the program was frozen. Dropping a guard releases
/// the lock in the background; [`release`](Self::release) waits for that and says whether the lock was held to
/// the end. When the program ends before a background release is done, the lock ends by itself.
#[derive(Debug)]
#[must_use = "dropping a guard releases its lock"]
pub struct Guard {
    lease: Lease,
    /// Taken when the guard says how it ends; dropped, it means a release in the background.
    ending: oneshot::Sender<Ending>,
}

/// How a guard ends other than by being dropped.
#[derive(Debug)]
enum Ending {
    Release(oneshot::Sender<Result<(), Error>>),
    Detach,
}

/// A view of a guard's lock that can be given to others. It releases nothing.
#[derive(Clone, Debug)]
pub struct Lease {
    belief: Arc<Belief>,
}

impl Lease {
    /// The number of the grant. Pass it to whatever the lock protects, so that a late writer is refused there.
    pub fn fencing_token(&self) -> FencingToken {
        self.belief.token()
    }

    /// What is locked.
    pub fn resource(&self) -> Resource {
        self.belief.lock().resource
    }

    /// The lock as the server confirmed it last.
    pub fn lock(&self) -> Lock {
        self.belief.lock()
    }

    /// How long the lock is held for certain from now on if nothing more is heard, or how it was lost.
    pub fn check(&self) -> Result<Duration, Loss> {
        self.belief.check()
    }

    /// Whether the lock is held for certain now.
    pub fn is_held(&self) -> bool {
        self.check().is_ok()
    }

    /// How long the lock is held for certain from now on; zero when it is lost.
    pub fn remaining(&self) -> Duration {
        self.check().unwrap_or_default()
    }

    /// The fencing token, if the lock is held for certain now.
    pub fn token_if_held(&self) -> Result<FencingToken, Loss> {
        self.check().map(|_| self.fencing_token())
    }

    /// When what is certain ends if nothing more is heard, on the client's [`Clock`](crate::Clock).
    pub fn certain_until(&self) -> Moment {
        self.belief.until()
    }

    /// Waits until [`certain_until`](Self::certain_until) is another than this, because of a renewal.
    pub async fn moved_from(&self, certain_until: Moment) {
        self.belief.moved_from(certain_until).await;
    }

    /// Waits until the lock is lost (or released), and says how. It is announced a little before the lock can
    /// end, so that there is time to stop.
    pub async fn lost(&self) -> Loss {
        self.belief.lost().cancelled().await;
        self.belief.loss().unwrap_or(Loss::NotRenewed)
    }

    /// Cancelled when the lock is lost or released: for programs that stop their work by such tokens.
    pub fn lost_token(&self) -> CancellationToken {
        self.belief.lost().child_token()
    }

    /// Waits until at most `left` of the time that is certain is left, because renewals fail: for work that needs
    /// that long to stop. At once when the lock is lost. It needs a tokio runtime with its timer enabled.
    pub async fn until_left(&self, left: Duration) {
        self.belief.until_left(left).await;
    }
}

impl std::ops::Deref for Guard {
    type Target = Lease;
    fn deref(&self) -> &Lease {
        &self.lease
    }
}

impl Guard {
    pub(crate) fn start(inner: Arc<Inner>, belief: Belief, sent_at: Moment, claim: Option<Claim>) -> Self {
        let belief = Arc::new(belief);
        let (ending, ended) = oneshot::channel();
        let lease = Lease {
            belief: Arc::clone(&belief),
        };
        if let Some(shared) = &inner.shared {
            shared.add(&inner, &belief);
        }
        Arc::clone(&inner)
            .engine
            .in_background(tend(inner, belief, sent_at, claim, ended));
        Self { lease, ending }
    }

    /// A view of the lock for others.
    pub fn lease(&self) -> Lease {
        self.lease.clone()
    }

    /// Gives the lock back. No renewal is sent after this.
    ///
    /// [`Error::Lost`] when it was lost before: then the work was not alone to the end. [`Error::Unreachable`]
    /// when no server answers; the lock ends by itself then.
    pub async fn release(self) -> Result<(), Error> {
        let (answer, answered) = oneshot::channel();
        // The one who tends the guard listens for as long as the guard is there.
        let _listens = self.ending.send(Ending::Release(answer));
        answered
            .await
            .unwrap_or_else(|_| Err(Error::Setup("its thread failed".to_owned())))
    }

    /// Lets go without giving back: nobody renews the lock any more, and it ends at its `expires_at` unless its
    /// owner renews or releases it by name. Leases of it hold nothing any more.
    pub fn detach(self) -> Lock {
        let lock = self.lock();
        let _listens = self.ending.send(Ending::Detach);
        lock
    }
}

/// Looks after a guard's lock until the guard ends, and then ends the lock as the guard says.
async fn tend(
    inner: Arc<Inner>,
    belief: Arc<Belief>,
    sent_at: Moment,
    claim: Option<Claim>,
    mut ended: oneshot::Receiver<Ending>,
) {
    let ending = tokio::select! {
        biased;
        ending = &mut ended => ending,
        // An attempt that is under way when the guard ends is broken off here: nothing renews after that.
        () = keep(&inner, &belief, sent_at) => ended.await,
    };
    if let Some(claim) = &claim {
        claim.leave();
    }
    let loss = belief.check().err();
    belief.end_belief(Loss::Released);
    if let Some(shared) = &inner.shared {
        shared.remove(&belief.lock().resource);
    }
    match ending {
        Ok(Ending::Detach) => {}
        Ok(Ending::Release(answer)) => {
            // Who left does not want to know.
            let _left = match loss {
                // What is lost is lost, whatever the release below comes to.
                Some(loss) => answer.send(Err(loss.into())),
                None => answer.send(give_back(&inner, &belief).await),
            };
        }
        Err(_dropped) if loss.is_some() => {}
        Err(_dropped) => {
            if let Err(error) = give_back(&inner, &belief).await {
                tracing::warn!(resource = %belief.lock().resource, "the lock was not released: {error}");
            }
        }
    }
    if loss == Some(Loss::NotRenewed) {
        // The server may have gone on holding what we could not be certain of.
        inner
            .release_quietly(&belief.lock().resource, Some(belief.token()))
            .await;
    }
    drop(claim);
}

/// Renews until the lock is lost.
async fn keep(inner: &Inner, belief: &Belief, sent_at: Moment) {
    match inner.shared {
        Some(_) => belief.lost().cancelled().await,
        None => heartbeat::keep_one(inner, belief, sent_at).await,
    }
}

/// Releases the grant, and says whether it was held to the end.
async fn give_back(inner: &Inner, belief: &Belief) -> Result<(), Error> {
    let resource = belief.lock().resource;
    match inner.release(&resource, Some(belief.token())).await {
        Err(Error::NotFound | Error::NotOwner) => Err(Loss::Taken.into()),
        result => result,
    }
}
