//! The orders that the table keeps its locks in besides that of their resources. An entry is a shared pointer
//! with an order of its own, so an index costs eight bytes a lock.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::sync::Arc;

use super::Held;

/// A lock, in the order of ends. The token tells locks with the same end apart.
#[derive(Debug)]
pub(super) struct ByEnd(pub(super) Arc<Held>);

impl Ord for ByEnd {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |entry: &Self| (entry.0.lock.expires_at, entry.0.lock.fencing_token);
        key(self).cmp(&key(other))
    }
}

/// A lock, in the order of owners and then of resources.
#[derive(Debug)]
pub(super) struct ByOwner(pub(super) Arc<Held>);

/// What [`ByOwner`] is ordered by, for looking up a place where no lock needs to be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OwnerKey<'a> {
    pub(super) owner: &'a str,
    pub(super) resource: &'a str,
}

/// What has a place in the order of owners.
pub(super) trait AsOwnerKey {
    fn key(&self) -> OwnerKey<'_>;
}

impl AsOwnerKey for ByOwner {
    fn key(&self) -> OwnerKey<'_> {
        OwnerKey {
            owner: self.0.lock.owner.as_str(),
            resource: self.0.lock.resource.as_str(),
        }
    }
}

impl AsOwnerKey for OwnerKey<'_> {
    fn key(&self) -> OwnerKey<'_> {
        *self
    }
}

impl<'a> Borrow<dyn AsOwnerKey + 'a> for ByOwner {
    fn borrow(&self) -> &(dyn AsOwnerKey + 'a) {
        self
    }
}

impl Ord for dyn AsOwnerKey + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Ord for ByOwner {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

macro_rules! ordered_by_cmp {
    ($($type:ty),*) => {$(
        impl PartialOrd for $type {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl PartialEq for $type {
            fn eq(&self, other: &Self) -> bool {
                self.cmp(other).is_eq()
            }
        }

        impl Eq for $type {}
    )*};
}

ordered_by_cmp!(ByEnd, ByOwner, dyn AsOwnerKey + '_);
