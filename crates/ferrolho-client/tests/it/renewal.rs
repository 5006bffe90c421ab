//! Renewal: on time, through hiccups, never after the release, and a loss is stated before anybody else can hold.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ferrolho_client::{BootClock, Client, Clock, Error, Loss, Moment, WorkError};

use crate::fake::{Act, Fake, Fault, problem_body};
use crate::{client, client_of, request, until};

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[tokio::test]
async fn nothing_is_renewed_after_the_release() {
    let fake = Fake::start();
    let guard = request(&client(&fake), 1).acquire().await.unwrap();
    fake.fault(Act::Renew, 100, Fault::DelayAnswer(millis(1500)));
    until("a renewal is under way", || !fake.seen(Act::Renew).is_empty()).await;
    guard.release().await.unwrap();
    let renewals = fake.seen(Act::Renew).len();
    assert_eq!(fake.holder("r"), None);
    tokio::time::sleep(millis(1500)).await;
    assert_eq!(fake.seen(Act::Renew).len(), renewals);
    assert_eq!(fake.holder("r"), None);
}

#[tokio::test]
async fn a_dropped_guard_is_released_in_the_background() {
    let fake = Fake::start();
    let client = client(&fake);
    let guard = request(&client, 600).acquire().await.unwrap();
    drop(guard);
    client.settle().await;
    assert_eq!(fake.holder("r"), None);
    assert_eq!(fake.seen(Act::Release).len(), 1);
}

#[test]
fn a_guard_outlives_its_runtime_and_is_released_after_it() {
    let fake = Fake::start();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let guard = runtime.block_on(request(&client(&fake), 1).acquire()).unwrap();
    drop(runtime);
    thread::sleep(millis(1500));
    assert!(guard.is_held());
    drop(guard);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(until("released", || fake.holder("r").is_none()));
}

#[tokio::test]
async fn an_acquire_that_is_given_up_leaves_no_lock() {
    let fake = Fake::start();
    let client = client(&fake);
    fake.fault(Act::Acquire, 1, Fault::DelayAnswer(Duration::from_secs(30)));
    let acquiring = tokio::spawn({
        let request = request(&client, 600);
        async move { request.acquire().await }
    });
    until("it was granted", || fake.holder("r").is_some()).await;
    acquiring.abort();
    until("it was given back", || fake.holder("r").is_none()).await;
    client.settle().await;
    assert_eq!(fake.seen(Act::Release).len(), 1);
}

#[tokio::test]
async fn one_hiccup_is_no_loss() {
    let fake = Fake::start();
    let guard = request(&client(&fake), 3).acquire().await.unwrap();
    fake.fault(
        Act::Renew,
        1,
        Fault::Answer(503, problem_body(503, "unavailable")),
    );
    fake.fault(Act::Renew, 1, Fault::Swallow);
    fake.fault(Act::Renew, 1, Fault::DropAnswer);
    until("three hiccups and two good renewals", || {
        fake.seen(Act::Renew).len() >= 5
    })
    .await;
    assert!(guard.is_held());
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    assert!(
        fake.seen(Act::Renew)
            .iter()
            .all(|seen| seen.body["fencing_token"] == token.get())
    );
}

#[tokio::test]
async fn a_refused_renewal_is_a_loss_at_once() {
    for (status, body) in [(403, "forbidden"), (404, "not-found")] {
        let fake = Fake::start();
        let guard = request(&client(&fake), 3).acquire().await.unwrap();
        let lost = guard.lost_token();
        fake.fault(Act::Renew, 1, Fault::Answer(status, problem_body(status, body)));
        assert_eq!(guard.lost().await, Loss::Taken);
        assert!(lost.is_cancelled());
        assert_eq!(guard.check(), Err(Loss::Taken));
        assert_eq!(fake.seen(Act::Renew).len(), 1);
        assert!(matches!(guard.release().await, Err(Error::Lost(Loss::Taken))));
        assert!(
            fake.seen(Act::Release).is_empty(),
            "there is nothing to give back"
        );
    }
}

