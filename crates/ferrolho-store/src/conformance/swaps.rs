//! The compare-and-swap: what is expected, what becomes of the lock, one and many together.

use std::time::Duration;

use ferrolho_core::{Cause, Change, Claim, Expected, Live, Reason, Write};
use tokio::time::Instant;

use super::Engine;
use super::kit::{
    acquire, apply, assert_same, attempt, find, grant_to, held_by, holder, holder_under, must, must_remove,
    owned_by, release, renew, resource, token, ttl, until_over,
};
use crate::{Outcome, StoreError};

/// A free resource is granted: the answer is what was asked for, and reading gives the same.
pub async fn a_free_resource_is_granted(engine: &mut impl Engine) {
    let store = engine.store();
    assert_eq!(find(&store, "r").await, None);
    let change = Change {
        write: Write::Grant(grant_to(holder_under("a", "p"), 30)),
        ..acquire("r", "a", 30)
    };
    let live = must(&store, change.clone()).await;
    let Write::Grant(grant) = change.write else {
        unreachable!()
    };
    assert_eq!(live.lock.resource, resource("r"));
    assert_eq!(live.lock.holder(), grant.holder);
    assert_eq!(live.lock.metadata, None);
    assert_eq!(live.mark, grant.mark);
    assert_eq!(
        live.lock.expires_at.since(live.lock.acquired_at),
        grant.ttl.duration()
    );
    assert!(live.left <= grant.ttl.duration() && live.left > Duration::from_secs(1));
    assert_same(find(&store, "r").await.as_ref(), &live);
    assert_eq!(find(&store, "R").await, None);
}

/// What a caller may expect of a lock that `a` holds, and whether it is so.
fn expectations(live: &Live) -> Vec<(Expected, bool)> {
    let number = live.lock.fencing_token.get();
    let claim = |holder, token| Expected::HeldBy(Claim { holder, token });
    vec![
        (Expected::Free, false),
        (claim(holder("a"), None), true),
        (claim(holder("a"), Some(token(number))), true),
        (claim(holder("a"), Some(token(number + 1))), false),
        (claim(holder("b"), None), false),
        (claim(holder("b"), Some(token(number))), false),
        (claim(holder_under("a", "p"), None), false),
        (Expected::Token(token(number)), true),
        (Expected::Token(token(number + 1)), false),
    ]
}

fn writes() -> [(Write, Cause); 3] {
    [
        (Write::Grant(grant_to(holder("n"), 60)), Cause::Acquire),
        (Write::Extend(ttl(60)), Cause::Renew),
        (Write::Remove, Cause::Release),
    ]
}

/// Every expectation with every write on a live lock: carried out when it holds; when it does not, answered with
/// the lock as it is, which stays as it is.
pub async fn a_change_happens_when_its_expectation_holds_and_only_then(engine: &mut impl Engine) {
    let store = engine.store();
    for (write, cause) in writes() {
        for number in 0.. {
            let live = must(&store, acquire("r", "a", 30)).await;
            let Some((expected, holds)) = expectations(&live).into_iter().nth(number) else {
                must_remove(&store, release(&live)).await;
                break;
            };
            let change = Change {
                resource: resource("r"),
                expected,
                write: write.clone(),
                cause: cause.clone(),
            };
            let answer = apply(&store, change.clone()).await;
            let now = find(&store, "r").await;
            match answer {
                Ok(Some(made)) => {
                    assert!(holds, "{change:?} on {live:?}");
                    assert_same(now.as_ref(), &made);
                }
                Ok(None) => {
                    assert!(holds && write == Write::Remove, "{change:?} on {live:?}");
                    assert_eq!(now, None);
                }
                Err(current) => {
                    assert!(!holds, "{change:?} on {live:?}");
                    assert_same(current.as_ref(), &live);
                    assert_same(now.as_ref(), &live);
                }
            }
            if let Some(left) = now {
                must_remove(&store, release(&left)).await;
            }
        }
    }
}

