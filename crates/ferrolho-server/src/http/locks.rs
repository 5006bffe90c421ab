//! One lock: `/locks/{resource}` and what is below it.

use ferrolho_core::rules::ReleaseResult;
use ferrolho_core::wire::{AcquireAnswer, EventList, PastEvent, Waiter, WaiterList};
use ferrolho_core::{Claim, Event, Lock, Resource};

use super::call::{Call, allow};
use super::problem::{Code, Problem, whole_seconds};
use super::reply::Reply;
use crate::audit::Asked;
use crate::service::{AcquireRequest, Acquired, ForceRequest, ReleaseRequest, RenewRequest, Renewal};

const ACQUIRE_KEYS: [&str; 4] = ["owner", "ttl_seconds", "wait_seconds", "metadata"];
const RELEASE_KEYS: [&str; 2] = ["owner", "fencing_token"];

/// `POST /locks/{resource}`: acquires it.
pub(super) async fn post_lock(call: &mut Call<'_>, name: &str) -> Result<Reply, Problem> {
    let mut form = call.form(&["fail_if_held"], &ACQUIRE_KEYS).await?;
    let resource = form.resource(name);
    let holder = form.holder(call.principal());
    let ttl = form.ttl(call.inner.options.max_ttl);
    let wait = form.wait();
    let metadata = form.metadata();
    let key = call.key(&mut form);
    let fail_if_held = form.flag("fail_if_held");
    let (resource, holder, ttl) = form.finish((|| Some((resource?, holder?, ttl?)))())?;
    call.needs_acquire(&resource, &holder.owner)?;
    let request = AcquireRequest {
        resources: vec![resource.clone()],
        holder,
        ttl,
        wait,
        metadata,
        key,
        arrived: call.arrived,
        origin: call.origin(),
    };
    let (service, hurried) = call.let_go();
    match service.acquire_unless(hurried, request).await? {
        Acquired::Granted(mut locks) => Ok(Reply::ok(&AcquireAnswer {
            acquired: true,
            lock: locks.pop(),
            resource: None,
        })),
        Acquired::Held { retry_after, .. } if fail_if_held => Err(Problem::held(
            format!("Another owner holds {resource}."),
            retry_after,
        )),
        Acquired::Held { retry_after, .. } => {
            let mut reply = Reply::ok(&AcquireAnswer {
                acquired: false,
                lock: None,
                resource: Some(resource),
            });
            reply.retry_after = Some(whole_seconds(retry_after));
            Ok(reply)
        }
    }
}

/// `GET /locks/{resource}`: the live lock.
pub(super) async fn get_lock(call: &Call<'_>, name: &str) -> Result<Reply, Problem> {
    let resource = resource_only(call, name)?;
    let lock: Option<Lock> = call.inner.service.find(&resource).await?;
    lock.map(|lock| Reply::ok(&lock))
        .ok_or_else(|| not_found(&resource))
}

/// `DELETE /locks/{resource}` and `POST /locks/{resource}/release`: gives it back.
pub(super) async fn delete_lock(call: &mut Call<'_>, name: &str) -> Result<Reply, Problem> {
    let mut form = call.form(&RELEASE_KEYS, &RELEASE_KEYS).await?;
    let resource = form.resource(name);
    let claim = form.claim(call.principal());
    let (resource, claim) = form.finish(resource.zip(claim))?;
    call.needs_acquire(&resource, &claim.holder.owner)?;
    let request = ReleaseRequest {
        resource: resource.clone(),
        claim: claim.clone(),
        arrived: call.arrived,
        origin: call.origin(),
    };
    match call.inner.service.release(request).await? {
        ReleaseResult::Released => Ok(Reply::no_content()),
        ReleaseResult::NotFound => Err(not_found(&resource)),
        ReleaseResult::Forbidden => Err(forbidden(&resource, &claim)),
    }
}

