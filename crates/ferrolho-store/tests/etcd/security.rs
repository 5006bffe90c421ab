//! TLS, client certificates, user and password.

use std::path::Path;

use ferrolho_store::StoreError;
use ferrolho_store::etcd::EtcdStore;
use ferrolho_testkit::{Authority, Certificate, Etcd, EtcdOptions, EtcdTls};
use tokio::time::{Instant, sleep};

use crate::kit::{
    PATIENCE, acquire, attempt, config, find, must, must_remove, open_url, release, renew, until_it_answers,
};

fn parameters(authority: &Path, own: Option<&Certificate>) -> String {
    let authority = authority.display();
    match own {
        None => format!("?tls_ca={authority}"),
        Some(own) => format!(
            "?tls_ca={authority}&tls_cert={}&tls_key={}",
            own.certificate.display(),
            own.key.display()
        ),
    }
}

async fn refusal(url: &str) -> String {
    EtcdStore::open(&config(url))
        .await
        .err()
        .expect("it must not open")
        .to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_show_certificates() {
    let authority = Authority::new();
    let server = authority.sign("etcd", &["127.0.0.1", "etcd.internal"]);
    let options = EtcdOptions {
        tls: Some(EtcdTls {
            authority: authority.file(),
            certificate: server.certificate.clone(),
            key: server.key.clone(),
        }),
        ..EtcdOptions::default()
    };
    let Some(etcd) = Etcd::start_with(1, &options) else {
        return;
    };
    let own = authority.sign("ferrolho", &[]);
    let right = format!("{}{}", etcd.url(), parameters(&authority.file(), Some(&own)));
    for url in [right.clone(), format!("{right}&tls_name=etcd.internal")] {
        let store = open_url(&url).await;
        let live = must(&store, acquire("r", "a", 60)).await;
        let renewed = must(&store, renew(&live, 60)).await;
        must_remove(&store, release(&renewed)).await;
        store.check().await.unwrap();
    }
    let stranger = Authority::new();
    let strange = stranger.sign("stranger", &[]);
    for wrong in [
        etcd.url(),
        format!("{}{}", etcd.url(), parameters(&authority.file(), None)),
        format!("{}{}", etcd.url(), parameters(&authority.file(), Some(&strange))),
        format!("{}{}", etcd.url(), parameters(&stranger.file(), Some(&own))),
        format!("{right}&tls_name=other.internal"),
    ] {
        let refused = refusal(&wrong).await;
        assert!(refused.contains("cannot be used"), "{wrong}: {refused}");
    }
    let missing = format!("{}{}", etcd.url(), parameters(Path::new("/no/such.pem"), None));
    assert!(refusal(&missing).await.contains("/no/such.pem"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_signs_in_and_stays_signed_in() {
    let Some(mut etcd) = Etcd::start() else { return };
    for arguments in [
        "user add root:rootword",
        "role add locks",
        "role grant-permission locks --prefix=true readwrite ferrolho/",
        "user add fer@olho:pass:word@1",
        "user grant-role fer@olho locks",
        "user grant-role root root",
        "auth enable",
    ] {
        etcd.control(&arguments.split(' ').collect::<Vec<_>>());
    }
    let url = |user: &str| etcd.url().replace("etcd://", &format!("etcd://{user}@"));
    let store = open_url(&url("fer%40olho:pass%3Aword%401")).await;
    let live = must(&store, acquire("r", "a", 600)).await;
    store.check().await.unwrap();
    for wrong in [url("fer%40olho:other"), url("nobody:pass"), etcd.url()] {
        let refused = refusal(&wrong).await;
        assert!(
            !refused.contains("other") && !refused.contains("pass:"),
            "{refused}"
        );
    }
    let root = |arguments: &str| {
        let arguments: Vec<_> = ["--user", "root:rootword"]
            .into_iter()
            .chain(arguments.split(' '))
            .collect();
        etcd.control(&arguments)
    };
    // Rights that are taken away and given back.
    root("role revoke-permission locks --prefix=true ferrolho/");
    let refused = attempt(&store, renew(&live, 600)).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    root("role grant-permission locks --prefix=true readwrite ferrolho/");
    until_it_answers(&store).await;
    must(&store, renew(&live, 600)).await;
    // A member that was started anew knows nobody: the store signs in again by itself.
    etcd.kill(0);
    etcd.boot(0);
    until_it_answers(&store).await;
    assert_eq!(
        find(&store, "r").await.unwrap().lock.fencing_token,
        live.lock.fencing_token
    );
    let give_up = Instant::now() + PATIENCE;
    while !store.check().await.is_ok_and(|health| health.warnings.is_empty()) {
        assert!(Instant::now() < give_up, "the watch does not come back");
        sleep(std::time::Duration::from_millis(20)).await;
    }
    must_remove(&store, release(&live)).await;
}
