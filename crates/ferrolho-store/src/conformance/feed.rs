//! The feed: everything that happens, in the order of the commits, and nothing else.

use ferrolho_core::{Cause, Change, Event, EventKind, Expected, Lock, Reason, Write};

use super::Engine;
use super::kit::{
    acquire, apply, attempt, events, events_until, grant_to, held_by, holder, must, must_remove, release,
    renew,
};

fn brief(event: &Event) -> (EventKind, &Lock, Option<&str>) {
    (event.kind, &event.lock, event.reason.as_ref().map(Reason::as_str))
}

/// Each kind of change is reported as what it was, with the lock that it ended or made, at rising positions of
/// one history. A hand-over is an end and a grant, in this order.
pub async fn every_change_is_reported_in_order(engine: &mut impl Engine) {
    use EventKind::{Acquired, Forced, Released, Renewed};
    let store = engine.store();
    let mut feed = store.changes();
    let first = must(&store, acquire("r", "a", 30)).await;
    let renewed = must(&store, renew(&first, 60)).await;
    let again = Change {
        expected: held_by(&first),
        ..acquire("r", "a", 30)
    };
    let second = must(&store, again).await;
    let handover = Change {
        write: Write::Grant(grant_to(holder("b"), 30)),
        ..release(&second)
    };
    let third = must(&store, handover).await;
    let force = |live: &ferrolho_core::Live, write| Change {
        resource: live.lock.resource.clone(),
        expected: Expected::Token(live.lock.fencing_token),
        write,
        cause: Cause::Force(Reason::new("by <hand>").unwrap()),
    };
    let fourth = must(&store, force(&third, Write::Grant(grant_to(holder("c"), 30)))).await;
    must_remove(&store, force(&fourth, Write::Remove)).await;
    let fifth = must(&store, acquire("r", "d", 30)).await;
    let undo = Change {
        cause: Cause::Undo,
        ..release(&fifth)
    };
    must_remove(&store, undo.clone()).await;
    let sixth = must(&store, acquire("r", "e", 30)).await;
    must_remove(&store, release(&sixth)).await;

    let seen = events(&mut feed, 12).await;
    let undone = undo.reason();
    let expected = [
        (Acquired, &first.lock, None),
        (Renewed, &renewed.lock, None),
        (Acquired, &second.lock, None),
        (Released, &second.lock, None),
        (Acquired, &third.lock, None),
        (Forced, &third.lock, Some("by <hand>")),
        (Acquired, &fourth.lock, None),
        (Forced, &fourth.lock, Some("by <hand>")),
        (Acquired, &fifth.lock, None),
        (Released, &fifth.lock, undone.as_ref().map(Reason::as_str)),
        (Acquired, &sixth.lock, None),
        (Released, &sixth.lock, None),
    ];
    assert_eq!(seen.iter().map(brief).collect::<Vec<_>>(), expected);
    for pair in seen.windows(2) {
        assert!(pair[0].position < pair[1].position, "{pair:?}");
        assert_eq!(pair[0].position.epoch, pair[1].position.epoch);
        assert!(pair[0].at <= pair[1].at, "{pair:?}");
    }
    assert!(seen.iter().all(|event| event.resource == event.lock.resource));
}

/// A refused attempt leaves no trace in the feed, nor does the part of a set that would have been right.
pub async fn what_was_refused_is_not_reported(engine: &mut impl Engine) {
    let store = engine.store();
    let mut feed = store.changes();
    let live = must(&store, acquire("r", "a", 30)).await;
    apply(&store, acquire("r", "b", 30)).await.unwrap_err();
    let set = vec![acquire("s", "b", 30), acquire("r", "b", 30)];
    store.apply(attempt(set)).await.unwrap();
    must_remove(&store, release(&live)).await;
    let seen = events(&mut feed, 2).await;
    let kinds: Vec<_> = seen.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::Acquired, EventKind::Released]);
}

/// A watcher sees what happens after it came and not what was before.
pub async fn an_unchanged_store_is_silent_to_a_new_watcher(engine: &mut impl Engine) {
    let store = engine.store();
    let mut early = store.changes();
    must(&store, acquire("before", "a", 30)).await;
    events_until(&mut early, EventKind::Acquired, "before").await;
    let mut late = store.changes();
    must(&store, acquire("after", "a", 30)).await;
    let seen = events_until(&mut late, EventKind::Acquired, "after").await;
    assert_eq!(seen.len(), 1, "{seen:?}");
}
