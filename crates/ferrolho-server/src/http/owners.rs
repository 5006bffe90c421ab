//! All that one owner holds: `/owners/{owner}`.

use ferrolho_core::wire::{ReleasedLocks, RenewedLocks};
use ferrolho_core::{Holder, Owner};

use super::call::{Call, allow};
use super::problem::{Code, Problem};
use super::reply::Reply;
use crate::audit::Asked;

/// `POST /owners/{owner}/renew`: one heartbeat for all locks of an owner.
pub(super) async fn renew_owner(call: &mut Call<'_>, name: &str) -> Result<Reply, Problem> {
    let mut form = call.form(&[], &["ttl_seconds"]).await?;
    let owner = form.owner_in_path(name);
    let ttl = form.ttl(call.inner.options.max_ttl);
    let (owner, ttl) = form.finish(owner.zip(ttl))?;
    let holder = holder(call, owner)?;
    let locks = call
        .inner
        .service
        .renew_owner(
            &holder,
            |resource| call.access.may_acquire(resource),
            ttl,
            call.arrived,
        )
        .await?;
    if locks.is_empty() {
        return Err(holds_nothing(&holder));
    }
    Ok(Reply::ok(&RenewedLocks { locks }))
}

/// `DELETE /owners/{owner}`: gives back all locks of an owner.
pub(super) async fn delete_owner(call: &mut Call<'_>, name: &str) -> Result<Reply, Problem> {
    let mut form = call.form(&[], &[]).await?;
    let owner = form.owner_in_path(name);
    let owner = form.finish(owner)?;
    let holder = holder(call, owner)?;
    let released = call
        .inner
        .service
        .release_owner(
            &holder,
            |resource| call.access.may_acquire(resource),
            call.arrived,
            &call.origin(),
        )
        .await?;
    if released.is_empty() {
        return Err(holds_nothing(&holder));
    }
    Ok(Reply::ok(&ReleasedLocks { released }))
}

/// The owner under the caller's principal. Only those of its locks are touched that the caller may acquire.
fn holder(call: &Call<'_>, owner: Owner) -> Result<Holder, Problem> {
    let allowed = allow(call.access.may_acquire_some(), || {
        "renew or release locks".to_owned()
    });
    allowed.map_err(|problem| {
        problem.about(Asked {
            owner: Some(owner.clone()),
            ..Asked::default()
        })
    })?;
    Ok(Holder {
        owner,
        principal: call.principal(),
    })
}

fn holds_nothing(holder: &Holder) -> Problem {
    Problem::new(Code::NotFound, format!("{} holds no lock.", holder.owner))
}
