//! The starters start what they say, and their servers can be broken and mended.

use ferrolho_testkit::{PgBouncer, Postgres, PostgresOptions};

#[test]
fn a_server_keeps_what_is_committed_over_a_crash() {
    let Some(mut server) = Postgres::start() else {
        return;
    };
    server.create_database("one");
    server.sql("one", "CREATE TABLE t AS SELECT 7 AS n");
    server.crash();
    server.boot();
    assert_eq!(server.sql("one", "SELECT n FROM t"), "7");
    assert!(server.log().contains("ready to accept connections"));
}

#[test]
fn a_false_clock_can_be_stepped_both_ways() {
    let options = PostgresOptions {
        false_clock: true,
        ..PostgresOptions::default()
    };
    let Some(server) = Postgres::start_with(&options) else {
        return;
    };
    let clock = || -> f64 {
        let text = server.sql("postgres", "SELECT extract(epoch FROM clock_timestamp())");
        text.parse().unwrap()
    };
    let before = clock();
    server.set_clock(3600.0);
    let forward = clock() - before;
    assert!((3600.0..3660.0).contains(&forward), "{forward}");
    server.set_clock(-3600.0);
    let back = clock() - before;
    assert!((-3600.0..-3540.0).contains(&back), "{back}");
}

#[test]
fn a_pooler_serves_its_server() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let Some(pooler) = PgBouncer::start(&server, 2) else {
        return;
    };
    let output = std::process::Command::new("psql")
        .args(["--no-psqlrc", "-At", "-c", "SELECT 1"])
        .arg(server.url_at(pooler.port(), "postgres"))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n");
}