/// A lock that is over counts as none: only `Free` holds, and whatever else was tried leaves nothing.
pub async fn an_expired_lock_is_free_and_nobodys(engine: &mut impl Engine) {
    let store = engine.store();
    for round in 0..writes().len() {
        let live = must(&store, acquire("r", "a", 1)).await;
        until_over(&store, "r").await;
        let (write, cause) = writes()[round].clone();
        for (expected, _) in expectations(&live) {
            let is_free = expected == Expected::Free;
            if is_free {
                continue;
            }
            let change = Change {
                resource: resource("r"),
                expected,
                write: write.clone(),
                cause: cause.clone(),
            };
            assert_eq!(apply(&store, change.clone()).await, Err(None), "{change:?}");
            assert_eq!(find(&store, "r").await, None, "{change:?}");
        }
        let next = must(&store, acquire("r", "b", 30)).await;
        assert!(next.lock.fencing_token > live.lock.fencing_token);
        must_remove(&store, release(&next)).await;
    }
}

/// A set with one wrong guess does nothing and reports all of its locks; with none it is carried out in order.
pub async fn a_set_is_carried_out_whole_or_not_at_all(engine: &mut impl Engine) {
    let store = engine.store();
    let in_the_way = must(&store, acquire("b", "b", 30)).await;
    let set = || ["a", "b", "c"].map(|name| acquire(name, "a", 30)).to_vec();
    let Outcome::Stale(current) = store.apply(attempt(set())).await.unwrap() else {
        panic!("b is held")
    };
    assert_eq!(current.len(), 3);
    assert_eq!((&current[0], &current[2]), (&None, &None));
    assert_same(current[1].as_ref(), &in_the_way);
    assert_eq!(find(&store, "a").await, None);
    assert_eq!(find(&store, "c").await, None);

    must_remove(&store, release(&in_the_way)).await;
    let Outcome::Applied(made) = store.apply(attempt(set())).await.unwrap() else {
        panic!("all are free")
    };
    let names: Vec<_> = made
        .iter()
        .flatten()
        .map(|live| live.lock.resource.to_string())
        .collect();
    assert_eq!(names, ["a", "b", "c"]);
    for live in made.iter().flatten() {
        assert_same(find(&store, live.lock.resource.as_str()).await.as_ref(), live);
    }
}

/// 32 resources with the longest names and the largest metadata, at once.
pub async fn a_set_may_be_as_large_as_allowed(engine: &mut impl Engine) {
    let store = engine.store();
    let metadata = format!("{{\"k\":\"{}\"}}", "x".repeat(4088));
    let metadata = ferrolho_core::Metadata::parse(&metadata).unwrap();
    let changes = (0..32)
        .map(|number| {
            let mut grant = grant_to(holder(&"o".repeat(255)), 30);
            grant.metadata = Some(metadata.clone());
            Change {
                write: Write::Grant(grant),
                ..acquire(&format!("{number:0>255}"), "a", 30)
            }
        })
        .collect();
    let Outcome::Applied(made) = store.apply(attempt(changes)).await.unwrap() else {
        panic!("all are free")
    };
    assert_eq!(made.iter().flatten().count(), 32);
    let last = made[31].as_ref().unwrap();
    assert_same(find(&store, last.lock.resource.as_str()).await.as_ref(), last);
}

/// One attempt may grant, renew, hand over and remove.
pub async fn a_set_may_mix_what_it_does(engine: &mut impl Engine) {
    let store = engine.store();
    let kept = must(&store, acquire("kept", "a", 30)).await;
    let gone = must(&store, acquire("gone", "a", 30)).await;
    let passed = must(&store, acquire("passed", "a", 30)).await;
    let handover = Change {
        write: Write::Grant(grant_to(holder("b"), 30)),
        ..release(&passed)
    };
    let changes = vec![
        acquire("new", "a", 30),
        renew(&kept, 60),
        release(&gone),
        handover,
    ];
    let Outcome::Applied(made) = store.apply(attempt(changes)).await.unwrap() else {
        panic!("all is as expected")
    };
    let [Some(new), Some(renewed), None, Some(next)] = &made[..] else {
        panic!("{made:?}")
    };
    assert_same(find(&store, "new").await.as_ref(), new);
    assert_eq!(renewed.lock.fencing_token, kept.lock.fencing_token);
    assert_eq!(find(&store, "gone").await, None);
    assert_eq!(next.lock.holder(), holder("b"));
    assert_same(find(&store, "passed").await.as_ref(), next);
}

