//! Short words for what the checks do, and for the engines' own tests.

use std::sync::Arc;
use std::time::Duration;

use ferrolho_core::{
    Cause, Change, Claim, Event, EventKind, Expected, FencingToken, Grant, Holder, Live, Mark, Owner,
    Principal, Resource, Ttl, Write,
};
use tokio::time::{Instant, timeout};

use crate::{Attempt, Feed, FeedItem, Outcome, Store};

/// How long the suite waits for what must happen. Only a broken engine makes it wait so long.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How much more a lock may have left than was answered before. Where several servers each time a lock by their
/// own clock, one may have seen it later than the other, and an answer counts from before it was asked for.
const LEFT_SLACK: Duration = Duration::from_secs(5);

/// The resource with this name.
pub fn resource(name: &str) -> Resource {
    Resource::new(name).unwrap()
}

/// An owner without a principal.
pub fn holder(owner: &str) -> Holder {
    Holder {
        owner: Owner::new(owner).unwrap(),
        principal: None,
    }
}

/// An owner under a principal.
pub fn holder_under(owner: &str, principal: &str) -> Holder {
    Holder {
        principal: Some(Principal::new(principal).unwrap()),
        ..holder(owner)
    }
}

/// A lifetime of so many seconds.
pub fn ttl(seconds: u32) -> Ttl {
    Ttl::new(seconds.into(), Ttl::MAX).unwrap()
}

/// The token with this number.
pub fn token(number: u64) -> FencingToken {
    FencingToken::new(number.into()).unwrap()
}

/// A grant with a mark of its own.
pub fn grant_to(holder: Holder, seconds: u32) -> Grant {
    Grant {
        holder,
        ttl: ttl(seconds),
        metadata: None,
        mark: Mark::Random(rand::random()),
    }
}

/// What the holder of this very grant expects.
pub fn held_by(live: &Live) -> Expected {
    Expected::HeldBy(Claim {
        holder: live.lock.holder(),
        token: Some(live.lock.fencing_token),
    })
}

/// What this owner expects, whatever the grant.
pub fn owned_by(owner: &str) -> Expected {
    Expected::HeldBy(Claim {
        holder: holder(owner),
        token: None,
    })
}

/// A grant of a lock that must be free.
pub fn acquire(name: &str, owner: &str, seconds: u32) -> Change {
    Change {
        resource: resource(name),
        expected: Expected::Free,
        write: Write::Grant(grant_to(holder(owner), seconds)),
        cause: Cause::Acquire,
    }
}

/// The release of this very grant.
pub fn release(live: &Live) -> Change {
    Change {
        resource: live.lock.resource.clone(),
        expected: held_by(live),
        write: Write::Remove,
        cause: Cause::Release,
    }
}

/// The renewal of this very grant.
pub fn renew(live: &Live, seconds: u32) -> Change {
    Change {
        resource: live.lock.resource.clone(),
        expected: held_by(live),
        write: Write::Extend(ttl(seconds)),
        cause: Cause::Renew,
    }
}

/// These changes together, with time enough.
pub fn attempt(changes: Vec<Change>) -> Attempt {
    Attempt {
        changes,
        not_after: Instant::now() + PATIENCE,
    }
}

/// Applies one change: the lock that it made, or the lock that was in its way.
pub async fn apply(store: &Arc<dyn Store>, change: Change) -> Result<Option<Live>, Option<Live>> {
    match store.apply(attempt(vec![change])).await.unwrap() {
        Outcome::Applied(mut locks) => {
            assert_eq!(locks.len(), 1);
            Ok(locks.remove(0))
        }
        Outcome::Stale(mut locks) => {
            assert_eq!(locks.len(), 1);
            Err(locks.remove(0))
        }
    }
}

/// Applies a change that makes a lock and must succeed.
pub async fn must(store: &Arc<dyn Store>, change: Change) -> Live {
    apply(store, change.clone())
        .await
        .unwrap_or_else(|current| panic!("{change:?} found {current:?}"))
        .unwrap_or_else(|| panic!("{change:?} left no lock"))
}

/// Applies a removal that must succeed.
pub async fn must_remove(store: &Arc<dyn Store>, change: Change) {
    let left = apply(store, change.clone())
        .await
        .unwrap_or_else(|current| panic!("{change:?} found {current:?}"));
    assert_eq!(left, None);
}

/// The lock on this resource.
pub async fn find(store: &Arc<dyn Store>, name: &str) -> Option<Live> {
    store.find(&resource(name)).await.unwrap()
}

/// The same lock, with perhaps less time left, and hardly more.
pub fn assert_same(found: Option<&Live>, expected: &Live) {
    let Some(found) = found else {
        panic!("there is no lock, but there should be {expected:?}")
    };
    assert_eq!(
        (&found.lock, &found.mark),
        (&expected.lock, &expected.mark),
        "not the lock that was answered"
    );
    assert!(
        found.left <= expected.left + LEFT_SLACK,
        "{found:?} has more left than {expected:?}"
    );
}

/// The next event. Gaps are passed over: what they hide is missed by whoever counts.
pub async fn next_events(feed: &mut Feed) -> Arc<[Event]> {
    loop {
        let item = timeout(PATIENCE, feed.next()).await;
        match item.unwrap_or_else(|_| panic!("no event within {PATIENCE:?}")) {
            Some(FeedItem::Events(events)) => return events,
            Some(FeedItem::Gap) => {}
            None => panic!("the feed has ended"),
        }
    }
}

/// Events until there are so many, in order.
pub async fn events(feed: &mut Feed, wanted: usize) -> Vec<Event> {
    let mut events = Vec::new();
    while events.len() < wanted {
        events.extend(next_events(feed).await.iter().cloned());
    }
    events
}

/// Events up to and with the first of this kind on this resource.
pub async fn events_until(feed: &mut Feed, kind: EventKind, name: &str) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    loop {
        events.extend(next_events(feed).await.iter().cloned());
        let is_last = |event: &Event| event.kind == kind && event.resource.as_str() == name;
        if let Some(last) = events.iter().position(is_last) {
            events.truncate(last + 1);
            return events;
        }
    }
}

/// Waits until the lock on this resource has ended by itself.
pub async fn until_over(store: &Arc<dyn Store>, name: &str) {
    let give_up = Instant::now() + PATIENCE;
    while let Some(live) = find(store, name).await {
        assert!(Instant::now() < give_up, "still there: {live:?}");
        tokio::time::sleep(live.left.min(PATIENCE)).await;
    }
}
