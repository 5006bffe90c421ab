//! Waiting: the lock the moment it is free, a place that is left at once, other servers, and one at a time in one
//! program too.

use std::time::{Duration, Instant};

use ferrolho_client::{Client, Error, Patience};

use crate::fake::{Act, Fake, Fault};
use crate::{client, client_of, request, until};

#[tokio::test]
async fn a_grant_after_a_wait_is_renewed_once_before_it_is_handed_over() {
    let fake = Fake::start();
    fake.seize("r", "b", Duration::from_secs(1));
    let guard = request(&client(&fake), 30)
        .wait(Duration::from_secs(5))
        .acquire()
        .await
        .unwrap();
    assert_eq!(fake.seen(Act::Acquire).len(), 1);
    assert_eq!(fake.seen(Act::Renew).len(), 1);
    assert!(guard.remaining() > Duration::from_secs(29));
}

#[tokio::test]
async fn a_wait_ends_on_time_and_one_try_is_one_try() {
    let fake = Fake::start();
    fake.seize("r", "b", Duration::from_mins(1));
    let client = client(&fake);
    let begun = Instant::now();
    assert!(request(&client, 1).try_acquire().await.unwrap().is_none());
    assert!(begun.elapsed() < Duration::from_millis(500));
    assert_eq!(fake.seen(Act::Acquire).len(), 1);
    let held = request(&client, 1).wait(Duration::from_secs(1)).acquire().await;
    assert!(matches!(held, Err(Error::Held { .. })));
    assert!(begun.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn a_wait_outlives_a_server_that_is_away() {
    let fake = Fake::start();
    fake.fault(Act::Acquire, 3, Fault::DropRequest);
    let guard = request(&client(&fake), 30)
        .patience(Patience::Forever)
        .acquire()
        .await
        .unwrap();
    assert_eq!(fake.seen(Act::Acquire).len(), 4);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn who_stops_waiting_leaves_no_place_and_no_lock() {
    let fake = Fake::start();
    fake.seize("r", "b", Duration::from_mins(1));
    let client = client(&fake);
    let waiting = tokio::spawn({
        let request = request(&client, 600).patience(Patience::Forever);
        async move { request.acquire().await }
    });
    until("it waits", || fake.waiting("r") == 1).await;
    waiting.abort();
    until("it left", || fake.waiting("r") == 0).await;
    fake.take_away("r");
    client.settle().await;
    assert_eq!(fake.holder("r"), None);
}

#[tokio::test]
async fn the_next_server_is_asked_when_one_is_away() {
    let (dead, alive) = (Fake::start(), Fake::start());
    let urls = format!("{},{}", dead.url(), alive.url());
    let client = Client::builder()
        .url(&urls)
        .unwrap()
        .request_timeout(Duration::from_millis(300))
        .build()
        .unwrap();
    dead.freeze();
    let guard = request(&client, 2).acquire().await.unwrap();
    assert_eq!(client.current_server(), alive.url());
    // Both work on one store; here the second answers for both.
    alive.fault(Act::Renew, 1, Fault::Swallow);
    until("it came back to the living one", || {
        alive.seen(Act::Renew).len() >= 2
    })
    .await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn two_tasks_of_one_client_get_it_one_after_the_other() {
    let fake = Fake::start();
    let client = client(&fake);
    let first = request(&client, 30).acquire().await.unwrap();
    assert!(request(&client, 30).try_acquire().await.unwrap().is_none());
    let second = tokio::spawn({
        let request = request(&client, 30).wait(Duration::from_secs(10));
        async move { request.acquire().await }
    });
    tokio::task::yield_now().await;
    assert!(first.is_held());
    let token = first.fencing_token();
    first.release().await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert!(second.fencing_token() > token);
}

#[tokio::test]
async fn clients_are_different_owners() {
    let fake = Fake::start();
    let (one, two) = (client(&fake), client(&fake));
    assert_ne!(one.owner(), two.owner());
    let guard = request(&one, 30).acquire().await.unwrap();
    assert!(request(&two, 30).try_acquire().await.unwrap().is_none());
    let lock = guard.detach();
    assert_eq!(
        one.find("r").await.unwrap().unwrap().fencing_token,
        lock.fencing_token
    );
    one.release("r", Some(lock.fencing_token)).await.unwrap();
    assert!(matches!(one.release("r", None).await, Err(Error::NotFound)));
    let _b = request(&client_of(&fake, "b"), 30).acquire().await.unwrap();
    assert!(matches!(one.release("r", None).await, Err(Error::NotOwner)));
}

#[tokio::test]
async fn a_set_comes_whole_or_not_at_all() {
    let fake = Fake::start();
    let client = client(&fake);
    fake.seize("b", "other", Duration::from_mins(1));
    let set = client
        .lock_all(["c", "a", "b"])
        .unwrap()
        .metadata(&serde_json::json!({"x": 1}))
        .unwrap();
    let Err(Error::Held { resources, .. }) = set.acquire().await else {
        panic!("one of them is held");
    };
    assert_eq!(resources.len(), 1);
    assert_eq!(fake.holder("a"), None);
    fake.take_away("b");
    let guard = set.acquire().await.unwrap();
    let names: Vec<String> = guard.leases().map(|lease| lease.resource().to_string()).collect();
    assert_eq!(names, ["c", "a", "b"]);
    assert!(guard.is_held());
    assert!(client.lock("a").unwrap().try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    assert_eq!(
        (fake.holder("a"), fake.holder("b"), fake.holder("c")),
        (None, None, None)
    );
    for wrong in [vec![], vec!["a", "a"], vec!["."]] {
        assert!(matches!(client.lock_all(wrong), Err(Error::Invalid(_))));
    }
}
