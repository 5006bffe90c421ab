//! How it starts: on empty databases by many at once, on the seed's table, and where it may not.

use ferrolho_core::FencingToken;
use ferrolho_store::{FeedItem, Lift, StoreUrl, lift_tokens};
use ferrolho_testkit::{Postgres, PostgresOptions};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::kit::{PATIENCE, acquire, attempt, find, must, open, refusal, renew, server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_number_of_servers_start_at_once() {
    let Some(server) = server() else { return };
    let url = server.url("locks");
    let mut starting = JoinSet::new();
    for n in 0..8 {
        let url = url.clone();
        starting.spawn(async move {
            let store = open(&url).await;
            must(&store, acquire(&format!("r{n}"), "a", 600))
                .await
                .lock
                .fencing_token
        });
    }
    let mut tokens = starting.join_all().await;
    tokens.sort();
    tokens.dedup();
    assert_eq!(tokens.len(), 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_seeds_table_is_taken_over_with_its_live_locks() {
    let Some(server) = server() else { return };
    server.sql(
        "locks",
        "CREATE TABLE distributed_locks (id serial PRIMARY KEY, resource text NOT NULL UNIQUE, owner text NOT NULL,
            expires_at timestamp NOT NULL, acquired_at timestamp NOT NULL)",
    );
    server.sql(
        "locks",
        "INSERT INTO distributed_locks (resource, owner, expires_at, acquired_at) VALUES
            ('live', 'a', now() AT TIME ZONE 'utc' + interval '1 hour', now() AT TIME ZONE 'utc'),
            ('dead', 'b', now() AT TIME ZONE 'utc' - interval '1 hour', now() AT TIME ZONE 'utc' - interval '2 hours')",
    );
    let store = open(&server.url("locks")).await;
    let live = find(&store, "live").await.unwrap();
    assert_eq!(live.lock.owner.as_str(), "a");
    assert!(
        live.left.as_secs() > 3_500 && live.left.as_secs() <= 3_600,
        "{:?}",
        live.left
    );
    assert!(find(&store, "dead").await.is_none());
    let taken = must(&store, acquire("dead", "c", 600)).await;
    assert!(taken.lock.fencing_token > live.lock.fencing_token);
    assert!(attempt(&store, acquire("live", "c", 600)).await.unwrap().is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_it_cannot_work_it_says_why() {
    let Some(server) = server() else { return };
    server.sql(
        "postgres",
        "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0",
    );
    let said = refusal(&server.url("latin")).await;
    assert!(said.contains("LATIN1") && said.contains("UTF8"), "{said}");
    server.sql("postgres", "CREATE ROLE poor LOGIN");
    server.sql("locks", "REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    let poor = server.url("locks").replace("postgres@", "poor:sEcReT@");
    let said = refusal(&poor).await;
    assert!(said.contains("CREATE on the schema public"), "{said}");
    let said = refusal(&server.url("nowhere")).await;
    assert!(said.contains("nowhere"), "{said}");
    let said = refusal("postgres://a:sEcReT@127.0.0.1:1/d").await;
    assert!(said.contains("cannot be used"), "{said}");
    // A newer version's tables are left alone.
    let store = open(&server.url("locks")).await;
    store.close().await;
    server.sql("locks", "UPDATE ferrolho_commit SET version = 99");
    let said = refusal(&server.url("locks")).await;
    assert!(said.contains("99") && said.contains("newer"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn once_the_tables_are_there_less_is_needed() {
    let Some(server) = server() else { return };
    open(&server.url("locks")).await.close().await;
    server.sql("postgres", "CREATE ROLE worker LOGIN");
    server.sql(
        "locks",
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC;
         GRANT SELECT, INSERT, UPDATE, DELETE ON distributed_locks, ferrolho_commit TO worker",
    );
    let store = open(&server.url("locks").replace("postgres@", "worker@")).await;
    must(&store, acquire("r", "a", 600)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_that_was_made_for_it_needs_no_right_on_the_database() {
    let Some(server) = server() else { return };
    server.sql(
        "locks",
        "CREATE ROLE app LOGIN; CREATE SCHEMA ours; GRANT CREATE, USAGE ON SCHEMA ours TO app",
    );
    let app = server.url("locks").replace("postgres@", "app:sEcReT@");
    let store = open(&format!("{app}?schema=ours")).await;
    must(&store, acquire("r", "a", 600)).await;
    let said = refusal(&format!("{app}?schema=missing")).await;
    assert!(said.contains("CREATE on the schema missing"), "{said}");
}

/// A database that servers of another version have set up and work with: this one makes its own functions, however
/// many start at once, and leaves the others' alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_of_two_versions_live_side_by_side() {
    let Some(server) = server() else { return };
    let url = server.url("locks");
    let before = open(&url).await;
    let live = must(&before, acquire("r", "a", 600)).await;
    before.close().await;
    server.sql(
        "locks",
        "DO $$ DECLARE f regprocedure; BEGIN
            FOR f IN SELECT oid FROM pg_proc WHERE proname LIKE 'ferrolho\\_%' LOOP
                EXECUTE 'DROP FUNCTION ' || f || ' CASCADE';
            END LOOP;
         END $$",
    );
    server.sql(
        "locks",
        "CREATE FUNCTION ferrolho_apply_v1() RETURNS text LANGUAGE sql RETURN 'of old'",
    );
    let mut starting = JoinSet::new();
    for _ in 0..4 {
        let url = url.clone();
        starting.spawn(async move { open(&url).await });
    }
    for store in starting.join_all().await {
        let found = find(&store, "r").await.unwrap();
        assert_eq!(found.lock.fencing_token, live.lock.fencing_token);
        must(&store, renew(&live, 600)).await;
    }
    assert_eq!(server.sql("locks", "SELECT ferrolho_apply_v1()"), "of old");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_of_somebody_else_is_refused_and_left_as_it_was() {
    let Some(server) = server() else { return };
    let seed = "id bigint, resource text %, owner text, expires_at timestamp, acquired_at timestamp";
    for (columns, why) in [
        ("lock_name text PRIMARY KEY, holder text".to_owned(), "\"id\""),
        (seed.replace('%', ""), "not unique"),
        (
            seed.replace('%', "UNIQUE") + ", tenant text NOT NULL",
            "further columns",
        ),
    ] {
        let make =
            format!("DROP TABLE IF EXISTS distributed_locks; CREATE TABLE distributed_locks ({columns})");
        server.sql("locks", &make);
        let said = refusal(&server.url("locks")).await;
        assert!(said.contains("distributed_locks") && said.contains(why), "{said}");
        let left = "SELECT count(*) FROM pg_class WHERE relname LIKE 'ferrolho%'";
        assert_eq!(server.sql("locks", left), "0");
    }
    // Beside it there is room.
    let store = open(&format!("{}?schema=ours", server.url("locks"))).await;
    must(&store, acquire("r", "a", 600)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_of_its_own_and_odd_settings_of_the_server_change_nothing() {
    let options = PostgresOptions {
        settings: vec![
            "timezone = 'Pacific/Chatham'".to_owned(),
            "datestyle = 'SQL, DMY'".to_owned(),
            "intervalstyle = 'iso_8601'".to_owned(),
            "default_transaction_isolation = 'repeatable read'".to_owned(),
            "synchronous_commit = off".to_owned(),
        ],
        ..PostgresOptions::default()
    };
    let Some(server) = Postgres::start_with(&options) else {
        return;
    };
    server.create_database("locks");
    let ours = open(&format!("{}?schema=ours", server.url("locks"))).await;
    let theirs = open(&format!("{}?schema=theirs", server.url("locks"))).await;
    let live = must(&ours, acquire("r", "a", 600)).await;
    assert!(live.left.as_secs() >= 599);
    assert_eq!(live.lock.expires_at.since(live.lock.acquired_at).as_secs(), 600);
    must(&theirs, acquire("r", "b", 600)).await;
    assert_eq!(find(&ours, "r").await.unwrap().lock, live.lock);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lifted_tokens_are_above_all_that_were_given_out() {
    let Some(server) = server() else { return };
    let url: StoreUrl = server.url("locks").parse().unwrap();
    let store = open(&server.url("locks")).await;
    let before = must(&store, acquire("held", "a", 600)).await;
    let last = before.lock.fencing_token.get();
    let mut feed = store.changes();
    assert_eq!(lift_tokens(&url, Lift::By(1_000)).await.unwrap(), last + 1_000);
    let next = must(&store, acquire("next", "a", 600)).await.lock.fencing_token;
    assert_eq!(next.get(), last + 1_001);
    // Above what it is above already: nothing to do.
    assert_eq!(lift_tokens(&url, Lift::Above(next)).await.unwrap(), next.get());
    assert_eq!(find(&store, "held").await.unwrap().lock, before.lock);
    // Who reads events is told that this is another history.
    let told = async { while !matches!(feed.next().await, Some(FeedItem::Gap)) {} };
    timeout(PATIENCE, told).await.unwrap();
    // No token is beyond what a token may be, by however much they are lifted.
    let highest = FencingToken::MAX.get();
    assert_eq!(lift_tokens(&url, Lift::By(u64::MAX)).await.unwrap(), highest);
}
