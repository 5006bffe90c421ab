//! Callers that are known, and their rights.

use ferrolho_core::{Principal, Resource};
use serde::{Deserialize, Serialize};

use super::pattern::Pattern;

/// What may be done to the names that the patterns cover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Acquire, renew and release locks.
    pub acquire: bool,
    /// See locks, who waits for them, and events.
    pub read: bool,
    /// Take locks away from their holders; includes seeing them.
    pub admin: bool,
}

/// A right, as the file spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Right {
    Acquire,
    Read,
    Admin,
}

impl Right {
    /// The right's name.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::Read => "read",
            Self::Admin => "admin",
        }
    }
}

impl Rights {
    pub(super) fn of(rights: &[Right]) -> Self {
        Self {
            acquire: rights.contains(&Right::Acquire),
            read: rights.contains(&Right::Read),
            admin: rights.contains(&Right::Admin),
        }
    }

    pub(super) fn listed(self) -> Vec<Right> {
        [
            (self.acquire, Right::Acquire),
            (self.read, Right::Read),
            (self.admin, Right::Admin),
        ]
        .into_iter()
        .filter_map(|(has, right)| has.then_some(right))
        .collect()
    }
}

/// A known caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its name: locks belong to it and an owner's name together.
    pub principal: Principal,
    /// Which names its rights are about.
    pub patterns: Vec<Pattern>,
    /// What it may do.
    pub rights: Rights,
}

impl Identity {
    pub(super) fn covers(&self, resource: &Resource) -> bool {
        self.patterns
            .iter()
            .any(|pattern| pattern.covers(resource.as_str()))
    }

    pub(super) fn may_read(&self) -> bool {
        self.rights.read || self.rights.admin
    }
}
