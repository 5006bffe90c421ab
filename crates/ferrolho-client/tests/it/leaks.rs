//! 20 000 cycles leave nothing behind.

use std::fs;
use std::time::Duration;

use ferrolho_client::Client;

use crate::fake::Fake;
use crate::{client, request};

const CYCLES: usize = 20_000;

/// Cycles before the first look, in which pools and allocators find their size.
const WARM_UP: usize = 2_000;

#[derive(Debug)]
struct Footprint {
    descriptors: usize,
    threads: usize,
    resident_kib: usize,
}

fn footprint() -> Footprint {
    let count = |path: &str| fs::read_dir(path).unwrap().count();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let resident = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    Footprint {
        descriptors: count("/proc/self/fd"),
        threads: count("/proc/self/task"),
        resident_kib: resident.split_whitespace().nth(1).unwrap().parse().unwrap(),
    }
}

/// One acquire, and one of the ways in which it may end.
async fn cycle(fake: &Fake, client: &Client, n: usize) {
    match n % 3 {
        0 => {
            fake.seize("r", "b", Duration::from_mins(1));
            assert!(request(client, 30).try_acquire().await.unwrap().is_none());
            fake.take_away("r");
        }
        1 => {
            let guard = request(client, 30).acquire().await.unwrap();
            guard.release().await.unwrap();
        }
        _ => {
            drop(request(client, 30).acquire().await.unwrap());
            client.settle().await;
        }
    }
    fake.forget();
}

#[tokio::test]
async fn twenty_thousand_cycles_leave_nothing() {
    let fake = Fake::start();
    let client = client(&fake);
    for n in 0..WARM_UP {
        cycle(&fake, &client, n).await;
    }
    let before = footprint();
    for n in 0..CYCLES {
        cycle(&fake, &client, n).await;
    }
    let after = footprint();
    assert_eq!(fake.holder("r"), None);
    assert!(
        after.descriptors <= before.descriptors + 2,
        "{before:?} {after:?}"
    );
    assert_eq!(after.threads, before.threads, "{before:?} {after:?}");
    assert!(
        after.resident_kib < before.resident_kib + 2048,
        "{before:?} {after:?}"
    );
    drop(client);
    crate::until("its thread ended", || footprint().threads < before.threads).await;
}
