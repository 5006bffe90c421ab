//! The HTTP face: requests are parsed into types that cannot be wrong, handed to the service, and its answers
//! written.
//!
//! One function, [`Http::answer`], stands around every request: request id, browser guard, routing, panics, the log
//! line. Routing is a match on the raw segments of the path ([`route`]), since a lock's name is decoded once and
//! by us; a router that decodes, folds `..` or answers in plain text would make two names one. There is one file
//! per family of endpoints, with handlers named verb_resource.

mod call;
mod dashboard;
mod events;
mod form;
#[cfg(test)]
mod fuzz;
mod guard;
mod health;
mod locks;
mod meters;
mod metrics;
mod openapi;
mod owners;
mod pages;
mod problem;
mod reply;
mod route;
mod sets;
mod whoami;

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use ferrolho_core::Ttl;
use futures_util::FutureExt;
use hyper::body::Incoming;
use hyper::{Method, Request, Response};
use tokio::time::Instant;
use tracing::{debug, error, warn};

use crate::audit::Refused;
use crate::auth::{Access, Authenticator, Subject};
use crate::pipeline::Pipeline;
use crate::room::Seat;
use crate::service::Service;
use call::Call;
pub use guard::Guard;
use meters::HttpMeters;
use problem::{Code, Problem};
pub(crate) use reply::Body;
use reply::Reply;
use route::{Endpoint, Route};

/// The longest path and query that are looked at, in bytes. The longest that makes sense is below 2 KiB.
const MAX_TARGET_BYTES: usize = 16 * 1024;

/// What the HTTP face needs to know.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// The longest lifetime that a caller may ask for.
    pub max_ttl: Ttl,
    /// How long a request body may take to arrive.
    pub body_timeout: Duration,
    /// Whom browsers may bring here.
    pub guard: Guard,
    /// Who callers are.
    pub auth: Arc<Authenticator>,
}

/// The HTTP face of a service, or the part of it that one listener shows.
#[derive(Clone)]
pub struct Http {
    inner: Arc<Inner>,
    part: Part,
}

/// What a listener shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Everything,
    /// Metrics have a listener of their own.
    NoMetrics,
    Metrics {
        is_open: bool,
    },
}

impl Part {
    fn shows(self, endpoint: Endpoint) -> bool {
        match self {
            Self::Everything => true,
            Self::NoMetrics => endpoint != Endpoint::Metrics,
            Self::Metrics { .. } => endpoint == Endpoint::Metrics,
        }
    }
}

struct Inner {
    service: Arc<Service>,
    options: HttpOptions,
    meters: HttpMeters,
}

impl Http {
    /// The face of this service.
    pub fn new(service: Arc<Service>, options: HttpOptions) -> Self {
        let inner = Inner {
            service,
            options,
            meters: HttpMeters::default(),
        };
        Self {
            inner: Arc::new(inner),
            part: Part::Everything,
        }
    }

    /// Takes the metrics apart: the face without them, and the face that shows nothing else. An open one asks nobody
    /// who it is; only this machine should reach it.
    pub fn split_metrics(self, is_open: bool) -> (Self, Self) {
        let part = |part| Self {
            inner: Arc::clone(&self.inner),
            part,
        };
        (part(Part::NoMetrics), part(Part::Metrics { is_open }))
    }

    /// A connection is open for as long as this is kept.
    pub(crate) fn connected(&self) -> Connected {
        self.inner.meters.connection_opened();
        Connected(Arc::clone(&self.inner))
    }

    /// Answers one request, on a connection that began with this certificate. Dropping the future means that the caller has hung up.
    pub(crate) async fn answer(
        &self,
        peer: SocketAddr,
        certificate: Option<&Subject>,
        pipeline: &Pipeline,
        seat: &Seat,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let arrived = Instant::now();
        let (head, body) = request.into_parts();
        let request_id = reply::request_id(&head.headers);
        let method = head.method.clone();
        let path = head.uri.path().to_owned();
        let mut route = Route::of(&path);
        if !self.part.shows(route.endpoint()) {
            route = Route::Unknown;
        }
        let template = route.endpoint().template();
        let counted = self.inner.meters.begin(route.endpoint(), &method, arrived);
        let mut call = Call {
            inner: &self.inner,
            head,
            body: Some(body),
            arrived,
            pipeline,
            request_id: &request_id,
            peer,
            certificate,
            access: Access::Nobody,
        };
        let is_open = route.endpoint().is_open() || self.part == Part::Metrics { is_open: true };
        let is_spare = matches!(seat, Seat::Spare(_));
        let outcome = AssertUnwindSafe(dispatch(route, is_open, is_spare, &mut call))
            .catch_unwind()
            .await;
        let reply = match outcome {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(problem)) => Err(problem),
            Err(_) => {
                error!(%request_id, route = template, "a handler panicked");
                Err(Problem::new(
                    Code::Internal,
                    "The server made a mistake. Its log has this request's id.",
                ))
            }
        };
        let reply = reply.unwrap_or_else(|problem| {
            self.inner.meters.problem(problem.code());
            self.note_refusal(route, &method, &problem, &call);
            problem.into_reply(&path, &request_id)
        });
        counted.answered(reply.status);
        log(&method, template, &reply, peer, &request_id, arrived);
        reply.into_response(&request_id)
    }

    /// Notes a refusal of right in the audit trail.
    fn note_refusal(&self, route: Route<'_>, method: &Method, problem: &Problem, call: &Call<'_>) {
        let audit = self.inner.service.audit();
        let Some(mut asked) = problem.refused().filter(|_| audit.is_on()) else {
            return;
        };
        if asked.resource.is_none() {
            asked.resource = route.lock().and_then(form::resource_in_path);
        }
        let principal = call.principal();
        let refused = Refused {
            asked: &asked,
            principal: principal.as_ref(),
            method: method.as_str(),
            route: route.endpoint().template(),
            status: problem.status(),
            code: problem.code().as_str(),
        };
        audit.refused(&call.origin(), &refused);
    }
}

