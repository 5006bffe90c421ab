//! Several locks held as one, and what one lock and several have in common.

use std::future::Future;
use std::time::Duration;

use futures_util::future::{join_all, select_all};

use crate::guard::{Guard, Lease};
use crate::{Error, Loss};

/// Several locks that were acquired together, all or none. Each is renewed on its own; when one is lost, the set
/// is.
#[derive(Debug)]
#[must_use = "dropping a guard releases its locks"]
pub struct SetGuard {
    guards: Vec<Guard>,
}

impl SetGuard {
    /// The locks, in the order asked for.
    pub fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.guards.iter().map(|guard| &**guard)
    }

    /// How long all of them are held for certain from now on, or how one was lost.
    pub fn check(&self) -> Result<Duration, Loss> {
        let mut shortest = Duration::MAX;
        for guard in &self.guards {
            shortest = shortest.min(guard.check()?);
        }
        Ok(shortest)
    }

    /// Whether all of them are held for certain now.
    pub fn is_held(&self) -> bool {
        self.check().is_ok()
    }

    /// Waits until one of them is lost, and says how.
    pub async fn lost(&self) -> Loss {
        select_all(self.guards.iter().map(|guard| Box::pin(guard.lost())))
            .await
            .0
    }

    /// Gives all of them back; the first error, if any.
    pub async fn release(self) -> Result<(), Error> {
        let results = join_all(self.guards.into_iter().map(Guard::release)).await;
        results.into_iter().collect()
    }
}

/// What a [`LockRequest`](crate::LockRequest) can acquire: [`Guard`] or [`SetGuard`].
pub trait Hold: Sized + Send + sealed::Assemble {
    /// How long it is held for certain from now on, or how it was lost.
    fn check(&self) -> Result<Duration, Loss>;
    /// Waits until it is lost, and says how.
    fn lost(&self) -> impl Future<Output = Loss> + Send;
    /// Gives it back.
    fn release(self) -> impl Future<Output = Result<(), Error>> + Send;
}

pub(crate) mod sealed {
    use super::{Guard, SetGuard};

    /// Made from the guards of what was asked for.
    pub trait Assemble {
        #[doc(hidden)]
        fn assemble(first: Guard, rest: Vec<Guard>) -> Self;
    }

    impl Assemble for Guard {
        fn assemble(first: Guard, _none: Vec<Guard>) -> Self {
            first
        }
    }

    impl Assemble for SetGuard {
        fn assemble(first: Guard, rest: Vec<Guard>) -> Self {
            let mut guards = vec![first];
            guards.extend(rest);
            Self { guards }
        }
    }
}

impl Hold for Guard {
    fn check(&self) -> Result<Duration, Loss> {
        Lease::check(self)
    }
    async fn lost(&self) -> Loss {
        Lease::lost(self).await
    }
    async fn release(self) -> Result<(), Error> {
        Guard::release(self).await
    }
}

impl Hold for SetGuard {
    fn check(&self) -> Result<Duration, Loss> {
        SetGuard::check(self)
    }
    async fn lost(&self) -> Loss {
        SetGuard::lost(self).await
    }
    async fn release(self) -> Result<(), Error> {
        SetGuard::release(self).await
    }
}
