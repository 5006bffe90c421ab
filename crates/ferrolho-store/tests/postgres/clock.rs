//! The clock of the database's host, when it is set and when it runs slow or fast. (Cases: TIM.)

use std::time::Duration;

use ferrolho_core::EventKind;
use ferrolho_testkit::{Postgres, PostgresOptions};
use tokio::time::{Instant, sleep};

use crate::kit::{acquire, find, must, open, told};

/// A server whose clock can be stepped, with an empty database `locks`.
fn stepped() -> Option<Postgres> {
    let options = PostgresOptions {
        false_clock: true,
        ..PostgresOptions::default()
    };
    let server = Postgres::start_with(&options)?;
    server.create_database("locks");
    Some(server)
}

/// The database's clock is stepped, forward and back: no lock is freed by it, and none is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_of_the_clock_change_no_life() {
    let Some(server) = stepped() else { return };
    let (here, there) = (open(&server.url("locks")).await, open(&server.url("locks")).await);
    let long = must(&here, acquire("long", "a", 600)).await;
    for step in [3_600.0, -3_600.0, 0.0] {
        let asked = Instant::now();
        let name = format!("short{step}");
        must(&here, acquire(&name, "a", 8)).await;
        server.set_clock(step);
        let mut was_there_after = Duration::ZERO;
        while find(&there, &name).await.is_some() {
            was_there_after = asked.elapsed();
            assert!(was_there_after < Duration::from_secs(40), "it never ends");
            sleep(Duration::from_millis(20)).await;
        }
        assert!(
            asked.elapsed() >= Duration::from_secs(8),
            "{step}: {was_there_after:?}"
        );
        assert_eq!(
            find(&there, "long").await.unwrap().lock.fencing_token,
            long.lock.fencing_token
        );
        assert_eq!(
            find(&here, "long").await.unwrap().lock.fencing_token,
            long.lock.fencing_token
        );
    }
}

/// Nobody asks for anything while the clock is set back: the store notices by itself, and tells the end in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_is_noticed_while_nobody_asks() {
    let Some(server) = stepped() else { return };
    let store = open(&server.url("locks")).await;
    let mut feed = store.changes();
    let asked = Instant::now();
    must(&store, acquire("r", "a", 8)).await;
    server.set_clock(-3_600.0);
    told(&mut feed, EventKind::Expired, "r").await;
    assert!(asked.elapsed() >= Duration::from_secs(8));
}

/// A clock that is put right little by little, while nobody asks for locks, was not stepped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_slewed_is_followed() {
    let Some(server) = stepped() else { return };
    let store = open(&server.url("locks")).await;
    must(&store, acquire("r", "a", 600)).await;
    for tenths in [4, 8, 12, 16, 20, 16, 12, 8, 4, 0, -4, -8, -12, -16, -20] {
        server.set_clock(f64::from(tenths) / 10.0);
        store.check().await.unwrap();
    }
    find(&store, "r").await.unwrap();
    assert_eq!(server.sql("locks", "SELECT clock_skew FROM ferrolho_commit"), "0");
}
