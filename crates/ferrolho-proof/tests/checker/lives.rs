//! The ends of lives: a lock is over when the clock allows it, not before, and not long after.

use std::time::Duration;

use ferrolho_proof::{Answer, Judge};

use crate::kit::{During, History, JUDGE, lock, on_one_clock};

fn history() -> History {
    History::default()
}

#[test]
fn a_lock_is_over_at_its_end_and_not_before() {
    let next_at = |when| {
        history()
            .granted(1.0, "r", "a", 10, 1)
            .granted(when, "r", "b", 10, 2)
    };
    next_at(11.0).explained();
    next_at(10.999).refuted();
    let gone_at = |when| {
        history()
            .granted(1.0, "r", "a", 10, 1)
            .find((when, when), "r", None)
    };
    gone_at(11.0).explained();
    gone_at(10.0).refuted();
}

#[test]
fn the_tolerance_is_stated() {
    let early = || {
        history()
            .granted(1.0, "r", "a", 10, 1)
            .granted(10.9, "r", "b", 10, 2)
    };
    let tolerant = Judge {
        early: Duration::from_millis(100),
        ..JUDGE
    };
    early().explained_by(&tolerant);
    early().refuted_by(&JUDGE);
}

#[test]
fn nobody_sees_a_lock_after_its_end() {
    let seen = |when| {
        let held = lock("r", "a", 1, 1.0, 11.0);
        history()
            .granted(1.0, "r", "a", 10, 1)
            .find((when, when), "r", Some(held))
    };
    seen(10.9).explained();
    seen(11.1).refuted();
    let tolerant = Judge {
        late: Duration::from_millis(500),
        ..on_one_clock()
    };
    seen(11.5).explained_by(&tolerant);
    seen(11.6).refuted_by(&tolerant);
}

#[test]
fn a_renewal_moves_the_end_either_way() {
    let renewed = |seconds: u32| {
        let lock = lock("r", "a", 1, 1.0, 3.0 + f64::from(seconds));
        history()
            .granted(1.0, "r", "a", 10, 1)
            .renew((3.0, 3.0), "r", "a", seconds, Answer::Renewed(lock))
    };
    renewed(20).granted(11.5, "r", "b", 10, 2).refuted();
    renewed(20).granted(23.0, "r", "b", 10, 2).explained();
    renewed(2).granted(5.0, "r", "b", 10, 2).explained();
    let wrong = lock("r", "a", 1, 1.0, 14.0);
    history()
        .granted(1.0, "r", "a", 10, 1)
        .renew((3.0, 3.0), "r", "a", 10, Answer::Renewed(wrong))
        .refuted_by(&on_one_clock());
}

#[test]
fn without_a_common_clock_the_grant_may_be_anywhere_within_its_call() {
    let slow = |during: During| {
        let granted = lock("r", "a", 1, 3.0, 13.0);
        history()
            .acquire(during, "r", "a", 10, Answer::Granted(vec![granted]))
            .granted(12.0, "r", "b", 10, 2)
    };
    slow((1.0, 4.0)).explained_by(&JUDGE).refuted_by(&on_one_clock());
    slow((2.5, 4.0)).refuted();
}

#[test]
fn a_life_has_the_length_that_was_asked_for() {
    let short = lock("r", "a", 1, 1.0, 10.0);
    history()
        .acquire((1.0, 1.0), "r", "a", 10, Answer::Granted(vec![short]))
        .refuted();
}

#[test]
fn an_answer_is_of_the_time_of_its_call() {
    let old = lock("r", "a", 1, 1.0, 11.0);
    let asked = || history().acquire((2.0, 3.0), "r", "a", 10, Answer::Granted(vec![old.clone()]));
    asked().explained_by(&JUDGE).refuted_by(&on_one_clock());
}
