//! What happens to locks, as a stream that mends itself.
//!
//! A stream that breaks is resumed where it ended, on whichever server answers. When something may have been
//! missed, a [`Notice::Reset`] says so: look at the locks anew.

use std::sync::Arc;
use std::time::Duration;

use ferrolho_core::Event;
use reqwest::Response;
use tokio::sync::mpsc;

use crate::call::encode;
use crate::client::Inner;
use crate::engine::Answer;
use crate::sse::{Message, Reader};
use crate::transport::{Failure, Reply};
use crate::{Error, api};

/// How many notices may lie ready that the caller has not taken. Then the stream waits.
const READY_NOTICES: usize = 64;

/// The longest silence before a stream is taken for dead: servers send a sign of life every 15 s.
const LONGEST_SILENCE: Duration = Duration::from_secs(40);

/// The longest pause before a broken stream is opened again.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What a stream of events says.
#[derive(Clone, Debug)]
pub enum Notice {
    /// Something happened to a lock.
    Event {
        /// Where to resume from after this one. Opaque; any server of the store understands it.
        id: Option<String>,
        /// What happened.
        event: Box<Event>,
    },
    /// Something may have been missed: look at the locks anew. Also the first notice of a stream that resumes
    /// nothing: from here on nothing is missed in silence.
    Reset,
}

/// A stream of notices, see [`Client::events`](crate::Client::events).
#[derive(Debug)]
pub struct Events {
    notices: mpsc::Receiver<Result<Notice, Error>>,
    _reading: Answer<()>,
}

impl Events {
    pub(crate) fn start(inner: &Arc<Inner>, prefix: &str, last_id: Option<String>) -> Self {
        let (sender, notices) = mpsc::channel(READY_NOTICES);
        let stream = Stream {
            inner: Arc::clone(inner),
            target: format!("/events?prefix={}", encode(prefix)),
            last_id,
            sender,
        };
        Self {
            notices,
            _reading: inner.engine.carry_out(stream.run()),
        }
    }

    /// The next notice; none after an error. It is an error when no server can be reached at first, or when one
    /// refuses; a stream that was open once is opened again until a server refuses.
    pub async fn next(&mut self) -> Option<Result<Notice, Error>> {
        self.notices.recv().await
    }
}

/// Nobody listens any more.
struct Left;

/// The reading side, on the client's thread.
struct Stream {
    inner: Arc<Inner>,
    target: String,
    last_id: Option<String>,
    sender: mpsc::Sender<Result<Notice, Error>>,
}

impl Stream {
    async fn run(mut self) {
        let mut was_open = false;
        let mut failures: u32 = 0;
        loop {
            let failure = match self.open().await {
                Ok(Ok(response)) => {
                    // Without an id to resume from, what happened before is unknown.
                    if self.last_id.is_none() && self.say(Ok(Notice::Reset)).await.is_err() {
                        return;
                    }
                    (was_open, failures) = (true, 0);
                    match self.read(response).await {
                        Ok(failure) => failure,
                        Err(Left) => return,
                    }
                }
                Ok(Err(error)) => {
                    let _left = self.say(Err(error)).await;
                    return;
                }
                Err(failure) => failure,
            };
            failures += 1;
            let enough = api::ROUNDS * self.inner.transport.server_count();
            if !was_open && usize::try_from(failures).is_ok_and(|failures| failures >= enough) {
                let _left = self.say(Err(Error::Unreachable(failure.what))).await;
                return;
            }
            tracing::debug!("the event stream broke, opening it again: {}", failure.what);
            let pause = Duration::from_millis(100) * 2u32.saturating_pow(failures.min(6));
            tokio::time::sleep(api::about(pause).min(LONGEST_PAUSE)).await;
        }
    }

    /// The open stream, or a refusal, or a failure.
    async fn open(&self) -> Result<Result<Response, Error>, Failure> {
        let mut headers = vec![("accept", "text/event-stream".to_owned())];
        headers.extend(self.last_id.clone().map(|id| ("last-event-id", id)));
        let response = self.inner.transport.open(&self.target, &headers).await?;
        let status = response.status();
        if status == 200 {
            return Ok(Ok(response));
        }
        let body = response
            .bytes()
            .await
            .map(|body| body.to_vec())
            .unwrap_or_default();
        let reply = Reply {
            status,
            body,
            retry_after: None,
        };
        if status.is_server_error() || status == 429 {
            return Err(Failure::unclear(reply.refusal().to_string()));
        }
        Ok(Err(reply.refusal()))
    }

    /// Passes on what comes until the stream breaks.
    async fn read(&mut self, mut response: Response) -> Result<Failure, Left> {
        let mut reader = Reader::default();
        loop {
            let piece = match tokio::time::timeout(LONGEST_SILENCE, response.chunk()).await {
                Ok(Ok(Some(piece))) => piece,
                Ok(Ok(None)) => return Ok(Failure::unclear("the stream ended")),
                Ok(Err(error)) => return Ok(Failure::unclear(error.to_string())),
                Err(_) => return Ok(Failure::unclear("the stream fell silent")),
            };
            let messages = match reader.take(&piece) {
                Ok(messages) => messages,
                Err(failure) => return Ok(failure),
            };
            for (message, id) in messages {
                match notice(&message, id.clone()) {
                    Ok(notice) => self.say(Ok(notice)).await?,
                    Err(failure) => return Ok(failure),
                }
                self.last_id = id.or(self.last_id.take());
            }
            if let Some(id) = reader.last_id() {
                self.last_id = Some(id.to_owned());
            }
        }
    }

    async fn say(&self, notice: Result<Notice, Error>) -> Result<(), Left> {
        self.sender.send(notice).await.map_err(|_| Left)
    }
}

fn notice(message: &Message, id: Option<String>) -> Result<Notice, Failure> {
    if message.event == "reset" {
        return Ok(Notice::Reset);
    }
    serde_json::from_str(&message.data)
        .map(|event| Notice::Event { id, event })
        .map_err(|error| Failure::unclear(format!("an event that makes no sense: {error}")))
}
