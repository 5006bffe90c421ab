//! Sets: all or none, and the resources that they join are judged together.

use ferrolho_core::Lock;
use ferrolho_proof::Answer;

use crate::kit::{History, lock};

fn history() -> History {
    History::default()
}

fn both(owner: &str, first_token: i128, when: f64) -> Vec<Lock> {
    let lock = |name, token| lock(name, owner, token, when, when + 10.0);
    vec![lock("x", first_token), lock("y", first_token + 1)]
}

#[test]
fn a_set_is_granted_when_all_are_free() {
    history()
        .granted(0.0, "y", "b", 1, 1)
        .acquire((0.5, 0.6), "x y", "a", 10, Answer::Held)
        .acquire((1.0, 1.0), "x y", "a", 10, Answer::Granted(both("a", 2, 1.0)))
        .acquire((2.0, 2.1), "y z", "b", 10, Answer::Held)
        .release((3.0, 3.1), "y", "a", Some(3), Answer::Released)
        .explained();
}

#[test]
fn a_set_over_anothers_lock_refuted() {
    history()
        .granted(0.0, "y", "b", 10, 1)
        .acquire((1.0, 1.0), "x y", "a", 10, Answer::Granted(both("a", 2, 1.0)))
        .refuted();
}

#[test]
fn an_unanswered_set_is_there_as_a_whole_or_not_at_all() {
    let asked = || history().acquire((1.0, 0.0), "x y", "a", 10, Answer::Unknown);
    let [x, y] = <[Lock; 2]>::try_from(both("a", 1, 1.5)).unwrap();
    asked()
        .find((2.0, 2.1), "x", Some(x.clone()))
        .find((2.2, 2.3), "y", Some(y))
        .explained();
    // Taken back one by one.
    asked()
        .find((2.0, 2.1), "x", Some(x))
        .find((2.2, 2.3), "y", None)
        .explained();
    history()
        .granted(0.5, "x", "b", 10, 1)
        .acquire((1.0, 0.0), "x y", "a", 10, Answer::Unknown)
        .find((2.0, 2.1), "y", Some(lock("y", "a", 2, 1.5, 11.5)))
        .refuted();
}

#[test]
fn what_no_set_joins_is_judged_apart() {
    let shown = history()
        .granted(0.0, "p", "a", 10, 1)
        .granted(0.0, "q", "a", 10, 2)
        .granted(1.0, "q", "b", 10, 3)
        .refuted();
    assert!(!shown.contains(" p "), "{shown}");
}

#[test]
fn two_unanswered_releases_may_free_a_set() {
    history()
        .granted(0.0, "x", "b", 100, 1)
        .granted(0.0, "y", "c", 100, 1)
        .release((1.0, 0.0), "x", "b", None, Answer::Unknown)
        .release((1.0, 0.0), "y", "c", None, Answer::Unknown)
        .acquire((2.0, 2.0), "x y", "a", 10, Answer::Granted(both("a", 2, 2.0)))
        .explained();
}