/// `POST /locks/{resource}/renew`: moves its end.
pub(super) async fn renew_lock(call: &mut Call<'_>, name: &str) -> Result<Reply, Problem> {
    let mut form = call.form(&[], &["owner", "ttl_seconds", "fencing_token"]).await?;
    let resource = form.resource(name);
    let claim = form.claim(call.principal());
    let ttl = form.ttl(call.inner.options.max_ttl);
    let (resource, claim, ttl) = form.finish((|| Some((resource?, claim?, ttl?)))())?;
    call.needs_acquire(&resource, &claim.holder.owner)?;
    let request = RenewRequest {
        resource: resource.clone(),
        claim: claim.clone(),
        ttl,
        arrived: call.arrived,
    };
    match call.inner.service.renew(request).await? {
        Renewal::Renewed(lock) => Ok(Reply::ok(&lock)),
        Renewal::NotFound => Err(not_found(&resource)),
        Renewal::Forbidden => Err(forbidden(&resource, &claim)),
    }
}

/// `POST /locks/{resource}/force-release`: takes it away, by an administrator.
pub(super) async fn force_release_lock(call: &mut Call<'_>, name: &str) -> Result<Reply, Problem> {
    let mut form = call.form(&[], &["reason", "fencing_token"]).await?;
    let resource = form.resource(name);
    let reason = form.reason();
    let token = form.token();
    let (resource, reason) = form.finish(resource.zip(reason))?;
    if call.inner.options.auth.is_off() {
        return Err(Problem::new(
            Code::NotPermitted,
            "Taking a lock away needs an admin token, and this server runs without authentication.",
        ));
    }
    allow(call.access.may_force(&resource), || {
        format!("take {resource} away")
    })?;
    let request = ForceRequest {
        resource: resource.clone(),
        token,
        reason,
        arrived: call.arrived,
        origin: call.origin(),
    };
    match call.inner.service.force_release(request).await? {
        ReleaseResult::Released => Ok(Reply::no_content()),
        ReleaseResult::NotFound => Err(not_found(&resource)),
        ReleaseResult::Forbidden => Err(Problem::new(
            Code::Forbidden,
            format!("{resource} is held by another grant than the one that was to be taken away."),
        )),
    }
}

/// `GET /locks/{resource}/waiters`: who waits for it here, in order.
pub(super) fn get_waiters(call: &Call<'_>, name: &str) -> Result<Reply, Problem> {
    let resource = resource_only(call, name)?;
    let waiters = call
        .inner
        .service
        .waiters(&resource)
        .into_iter()
        .map(|waiting| Waiter {
            owner: waiting.holder.owner,
            since: waiting.since,
            wait_seconds: waiting.wait.seconds(),
        });
    Ok(Reply::ok(&WaiterList {
        waiters: waiters.collect(),
    }))
}

/// `GET /locks/{resource}/events`: what happened to it of late, as far as this server remembers.
pub(super) fn get_lock_events(call: &Call<'_>, name: &str) -> Result<Reply, Problem> {
    let resource = resource_only(call, name)?;
    let events = call.inner.service.history(&resource);
    Ok(Reply::ok(&EventList {
        events: events
            .iter()
            .map(|event| PastEvent {
                id: event.position.to_string(),
                event: Event::clone(event),
            })
            .collect(),
    }))
}

/// The lock that a request to look at it names, if the caller may see it.
fn resource_only(call: &Call<'_>, name: &str) -> Result<Resource, Problem> {
    let mut form = call.query(&[])?;
    let resource = form.resource(name);
    let resource = form.finish(resource)?;
    call.needs_read(&resource)?;
    Ok(resource)
}

fn not_found(resource: &Resource) -> Problem {
    Problem::new(
        Code::NotFound,
        format!("Nobody holds {resource}; a lock that has expired belongs to nobody."),
    )
}

fn forbidden(resource: &Resource, claim: &Claim) -> Problem {
    Problem::new(
        Code::Forbidden,
        format!("{resource} is held by another owner, or by another grant."),
    )
    .about(Asked {
        resource: Some(resource.clone()),
        owner: Some(claim.holder.owner.clone()),
        token: claim.token,
    })
}
