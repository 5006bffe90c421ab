//! Standbys: never asked, never believed, and taken over from. (Cases: PG 92, 93.)

use ferrolho_store::StoreError;
use ferrolho_testkit::Postgres;
use tokio::time::{Instant, sleep};

use crate::kit::{
    AGAIN, PATIENCE, acquire, attempt, find, look, must, must_remove, open, refusal, release, renew, server,
    until_done,
};

fn set_synchronous(primary: &Postgres, names: &str) {
    let set = format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'");
    primary.sql("postgres", &set);
    primary.sql("postgres", "SELECT pg_reload_conf()");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_its_standby_does_not_confirm_is_not_claimed() {
    let Some(server) = server() else { return };
    let store = open(&server.url("locks")).await;
    let live = must(&store, acquire("r", "a", 600)).await;
    set_synchronous(&server, "nobody");
    // The setting arrives when it does. The first commit that is not answered may have been made.
    let deadline = Instant::now() + PATIENCE;
    let refused = loop {
        if let Err(error) = attempt(&store, renew(&live, 600)).await {
            break error;
        }
        assert!(Instant::now() < deadline);
    };
    assert!(matches!(refused, StoreError::Unknown(_)), "{refused:?}");
    // It holds up those behind it, who are answered in bounded time.
    assert!(attempt(&store, acquire("s", "a", 600)).await.is_err());
    set_synchronous(&server, "");
    until_done(&store, &renew(&live, 600)).await;
}

/// A streaming standby is refused; once it is promoted in the place of a primary that is lost, it has every lock that
/// was answered, and tokens go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_standby_has_every_lock_and_later_tokens() {
    let Some(mut primary) = server() else { return };
    let standby = primary.standby();
    set_synchronous(&primary, "*");
    let deadline = Instant::now() + PATIENCE;
    while primary.sql("postgres", "SELECT sync_state FROM pg_stat_replication") != "sync" {
        assert!(Instant::now() < deadline);
        sleep(AGAIN).await;
    }
    let said = refusal(&standby.url("locks")).await;
    assert!(said.contains("standby") && said.contains("primary"), "{said}");
    let both = format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/locks?target_session_attrs=read-write",
        primary.port(),
        standby.port()
    );
    let store = open(&both).await;
    let held = must(&store, acquire("held", "a", 600)).await;
    let given = must(&store, acquire("given", "a", 600)).await;
    must_remove(&store, release(&given)).await;
    primary.crash();
    assert!(matches!(
        look(&store, "held").await,
        Err(StoreError::Unavailable(_))
    ));
    assert!(attempt(&store, renew(&held, 600)).await.is_err());
    standby.promote();
    let renewed = until_done(&store, &renew(&held, 600)).await;
    assert_eq!(renewed.lock.fencing_token, held.lock.fencing_token);
    let next = must(&store, acquire("given", "b", 600)).await;
    assert!(next.lock.fencing_token > given.lock.fencing_token);
}

/// The primary becomes a standby under the sessions of a server, and a primary again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_primary_becomes_a_standby_claims_nothing_and_recovers() {
    let Some(mut server) = server() else { return };
    let store = open(&server.url("locks")).await;
    let live = must(&store, acquire("r", "a", 600)).await;
    server.demote();
    for _ in 0..3 {
        assert!(matches!(look(&store, "r").await, Err(StoreError::Unavailable(_))));
        assert!(attempt(&store, renew(&live, 600)).await.is_err());
        assert!(attempt(&store, acquire("s", "a", 600)).await.is_err());
        assert!(store.check().await.is_err());
    }
    let said = refusal(&server.url("locks")).await;
    assert!(said.contains("standby"), "{said}");
    server.promote();
    until_done(&store, &renew(&live, 600)).await;
    assert!(find(&store, "s").await.is_none());
}
