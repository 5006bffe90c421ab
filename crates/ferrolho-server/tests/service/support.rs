//! Five lines to add a test: a service in paused time and short words for what callers do.

use std::sync::Arc;
use std::time::Duration;

use ferrolho_core::rules::ReleaseResult;
use ferrolho_core::{Claim, Holder, Lock, Mark, Owner, Resource, Timestamp, Ttl, Wait};
use ferrolho_server::audit::{Audit, Origin};
use ferrolho_server::service::{AcquireRequest, Acquired, Limits, Refusal, ReleaseRequest, Service};
use ferrolho_store::MemoryStore;
use ferrolho_store::clock::{Clock, TokioTime};
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub(crate) fn memory() -> Arc<MemoryStore> {
    let time = TokioTime::starting_at(Timestamp::from_micros(1_800_000_000_000_000));
    Arc::new(MemoryStore::new(Clock::new(Arc::new(time))))
}

pub(crate) fn service() -> Arc<Service> {
    Service::start(memory(), Limits::default(), Audit::default())
}

pub(crate) fn holder(owner: &str) -> Holder {
    Holder {
        owner: Owner::new(owner).unwrap(),
        principal: None,
    }
}

pub(crate) fn resource(name: &str) -> Resource {
    Resource::new(name).unwrap()
}

pub(crate) fn request(owner: &str, resources: &str, ttl: i128, wait: i128) -> AcquireRequest {
    AcquireRequest {
        resources: resources.split(' ').map(resource).collect(),
        holder: holder(owner),
        ttl: Ttl::new(ttl, Ttl::MAX).unwrap(),
        wait: Wait::new(wait).unwrap(),
        metadata: None,
        key: None,
        arrived: Instant::now(),
        origin: Origin::default(),
    }
}

pub(crate) fn keyed(key: &str, mut request: AcquireRequest) -> AcquireRequest {
    request.key = Some(Mark::from_key(key).unwrap());
    request
}

/// What one who asks gets: the locks, or nothing.
pub(crate) fn locks(acquired: Result<Acquired, Refusal>) -> Option<Vec<Lock>> {
    match acquired.unwrap() {
        Acquired::Granted(locks) => Some(locks),
        Acquired::Held { .. } => None,
    }
}

pub(crate) async fn take(service: &Arc<Service>, owner: &str, names: &str, ttl: i128) -> Option<Lock> {
    let acquired = service.acquire(request(owner, names, ttl, 0)).await;
    locks(acquired).map(|mut locks| locks.remove(0))
}

/// A caller that waits in a task of its own, and stands in line when this returns.
pub(crate) async fn stand(
    service: &Arc<Service>,
    request: AcquireRequest,
) -> JoinHandle<Result<Acquired, Refusal>> {
    let before = service.waiting();
    let asking = Arc::clone(service);
    let task = tokio::spawn(async move { asking.acquire(request).await });
    for _ in 0..1_000 {
        if service.waiting() > before || task.is_finished() {
            break;
        }
        tokio::task::yield_now().await;
    }
    task
}

pub(crate) async fn wait(
    service: &Arc<Service>,
    owner: &str,
    names: &str,
    ttl: i128,
    wait: i128,
) -> JoinHandle<Result<Acquired, Refusal>> {
    stand(service, request(owner, names, ttl, wait)).await
}

pub(crate) async fn release(service: &Arc<Service>, owner: &str, name: &str) -> ReleaseResult {
    let released = service.release(ReleaseRequest {
        resource: resource(name),
        claim: Claim {
            holder: holder(owner),
            token: None,
        },
        arrived: Instant::now(),
        origin: Origin::default(),
    });
    released.await.unwrap()
}

pub(crate) async fn owner_of(service: &Arc<Service>, name: &str) -> Option<String> {
    let lock = service.find(&resource(name)).await.unwrap();
    lock.map(|lock| lock.owner.to_string())
}

/// Lets everything that can go on go on, without time passing.
pub(crate) async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// After the places that were kept are over, nothing may be left.
pub(crate) async fn assert_nothing_left(service: &Arc<Service>) {
    tokio::time::sleep(Duration::from_secs(6)).await;
    settle().await;
    assert_eq!(
        service.footprint(),
        0,
        "places, queues, alarms or untold grants are left behind"
    );
    // A grant that was lost sight of is watched for, for a while.
    tokio::time::sleep(Duration::from_mins(1)).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let of_used = tasks();
    let _never_used = self::service();
    assert_eq!(of_used, tasks() - of_used, "tasks are left behind");
}
