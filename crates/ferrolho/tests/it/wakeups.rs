//! Who waits at one server is woken because it is told of what happens at another, and not because it looks every now
//! and then: here it looks a thousand times too seldom for that.

use ferrolho_testkit::{PgBouncer, Postgres};

use crate::support::{Server, drowsy};

/// How fast its clock runs by which it looks again. Once a second becomes once in a quarter of an hour.
const SPEED: &str = "x0.001";

fn who_waits_is_told(store: &str, args: &[&str]) {
    let Some(told) = drowsy(store, args, SPEED) else {
        return;
    };
    let other = Server::start_on(store, args, &[]);
    for round in 0..5 {
        let name = format!("r{round}");
        other.acquire(&name, "a", 600).granted();
        let mut waiting = told.wait_for(&name, "b", 600, 300);
        told.until_waiting(&name, 1);
        other.release(&name, "a").done();
        let lock = waiting.answer().granted();
        assert_eq!(other.find(&name).lock(), lock);
    }
}

#[test]
fn over_postgres() {
    let Some(postgres) = Postgres::start() else { return };
    postgres.create_database("locks");
    who_waits_is_told(&postgres.url("locks"), &[]);
}

#[test]
fn over_postgres_past_a_pooler() {
    let Some(postgres) = Postgres::start() else { return };
    postgres.create_database("locks");
    let Some(pooler) = PgBouncer::start(&postgres, 8) else {
        return;
    };
    let through = postgres.url_at(pooler.port(), "locks");
    who_waits_is_told(&through, &["--store-listen", &postgres.url("locks")]);
}

#[cfg(feature = "etcd")]
#[test]
fn over_etcd() {
    let Some(etcd) = ferrolho_testkit::Etcd::start() else {
        return;
    };
    who_waits_is_told(&etcd.url(), &[]);
}
