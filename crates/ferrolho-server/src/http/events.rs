//! `GET /events`: what happens to locks, as server-sent events.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use hyper::body::Frame;
use tokio::time::{Instant, timeout_at};

use super::call::{Call, allow};
use super::form::field_error;
use super::problem::Problem;
use super::reply::Reply;
use crate::auth::{Access, Authenticator};
use crate::service::{Subscription, Told};

/// How often a stream with nothing to say says so, lest a proxy takes it for dead.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// How soon a browser comes back after its stream was cut, in milliseconds.
const RETRY_MILLIS: u32 = 1_000;

struct Reader {
    auth: Arc<Authenticator>,
    access: Access,
    events: Subscription,
    prefix: String,
    /// The newest event that the prefix kept back: its id goes out with the next heartbeat.
    passed: Option<String>,
    heartbeat_at: Instant,
    is_over: bool,
}

/// Streams events until the caller leaves, falls behind, or the server stops.
pub(super) fn get_events(call: &Call<'_>) -> Result<Reply, Problem> {
    let mut form = call.query(&["prefix"])?;
    let prefix = form
        .parameter("prefix", |text| Ok(text.to_owned()))
        .unwrap_or_default();
    let last_id = call
        .head
        .headers
        .get("last-event-id")
        // What is no text is no id of ours.
        .map(|id| id.to_str().unwrap_or("?"));
    if call.head.headers.get_all("last-event-id").iter().count() > 1 {
        let twice = ferrolho_core::Invalid::new("duplicate", "Last-Event-ID must be given once");
        form.error(field_error("Last-Event-ID", &twice));
    }
    form.finish(Some(()))?;
    allow(call.access.may_read_some(), || "read events".to_owned())?;
    let reader = Reader {
        auth: Arc::clone(&call.inner.options.auth),
        access: call.access.clone(),
        events: call.inner.service.events(last_id.filter(|id| !id.is_empty()))?,
        prefix,
        passed: None,
        heartbeat_at: Instant::now() + HEARTBEAT,
        is_over: false,
    };
    let hello = frame(format!("retry: {RETRY_MILLIS}\n\n"));
    let frames = stream::once(async { hello })
        .chain(stream::unfold(reader, next_frame))
        .map(Ok);
    Ok(Reply::stream(frames.boxed()))
}

fn frame(text: String) -> Frame<Bytes> {
    Frame::data(Bytes::from(text))
}

async fn next_frame(mut reader: Reader) -> Option<(Frame<Bytes>, Reader)> {
    if reader.is_over {
        return None;
    }
    let text = loop {
        let told = timeout_at(reader.heartbeat_at, reader.events.next()).await;
        // A stream may be older than the tokens: whoever lost its right meanwhile hears no more.
        if !reader.auth.identify_again(&mut reader.access) {
            return None;
        }
        let Ok(told) = told else {
            // An id without data moves the reader's place on without an event.
            break reader
                .passed
                .take()
                .map_or_else(|| ": alive\n\n".to_owned(), |id| format!("id: {id}\n\n"));
        };
        match told {
            Told::Event(event)
                if event.resource.as_str().starts_with(&reader.prefix)
                    && reader.access.may_read(&event.resource) =>
            {
                reader.passed = None;
                let mut text = format!("id: {}\ndata: ", event.position);
                // Events are plain structures, which always can be written.
                let _ = write!(text, "{}\n\n", serde_json::to_string(&*event).unwrap_or_default());
                break text;
            }
            Told::Event(event) => reader.passed = Some(event.position.to_string()),
            Told::Reset => break "event: reset\ndata: {}\n\n".to_owned(),
            Told::TooSlow => {
                reader.is_over = true;
                break "event: dropped\ndata: {\"reason\":\"the reader fell too far behind\"}\n\n".to_owned();
            }
            Told::End => return None,
        }
    };
    reader.heartbeat_at = Instant::now() + HEARTBEAT;
    Some((frame(text), reader))
}
