//! A machine that is suspended now and then. What a program sleeps and measures by stands still meanwhile, and the
//! clocks of others go on. Here that is so nine tenths of the time: the program's monotonic clock, and no other, runs
//! at a tenth of its speed.

use std::thread;
use std::time::Duration;

use ferrolho_testkit::Postgres;

use crate::support::drowsy;

/// The speed at which it sleeps.
const SPEED: &str = "x0.1";

/// The database's clock, which is awake all the time, is not taken for one that was stepped.
#[test]
fn a_database_that_was_awake_is_believed() {
    let Some(postgres) = Postgres::start() else { return };
    postgres.create_database("locks");
    let Some(server) = drowsy(&postgres.url("locks"), &[], SPEED) else {
        return;
    };
    for round in 0..2 {
        server.acquire("r", "a", 600).granted();
        // Time has to pass: more than the second that is forgiven.
        thread::sleep(Duration::from_secs(2 + round));
    }
    server.acquire("s", "a", 600).granted();
    server.find("r").lock();
    assert_eq!(
        postgres.sql("locks", "SELECT clock_skew FROM ferrolho_commit"),
        "0"
    );
}

/// A lock that was granted before the machine slept ends when it should: the server ends it, and not its lease, which
/// would be 13 s later.
#[cfg(feature = "etcd")]
#[test]
fn a_life_on_etcd_goes_on_while_the_machine_sleeps() {
    let Some(etcd) = ferrolho_testkit::Etcd::start() else {
        return;
    };
    let Some(server) = drowsy(&etcd.url(), &[], SPEED) else {
        return;
    };
    let asked = std::time::Instant::now();
    server.acquire("r", "a", 8).granted();
    while server.find("r").status != 404 {
        assert!(asked.elapsed() < Duration::from_secs(20), "it lives on");
        thread::sleep(Duration::from_millis(50));
    }
    assert!(asked.elapsed() >= Duration::from_secs(8));
}
