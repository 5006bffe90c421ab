//! A pooler in transaction mode between ferrolho and its database. (Cases: PG.)

use std::sync::Arc;
use std::time::Duration;

use ferrolho_core::EventKind;
use ferrolho_store::Store;
use ferrolho_store::postgres::PostgresStore;
use ferrolho_testkit::PgBouncer;
use tokio::time::Instant;

use crate::kit::{PATIENCE, acquire, config, find, gap, must, must_remove, open, release, server, told};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_works_through_a_pooler_and_hears_past_it() {
    let Some(server) = server() else { return };
    let Some(pooler) = PgBouncer::start(&server, 3) else {
        return;
    };
    let url = server.url_at(pooler.port(), "locks");
    let mut direct = config(&url);
    direct.listen_over(&config(&server.url("locks")));
    let here: Arc<dyn Store> = Arc::new(PostgresStore::open(&direct).await.unwrap());
    let deaf = open(&url).await;
    let (mut feed, mut gaps) = (here.changes(), deaf.changes());
    for round in 0..50 {
        let name = format!("r{round}");
        let live = must(&deaf, acquire(&name, "a", 600)).await;
        assert_eq!(find(&here, &name).await.unwrap().lock, live.lock);
        told(&mut feed, EventKind::Acquired, &name).await;
        must_remove(&here, release(&live)).await;
    }
    // Who cannot listen learns that it has missed something.
    gap(&mut gaps).await;
}

/// Without a direct connection nothing is heard, and it is never believed that anything were.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_pooler_alone_it_looks_every_second_and_knows_that_it_is_deaf() {
    let Some(server) = server() else { return };
    let Some(pooler) = PgBouncer::start(&server, 3) else {
        return;
    };
    let direct = open(&server.url("locks")).await;
    let deaf = open(&server.url_at(pooler.port(), "locks")).await;
    let mut feed = deaf.changes();
    let mut soonest = PATIENCE;
    for round in 0..4 {
        let warnings = deaf.check().await.unwrap().warnings;
        assert!(
            warnings.iter().any(|said| said.contains("not heard")),
            "{warnings:?}"
        );
        let done = Instant::now();
        must(&direct, acquire(&format!("r{round}"), "a", 600)).await;
        gap(&mut feed).await;
        soonest = soonest.min(done.elapsed());
    }
    assert!(soonest < Duration::from_secs(2), "{soonest:?}");
    let warnings = direct.check().await.unwrap().warnings;
    assert_eq!(warnings, Vec::<String>::new());
}
