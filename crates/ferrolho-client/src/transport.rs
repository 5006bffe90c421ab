//! One request, one answer, over one of several servers.
//!
//! This file knows HTTP and nothing of locks. Each attempt goes to the server that answered last; when one does
//! not answer, or says that it cannot, the next attempt goes to the next. A failure says whether the request may
//! have been carried out all the same: only the caller knows what is safe to repeat.
//!
//! Always HTTP/1.1: one request at a time on a connection. An attempt that is given up closes its connection, so
//! the server sees that its caller is gone, and the next attempt never sits behind it on a dead connection.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ferrolho_core::Timestamp;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, DATE, HeaderValue, RETRY_AFTER};
use reqwest::{Method, Response, StatusCode, Url, redirect};

use crate::builder::{Secret, Settings};
use crate::clock::{Clock, Moment};
use crate::{Error, tls};

/// The most bytes that an answer may have: a full page of locks with the longest names and metadata.
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// How long a connection is kept for the next request: less than servers and proxies keep theirs (5 s is common),
/// so that a request rarely meets a connection that is just being closed.
const POOL_IDLE: Duration = Duration::from_secs(4);

/// The most connections that are kept for the next request, per server.
const POOL_SIZE: usize = 4;

/// The longest that a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// What is asked, of whichever server.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    /// Path and query, beginning with a slash.
    pub(crate) target: String,
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) idempotency_key: Option<String>,
}

/// What a server answered.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) body: Vec<u8>,
    pub(crate) retry_after: Option<Duration>,
}

/// Nobody answered, or the one who did could not say.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What happened, for people.
    pub(crate) what: String,
    /// Whether the request may have been carried out all the same.
    pub(crate) may_be_done: bool,
    /// How long the server asks to be left alone.
    pub(crate) retry_after: Option<Duration>,
}

impl Failure {
    /// Something came back that may follow an act, but does not say so.
    pub(crate) fn unclear(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            may_be_done: true,
            retry_after: None,
        }
    }

    fn no_answer_within(timeout: Duration) -> Self {
        Self::unclear(format!("no answer within {timeout:?}"))
    }
}

/// The servers and the connections to them.
#[derive(Debug)]
pub(crate) struct Transport {
    http: reqwest::Client,
    /// One or more, all on the same store.
    servers: Vec<Url>,
    /// The index of the one that answered last.
    current: AtomicUsize,
    authorization: Option<HeaderValue>,
    request_timeout: Duration,
    clock: Arc<dyn Clock>,
    /// The date of the last answer, and when it came.
    dated: Mutex<Option<(Timestamp, Moment)>>,
}

