//! Waiting for one lock. (Cases: WAI.)

use std::time::Duration;

use ferrolho_core::rules::ReleaseResult;
use ferrolho_server::audit::Audit;
use ferrolho_server::service::{Acquired, Limits, Refusal, Service};
use tokio::time::{Instant, sleep, timeout};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn two_hundred_get_their_turn_in_order_of_arrival() {
    let service = service();
    take(&service, "a", "r", 60).await.unwrap();
    let mut tasks = Vec::new();
    for n in 0..200 {
        tasks.push(wait(&service, &format!("w{n}"), "r", 60, 300).await);
    }
    let mut owner = "a".to_owned();
    let mut token = 0;
    for (n, task) in tasks.into_iter().enumerate() {
        assert_eq!(release(&service, &owner, "r").await, ReleaseResult::Released);
        let lock = locks(task.await.unwrap()).unwrap().remove(0);
        owner = format!("w{n}");
        assert_eq!(lock.owner.as_str(), owner);
        assert!(lock.fencing_token.get() > token);
        token = lock.fencing_token.get();
    }
    assert_eq!(release(&service, &owner, "r").await, ReleaseResult::Released);
    assert_nothing_left(&service).await;
}

#[tokio::test(start_paused = true)]
async fn expiry_wakes_as_release_does_and_the_ttl_runs_from_the_grant() {
    let service = service();
    take(&service, "a", "r", 2).await.unwrap();
    let start = Instant::now();
    let waiting = wait(&service, "b", "r", 3, 10).await;
    let lock = locks(waiting.await.unwrap()).unwrap().remove(0);
    assert!(
        (2_000..2_100).contains(&start.elapsed().as_millis()),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(lock.expires_at.since(lock.acquired_at), Duration::from_secs(3));
    sleep(Duration::from_millis(2_900)).await;
    assert_eq!(owner_of(&service, "r").await.as_deref(), Some("b"));
    sleep(Duration::from_millis(200)).await;
    assert_eq!(owner_of(&service, "r").await, None);
    assert_nothing_left(&service).await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_at_its_time_and_says_how_long_the_holder_has() {
    let service = service();
    take(&service, "a", "r", 60).await.unwrap();
    for seconds in [1, 2, 7] {
        let start = Instant::now();
        let answer = service.acquire(request("b", "r", 5, seconds)).await.unwrap();
        assert_eq!(start.elapsed().as_secs(), u64::try_from(seconds).unwrap());
        let Acquired::Held {
            resources,
            retry_after,
        } = answer
        else {
            panic!("granted over a live lock");
        };
        assert_eq!(resources, [resource("r")]);
        assert!(retry_after > Duration::from_secs(40), "{retry_after:?}");
    }
    assert_nothing_left(&service).await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_hung_up_is_passed_over() {
    let service = service();
    take(&service, "a", "r", 60).await.unwrap();
    let gone = wait(&service, "b", "r", 60, 30).await;
    gone.abort();
    settle().await;
    assert_eq!(service.waiting(), 0);
    assert_eq!(release(&service, "a", "r").await, ReleaseResult::Released);
    assert_eq!(take(&service, "c", "r", 1).await.unwrap().owner.as_str(), "c");
    assert_nothing_left(&service).await;
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_its_caller_does_not_live_to_see_goes_to_the_next() {
    let service = service();
    take(&service, "a", "r", 60).await.unwrap();
    let mut gone = Box::pin(service.acquire(request("b", "r", 60, 30)));
    assert!(timeout(Duration::from_millis(1), &mut gone).await.is_err());
    let next = wait(&service, "c", "r", 60, 30).await;
    // The grant is in the caller's hands, unread, when it hangs up.
    assert_eq!(release(&service, "a", "r").await, ReleaseResult::Released);
    assert_eq!(owner_of(&service, "r").await.as_deref(), Some("b"));
    drop(gone);
    assert_eq!(locks(next.await.unwrap()).unwrap()[0].owner.as_str(), "c");
    release(&service, "c", "r").await;
    assert_nothing_left(&service).await;
}

#[tokio::test(start_paused = true)]
async fn who_returns_within_five_seconds_finds_the_place_again() {
    for (away, first) in [(4_900, "b"), (5_100, "c")] {
        let service = service();
        take(&service, "a", "r", 100).await.unwrap();
        let leaving = wait(&service, "b", "r", 9, 1).await;
        sleep(Duration::from_millis(10)).await;
        let other = wait(&service, "c", "r", 9, 100).await;
        assert_eq!(locks(leaving.await.unwrap()), None);
        sleep(Duration::from_millis(away)).await;
        let back = wait(&service, "b", "r", 9, 100).await;
        release(&service, "a", "r").await;
        settle().await;
        assert_eq!(
            owner_of(&service, "r").await.as_deref(),
            Some(first),
            "away for {away} ms"
        );
        other.abort();
        back.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_that_is_away_is_never_waited_for() {
    let service = service();
    take(&service, "a", "r", 100).await.unwrap();
    let away = wait(&service, "b", "r", 9, 30).await;
    away.abort();
    settle().await;
    release(&service, "a", "r").await;
    assert_eq!(take(&service, "c", "r", 9).await.unwrap().owner.as_str(), "c");
}

#[tokio::test(start_paused = true)]
async fn newcomers_do_not_overtake() {
    let service = service();
    take(&service, "a", "r", 2).await.unwrap();
    let first = wait(&service, "b", "r", 60, 30).await;
    // At every moment around the end of the lock somebody new tries.
    for _ in 0..400 {
        sleep(Duration::from_millis(10)).await;
        assert_eq!(take(&service, "new", "r", 60).await, None);
        if first.is_finished() {
            break;
        }
    }
    assert_eq!(locks(first.await.unwrap()).unwrap()[0].owner.as_str(), "b");
}

#[tokio::test(start_paused = true)]
async fn requests_of_one_owner_share_the_oldest_place_and_the_newest_is_granted() {
    let service = service();
    take(&service, "a", "r", 60).await.unwrap();
    let old = wait(&service, "b", "r", 10, 30).await;
    let other = wait(&service, "c", "r", 10, 30).await;
    let new = wait(&service, "b", "r", 20, 30).await;
    assert_eq!(service.waiters(&resource("r")).len(), 2);
    release(&service, "a", "r").await;
    let lock = locks(new.await.unwrap()).unwrap().remove(0);
    assert_eq!(lock.expires_at.since(lock.acquired_at), Duration::from_secs(20));
    assert_eq!(locks(old.await.unwrap()), None);
    release(&service, "b", "r").await;
    assert!(locks(other.await.unwrap()).is_some());
    release(&service, "c", "r").await;
    assert_nothing_left(&service).await;
}

#[tokio::test(start_paused = true)]
async fn the_holder_itself_never_waits() {
    let service = service();
    let first = take(&service, "a", "r", 60).await.unwrap();
    let _waiting = wait(&service, "b", "r", 60, 30).await;
    let start = Instant::now();
    let again = locks(service.acquire(request("a", "r", 60, 20)).await)
        .unwrap()
        .remove(0);
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert!(again.fencing_token > first.fencing_token);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_shortens_wakes_the_waiter_at_the_new_end() {
    let service = service();
    take(&service, "a", "r", 600).await.unwrap();
    let start = Instant::now();
    let waiting = wait(&service, "b", "r", 60, 30).await;
    assert_eq!(take(&service, "a", "r", 3).await.unwrap().owner.as_str(), "a");
    assert!(locks(waiting.await.unwrap()).is_some());
    assert!(
        start.elapsed() < Duration::from_millis(3_100),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn limits_refuse_by_name() {
    let limits = Limits {
        waiters: 3,
        waiters_per_resource: 2,
        ..Limits::default()
    };
    let service = Service::start(memory(), limits, Audit::default());
    take(&service, "a", "r s t", 60).await.unwrap();
    let _waiting = [
        wait(&service, "b", "r", 1, 30).await,
        wait(&service, "b", "r", 1, 30).await,
    ];
    let named = |answer: Result<Acquired, Refusal>| match answer {
        Err(Refusal::TooManyWaiters(limit)) => limit.limit,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        named(service.acquire(request("c", "r", 1, 30)).await),
        "max-waiters-per-resource"
    );
    let _more = wait(&service, "c", "s", 1, 30).await;
    assert_eq!(
        named(service.acquire(request("d", "t", 1, 30)).await),
        "max-waiters"
    );
    assert_eq!(
        take(&service, "d", "t", 1).await,
        None,
        "who does not wait is answered as ever"
    );
}

#[tokio::test(start_paused = true)]
async fn at_the_end_waiters_are_told_and_releases_go_on() {
    let service = service();
    take(&service, "a", "r", 60).await.unwrap();
    let waiting = wait(&service, "b", "r", 60, 30).await;
    service.shut_down();
    assert_eq!(waiting.await.unwrap(), Err(Refusal::ShuttingDown));
    assert_eq!(
        service.acquire(request("c", "x", 1, 0)).await,
        Err(Refusal::ShuttingDown)
    );
    assert_eq!(release(&service, "a", "r").await, ReleaseResult::Released);
    assert_nothing_left(&service).await;
}

#[tokio::test(start_paused = true)]
async fn a_repeat_by_key_is_answered_with_the_same_grant() {
    let service = service();
    let first = locks(service.acquire(keyed("k1", request("a", "r", 60, 0))).await).unwrap();
    sleep(Duration::from_secs(1)).await;
    let again = locks(service.acquire(keyed("k1", request("a", "r", 60, 5))).await).unwrap();
    assert_eq!(first, again);
    let other = locks(service.acquire(keyed("k2", request("a", "r", 60, 0))).await).unwrap();
    assert!(other[0].fencing_token > first[0].fencing_token);
    assert_eq!(
        locks(service.acquire(keyed("k1", request("b", "r", 60, 0))).await),
        None
    );
    release(&service, "a", "r").await;
    assert_nothing_left(&service).await;
}

#[tokio::test(start_paused = true)]
async fn random_hang_ups_expiries_and_releases_leave_nothing_behind() {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let service = service();
    let mut tasks = Vec::new();
    for n in 0..3_000 {
        let name = ["r", "s", "t", "r s", "s t r"][random.random_range(0..5)];
        let owner = format!("o{}", random.random_range(0..20));
        let task = wait(
            &service,
            &owner,
            name,
            random.random_range(1..4),
            random.random_range(0..8),
        )
        .await;
        if random.random_bool(0.3) {
            task.abort();
        }
        tasks.push(task);
        if random.random_bool(0.5) {
            sleep(Duration::from_millis(random.random_range(0..300))).await;
        }
        if n % 3 == 0
            && let Some(owner) = owner_of(&service, "s").await
        {
            release(&service, &owner, "s").await;
        }
    }
    for task in tasks {
        let _ = task.await;
    }
    assert_nothing_left(&service).await;
    assert_eq!(service.waiting(), 0);
}
