//! TLS to the database: who is taken for it, and who is not.

use ferrolho_testkit::{Authority, Postgres, PostgresOptions};
use tokio::time::{Instant, sleep};

use crate::kit::{AGAIN, PATIENCE, acquire, must, open, refusal, server};

/// A server that shows a certificate for this host.
fn secured(authority: &Authority, host: &str) -> Option<Postgres> {
    let options = PostgresOptions {
        tls: Some(authority.sign("database", &[host])),
        ..PostgresOptions::default()
    };
    let server = Postgres::start_with(&options)?;
    server.create_database("locks");
    Some(server)
}

fn url(server: &Postgres, mode: &str, root: Option<&Authority>) -> String {
    let root = root.map_or_else(String::new, |root| {
        format!("&sslrootcert={}", root.file().display())
    });
    format!("{}?sslmode={mode}{root}", server.url("locks"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_session_is_as_secret_as_it_was_asked_to_be() {
    let authority = Authority::new();
    let Some(server) = secured(&authority, "127.0.0.1") else {
        return;
    };
    for (mode, root, is_secret) in [
        ("require", None, "t"),
        ("require", Some(&authority), "t"),
        ("verify-ca", Some(&authority), "t"),
        ("verify-full", Some(&authority), "t"),
        ("prefer", None, "t"),
        ("disable", None, "f"),
    ] {
        let store = open(&url(&server, mode, root)).await;
        must(&store, acquire(&format!("{mode} {}", root.is_some()), "a", 600)).await;
        let sessions = "SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                        WHERE application_name = 'ferrolho'";
        assert_eq!(server.sql("locks", sessions), is_secret, "{mode}");
        store.close().await;
        drop(store);
        // The next round looks at its own sessions only.
        let deadline = Instant::now() + PATIENCE;
        while server.terminate_sessions("locks", "ferrolho") > 0 {
            assert!(Instant::now() < deadline);
            sleep(AGAIN).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_not_known_is_refused_before_anything_is_said() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let Some(right) = secured(&authority, "127.0.0.1") else {
        return;
    };
    for mode in ["require", "verify-ca", "verify-full"] {
        let said = refusal(&url(&right, mode, Some(&stranger))).await;
        assert!(said.contains("certificate"), "{mode}: {said}");
    }
    let Some(other) = secured(&authority, "db.example") else {
        return;
    };
    let said = refusal(&url(&other, "verify-full", Some(&authority))).await;
    assert!(said.contains("certificate"), "{said}");
    // Signed is enough for this mode, whatever the name.
    must(
        &open(&url(&other, "verify-ca", Some(&authority))).await,
        acquire("r", "a", 600),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_tls_is_refused_where_it_was_asked_for() {
    let authority = Authority::new();
    let Some(plain) = server() else { return };
    for (mode, root) in [("require", None), ("verify-full", Some(&authority))] {
        let said = refusal(&url(&plain, mode, root)).await;
        assert!(said.contains("TLS"), "{mode}: {said}");
    }
    must(&open(&url(&plain, "prefer", None)).await, acquire("r", "a", 600)).await;
}
