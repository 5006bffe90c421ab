//! Which grants under an `Idempotency-Key` nobody has been told of yet.
//!
//! A caller that hangs up before its answer gets its grant undone. But with a key it may have come back
//! meanwhile, on another connection, and been answered with that very grant: then it must stay. This register
//! settles who was first. Grants without a key cannot be asked for again, so they are not in it.

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

    /// Somebody comes back for a grant by its key, and has seen it when so many had been `undone`. False when it is
    /// being undone just now, or has been since.
    pub(super) fn may_repeat(&self, grant: &Grant, undone: u64) -> bool {
        let mut states = self.0.lock();
        match states.get_mut(&(grant.holder.clone(), grant.mark.clone())) {
            None => true,
            Some(state) if state.undone != undone => false,
            Some(state) => {
                if state.fate == Fate::Open {
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
        if state.fate == Fate::Open {
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
