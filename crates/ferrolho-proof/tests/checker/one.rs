//! One resource: who may be told what, in any order of calls that overlap.

use ferrolho_proof::{Answer, Verdict};

use crate::kit::{History, JUDGE, lock};

fn history() -> History {
    History::default()
}

#[test]
fn a_life_explained() {
    history()
        .find((0.0, 0.1), "r", None)
        .granted(1.0, "r", "a", 10, 5)
        .acquire((2.0, 2.1), "r", "b", 10, Answer::Held)
        .renew(
            (3.0, 3.0),
            "r",
            "a",
            20,
            Answer::Renewed(lock("r", "a", 5, 1.0, 23.0)),
        )
        .find((4.0, 4.1), "r", Some(lock("r", "a", 5, 1.0, 23.0)))
        .release((5.0, 5.1), "r", "b", None, Answer::Forbidden)
        .release((6.0, 6.1), "r", "a", Some(5), Answer::Released)
        .release((7.0, 7.1), "r", "a", None, Answer::NotFound)
        .granted(8.0, "r", "b", 10, 6)
        .granted(9.0, "r", "b", 10, 7)
        .renew((10.0, 10.1), "r", "a", 5, Answer::Forbidden)
        .force((11.0, 11.1), "r", Answer::Released)
        .force((12.0, 12.1), "r", Answer::NotFound)
        .explained();
}

#[test]
fn calls_that_overlap_may_take_effect_in_any_order() {
    let granted = lock("r", "b", 2, 4.5, 14.5);
    history()
        .granted(1.0, "r", "a", 10, 1)
        .acquire((2.0, 5.0), "r", "b", 10, Answer::Granted(vec![granted.clone()]))
        .release((3.0, 4.6), "r", "a", None, Answer::Released)
        .explained();
    let shown = history()
        .granted(1.0, "r", "a", 10, 1)
        .acquire((2.0, 4.5), "r", "b", 10, Answer::Granted(vec![granted]))
        .release((4.6, 5.0), "r", "a", None, Answer::Released)
        .refuted();
    assert!(shown.contains("acquire r for b"), "{shown}");
    assert!(
        shown.contains("a has r with 1, not over before 11.000000"),
        "{shown}"
    );
}

#[test]
fn a_lock_held_twice_refuted() {
    history()
        .granted(1.0, "r", "a", 10, 1)
        .granted(2.0, "r", "b", 10, 2)
        .refuted();
}

#[test]
fn a_release_or_renewal_by_another_refuted() {
    let held = || history().granted(1.0, "r", "a", 10, 1);
    held()
        .release((2.0, 2.1), "r", "b", None, Answer::Released)
        .refuted();
    held()
        .release((2.0, 2.1), "r", "a", Some(2), Answer::Released)
        .refuted();
    held()
        .release((2.0, 2.1), "r", "a", None, Answer::Forbidden)
        .refuted();
    held()
        .release((2.0, 2.1), "r", "a", None, Answer::NotFound)
        .refuted();
    let stolen = lock("r", "b", 1, 1.0, 12.0);
    held()
        .renew((2.0, 2.0), "r", "b", 10, Answer::Renewed(stolen))
        .refuted();
    held().renew((2.0, 2.1), "r", "b", 10, Answer::NotFound).refuted();
}

#[test]
fn tokens_must_rise_and_stay_with_their_grant() {
    let released = |token| {
        history()
            .granted(1.0, "r", "a", 10, 5)
            .release((2.0, 2.1), "r", "a", None, Answer::Released)
            .granted(3.0, "r", "b", 10, token)
    };
    released(6).explained();
    released(5).refuted();
    released(4).refuted();
    let held = || history().granted(1.0, "r", "a", 10, 5);
    held()
        .find((2.0, 2.1), "r", Some(lock("r", "a", 6, 1.0, 11.0)))
        .refuted();
    let renewed = lock("r", "a", 6, 1.0, 12.0);
    held()
        .renew((2.0, 2.0), "r", "a", 10, Answer::Renewed(renewed))
        .refuted();
    held().granted(3.0, "r", "a", 10, 5).refuted();
}

#[test]
fn a_refusal_needs_a_lock_or_a_line_in_the_way() {
    history().acquire((1.0, 1.1), "r", "a", 5, Answer::Held).refuted();
    // It may be the time that is up while the lock is being handed on.
    history()
        .acquire_waiting((1.0, 3.0), "r", "a", 5, 2, Answer::Held)
        .explained();
    // Newcomers never overtake the line, though the lock be free.
    history()
        .granted(0.0, "r", "x", 1, 1)
        .acquire_waiting((0.5, 3.0), "r", "a", 5, 2, Answer::Held)
        .acquire((1.5, 1.6), "r", "b", 5, Answer::Held)
        .explained();
}

#[test]
fn what_is_not_needed_is_not_shown() {
    let mut busy = history().granted(1.0, "r", "a", 1_000, 1);
    for second in 2..300 {
        let second = f64::from(second);
        busy = busy
            .acquire((second, second + 0.5), "r", "b", 10, Answer::Held)
            .find((second, second + 0.7), "q", None);
    }
    let shown = busy
        .granted(301.0, "r", "b", 10, 2)
        .acquire((302.0, 302.1), "r", "c", 10, Answer::Held)
        .refuted();
    assert!(!shown.contains("held") && !shown.contains("find"), "{shown}");
    assert_eq!(shown.lines().count(), 5, "{shown}");
}

#[test]
fn effort_that_is_used_up_is_no_verdict() {
    let calls = history()
        .granted(1.0, "r", "a", 10, 1)
        .find((2.0, 2.1), "r", None)
        .calls();
    let mut judge = JUDGE;
    judge.effort_points = 1;
    assert!(matches!(judge.check(&calls), Verdict::Undecided { groups: 1 }));
}
