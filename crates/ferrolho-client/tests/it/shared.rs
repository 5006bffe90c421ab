//! One heartbeat for many guards.

use std::time::Duration;

use ferrolho_client::{Client, Loss, Ttl};

use crate::fake::{Act, Fake, Fault};
use crate::until;

fn client(fake: &Fake) -> Client {
    let ttl = Ttl::new(1, Ttl::MAX).unwrap();
    Client::builder()
        .url(&fake.url())
        .unwrap()
        .one_heartbeat(ttl)
        .build()
        .unwrap()
}

#[tokio::test]
async fn one_request_renews_them_all() {
    let fake = Fake::start();
    let client = client(&fake);
    let mut guards = Vec::new();
    for n in 0..50 {
        guards.push(client.lock(&format!("r{n}")).unwrap().acquire().await.unwrap());
    }
    let before = fake.seen(Act::RenewOwner).len();
    until("three beats", || fake.seen(Act::RenewOwner).len() >= before + 3).await;
    assert!(guards.iter().all(|guard| guard.is_held()));
    assert!(fake.seen(Act::Renew).is_empty());
    for guard in guards {
        guard.release().await.unwrap();
    }
    let beats = fake.seen(Act::RenewOwner).len();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(
        fake.seen(Act::RenewOwner).len(),
        beats,
        "nothing to renew, no beat"
    );
}

#[tokio::test]
async fn each_lock_is_lost_on_its_own() {
    let fake = Fake::start();
    let client = client(&fake);
    let stays = client.lock("stays").unwrap().acquire().await.unwrap();
    let goes = client.lock("goes").unwrap().acquire().await.unwrap();
    fake.seize("goes", "b", Duration::from_mins(1));
    assert_eq!(goes.lost().await, Loss::Taken);
    assert!(stays.is_held());
    fake.fault(Act::RenewOwner, usize::MAX, Fault::Swallow);
    assert_eq!(stays.lost().await, Loss::NotRenewed);
}

#[tokio::test]
async fn what_no_guard_has_is_not_kept_alive() {
    let fake = Fake::start();
    let client = client(&fake);
    let _kept = client.lock("kept").unwrap().acquire().await.unwrap();
    fake.seize("ghost", client.owner().as_str(), Duration::from_mins(10));
    until("the ghost is gone", || fake.holder("ghost").is_none()).await;
    assert!(fake.holder("kept").is_some());
}
