//! Calls without an answer: they may have happened, at any later time, or never.

use std::time::Duration;

use ferrolho_proof::{Answer, Judge};

use crate::kit::{History, lock, on_one_clock};

fn history() -> History {
    History::default()
}

#[test]
fn an_unanswered_acquire_may_have_happened_or_not() {
    let asked = || history().acquire((1.0, 0.0), "r", "a", 10, Answer::Unknown);
    asked().find((2.0, 2.1), "r", None).explained();
    asked()
        .find((2.0, 2.1), "r", Some(lock("r", "a", 1, 1.5, 11.5)))
        .explained();
    asked()
        .find((2.0, 2.1), "r", None)
        .acquire((3.0, 3.1), "r", "b", 10, Answer::Held)
        .explained();
    asked()
        .find((2.0, 2.1), "r", Some(lock("r", "b", 1, 1.5, 11.5)))
        .refuted();
}

#[test]
fn a_grant_that_nobody_was_told_of_may_be_taken_back_and_one_that_somebody_was_told_of_may_not() {
    let seen = || {
        history()
            .acquire_by_key((1.0, 0.0), "r", "a", 10, "k", Answer::Unknown)
            .find((2.0, 2.1), "r", Some(lock("r", "a", 1, 1.5, 11.5)))
    };
    seen().granted(3.0, "r", "b", 10, 2).explained();
    let told = || {
        let again = lock("r", "a", 1, 1.5, 11.5);
        seen().acquire_by_key((2.5, 2.6), "r", "a", 10, "k", Answer::Granted(vec![again]))
    };
    told().granted(11.5, "r", "b", 10, 2).explained();
    told().granted(3.0, "r", "b", 10, 2).refuted();
}

#[test]
fn a_repeat_under_a_key_is_answered_with_its_own_grant_alone() {
    let first = || {
        let granted = lock("r", "a", 1, 1.0, 11.0);
        history().acquire_by_key((1.0, 1.0), "r", "a", 10, "k", Answer::Granted(vec![granted]))
    };
    let same = lock("r", "a", 1, 1.0, 11.0);
    first()
        .acquire_by_key((2.0, 2.1), "r", "a", 10, "k", Answer::Granted(vec![same]))
        .explained();
    let another = lock("r", "a", 2, 2.0, 12.0);
    first()
        .acquire_by_key(
            (2.0, 2.1),
            "r",
            "a",
            10,
            "k",
            Answer::Granted(vec![another.clone()]),
        )
        .refuted();
    first()
        .acquire_by_key((2.0, 2.1), "r", "a", 10, "l", Answer::Granted(vec![another]))
        .explained();
}

#[test]
fn an_unanswered_release_frees_at_most_one_grant() {
    let lost = || {
        history()
            .granted(1.0, "r", "a", 1_000, 1)
            .release((2.0, 0.0), "r", "a", None, Answer::Unknown)
    };
    lost().granted(3.0, "r", "b", 10, 2).explained();
    lost().granted(500.0, "r", "b", 10, 2).explained();
    lost().acquire((3.0, 3.1), "r", "b", 10, Answer::Held).explained();
    lost()
        .granted(3.0, "r", "b", 1, 2)
        .granted(5.0, "r", "a", 1_000, 3)
        .granted(6.0, "r", "b", 10, 4)
        .refuted();
}

#[test]
fn an_unanswered_renewal_may_have_moved_the_end() {
    let lost = || {
        history()
            .granted(1.0, "r", "a", 10, 1)
            .renew((5.0, 0.0), "r", "a", 10, Answer::Unknown)
    };
    lost().granted(11.0, "r", "b", 10, 2).explained();
    lost()
        .acquire((14.0, 14.0), "r", "b", 10, Answer::Held)
        .explained();
    lost().granted(10.0, "r", "b", 10, 2).refuted();
}

#[test]
fn what_was_cut_off_does_not_happen_later() {
    let cut = || {
        history()
            .granted(1.0, "r", "a", 1_000, 1)
            .release((2.0, 0.0), "r", "a", None, Answer::Unknown)
            .cut(3.0)
            .find((3.5, 3.6), "r", Some(lock("r", "a", 1, 1.0, 1_001.0)))
    };
    cut().explained();
    cut().granted(4.0, "r", "b", 10, 2).refuted();
}

#[test]
fn a_request_is_not_carried_out_for_ever() {
    let late = |when| {
        let found = lock("r", "a", 1, when, when + 10.0);
        let asked = history().acquire_waiting((1.0, 0.0), "r", "a", 10, 2, Answer::Unknown);
        asked.find((when, when), "r", Some(found))
    };
    let judge = Judge {
        unheard: Some(Duration::from_secs(5)),
        ..on_one_clock()
    };
    late(8.0).explained_by(&judge);
    late(8.5).explained().refuted_by(&judge);
}

#[test]
fn the_older_of_two_requests_of_one_owner_may_have_had_the_lock_for_a_moment() {
    let twins = |older: &str| {
        history()
            .granted(0.0, "r", "x", 2, 1)
            .acquire_waiting((1.0, 2.5), "r", older, 10, 5, Answer::Held)
            .acquire_waiting(
                (1.1, 2.5),
                "r",
                "a",
                10,
                5,
                Answer::Granted(vec![lock("r", "a", 3, 2.3, 12.3)]),
            )
            .find((2.1, 2.2), "r", Some(lock("r", older, 2, 2.0, 12.0)))
    };
    twins("a").explained();
    twins("b").refuted();
}
