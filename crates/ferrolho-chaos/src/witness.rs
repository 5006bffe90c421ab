//! The outside witness: what the locks are there to guard.
//!
//! Whoever is certain to hold a lock enters, and leaves before it gives the lock back. Two inside at once, or a
//! token that is not above all that were inside before, is a broken promise, whatever the server believes. A
//! client is certain from the answer on until its lifetime is over, counted on this process's own clock from
//! before the request left; the guards of the client library are asked for what they believe themselves.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ferrolho_client::Lease;

use crate::court::Court;

/// Until when a client is certain to hold a lock.
#[derive(Clone, Debug)]
pub(crate) enum Certainty {
    Until(Instant),
    Believed(Lease),
}

impl Certainty {
    fn holds(&self, now: Instant) -> bool {
        match self {
            Self::Until(end) => *end > now,
            Self::Believed(lease) => lease.is_held(),
        }
    }
}

/// A grant that a client was told of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told<'a> {
    pub(crate) resource: &'a str,
    pub(crate) client: &'a str,
    pub(crate) token: u64,
    /// When its request left.
    pub(crate) sent: Instant,
}

#[derive(Debug, Default)]
pub(crate) struct Witness(Mutex<HashMap<String, Watched>>);

#[derive(Debug, Default)]
struct Watched {
    inside: Vec<Inside>,
    /// The highest token that was inside.
    highest_inside: u64,
    /// When an answer came, and the highest token known then.
    known: Vec<(Instant, u64)>,
    tokens: HashSet<u64>,
}

#[derive(Debug)]
struct Inside {
    client: String,
    token: u64,
    certainty: Certainty,
}

impl Witness {
    fn locks(&self) -> MutexGuard<'_, HashMap<String, Watched>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a grant, which must have a higher token than every grant that was known when it was asked for.
    /// `is_repeat` says that the client may have been told of this very grant before.
    pub(crate) fn told(&self, court: &Court, told: Told<'_>, is_repeat: bool) {
        let Told {
            resource,
            client,
            token,
            sent,
        } = told;
        let mut locks = self.locks();
        let watched = locks.entry(resource.to_owned()).or_default();
        let before = watched.known.partition_point(|(at, _)| *at < sent);
        let known = before.checked_sub(1).map_or(0, |last| watched.known[last].1);
        if token < known || token == known && !is_repeat {
            court.accuse(&format!(
                "TOKEN of {resource} for {client} is {token}, and {known} was known before it was asked for"
            ));
        }
        if !watched.tokens.insert(token) && !is_repeat {
            court.accuse(&format!(
                "TOKEN {token} of {resource} came twice, now for {client}"
            ));
        }
        let highest = watched.known.last().map_or(0, |last| last.1);
        watched.known.push((Instant::now(), token.max(highest)));
    }

    /// Enters, if the client is still certain. Says whether it is inside.
    pub(crate) fn enter(&self, court: &Court, told: Told<'_>, certainty: Certainty) -> bool {
        let Told {
            resource,
            client,
            token,
            ..
        } = told;
        let mut locks = self.locks();
        let watched = locks.entry(resource.to_owned()).or_default();
        let now = Instant::now();
        if !certainty.holds(now) {
            return false;
        }
        watched.inside.retain(|inside| inside.certainty.holds(now));
        for inside in &watched.inside {
            court.accuse(&format!(
                "EXCLUSION {client} enters {resource} with token {token}, and {} is inside with {}",
                inside.client, inside.token
            ));
        }
        if token <= watched.highest_inside {
            court.accuse(&format!(
                "FENCE {client} enters {resource} with token {token} after {}",
                watched.highest_inside
            ));
        }
        watched.highest_inside = token.max(watched.highest_inside);
        watched.inside.push(Inside {
            client: client.to_owned(),
            token,
            certainty,
        });
        true
    }

    /// A renewal was confirmed.
    pub(crate) fn prolong(&self, resource: &str, token: u64, until: Instant) {
        if let Some(watched) = self.locks().get_mut(resource) {
            for inside in watched.inside.iter_mut().filter(|inside| inside.token == token) {
                inside.certainty = Certainty::Until(until);
            }
        }
    }

    /// Leaves, before the lock is given back.
    pub(crate) fn leave(&self, resource: &str, token: u64) {
        if let Some(watched) = self.locks().get_mut(resource) {
            watched.inside.retain(|inside| inside.token != token);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tempfile::TempDir;

    use super::*;

    struct Scene {
        court: Court,
        witness: Witness,
        _folder: TempDir,
    }

    impl Scene {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            Self {
                court: Court::new(folder.path()),
                witness: Witness::default(),
                _folder: folder,
            }
        }

        fn told(&self, token: u64, sent: Instant) {
            let told = Told {
                resource: "r",
                client: "c",
                token,
                sent,
            };
            self.witness.told(&self.court, told, false);
        }

        fn enter(&self, token: u64, lasts: Duration) -> bool {
            let told = Told {
                resource: "r",
                client: "c",
                token,
                sent: Instant::now(),
            };
            self.witness
                .enter(&self.court, told, Certainty::Until(Instant::now() + lasts))
        }

        fn violations(&self) -> usize {
            self.court.violations().len()
        }
    }

    const LONG: Duration = Duration::from_mins(1);

    #[test]
    fn one_after_the_other_is_well() {
        let scene = Scene::new();
        assert!(scene.enter(1, LONG));
        scene.witness.leave("r", 1);
        assert!(scene.enter(2, LONG));
        scene.witness.prolong("r", 2, Instant::now());
        assert!(scene.enter(3, LONG));
        assert!(!scene.enter(2, Duration::ZERO), "it is not certain any more");
        assert_eq!(scene.violations(), 0);
    }

    #[test]
    fn two_at_once_are_seen() {
        let scene = Scene::new();
        assert!(scene.enter(1, LONG));
        assert!(scene.enter(2, LONG));
        assert_eq!(scene.violations(), 1);
    }

    #[test]
    fn an_older_token_is_seen_even_when_the_newer_has_left() {
        let scene = Scene::new();
        assert!(scene.enter(2, LONG));
        scene.witness.leave("r", 2);
        assert!(scene.enter(1, LONG));
        assert_eq!(scene.violations(), 1);
    }

    #[test]
    fn tokens_rise_in_the_order_in_which_grants_could_know_of_each_other() {
        let scene = Scene::new();
        let early = Instant::now();
        scene.told(5, early);
        scene.told(4, early);
        assert_eq!(
            scene.violations(),
            0,
            "both were asked for before either was answered"
        );
        let late = Instant::now();
        scene.told(6, late);
        scene.told(3, late);
        assert_eq!(scene.violations(), 1);
        scene.told(6, early);
        assert_eq!(scene.violations(), 2, "one number for two grants");
    }
}
