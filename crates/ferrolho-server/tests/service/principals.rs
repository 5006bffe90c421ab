//! A limit on the locks of a principal, on two servers of one store.

use ferrolho_core::Principal;
use ferrolho_server::audit::Audit;
use ferrolho_server::service::{AcquireRequest, Acquired, Limits, Refusal, Service};

use crate::support::{memory, request, settle, stand};

fn of(principal: &str, names: &str, wait: i128) -> AcquireRequest {
    let mut request = request("o", names, 60, wait);
    request.holder.principal = Some(Principal::new(principal).unwrap());
    request
}

fn is_refused(answer: &Result<Acquired, Refusal>) -> bool {
    if let Err(Refusal::LimitReached(limit)) = answer {
        assert_eq!((limit.limit, limit.value), ("max-locks-per-principal", 2));
        return true;
    }
    assert!(matches!(answer, Ok(Acquired::Granted(_))), "{answer:?}");
    false
}

#[tokio::test(start_paused = true)]
async fn the_limit_is_one_for_all_servers_and_counts_who_waits() {
    let store = memory();
    let limits = Limits {
        locks_per_principal: Some(2),
        ..Limits::default()
    };
    let one = Service::start(store.clone(), limits, Audit::default());
    settle().await;
    assert!(!is_refused(&one.acquire(of("p", "a", 0)).await));
    assert!(!is_refused(&one.acquire(of("q", "b", 0)).await));
    // This one begins when there are locks already.
    let two = Service::start(store, limits, Audit::default());
    settle().await;
    let waiting = stand(&two, of("p", "b", 30)).await;
    assert!(is_refused(&two.acquire(of("p", "c", 0)).await));
    assert!(
        is_refused(&two.acquire(of("p", "c", 30)).await),
        "it does not wait"
    );
    assert!(
        !is_refused(&two.acquire(of("p", "a", 0)).await),
        "it has it already"
    );
    // Who leaves asks for nothing any more.
    waiting.abort();
    settle().await;
    assert!(!is_refused(&two.acquire(of("p", "c", 0)).await));
    settle().await;
    assert!(
        is_refused(&one.acquire(of("p", "d", 0)).await),
        "the other knows it"
    );
    // All of it ends by itself.
    tokio::time::sleep(std::time::Duration::from_secs(61)).await;
    settle().await;
    assert!(!is_refused(&one.acquire(of("p", "d e", 0)).await));
}
