//! Answers: status, body and the headers that all of them carry.

use bytes::Bytes;
use futures_util::stream::BoxStream;
use http_body_util::{Either, Full, StreamBody};
use hyper::body::Frame;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;

/// The frames of a stream that never fails.
pub(super) type Frames = BoxStream<'static, Result<Frame<Bytes>, std::convert::Infallible>>;

/// The body of an answer: whole, or a stream of events.
pub(crate) type Body = Either<Full<Bytes>, StreamBody<Frames>>;

/// The longest request id that is taken over from a caller, in bytes.
const MAX_REQUEST_ID_BYTES: usize = 64;

/// What a page may load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PagePolicy {
    /// Nothing but its style.
    Text,
    /// Its style and scripts; and it may call this server.
    Dashboard,
}

impl PagePolicy {
    fn as_str(self) -> &'static str {
        match self {
            Self::Text => {
                "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
            }
            Self::Dashboard => {
                "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'; \
                 form-action 'none'; frame-ancestors 'none'"
            }
        }
    }
}

/// An answer before its common headers.
pub(super) struct Reply {
    pub(super) status: StatusCode,
    content_type: Option<&'static str>,
    body: Body,
    is_page: bool,
    pub(super) policy: PagePolicy,
    pub(super) retry_after: Option<u64>,
    pub(super) allow: Option<&'static str>,
    pub(super) challenge: Option<&'static str>,
}

impl Reply {
    fn new(status: StatusCode, content_type: Option<&'static str>, body: Body) -> Self {
        Self {
            status,
            content_type,
            body,
            is_page: false,
            policy: PagePolicy::Text,
            retry_after: None,
            allow: None,
            challenge: None,
        }
    }

    /// 200 with this as JSON.
    pub(super) fn ok(value: &impl Serialize) -> Self {
        Self::json_as(StatusCode::OK, "application/json", value)
    }

    /// This as JSON of a certain type.
    pub(super) fn json_as(status: StatusCode, content_type: &'static str, value: &impl Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => Self::new(status, Some(content_type), whole(body)),
            // Our own bodies are plain structures, which always can be written.
            Err(_) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, None, whole(Vec::new())),
        }
    }

    /// 204.
    pub(super) fn no_content() -> Self {
        Self::new(StatusCode::NO_CONTENT, None, whole(Vec::new()))
    }

    /// 200 with a page or an asset of one.
    pub(super) fn page(content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self {
            is_page: true,
            ..Self::new(
                StatusCode::OK,
                Some(content_type),
                Either::Left(Full::new(body.into())),
            )
        }
    }

    /// 200 with a text that no cache may keep.
    pub(super) fn text(content_type: &'static str, text: String) -> Self {
        Self::new(StatusCode::OK, Some(content_type), whole(text.into_bytes()))
    }

    /// 200 with a stream of events.
    pub(super) fn stream(frames: Frames) -> Self {
        Self::new(
            StatusCode::OK,
            Some("text/event-stream"),
            Either::Right(StreamBody::new(frames)),
        )
    }

    pub(super) fn into_response(self, request_id: &str) -> Response<Body> {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        if let Some(content_type) = self.content_type {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        if let Ok(id) = HeaderValue::from_str(request_id) {
            headers.insert("x-request-id", id);
        }
        // Names are the callers'; no browser shall take any answer for a page or a script.
        headers.insert(
            header::X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        );
        if self.is_page {
            headers.insert(
                header::CONTENT_SECURITY_POLICY,
                HeaderValue::from_static(self.policy.as_str()),
            );
            headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        } else {
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(allow) = self.allow {
            headers.insert(header::ALLOW, HeaderValue::from_static(allow));
        }
        if let Some(challenge) = self.challenge {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        response
    }
}

fn whole(body: Vec<u8>) -> Body {
    Either::Left(Full::new(Bytes::from(body)))
}

/// The caller's `x-request-id` if it is fit for a log, else a new one.
pub(super) fn request_id(headers: &HeaderMap) -> String {
    let given = headers.get("x-request-id").and_then(|value| value.to_str().ok());
    let is_fit = |id: &&str| {
        (1..=MAX_REQUEST_ID_BYTES).contains(&id.len())
            && id
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_.:".contains(&b))
    };
    given
        .filter(is_fit)
        .map_or_else(|| format!("{:016x}", rand::random::<u64>()), str::to_owned)
}