/// An open connection, as the metrics count it.
pub(crate) struct Connected(Arc<Inner>);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.meters.connection_closed();
    }
}

/// Sends a request to its handler, unless something stands against it.
async fn dispatch(
    route: Route<'_>,
    is_open: bool,
    is_spare: bool,
    call: &mut Call<'_>,
) -> Result<Reply, Problem> {
    if let Err(problem) = admit(route, is_open, is_spare, call) {
        call.discard_body().await;
        return Err(problem);
    }
    handle(route, is_open, call).await
}

/// Refuses what should not come to a handler. On a spare connection only what is open to everybody is answered: so
/// probes see that a crowded server lives.
fn admit(route: Route<'_>, is_open: bool, is_spare: bool, call: &mut Call<'_>) -> Result<(), Problem> {
    if is_spare && !is_open {
        return Err(Problem::too_many_connections());
    }
    let target = call
        .head
        .uri
        .path_and_query()
        .map_or(0, |target| target.as_str().len());
    if target > MAX_TARGET_BYTES {
        let limit = format!("The path and query have {target} bytes; at most {MAX_TARGET_BYTES} are read.");
        return Err(Problem::new(Code::PathTooLong, limit).with_limit("path-bytes"));
    }
    let options = &call.inner.options;
    options
        .guard
        .check(&call.head, route.endpoint().is_page(), options.auth.is_off())?;
    if !is_open {
        call.identify()?;
    }
    Ok(())
}

/// Sends a request to its handler.
async fn handle(route: Route<'_>, is_open: bool, call: &mut Call<'_>) -> Result<Reply, Problem> {
    // HEAD is GET; hyper leaves the body out of the answer.
    let method = if call.head.method == Method::HEAD {
        Method::GET
    } else {
        call.head.method.clone()
    };
    match (route, method) {
        (Route::Lock(name), Method::POST) => locks::post_lock(call, name).await,
        (Route::Lock(name), Method::GET) => locks::get_lock(call, name).await,
        (Route::Renew(name), Method::POST) => locks::renew_lock(call, name).await,
        (Route::Lock(name), Method::DELETE) | (Route::Release(name), Method::POST) => {
            locks::delete_lock(call, name).await
        }
        (Route::ForceRelease(name), Method::POST) => locks::force_release_lock(call, name).await,
        (Route::Waiters(name), Method::GET) => locks::get_waiters(call, name),
        (Route::LockEvents(name), Method::GET) => locks::get_lock_events(call, name),
        (Route::Lines, Method::GET) => sets::get_lines(call),
        (Route::WhoAmI, Method::GET) => whoami::get_whoami(call),
        (Route::Locks, Method::POST) => sets::post_locks(call).await,
        (Route::Locks, Method::GET) => sets::get_locks(call).await,
        (Route::Owner(name), Method::DELETE) => owners::delete_owner(call, name).await,
        (Route::RenewOwner(name), Method::POST) => owners::renew_owner(call, name).await,
        (Route::Events, Method::GET) => events::get_events(call),
        (Route::Dashboard, Method::GET) => dashboard::get_dashboard(call),
        (Route::Asset(file), Method::GET) => dashboard::get_asset(call, file),
        (Route::Healthz, Method::GET) => health::get_healthz(call),
        (Route::Readyz, Method::GET) => health::get_readyz(call).await,
        (Route::Metrics, Method::GET) => metrics::get_metrics(call, is_open).await,
        (Route::OpenApi, Method::GET) => openapi::get_openapi(call),
        (Route::Docs, Method::GET) => openapi::get_docs(call),
        (Route::Problems, Method::GET) => pages::get_problems(call),
        (Route::ProblemPage(code), Method::GET) => pages::get_problem(call, code),
        (Route::Unknown, _) => {
            call.discard_body().await;
            Err(Problem::new(
                Code::NoSuchRoute,
                "There is nothing at this path. A lock is at /locks/{resource}, with every slash of its name written as %2F.",
            ))
        }
        (route, method) => {
            call.discard_body().await;
            Err(Problem::method_not_allowed(&method, route.endpoint().allow()))
        }
    }
}

fn log(method: &Method, route: &str, reply: &Reply, peer: SocketAddr, request_id: &str, arrived: Instant) {
    let status = reply.status.as_u16();
    let micros = u64::try_from(arrived.elapsed().as_micros()).unwrap_or(u64::MAX);
    if status >= 500 {
        warn!(%method, route, status, micros, %peer, request_id, "request");
    } else {
        debug!(%method, route, status, micros, %peer, request_id, "request");
    }
}