/// The same owner again: a new grant with a new token; what names the old one is refused.
pub async fn a_repeated_grant_fences_off_the_one_before(engine: &mut impl Engine) {
    let store = engine.store();
    let first = must(&store, acquire("r", "a", 60)).await;
    let again = Change {
        expected: owned_by("a"),
        ..acquire("r", "a", 30)
    };
    let second = must(&store, again).await;
    assert!(second.lock.fencing_token > first.lock.fencing_token);
    assert!(second.lock.acquired_at >= first.lock.acquired_at);
    assert!(
        second.left <= Duration::from_secs(30),
        "the end is that of the new grant"
    );
    for change in [release(&first), renew(&first, 60)] {
        let current = apply(&store, change).await.unwrap_err();
        assert_same(current.as_ref(), &second);
    }
    assert_same(find(&store, "r").await.as_ref(), &second);
}

/// Renewing keeps token, grant time, metadata and mark; the end is now and the lifetime, also when that is
/// sooner; renewals do not add up.
pub async fn a_renewal_moves_the_end_and_nothing_else(engine: &mut impl Engine) {
    let store = engine.store();
    let first = must(&store, acquire("r", "a", 30)).await;
    let mut last = first.clone();
    for seconds in [60, 60, 60, 10] {
        let next = must(&store, renew(&first, seconds)).await;
        let mut expected = first.lock.clone();
        expected.expires_at = next.lock.expires_at;
        assert_eq!(next.lock, expected);
        assert_eq!(next.mark, first.mark);
        assert!(next.left <= ttl(seconds).duration());
        assert_same(find(&store, "r").await.as_ref(), &next);
        last = next;
    }
    assert!(
        last.lock.expires_at < first.lock.expires_at,
        "a renewal may shorten"
    );
}

/// A release with somebody waiting passes the lock on in one step, to a grant with a token of its own.
pub async fn a_handover_is_one_step(engine: &mut impl Engine) {
    let store = engine.store();
    let first = must(&store, acquire("r", "a", 30)).await;
    let next = must(
        &store,
        Change {
            write: Write::Grant(grant_to(holder("b"), 30)),
            ..release(&first)
        },
    )
    .await;
    assert_eq!(next.lock.holder(), holder("b"));
    assert!(next.lock.fencing_token > first.lock.fencing_token);
    assert_same(find(&store, "r").await.as_ref(), &next);
    assert_same(apply(&store, release(&first)).await.unwrap_err().as_ref(), &next);
}

/// Per resource, each grant has a larger token, however the one before ended; reading repeats it.
pub async fn tokens_rise_for_ever(engine: &mut impl Engine) {
    let store = engine.store();
    let mut last = 0;
    let mut rises = |live: &Live| {
        let number = live.lock.fencing_token.get();
        assert!(number > last, "{number} after {last}");
        last = number;
    };
    for round in 0..4 {
        let live = must(&store, acquire("r", "a", 30)).await;
        rises(&live);
        let again = must(
            &store,
            Change {
                expected: held_by(&live),
                ..acquire("r", "a", 30)
            },
        )
        .await;
        rises(&again);
        must(&store, acquire(&format!("other {round}"), "a", 30)).await;
        assert_same(find(&store, "r").await.as_ref(), &again);
        let force = Change {
            expected: Expected::Token(again.lock.fencing_token),
            cause: Cause::Force(Reason::new("by hand").unwrap()),
            ..release(&again)
        };
        must_remove(&store, force).await;
    }
    rises(&must(&store, acquire("r", "a", 1)).await);
    until_over(&store, "r").await;
    rises(&must(&store, acquire("r", "b", 30)).await);
}

/// An attempt whose time is over before its turn comes is refused as such, and does nothing.
pub async fn an_attempt_that_comes_too_late_does_nothing(engine: &mut impl Engine) {
    let store = engine.store();
    let mut late = attempt(vec![acquire("r", "a", 30)]);
    late.not_after = Instant::now() - Duration::from_millis(1);
    let answer = store.apply(late).await;
    assert!(matches!(answer, Err(StoreError::TooLate)), "{answer:?}");
    assert_eq!(find(&store, "r").await, None);
}

/// Whoever reads after an answer sees what was answered.
pub async fn reading_sees_every_answer_given(engine: &mut impl Engine) {
    let store = engine.store();
    for number in 0..50 {
        let live = must(&store, acquire("r", &format!("owner {number}"), 30)).await;
        assert_same(find(&store, "r").await.as_ref(), &live);
        must_remove(&store, release(&live)).await;
        assert_eq!(find(&store, "r").await, None);
    }
}
