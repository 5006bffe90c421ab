//! The client: faults, belief, queues, sets, events, elections.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ferrolho_client::{Client, Error, Event, EventKind, Events, ListQuery, Loss, Notice, Patience, Ttl};
use tokio::task::JoinSet;

use super::{Server, seconds};
use crate::cable::Cable;
use crate::fake::{Act, Fake, Fault, problem_body};

#[tokio::test]
async fn one_fault_at_any_point_of_any_call_is_mended() {
    let server = Arc::new(Server::start());
    let mut cases = JoinSet::new();
    for act in [Act::Acquire, Act::Renew, Act::Release] {
        for fault in [
            Fault::DropRequest,
            Fault::DropAnswer,
            Fault::Swallow,
            Fault::DelayRequest(Duration::from_millis(200)),
            Fault::DelayAnswer(Duration::from_millis(200)),
            Fault::Double,
            Fault::Answer(502, "<html>bad gateway</html>".to_owned()),
            Fault::Answer(503, problem_body(503, "unavailable")),
        ] {
            // To the client this looks as if the lock had been taken away.
            if !matches!((act, &fault), (Act::Release, Fault::Double)) {
                cases.spawn(is_mended(Arc::clone(&server), act, fault));
            }
        }
    }
    while let Some(case) = cases.join_next().await {
        case.unwrap();
    }
}

