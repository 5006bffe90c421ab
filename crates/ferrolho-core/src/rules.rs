//! The rules: who may do what to a lock.
//!
//! Pure functions from the lock as it is (nothing when there is none, or it has expired: the store says which)
//! and a request to what is to be done. They know no time and touch nothing; the store carries their changes
//! out only if the lock still is what the rules saw. All of the seed's attacks end here.

use crate::{Cause, Change, Claim, Expected, Grant, Live, Resource, Ttl, Write};

/// What to do for a caller that wants one lock, or several of them, all or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcquireDecision {
    /// Try these changes together.
    Changes(Vec<Change>),
    /// This very attempt has made all the live grants already: answer with them, unchanged.
    Repeat,
    /// Others hold these.
    Held(Vec<Resource>),
}

/// Decides on an acquire. Free or expired: granted. Held by the same owner: granted again, so that an older
/// incarnation under the same name is fenced off. Held by another: refused. All or none; `current` has the lock
/// of each resource, in the same order. (Source: the seed, ATK-01, ATK-03, ATK-09.)
pub fn acquire(current: &[Option<Live>], resources: &[Resource], grant: &Grant) -> AcquireDecision {
    let is_repeat = |live: &Option<Live>| {
        live.as_ref()
            .is_some_and(|live| live.mark == grant.mark && live.lock.is_held_by(&grant.holder))
    };
    if !resources.is_empty() && current.iter().all(is_repeat) {
        return AcquireDecision::Repeat;
    }
    let mut changes = Vec::with_capacity(resources.len());
    let mut held = Vec::new();
    for (resource, live) in resources.iter().zip(current) {
        let expected = match live {
            None => Expected::Free,
            Some(live) if live.lock.is_held_by(&grant.holder) => Expected::HeldBy(Claim {
                holder: grant.holder.clone(),
                token: None,
            }),
            Some(_) => {
                held.push(resource.clone());
                continue;
            }
        };
        changes.push(Change {
            resource: resource.clone(),
            expected,
            write: Write::Grant(grant.clone()),
            cause: Cause::Acquire,
        });
    }
    if held.is_empty() {
        AcquireDecision::Changes(changes)
    } else {
        AcquireDecision::Held(held)
    }
}

/// How a release ends. (Source: the seed's `ReleaseResult`.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseResult {
    /// The lock was there, its owner asked, it is gone.
    Released,
    /// There is no lock, or it has expired.
    NotFound,
    /// The lock is there, and it is not the caller's.
    Forbidden,
}

/// Decides on a release. (Source: the seed, ATK-02.)
pub fn release(current: Option<&Live>, claim: &Claim) -> ReleaseResult {
    match current {
        None => ReleaseResult::NotFound,
        Some(live) if claim.is_true_of(&live.lock) => ReleaseResult::Released,
        Some(_) => ReleaseResult::Forbidden,
    }
}

/// The change of a release that may happen: the lock is removed, if the claim is true when it is carried out.
pub fn release_change(resource: &Resource, claim: &Claim) -> Change {
    Change {
        resource: resource.clone(),
        expected: Expected::HeldBy(claim.clone()),
        write: Write::Remove,
        cause: Cause::Release,
    }
}

/// How a renewal ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewResult {
    /// The lock was there, its owner asked, its end is moved.
    Renewed,
    /// There is no lock, or it has expired: an expired lock belongs to nobody.
    NotFound,
    /// The lock is there, and it is not the caller's.
    Forbidden,
}

/// Decides on a renewal. (Source: the seed, ATK-04 and "Renovar locks expirados".)
pub fn renew(current: Option<&Live>, claim: &Claim) -> RenewResult {
    match current {
        None => RenewResult::NotFound,
        Some(live) if claim.is_true_of(&live.lock) => RenewResult::Renewed,
        Some(_) => RenewResult::Forbidden,
    }
}

/// The change of a renewal that may happen: the lock ends `ttl` from when it is carried out, if the claim is
/// true then.
pub fn renew_change(resource: &Resource, claim: &Claim, ttl: Ttl) -> Change {
    Change {
        resource: resource.clone(),
        expected: Expected::HeldBy(claim.clone()),
        write: Write::Extend(ttl),
        cause: Cause::Renew,
    }
}
