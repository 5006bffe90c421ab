//! Which grants under an `Idempotency-Key` nobody has been told of yet.
//!
//! A caller that hangs up before its answer gets its grant undone. But with a key it may have come back
//! meanwhile, on another connection, and been answered with that very grant: then it must stay. This register
//! settles who was first. Grants without a key cannot be asked for again, so they are not in it.
//!
//! It also keeps an attempt whose outcome is unknown from being mistaken: all attempts under a key make grants with
//! the same mark, and whoever looks out for the lost one must leave alone what another has made meanwhile.

use std::collections::HashMap;
use std::sync::Arc;

use ferrolho_core::{Grant, Holder, Mark};
use parking_lot::Mutex;

type Attempt = (Holder, Mark);

#[derive(Debug, Default)]
struct State {
    /// How many attempts of this key are under way.
    attempts: usize,
    fate: Fate,
    /// How many grants under this key have been undone.
    undone: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fate {
    #[default]
    Open,
    /// An attempt knows that it made the grant: it tells its caller, or undoes it.
    Made,
    /// Somebody was answered with the grant.
    Told,
    /// The grant is being undone.
    Undoing,
}

/// The grants under a key that are on their way to their callers.
#[derive(Debug, Default)]
pub(super) struct Register(Mutex<HashMap<Attempt, State>>);

/// One of them; it ends when its caller has been told, or the grant is undone.
#[derive(Debug)]
pub(super) struct Untold {
    register: Arc<Register>,
    attempt: Attempt,
}

impl Register {
    /// Notes that an attempt under a key begins; nothing for an attempt without one.
    pub(super) fn begin(self: &Arc<Self>, grant: &Grant) -> Option<Untold> {
        if matches!(grant.mark, Mark::Random(_)) {
            return None;
        }
        let attempt = (grant.holder.clone(), grant.mark.clone());
        self.0.lock().entry(attempt.clone()).or_default().attempts += 1;
        Some(Untold {
            register: Arc::clone(self),
            attempt,
        })
    }

    /// How many grants under this key have been undone so far; none without a key.
    pub(super) fn undone_so_far(&self, grant: &Grant) -> u64 {
        if matches!(grant.mark, Mark::Random(_)) {
            return 0;
        }
        let states = self.0.lock();
        let state = states.get(&(grant.holder.clone(), grant.mark.clone()));
        state.map_or(0, |state| state.undone)
    }

    /// Notes that an attempt was lost sight of, and may still make a grant; nothing for an attempt without a key.
    pub(super) fn lose(self: &Arc<Self>, grant: &Grant) -> Option<Lost> {
        self.begin(grant).map(Lost)
    }

    /// An attempt has made its grant, when so many had been `undone` before. False when the grant was taken for one
    /// that had been lost sight of, and is being undone or has been: then nobody may be told of it.
    pub(super) fn made(&self, grant: &Grant, undone: u64) -> bool {
        let mut states = self.0.lock();
        let Some(state) = states.get_mut(&(grant.holder.clone(), grant.mark.clone())) else {
            return true;
        };
        if state.fate == Fate::Open {
            state.fate = Fate::Made;
        }
        state.fate != Fate::Undoing && state.undone == undone
    }

    /// A grant under this key is there, and an attempt whose outcome was unknown may have made it, when so many had
    /// been `undone` before. Whether it is that attempt's from now on, to tell or to undo; not if another is known to
    /// have made it.
    pub(super) fn is_own(&self, grant: &Grant, undone: u64) -> bool {
        let mut states = self.0.lock();
        match states.get_mut(&(grant.holder.clone(), grant.mark.clone())) {
            None => true,
            Some(state) if state.fate == Fate::Open && state.undone == undone => {
                state.fate = Fate::Made;
                true
            }
            Some(_) => false,
        }
    }

    /// Somebody comes back for a grant by its key, and has seen it when so many had been `undone`. False when it is
    /// being undone just now, or has been since.
    pub(super) fn may_repeat(&self, grant: &Grant, undone: u64) -> bool {
        let mut states = self.0.lock();
        match states.get_mut(&(grant.holder.clone(), grant.mark.clone())) {
            None => true,
            Some(state) if state.undone != undone => false,
            Some(state) => {
                if state.fate != Fate::Undoing {
                    state.fate = Fate::Told;
                }
                state.fate == Fate::Told
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }
}

impl Untold {
    /// The caller has left. Whether its grant may be undone, which nobody is told of from now on.
    pub(super) fn may_undo(&self) -> bool {
        let mut states = self.register.0.lock();
        let state = states.entry(self.attempt.clone()).or_default();
        if state.fate != Fate::Told {
            state.fate = Fate::Undoing;
        }
        state.fate == Fate::Undoing
    }

    /// The grant has been undone. Others under the same key may make a new one, which is open again.
    pub(super) fn undone(self) {
        let mut states = self.register.0.lock();
        if let Some(state) = states.get_mut(&self.attempt) {
            state.fate = Fate::Open;
            state.undone += 1;
        }
    }
}

/// An attempt that was lost sight of, for as long as it is watched for.
#[derive(Debug)]
pub(super) struct Lost(Untold);

impl Lost {
    /// A grant has shown that may be the lost one's. Whether it may be taken back, which nobody is told of from now
    /// on; not if another attempt has made it, or somebody was told of it.
    pub(super) fn may_take_back(&self) -> bool {
        let mut states = self.0.register.0.lock();
        let state = states.entry(self.0.attempt.clone()).or_default();
        if state.fate == Fate::Open {
            state.fate = Fate::Undoing;
        }
        state.fate == Fate::Undoing
    }

    /// The grant has been taken back.
    pub(super) fn taken_back(self) {
        self.0.undone();
    }
}

impl Drop for Untold {
    fn drop(&mut self) {
        let mut states = self.register.0.lock();
        if let Some(state) = states.get_mut(&self.attempt) {
            state.attempts -= 1;
            if state.attempts == 0 {
                states.remove(&self.attempt);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ferrolho_core::{Owner, Ttl};

    use super::*;

    fn grant() -> Grant {
        Grant {
            holder: Holder {
                owner: Owner::new("a").unwrap(),
                principal: None,
            },
            ttl: Ttl::new(60, Ttl::MAX).unwrap(),
            metadata: None,
            mark: Mark::from_key("k").unwrap(),
        }
    }

    #[test]
    fn what_another_has_made_is_not_taken_for_the_lost_one() {
        let register = Arc::new(Register::default());
        let lost = register.lose(&grant()).unwrap();
        let other = register.begin(&grant()).unwrap();
        assert!(register.made(&grant(), 0));
        assert!(!lost.may_take_back());
        drop(other);
        assert!(!lost.may_take_back(), "its caller has been told");
        drop(lost);
        assert_eq!(register.len(), 0);
    }

    #[test]
    fn who_made_a_grant_that_is_taken_for_the_lost_one_tells_nobody() {
        let register = Arc::new(Register::default());
        let lost = register.lose(&grant()).unwrap();
        let other = register.begin(&grant()).unwrap();
        assert!(lost.may_take_back());
        assert!(!register.made(&grant(), 0));
        lost.taken_back();
        assert!(!register.made(&grant(), 0), "it has been taken back since");
        assert!(register.made(&grant(), register.undone_so_far(&grant())));
        assert!(other.may_undo(), "its own caller may still leave");
        assert!(!register.may_repeat(&grant(), 1));
    }
}