async fn is_mended(server: Arc<Server>, act: Act, fault: Fault) {
    let case = format!("{act:?} {fault:?}");
    let network = Fake::before(server.addr);
    let builder = Client::builder().url(&network.url()).unwrap();
    let client = builder
        .request_timeout(Duration::from_millis(500))
        .build()
        .unwrap();
    network.fault(act, 1, fault);
    let request = client.lock(&case).unwrap().ttl(seconds(2)).unwrap();
    let guard = request
        .acquire()
        .await
        .unwrap_or_else(|error| panic!("{case}: {error}"));
    let expected = (client.owner().to_string(), guard.fencing_token().get());
    assert_eq!(server.holder(&case).await, Some(expected), "{case}");
    let begun = Instant::now();
    while network.seen(Act::Renew).len() < 2 {
        assert!(begun.elapsed() < seconds(20), "{case}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(guard.is_held(), "{case}");
    guard
        .release()
        .await
        .unwrap_or_else(|error| panic!("{case}: {error}"));
    assert_eq!(server.holder(&case).await, None, "{case}");
}

#[tokio::test]
async fn belief_ends_before_another_is_let_in() {
    let server = Server::start();
    let network = Fake::before(server.addr);
    let cut_off = Client::new(&network.url()).unwrap();
    let guard = cut_off
        .lock("r")
        .unwrap()
        .ttl(seconds(2))
        .unwrap()
        .acquire()
        .await
        .unwrap();
    network.freeze();
    let lease = guard.lease();
    let watching = thread::spawn(move || {
        // The time is taken before the look: what is believed at `last` was believed then.
        let mut last = Instant::now();
        loop {
            let now = Instant::now();
            if !lease.is_held() {
                return last;
            }
            last = now;
            thread::sleep(Duration::from_micros(200));
        }
    });
    let other = server.client();
    let (asking, taken) = {
        let request = other.lock("r").unwrap().wait(seconds(10));
        let taken = request.acquire().await.unwrap();
        // It was granted before this; the belief must have ended earlier still.
        (Instant::now(), taken)
    };
    let believed_until = watching.join().unwrap();
    assert!(believed_until < asking);
    assert!(taken.fencing_token() > guard.fencing_token());
    assert_eq!(guard.check(), Err(Loss::NotRenewed));
}

#[tokio::test]
async fn waiters_come_in_turn_and_a_long_wait_keeps_its_place() {
    let server = Server::start();
    let holder = server.client();
    let guard = holder.lock("r").unwrap().acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for n in 0..3 {
        let request = server.client().lock("r").unwrap().patience(Patience::Forever);
        let order = Arc::clone(&order);
        waiting.push(tokio::spawn(async move {
            let guard = request.acquire().await.unwrap();
            order.lock().unwrap().push(n);
            guard.release().await.unwrap();
        }));
        while holder.waiters("r").await.unwrap().len() <= n {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    // Longer than one poll, so that each has had to come back to its place.
    tokio::time::sleep(seconds(22)).await;
    guard.release().await.unwrap();
    for waiting in waiting {
        waiting.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
}

#[tokio::test]
async fn who_stops_waiting_is_passed_over() {
    let server = Server::start();
    let holder = server.client();
    let guard = holder.lock("r").unwrap().acquire().await.unwrap();
    let leaver = server.client();
    let waiting = tokio::spawn({
        let request = leaver.lock("r").unwrap().patience(Patience::Forever);
        async move { request.acquire().await }
    });
    while holder.waiters("r").await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    waiting.abort();
    leaver.settle().await;
    // Its connection ends when the server sees it.
    while !holder.waiters("r").await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    guard.release().await.unwrap();
    assert!(
        server
            .client()
            .lock("r")
            .unwrap()
            .try_acquire()
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn sets_lists_and_one_heartbeat() {
    let server = Server::start();
    let ttl = Ttl::new(1, Ttl::MAX).unwrap();
    let builder = Client::builder().url(&server.url()).unwrap().one_heartbeat(ttl);
    let client = builder.build().unwrap();
    let set = client.lock_all(["s/b", "s/a", "s/ü"]).unwrap();
    let set = set
        .metadata(&serde_json::json!({"k": [1, {"x": null}]}))
        .unwrap()
        .acquire()
        .await
        .unwrap();
    let single = client.lock("single").unwrap().acquire().await.unwrap();
    tokio::time::sleep(seconds(2)).await;
    assert!(set.is_held() && single.is_held());

    let query = ListQuery {
        prefix: "s/".to_owned(),
        owner: Some(client.owner().clone()),
        limit: 2,
        cursor: None,
    };
    let page = client.list(query.clone()).await.unwrap();
    let names: Vec<&str> = page.locks.iter().map(|lock| lock.resource.as_str()).collect();
    assert_eq!(names, ["s/a", "s/b"]);
    assert_eq!(
        page.locks[0].metadata.as_ref().unwrap().as_str(),
        "{\"k\":[1,{\"x\":null}]}"
    );
    let cursor = page.next_cursor;
    let page = client.list(ListQuery { cursor, ..query }).await.unwrap();
    assert_eq!((page.locks.len(), page.next_cursor), (1, None));

    let Err(Error::Held { resources, .. }) = server.client().lock_all(["s/a", "z"]).unwrap().acquire().await
    else {
        panic!("one of them is held");
    };
    assert_eq!(resources[0].as_str(), "s/a");
    set.release().await.unwrap();
    single.release().await.unwrap();
    assert!(client.list(ListQuery::default()).await.unwrap().locks.is_empty());
}

#[tokio::test]
async fn events_are_resumed_where_they_broke() {
    let server = Server::start();
    let cable = Cable::to(server.addr);
    let client = server.client();
    let mut events = Client::new(&cable.url()).unwrap().events("e/", None);
    assert!(matches!(events.next().await, Some(Ok(Notice::Reset))));
    let take = async |n: usize| {
        client
            .lock(&format!("other/{n}"))
            .unwrap()
            .acquire()
            .await
            .unwrap()
            .detach();
        client
            .lock(&format!("e/{n}"))
            .unwrap()
            .acquire()
            .await
            .unwrap()
            .detach();
    };
    take(0).await;
    let first = event(&mut events).await;
    assert_eq!(
        (first.kind, first.resource.as_str()),
        (EventKind::Acquired, "e/0")
    );
    cable.pull_out();
    for n in 1..5 {
        take(n).await;
    }
    cable.plug_in();
    take(5).await;
    for n in 1..6 {
        assert_eq!(event(&mut events).await.resource.as_str(), format!("e/{n}"));
    }
}

/// The next notice, which must be an event: nothing was missed.
async fn event(events: &mut Events) -> Event {
    match events.next().await {
        Some(Ok(Notice::Event { event, .. })) => *event,
        other => panic!("no event: {other:?}"),
    }
}

#[tokio::test]
async fn one_leads_and_all_can_see_who() {
    let server = Server::start();
    let (one, two) = (server.client(), server.client());
    let mut observer = server.client().election("boss").unwrap().observe();
    assert!(observer.next().await.unwrap().unwrap().is_none());
    let first = one
        .election("boss")
        .unwrap()
        .metadata(&serde_json::json!({"at": "one"}))
        .unwrap();
    let first = first.campaign().await.unwrap();
    let seen = observer.next().await.unwrap().unwrap().unwrap();
    assert_eq!(
        (seen.owner, seen.fencing_token),
        (one.owner().clone(), first.fencing_token())
    );
    let second = tokio::spawn({
        let election = two.election("boss").unwrap();
        async move { election.campaign().await }
    });
    while one.waiters("boss").await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let term = first.fencing_token();
    first.resign().await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert!(second.fencing_token() > term);
    loop {
        // There may have been a moment without a leader.
        if let Some(lock) = observer.next().await.unwrap().unwrap() {
            assert_eq!(lock.owner, *two.owner());
            break;
        }
    }
}
