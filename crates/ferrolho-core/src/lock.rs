//! The lock itself.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{FencingToken, Mark, Metadata, Owner, Principal, Resource, Timestamp};

/// To whom a lock belongs: an owner's name, under the principal that used it.
///
/// Without authentication there is no principal. With it, knowing an owner's name is not enough to touch its
/// locks: the same name under another principal is another holder.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Holder {
    /// The owner's name.
    pub owner: Owner,
    /// Who proved to be the caller, if anybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<Principal>,
}

/// A lock as callers see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// What is locked.
    pub resource: Resource,
    /// The owner's name.
    pub owner: Owner,
    /// When the lock ends by itself, by the store's clock.
    pub expires_at: Timestamp,
    /// When it was granted, by the store's clock.
    pub acquired_at: Timestamp,
    /// The number of the grant.
    pub fencing_token: FencingToken,
    /// What the holder noted on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// The principal of the holder, when authentication is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<Principal>,
}

impl Lock {
    /// Whether this is the holder.
    pub fn is_held_by(&self, holder: &Holder) -> bool {
        self.owner == holder.owner && self.principal == holder.principal
    }

    /// Its holder.
    pub fn holder(&self) -> Holder {
        Holder {
            owner: self.owner.clone(),
            principal: self.principal.clone(),
        }
    }
}

/// A live lock as a store reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live {
    /// The lock.
    pub lock: Lock,
    /// The mark of the attempt that made the grant.
    pub mark: Mark,
    /// How long it still has, by the store's clock.
    pub left: Duration,
}