#[tokio::test]
async fn a_lock_that_was_taken_away_is_noticed_at_the_release_too() {
    let fake = Fake::start();
    let guard = request(&client(&fake), 600).acquire().await.unwrap();
    fake.seize("r", "b", Duration::from_mins(1));
    assert!(matches!(guard.release().await, Err(Error::Lost(Loss::Taken))));
    assert_eq!(fake.holder("r").unwrap().0, "b");
}

/// The witness: a holder that is cut off, or faces a frozen server, stops believing before another can hold.
#[tokio::test]
async fn belief_and_another_grant_never_overlap() {
    for ttl in [1, 2] {
        let fake = Fake::start();
        let holder = client(&fake);
        let guard = request(&holder, ttl).acquire().await.unwrap();
        fake.cut_off(holder.owner().as_str());
        let lease = guard.lease();
        let watching = thread::spawn(move || {
            let mut last = Instant::now();
            // The time is taken before the look: what is believed at `last` was believed then.
            loop {
                let now = Instant::now();
                if !lease.is_held() {
                    return last;
                }
                last = now;
                thread::sleep(Duration::from_micros(200));
            }
        });
        let signalled = tokio::spawn({
            let lease = guard.lease();
            async move {
                let loss = lease.lost().await;
                (Instant::now(), loss)
            }
        });
        let other = client_of(&fake, "b");
        let taken = request(&other, 30)
            .wait(Duration::from_secs(10))
            .acquire()
            .await
            .unwrap();
        let believed_until = watching.join().unwrap();
        let (signalled_at, loss) = signalled.await.unwrap();
        let granted = fake
            .happened()
            .into_iter()
            .find(|event| event.owner == "b")
            .unwrap();
        assert!(believed_until < granted.at);
        assert!(signalled_at < granted.at);
        assert_eq!(loss, Loss::NotRenewed);
        assert!(granted.token > guard.fencing_token().get());
        assert!(guard.token_if_held().is_err());
        taken.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_frozen_server_is_a_loss_in_time() {
    let fake = Fake::start();
    let before = Instant::now();
    let guard = request(&client(&fake), 2).acquire().await.unwrap();
    fake.freeze();
    guard.until_left(millis(500)).await;
    assert!(guard.is_held(), "there was time to stop");
    assert_eq!(guard.lost().await, Loss::NotRenewed);
    assert!(before.elapsed() < Duration::from_secs(2));
    assert_eq!(guard.remaining(), Duration::ZERO);
    fake.thaw();
}

#[tokio::test(flavor = "current_thread")]
async fn work_that_blocks_its_thread_keeps_its_lock() {
    let fake = Fake::start();
    let result: Result<_, WorkError<()>> = request(&client(&fake), 1)
        .with_lock(async |guard| {
            thread::sleep(Duration::from_secs(2));
            Ok(guard.is_held())
        })
        .await;
    assert!(result.unwrap());
    assert!(fake.seen(Act::Renew).len() >= 3);
    assert_eq!(fake.happened().len(), 2, "granted once, released once");
}

#[tokio::test(flavor = "current_thread")]
async fn work_that_blocked_through_a_loss_is_not_accepted() {
    let fake = Fake::start();
    fake.fault(Act::Renew, usize::MAX, Fault::Swallow);
    let result: Result<(), WorkError<()>> = request(&client(&fake), 1)
        .with_lock(async |_| {
            thread::sleep(millis(1500));
            Ok(())
        })
        .await;
    assert!(matches!(result, Err(WorkError::Lost(Loss::NotRenewed))));
}

#[tokio::test]
async fn work_is_stopped_when_the_lock_is_lost() {
    struct OnDrop(Arc<Mutex<bool>>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            *self.0.lock().unwrap() = true;
        }
    }
    let fake = Fake::start();
    let stopped = Arc::new(Mutex::new(false));
    fake.fault(Act::Renew, 1, Fault::Answer(404, String::new()));
    let result: Result<(), WorkError<()>> = request(&client(&fake), 1)
        .with_lock(async |_| {
            let _on_drop = OnDrop(Arc::clone(&stopped));
            std::future::pending().await
        })
        .await;
    assert!(matches!(result, Err(WorkError::Lost(Loss::Taken))));
    assert!(*stopped.lock().unwrap());
}

#[tokio::test]
async fn the_works_own_error_comes_first() {
    let fake = Fake::start();
    fake.fault(
        Act::Release,
        usize::MAX,
        Fault::Answer(503, problem_body(503, "unavailable")),
    );
    let result: Result<(), _> = request(&client(&fake), 30).with_lock(async |_| Err("E")).await;
    assert!(matches!(result, Err(WorkError::Work("E"))));
}

#[tokio::test]
async fn a_slow_renewal_does_not_hold_up_the_work() {
    let fake = Fake::start();
    fake.fault(Act::Renew, 1, Fault::DelayAnswer(Duration::from_secs(30)));
    let mut steps = 0;
    let result: Result<(), WorkError<()>> = request(&client(&fake), 1)
        .with_lock(async |guard| {
            for _ in 0..30 {
                tokio::time::sleep(millis(50)).await;
                steps += 1;
            }
            assert!(guard.is_held());
            Ok(())
        })
        .await;
    assert!(result.is_ok());
    assert_eq!(steps, 30);
}

#[tokio::test]
async fn renewals_keep_to_a_third_and_drift_apart() {
    let fake = Fake::start();
    let mut guards = Vec::new();
    for n in 0..20 {
        let request = client(&fake).lock(&format!("r{n}")).unwrap();
        guards.push(
            request
                .ttl(Duration::from_secs(3))
                .unwrap()
                .acquire()
                .await
                .unwrap(),
        );
    }
    until("four beats each", || fake.seen(Act::Renew).len() >= 80).await;
    assert!(guards.iter().all(|guard| guard.is_held()));
    let seen = fake.seen(Act::Renew);
    let mut fourth = Vec::new();
    for guard in &guards {
        let token = guard.fencing_token().get();
        let at: Vec<Instant> = seen
            .iter()
            .filter(|s| s.body["fencing_token"] == token)
            .map(|s| s.at)
            .collect();
        for pair in at.windows(2) {
            // The arrival jitters with the machine; what is sent is never nearer than a third.
            assert!(pair[1] - pair[0] > millis(900), "{:?}", pair[1] - pair[0]);
        }
        fourth.extend(at.get(3).copied());
    }
    let spread = *fourth.iter().max().unwrap() - *fourth.iter().min().unwrap();
    assert!(spread > millis(20), "{spread:?}");
}

#[tokio::test]
async fn the_guard_shows_the_latest_end_and_the_same_token() {
    let fake = Fake::start();
    let guard = request(&client(&fake), 1).acquire().await.unwrap();
    let token = guard.fencing_token();
    until("five renewals", || fake.seen(Act::Renew).len() >= 6).await;
    assert!(guard.remaining() > millis(300), "{:?}", guard.remaining());
    assert_eq!(guard.token_if_held(), Ok(token));
    assert_eq!(fake.holder("r").unwrap().1, token.get());
}

/// The machine's clock, which a test can push on as a sleeping machine would find it.
#[derive(Clone, Debug, Default)]
struct Sleeper(Arc<Mutex<Duration>>);

impl Clock for Sleeper {
    fn now(&self) -> Moment {
        BootClock.now().plus(*self.0.lock().unwrap())
    }
}

#[tokio::test]
async fn a_machine_that_slept_knows_it_at_the_first_look() {
    let fake = Fake::start();
    let clock = Sleeper::default();
    let builder = Client::builder()
        .url(&fake.url())
        .unwrap()
        .clock(Arc::new(clock.clone()));
    let guard = request(&builder.build().unwrap(), 60).acquire().await.unwrap();
    assert!(guard.is_held());
    *clock.0.lock().unwrap() += Duration::from_mins(10);
    assert!(!guard.is_held());
    assert_eq!(guard.lost().await, Loss::NotRenewed);
}

#[tokio::test]
async fn a_machine_that_slept_is_told_without_looking() {
    let fake = Fake::start();
    let clock = Sleeper::default();
    let builder = Client::builder()
        .url(&fake.url())
        .unwrap()
        .clock(Arc::new(clock.clone()));
    let guard = request(&builder.build().unwrap(), 60).acquire().await.unwrap();
    *clock.0.lock().unwrap() += Duration::from_mins(10);
    // The timer behind it would not fire for 20 s.
    let lost = tokio::time::timeout(Duration::from_secs(5), guard.lost()).await;
    assert_eq!(lost, Ok(Loss::NotRenewed));
}
