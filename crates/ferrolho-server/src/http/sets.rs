//! Many locks: `/locks`.

use ferrolho_core::wire::{AcquireSetAnswer, Line, LineList, LockList};
use ferrolho_core::{Invalid, Owner, Resource};
use ferrolho_store::{ListQuery, Page};

use super::call::{Call, allow};
use super::problem::{Problem, whole_seconds};
use super::reply::Reply;
use crate::auth::Pattern;
use crate::service::{AcquireRequest, Acquired, Refusal, Service};

const ACQUIRE_KEYS: [&str; 5] = ["resources", "owner", "ttl_seconds", "wait_seconds", "metadata"];

/// How many locks a page of a list has, unless asked otherwise.
const PAGE_LOCKS: usize = 100;

/// The most locks that a page of a list may have.
const MAX_PAGE_LOCKS: usize = 1_000;

/// `POST /locks`: acquires all of them or none.
pub(super) async fn post_locks(call: &mut Call<'_>) -> Result<Reply, Problem> {
    let mut form = call.form(&["fail_if_held"], &ACQUIRE_KEYS).await?;
    let resources = form.resources();
    let holder = form.holder(call.principal());
    let ttl = form.ttl(call.inner.options.max_ttl);
    let wait = form.wait();
    let metadata = form.metadata();
    let key = call.key(&mut form);
    let fail_if_held = form.flag("fail_if_held");
    let (resources, holder, ttl) = form.finish((|| Some((resources?, holder?, ttl?)))())?;
    resources
        .iter()
        .try_for_each(|resource| call.needs_acquire(resource, &holder.owner))?;
    let request = AcquireRequest {
        resources,
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
        Acquired::Granted(locks) => Ok(Reply::ok(&AcquireSetAnswer {
            acquired: true,
            locks: Some(locks),
            resources: None,
        })),
        Acquired::Held {
            resources,
            retry_after,
        } if fail_if_held => {
            let names: Vec<&str> = resources.iter().map(Resource::as_str).collect();
            Err(Problem::held(
                format!("Others hold or wait for {}.", names.join(", ")),
                retry_after,
            ))
        }
        Acquired::Held {
            resources,
            retry_after,
        } => {
            let mut reply = Reply::ok(&AcquireSetAnswer {
                acquired: false,
                locks: None,
                resources: Some(resources),
            });
            reply.retry_after = Some(whole_seconds(retry_after));
            Ok(reply)
        }
    }
}

/// `GET /locks`: a page of live locks, ordered by the bytes of their resources.
pub(super) async fn get_locks(call: &Call<'_>) -> Result<Reply, Problem> {
    let mut form = call.query(&["prefix", "owner", "limit", "cursor"])?;
    let prefix = form
        .parameter("prefix", |text| Ok(text.to_owned()))
        .unwrap_or_default();
    let owner = form.parameter("owner", Owner::new);
    let after = form.parameter("cursor", read_cursor);
    let limit = form.limit(PAGE_LOCKS, MAX_PAGE_LOCKS);
    form.finish(Some(()))?;
    allow(call.access.may_read_some(), || "read locks".to_owned())?;
    let query = ListQuery {
        prefix,
        owner,
        holder: None,
        after,
        limit,
    };
    let readable = call.access.readable(&query.prefix);
    let page = visible(&call.inner.service, &readable, query).await?;
    let last = page.locks.last().filter(|_| page.more);
    let next_cursor = last.map(|live| live.lock.resource.to_string());
    Ok(Reply::ok(&LockList {
        next_cursor,
        locks: page.locks.into_iter().map(|live| live.lock).collect(),
    }))
}

/// `GET /waiters`: for which locks anybody waits here, and how many.
pub(super) fn get_lines(call: &Call<'_>) -> Result<Reply, Problem> {
    call.query(&[])?.finish(Some(()))?;
    allow(call.access.may_read_some(), || "read locks".to_owned())?;
    let lines = call.inner.service.lines().into_iter();
    let mut lines: Vec<Line> = lines
        .filter(|(resource, _)| call.access.may_read(resource))
        .map(|(resource, waiters)| Line { resource, waiters })
        .collect();
    lines.sort_by(|a, b| a.resource.cmp(&b.resource));
    Ok(Reply::ok(&LineList { lines }))
}

/// The page of what the caller may see: the names that its patterns cover, one pattern after the other.
async fn visible(service: &Service, readable: &[Pattern], query: ListQuery) -> Result<Page, Refusal> {
    let mut seen = Page {
        locks: Vec::new(),
        more: false,
    };
    for pattern in readable {
        let (prefix, is_prefix) = pattern.parts();
        let room = query.limit - seen.locks.len();
        let part = ListQuery {
            prefix: prefix.to_owned(),
            // With no room left, one more lock says that there are more. A name itself comes before all that
            // begin with it.
            limit: if is_prefix { room.max(1) } else { 1 },
            ..query.clone()
        };
        let mut page = service.list(part).await?;
        if !is_prefix {
            page.locks.retain(|live| live.lock.resource.as_str() == prefix);
            page.more = false;
        }
        if room == 0 {
            seen.more |= !page.locks.is_empty();
        } else {
            seen.locks.append(&mut page.locks);
            seen.more |= page.more;
        }
        if seen.more {
            break;
        }
    }
    Ok(seen)
}

/// A cursor is the last resource of the page before. Callers need not know that.
fn read_cursor(text: &str) -> Result<Resource, Invalid> {
    Resource::new(text).map_err(|_| {
        Invalid::new(
            "invalid-cursor",
            "cursor must be the next_cursor of a page before",
        )
    })
}
