//! A request on its way to its handler.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ferrolho_core::{Mark, Owner, Principal, Resource};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::http::request::Parts;
use hyper::{Request, header};
use tokio::time::{Instant, timeout};

use super::Inner;
use super::form::{Form, field_error};
use super::problem::{Code, Problem};
use crate::audit::{Asked, Origin};
use crate::auth::{Access, Subject};
use crate::pipeline::Pipeline;
use crate::service::Service;

/// The most bytes that a request body may have.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// How many bytes of a body that nobody wants are read so that its sender sees the answer.
const MAX_DISCARDED_BYTES: usize = 4 * MAX_BODY_BYTES;

/// How long such a body may take.
const DISCARD_WITHIN: Duration = Duration::from_secs(1);

/// A request, before its body is read.
pub(super) struct Call<'a> {
    pub(super) inner: &'a Arc<Inner>,
    pub(super) head: Parts,
    /// Nothing once it was read.
    pub(super) body: Option<Incoming>,
    pub(super) arrived: Instant,
    pub(super) pipeline: &'a Pipeline,
    /// Its id, for logs.
    pub(super) request_id: &'a str,
    /// Where it came from.
    pub(super) peer: SocketAddr,
    /// Whom the certificate is about that the caller's connection began with.
    pub(super) certificate: Option<&'a Subject>,
    /// What the caller may do: nothing before it was asked who it is.
    pub(super) access: Access,
}

impl<'a> Call<'a> {
    /// What a request that may wait needs from here on: the service, and what puts it in a hurry. Its own bytes are
    /// let go, since thousands may wait.
    pub(super) fn let_go(&mut self) -> (&'a Arc<Service>, impl Future<Output = ()> + Send + use<'a>) {
        (self.head, ()) = Request::new(()).into_parts();
        (&self.inner.service, self.pipeline.is_pressing())
    }

    /// Asks the caller who it is.
    pub(super) fn identify(&mut self) -> Result<(), Problem> {
        self.access = self
            .inner
            .options
            .auth
            .identify(&self.head.headers, self.certificate)?;
        Ok(())
    }

    /// As whom the caller takes locks.
    pub(super) fn principal(&self) -> Option<Principal> {
        self.access.principal()
    }

    /// Which request this is, for the audit trail.
    pub(super) fn origin(&self) -> Origin {
        let audit = self.inner.service.audit();
        audit.origin(self.request_id, self.peer, self.principal())
    }

    /// Refuses a caller that may not acquire this lock, for this owner.
    pub(super) fn needs_acquire(&self, resource: &Resource, owner: &Owner) -> Result<(), Problem> {
        let allowed = allow(self.access.may_acquire(resource), || {
            format!("acquire, renew or release {resource}")
        });
        allowed.map_err(|problem| {
            problem.about(Asked {
                resource: Some(resource.clone()),
                owner: Some(owner.clone()),
                token: None,
            })
        })
    }

    /// Refuses a caller that may not see this lock.
    pub(super) fn needs_read(&self, resource: &Resource) -> Result<(), Problem> {
        allow(self.access.may_read(resource), || format!("read {resource}"))
    }

    /// The request's fields, from its query and, if it has one, its body. `query` and `body` are the names that
    /// the endpoint knows in each.
    pub(super) async fn form(&mut self, query: &[&str], body: &[&str]) -> Result<Form, Problem> {
        let bytes = match &mut self.body {
            Some(body) => read(body, self.inner.options.body_timeout).await,
            None => Ok(Bytes::new()),
        };
        if let Err(problem) = &bytes
            && problem.code() == Code::BodyTooLarge
        {
            self.discard_body().await;
        }
        self.body = None;
        let bytes = bytes?;
        Form::read(self.head.uri.query(), query, &bytes, body)
    }

    /// Reads what is left of the body and forgets it, up to a limit: a connection that is closed before what was sent on
    /// it is read is reset, and whoever still sends then may not see the answer.
    pub(super) async fn discard_body(&mut self) {
        let Some(body) = &mut self.body else { return };
        if self.head.headers.contains_key(header::EXPECT) {
            // It sends nothing before it is told to.
            return;
        }
        let reading = async {
            let mut read = 0;
            while read <= MAX_DISCARDED_BYTES
                && let Some(Ok(frame)) = body.frame().await
            {
                read += frame.data_ref().map_or(0, Bytes::len);
            }
        };
        // Who takes longer has had its chance.
        let _ = timeout(DISCARD_WITHIN, reading).await;
    }

    /// The request's fields, from its query alone.
    pub(super) fn query(&self, known: &[&str]) -> Result<Form, Problem> {
        Form::read(self.head.uri.query(), known, &[], &[])
    }

    /// The caller's `Idempotency-Key`.
    pub(super) fn key(&self, form: &mut Form) -> Option<Mark> {
        let mut values = self.head.headers.get_all("idempotency-key").iter();
        let key = values.next()?;
        let text = key.to_str().unwrap_or_default();
        let parsed = if values.next().is_some() {
            Err(ferrolho_core::Invalid::new(
                "duplicate",
                "Idempotency-Key must be given once",
            ))
        } else {
            Mark::from_key(text)
        };
        parsed
            .map_err(|invalid| form.error(field_error("Idempotency-Key", &invalid)))
            .ok()
    }
}

/// A refusal of right, unless it is allowed. It is the same whether the lock is there or not.
pub(super) fn allow(is_allowed: bool, what: impl FnOnce() -> String) -> Result<(), Problem> {
    if is_allowed {
        return Ok(());
    }
    let detail = format!("The token has no right to {}.", what());
    Err(Problem::new(Code::NotPermitted, detail))
}

/// Reads a body, up to its limits in bytes and time.
async fn read(body: &mut Incoming, limit: Duration) -> Result<Bytes, Problem> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let too_large = || {
        Problem::new(
            Code::BodyTooLarge,
            "A request body may have at most 65536 bytes (64 KiB).",
        )
        .with_limit("body-bytes")
    };
    if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
        return Err(too_large());
    }
    match timeout(limit, Limited::new(body, MAX_BODY_BYTES).collect()).await {
        Err(_) => Err(Problem::slow_body(limit)),
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(Problem::new(
            Code::MalformedJson,
            "The request body ended before it was complete.",
        )),
    }
}
