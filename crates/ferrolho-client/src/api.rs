//! The calls of the HTTP interface, typed and repeated where that is safe.
//!
//! Each call here may be repeated without harm: reading is free, and a renewal or a release that names its grant
//! changes nothing the second time. So a call without an answer is made again, by each server in turn. Acquiring
//! has its own way (`acquire.rs`).

use std::time::Duration;

use ferrolho_core::wire::{LockList, ReleaseBody, RenewBody, RenewedLocks, WaiterList};
use ferrolho_core::{FencingToken, Lock, Owner, Resource, Ttl};
use rand::Rng;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::Error;
use crate::call::encode;
use crate::transport::{Call, Failure, Reply, Transport};

/// How often each server is asked, at least, before a call is given up.
pub(crate) const ROUNDS: usize = 2;

/// The pause between two rounds; up to as much again is added, so that many clients do not ask in step.
const ROUND_PAUSE: Duration = Duration::from_millis(100);

/// How long a release is tried at least: a server that restarts is back by then.
const RELEASE_PATIENCE: Duration = Duration::from_secs(3);

/// An answer, after perhaps several attempts.
pub(crate) struct Answered {
    pub(crate) reply: Reply,
    /// An attempt before this one had no answer and may have been carried out.
    pub(crate) after_doubt: bool,
}

/// What happened to a lock that was to be renewed.
#[derive(Debug)]
pub(crate) enum Renewal {
    /// It has its whole lifetime again.
    Renewed(Box<Lock>),
    /// This grant is over.
    Over,
}

/// Asks until a server answers: each at least [`ROUNDS`] times, and for at least as long as `patience`. Only for
/// what is safe to repeat.
async fn ask(transport: &Transport, call: &Call, patience: Duration) -> Result<Answered, Error> {
    let begun = Instant::now();
    let mut after_doubt = false;
    let mut asked = 0;
    loop {
        match transport.send(call, transport.request_timeout()).await {
            Ok(reply) => return Ok(Answered { reply, after_doubt }),
            Err(failure) => {
                after_doubt |= failure.may_be_done;
                asked += 1;
                if asked >= ROUNDS * transport.server_count() && begun.elapsed() >= patience {
                    return Err(Error::Unreachable(failure.what));
                }
            }
        }
        if asked % transport.server_count() == 0 {
            tokio::time::sleep(about(ROUND_PAUSE)).await;
        }
    }
}

/// A span between one and two times this one.
pub(crate) fn about(span: Duration) -> Duration {
    span.mul_f64(rand::rng().random_range(1.0..2.0))
}

/// Asks for a value that a 200 carries.
pub(crate) async fn fetch<T: DeserializeOwned>(transport: &Transport, call: &Call) -> Result<T, Error> {
    let reply = ask(transport, call, Duration::ZERO).await?.reply;
    if reply.status != 200 {
        return Err(reply.refusal());
    }
    reply.parse().map_err(|failure| Error::Protocol(failure.what))
}

/// One attempt to renew one grant.
pub(crate) async fn renew_once(
    transport: &Transport,
    resource: &Resource,
    body: &RenewBody,
    timeout: Duration,
) -> Result<Renewal, Failure> {
    let reply = transport.send(&Call::renew(resource, body), timeout).await?;
    match reply.status.as_u16() {
        200 => {
            let lock: Lock = reply.parse()?;
            let ours = lock.resource == *resource
                && lock.owner == body.owner
                && body.fencing_token.is_none_or(|token| token == lock.fencing_token);
            if ours {
                Ok(Renewal::Renewed(Box::new(lock)))
            } else {
                Err(Failure::unclear("an answer about another lock"))
            }
        }
        // Whatever the body says: whoever is refused here cannot prove any more that it holds the lock.
        403 | 404 => Ok(Renewal::Over),
        _ => Err(Failure::unclear(reply.refusal().to_string())),
    }
}

/// One attempt to renew all that an owner holds; the locks that were renewed.
pub(crate) async fn renew_owner_once(
    transport: &Transport,
    owner: &Owner,
    ttl: Ttl,
    timeout: Duration,
) -> Result<Vec<Lock>, Failure> {
    let reply = transport.send(&Call::renew_owner(owner, ttl), timeout).await?;
    match reply.status.as_u16() {
        200 => Ok(reply.parse::<RenewedLocks>()?.locks),
        403 | 404 => Ok(Vec::new()),
        _ => Err(Failure::unclear(reply.refusal().to_string())),
    }
}

/// Gives back a grant, or whatever grant the owner has when no token is named.
///
/// That it is gone when it was asked for the second time is what was wanted.
pub(crate) async fn release(
    transport: &Transport,
    resource: &Resource,
    owner: &Owner,
    token: Option<FencingToken>,
) -> Result<(), Error> {
    let body = ReleaseBody {
        owner: owner.clone(),
        fencing_token: token,
    };
    let answered = ask(transport, &Call::release(resource, &body), RELEASE_PATIENCE).await?;
    match answered.reply.status.as_u16() {
        200 | 204 => Ok(()),
        _ => match answered.reply.refusal() {
            Error::NotFound | Error::NotOwner if answered.after_doubt => Ok(()),
            error => Err(error),
        },
    }
}

/// The lock on a resource, if there is one.
pub(crate) async fn find(transport: &Transport, resource: &Resource) -> Result<Option<Lock>, Error> {
    let call = Call::get(format!("/locks/{}", encode(resource.as_str())));
    match fetch(transport, &call).await {
        Ok(lock) => Ok(Some(lock)),
        Err(Error::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A page of live locks.
pub(crate) async fn list(transport: &Transport, query: &ListQuery) -> Result<LockList, Error> {
    let mut target = format!("/locks?limit={}", query.limit);
    let mut add = |key: &str, value: &str| {
        target.extend(["&", key, "=", &encode(value)]);
    };
    if !query.prefix.is_empty() {
        add("prefix", &query.prefix);
    }
    if let Some(owner) = &query.owner {
        add("owner", owner.as_str());
    }
    if let Some(cursor) = &query.cursor {
        add("cursor", cursor);
    }
    fetch(transport, &Call::get(target)).await
}

/// Who waits for a lock on the server that answers.
pub(crate) async fn waiters(transport: &Transport, resource: &Resource) -> Result<WaiterList, Error> {
    fetch(
        transport,
        &Call::get(format!("/locks/{}/waiters", encode(resource.as_str()))),
    )
    .await
}

/// What a server that is ready to work says of itself.
pub(crate) async fn ready(transport: &Transport) -> Result<String, Error> {
    let reply = ask(transport, &Call::get("/readyz"), Duration::ZERO).await?.reply;
    if reply.status != 200 {
        return Err(reply.refusal());
    }
    Ok(String::from_utf8_lossy(&reply.body).into_owned())
}

/// Which locks a list should hold, and where it goes on.
#[derive(Clone, Debug)]
pub struct ListQuery {
    /// Only resources that begin with this.
    pub prefix: String,
    /// Only locks of this owner.
    pub owner: Option<Owner>,
    /// At most so many, 1 to 1000.
    pub limit: u32,
    /// `next_cursor` of the page before.
    pub cursor: Option<String>,
}

impl Default for ListQuery {
    fn default() -> Self {
        Self {
            prefix: String::new(),
            owner: None,
            limit: 1000,
            cursor: None,
        }
    }
}