impl Transport {
    pub(crate) fn new(settings: &Settings) -> Result<Self, Error> {
        let http = reqwest::Client::builder()
            .http1_only()
            // A proxy that repeats or buffers requests breaks waiting; name it as a server if there must be one.
            .no_proxy()
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never())
            .tcp_nodelay(true)
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(POOL_IDLE)
            .pool_max_idle_per_host(POOL_SIZE)
            .user_agent(concat!("ferrolho/", env!("CARGO_PKG_VERSION")));
        let http = tls::prepare(http, settings)?
            .build()
            .map_err(|error| Error::Setup(chain(&error)))?;
        let authorization = settings.token.as_ref().map(Secret::header).transpose()?;
        Ok(Self {
            http,
            servers: settings.servers.clone(),
            current: AtomicUsize::new(0),
            authorization,
            request_timeout: settings.request_timeout,
            clock: Arc::clone(&settings.clock),
            dated: Mutex::new(None),
        })
    }

    /// How many servers there are.
    pub(crate) fn server_count(&self) -> usize {
        self.servers.len()
    }

    /// The longest that one attempt at a call may take, apart from time spent waiting for a lock.
    pub(crate) fn request_timeout(&self) -> Duration {
        self.request_timeout
    }

    /// The server that is asked next.
    pub(crate) fn current_server(&self) -> &Url {
        &self.servers[self.current.load(Ordering::Relaxed) % self.servers.len()]
    }

    /// What the servers' wall clock shows now, to a second, going by the last answer.
    pub(crate) fn server_now(&self) -> Option<Timestamp> {
        let (date, came_at) = (*self.dated.lock().unwrap_or_else(PoisonError::into_inner))?;
        Some(date.plus(self.clock.now().since(came_at)))
    }

    fn note_date(&self, response: &Response) {
        let Some(date) = date(response) else { return };
        let came_at = self.clock.now();
        *self.dated.lock().unwrap_or_else(PoisonError::into_inner) = Some((date, came_at));
    }

    /// One attempt, answered within `timeout`.
    ///
    /// Answers of 5xx, 408 and 429 are failures: they say nothing about the lock, and another server or a later
    /// attempt may do better. All others are replies.
    pub(crate) async fn send(&self, call: &Call, timeout: Duration) -> Result<Reply, Failure> {
        let index = self.current.load(Ordering::Relaxed);
        let result = match tokio::time::timeout(timeout, self.exchange(index, call)).await {
            Ok(result) => result,
            Err(_) => Err(Failure::no_answer_within(timeout)),
        };
        result.map_err(|failure| self.blame(index, failure))
    }

    /// Opens a stream: the answer's head within the request timeout; its body is the caller's to read.
    pub(crate) async fn open(
        &self,
        target: &str,
        headers: &[(&'static str, String)],
    ) -> Result<Response, Failure> {
        let index = self.current.load(Ordering::Relaxed);
        let call = Call {
            method: Method::GET,
            target: target.to_owned(),
            body: None,
            idempotency_key: None,
        };
        let mut request = self.request(index, &call);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let result = match tokio::time::timeout(self.request_timeout, request.send()).await {
            Ok(result) => result.map_err(|error| failed(&error)),
            Err(_) => Err(Failure::no_answer_within(self.request_timeout)),
        };
        result.map_err(|failure| self.blame(index, failure))
    }

    fn request(&self, index: usize, call: &Call) -> reqwest::RequestBuilder {
        let server = &self.servers[index % self.servers.len()];
        let url = format!("{}{}", server.as_str().trim_end_matches('/'), call.target);
        let mut request = self.http.request(call.method.clone(), url);
        if let Some(value) = &self.authorization {
            request = request.header(AUTHORIZATION, value.clone());
        }
        if let Some(key) = &call.idempotency_key {
            request = request.header("idempotency-key", key);
        }
        if let Some(body) = &call.body {
            request = request
                .header(CONTENT_TYPE, "application/json")
                .body(body.clone());
        }
        request
    }

    async fn exchange(&self, index: usize, call: &Call) -> Result<Reply, Failure> {
        let response = self
            .request(index, call)
            .send()
            .await
            .map_err(|error| failed(&error))?;
        self.note_date(&response);
        let status = response.status();
        let retry_after = retry_after(&response);
        let body = read(response).await?;
        if status.is_server_error() || matches!(status.as_u16(), 408 | 429) {
            let what = match serde_json::from_slice::<ferrolho_core::wire::Problem>(&body) {
                Ok(problem) => format!("{status}: {}", problem.detail),
                Err(_) => status.to_string(),
            };
            return Err(Failure {
                what,
                may_be_done: status.is_server_error(),
                retry_after,
            });
        }
        Ok(Reply {
            status,
            body,
            retry_after,
        })
    }

    /// Names the server in the failure, and turns to the next one.
    fn blame(&self, index: usize, mut failure: Failure) -> Failure {
        // Only the first to notice moves on; the others have been overtaken.
        let _overtaken = self.current.compare_exchange(
            index,
            (index + 1) % self.servers.len(),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        let server = &self.servers[index % self.servers.len()];
        failure.what = format!("{}: {}", server.as_str().trim_end_matches('/'), failure.what);
        failure
    }
}

/// The whole body, if it is not longer than an answer may be.
async fn read(mut response: Response) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| failed(&error))? {
        if body.len() + chunk.len() > MAX_ANSWER_BYTES {
            return Err(Failure::unclear(format!(
                "an answer of more than {MAX_ANSWER_BYTES} bytes"
            )));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

fn date(response: &Response) -> Option<Timestamp> {
    let text = response.headers().get(DATE)?.to_str().ok()?;
    let date = jiff::fmt::rfc2822::parse(text).ok()?;
    Some(Timestamp::from_micros(date.timestamp().as_microsecond()))
}

fn failed(error: &reqwest::Error) -> Failure {
    Failure {
        what: chain(error),
        // Without a connection nothing was sent.
        may_be_done: !error.is_connect() && !error.is_builder(),
        retry_after: None,
    }
}

/// The error with its causes, without the address, which a caller may hold to be a secret.
fn chain(error: &reqwest::Error) -> String {
    let mut text = if error.is_connect() {
        "cannot connect".to_owned()
    } else {
        "the connection failed".to_owned()
    };
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.ends_with(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        cause = error.source();
    }
    text
}
