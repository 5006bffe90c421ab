//! Asking for locks: what is wanted, for how long, and how long to wait for it.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ferrolho_core::{Invalid, Metadata, Resource, Ttl};
use serde::Serialize;

use crate::client::Inner;
use crate::guard::Guard;
use crate::set::Hold;
use crate::{Error, acquire};

/// The lifetime of a lock unless the request says otherwise, in seconds.
const DEFAULT_TTL_SECONDS: i128 = 30;

/// The most names that one request may ask for.
pub(crate) const MAX_SET: usize = 32;

/// How long to wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// One try.
    None,
    /// So long, in whole seconds: a part of a second counts as one.
    For(Duration),
    /// Until it comes.
    Forever,
}

/// What is asked of the server.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// 1 to 32, none twice.
    pub(crate) resources: Vec<Resource>,
    pub(crate) ttl: Ttl,
    pub(crate) patience: Patience,
    pub(crate) metadata: Option<Metadata>,
}

/// A request for one lock, or with [`SetGuard`](crate::SetGuard) for several, all or none.
///
/// Nothing is sent before [`acquire`](Self::acquire), [`try_acquire`](Self::try_acquire) or
/// [`with_lock`](Self::with_lock). Dropping their futures gives up: the place in the queue is left, and a lock that
/// was granted in that very moment is given back.
#[derive(Debug)]
#[must_use]
pub struct LockRequest<G = Guard> {
    pub(crate) inner: Arc<Inner>,
    pub(crate) wanted: Wanted,
    kind: PhantomData<fn() -> G>,
}

// Not derived: a request can be cloned although a guard cannot.
impl<G> Clone for LockRequest<G> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            wanted: self.wanted.clone(),
            kind: PhantomData,
        }
    }
}

impl<G: Hold> LockRequest<G> {
    pub(crate) fn new(inner: Arc<Inner>, resources: Vec<Resource>) -> Result<Self, Error> {
        let ttl = match &inner.shared {
            Some(shared) => shared.ttl(),
            None => Ttl::new(DEFAULT_TTL_SECONDS, Ttl::MAX)?,
        };
        Ok(Self {
            inner,
            wanted: Wanted {
                resources,
                ttl,
                patience: Patience::None,
                metadata: None,
            },
            kind: PhantomData,
        })
    }

    /// How long the lock lives without a renewal: whole seconds, 1 to the server's limit. Without it: 30 s. It is
    /// also how long others wait when this program dies. Refused where the client has one heartbeat for all.
    pub fn ttl(mut self, ttl: Duration) -> Result<Self, Error> {
        if self.inner.shared.is_some() {
            let why = "this client has one lifetime for all its locks";
            return Err(Invalid::new("fixed", why).into());
        }
        if ttl.subsec_nanos() != 0 {
            return Err(Invalid::new("wrong-type", "a lifetime must be whole seconds").into());
        }
        self.wanted.ttl = Ttl::new(ttl.as_secs().into(), Ttl::MAX)?;
        Ok(self)
    }

    /// How long to wait for it. Without it: one try.
    pub fn patience(mut self, patience: Patience) -> Self {
        self.wanted.patience = patience;
        self
    }

    /// Waits this long for it, in whole seconds: a part of a second counts as one.
    pub fn wait(self, wait: Duration) -> Self {
        self.patience(Patience::For(wait))
    }

    /// What others see noted on the lock: anything that serialises to a JSON object of at most 4 KiB.
    pub fn metadata(mut self, metadata: &impl Serialize) -> Result<Self, Error> {
        let text = serde_json::to_string(metadata)
            .map_err(|_| Invalid::new("wrong-type", "metadata must be a JSON object"))?;
        self.wanted.metadata = Some(Metadata::parse(&text)?);
        Ok(self)
    }

    /// Acquires: the guard, or [`Error::Held`] when it does not come in time.
    pub async fn acquire(&self) -> Result<G, Error> {
        let work = acquire::acquire(Arc::clone(&self.inner), self.wanted.clone());
        let (first, rest) = self.inner.engine.carry_out(work).await??;
        Ok(G::assemble(first, rest))
    }

    /// One try, whatever the patience: nothing when others hold it.
    pub async fn try_acquire(&self) -> Result<Option<G>, Error> {
        match self.clone().patience(Patience::None).acquire().await {
            Ok(guard) => Ok(Some(guard)),
            Err(Error::Held { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
