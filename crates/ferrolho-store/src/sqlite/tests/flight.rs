//! Reading while a commit is on its way to the disk.

use super::*;
use crate::clock::SteppedTime;

fn start() -> Timestamp {
    Timestamp::from_micros(1_800_000_000_000_000)
}

async fn reached(at_the_gate: std::sync::mpsc::Receiver<()>) {
    tokio::task::spawn_blocking(move || at_the_gate.recv())
        .await
        .unwrap()
        .unwrap();
}

/// A renewal decided just before the end of the lock, and a read just after it: the read waits, since the lock
/// is over only if the commit fails.
async fn read_across_the_end(fault: Fault) -> (Option<Live>, Result<Outcome, StoreError>) {
    let time = SteppedTime::starting_at(start());
    let failing = Failing::with(time.clone(), |_| {});
    let live = failing.must(acquire("r", "a", 1)).await.unwrap();
    let other = failing.must(acquire("other", "a", 60)).await.unwrap();
    time.advance(Duration::from_millis(999));
    let (at_the_gate, open) = failing.faults.hold_next_commit();
    let store = Arc::clone(&failing.store);
    let attempt = Attempt {
        changes: vec![renew(&live, 60)],
        not_after: Instant::now() + PATIENCE,
    };
    let renewing = tokio::spawn(async move { store.apply(attempt).await });
    reached(at_the_gate).await;
    time.advance(Duration::from_millis(2));

    // What lives is answered at once, and so is what it refuses.
    assert_eq!(failing.find("other").await.unwrap().unwrap().lock, other.lock);
    let refused = failing.apply(acquire("other", "b", 60)).await.unwrap();
    assert!(matches!(refused, Outcome::Stale(_)));

    let store = Arc::clone(&failing.store);
    let reading = tokio::spawn(async move { store.find(&live.lock.resource).await });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!reading.is_finished(), "it must wait for the commit");
    failing.faults.set(fault);
    open.send(()).unwrap();
    let renewed = renewing.await.unwrap();
    failing.faults.set(Fault::None);
    (reading.await.unwrap().unwrap(), renewed)
}

#[tokio::test]
async fn a_read_of_a_lock_just_over_waits_for_the_renewal_that_was_in_time() {
    let (found, renewed) = read_across_the_end(Fault::None).await;
    let Ok(Outcome::Applied(made)) = renewed else {
        panic!("{renewed:?}")
    };
    assert_eq!(found.unwrap().lock, made[0].as_ref().unwrap().lock);
}

#[tokio::test]
async fn a_read_of_a_lock_just_over_says_so_when_the_renewal_failed() {
    let (found, renewed) = read_across_the_end(Fault::CommitUndone).await;
    assert!(matches!(renewed, Err(StoreError::Unknown(_))), "{renewed:?}");
    assert_eq!(found, None);
}
