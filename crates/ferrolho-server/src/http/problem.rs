//! Problems: every error that answers a request (RFC 9457).

use std::time::Duration;

use ferrolho_core::wire::{self, FieldError};
use hyper::{Method, StatusCode};

use super::reply::Reply;
use crate::audit::Asked;
use crate::auth::Unidentified;
use crate::service::Refusal;

/// The kinds of problems. Each has a page at `/problems/<code>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    ValidationFailed,
    MalformedJson,
    NotFound,
    Forbidden,
    Held,
    Unauthorized,
    NotPermitted,
    NoSuchRoute,
    MethodNotAllowed,
    BodyTooLarge,
    PathTooLong,
    TooManyWaiters,
    LimitReached,
    Unavailable,
    TooSlow,
    ShuttingDown,
    Internal,
}

impl Code {
    /// All of them, in the order of the list of pages.
    pub(super) const ALL: [Code; 17] = [
        Self::ValidationFailed,
        Self::MalformedJson,
        Self::NotFound,
        Self::Forbidden,
        Self::Held,
        Self::Unauthorized,
        Self::NotPermitted,
        Self::NoSuchRoute,
        Self::MethodNotAllowed,
        Self::BodyTooLarge,
        Self::PathTooLong,
        Self::TooManyWaiters,
        Self::LimitReached,
        Self::Unavailable,
        Self::TooSlow,
        Self::ShuttingDown,
        Self::Internal,
    ];

    /// The code, its status, its title, and what it means and what to do about it.
    #[expect(clippy::too_many_lines, reason = "a table, with a row for each code")]
    fn row(self) -> (&'static str, u16, &'static str, &'static str) {
        match self {
            Self::ValidationFailed => (
                "validation-failed",
                422,
                "The request is not valid",
                "Something in the request is missing, unknown, given twice or not allowed. The list of errors \
                 names each field and says what would be right. Nothing was stored.",
            ),
            Self::MalformedJson => (
                "malformed-json",
                400,
                "The body is not JSON",
                "The request body could not be read as JSON in UTF-8. Nothing was stored.",
            ),
            Self::NotFound => (
                "not-found",
                404,
                "There is no such lock",
                "Nobody holds this lock: it never was, it was released, or it has expired. An expired lock \
                 belongs to nobody and cannot be renewed or released; acquire it again.",
            ),
            Self::Forbidden => (
                "forbidden",
                403,
                "The lock is not yours",
                "The lock is held by another owner, or by a later grant than the fencing token that you named. \
                 If you believed that you held it, you have lost it: stop the work that it guards.",
            ),
            Self::Held => (
                "held",
                409,
                "The lock is held",
                "Another owner holds the lock, and you asked for an error in that case (fail_if_held=true). \
                 Try again after the time in Retry-After, or wait for it with wait_seconds.",
            ),
            Self::Unauthorized => (
                "unauthorized",
                401,
                "Who are you?",
                "This server wants a valid bearer token, in the Authorization header, or where it asks for one a client \
                 certificate whose subject it knows.",
            ),
            Self::NotPermitted => (
                "not-permitted",
                403,
                "You may not do this",
                "The request is understood, and you have no right to it: the token lacks the right, the endpoint \
                 wants an admin token, or a browser brought the request from another site.",
            ),
            Self::NoSuchRoute => (
                "no-such-route",
                404,
                "There is nothing at this path",
                "The path names no endpoint of this server. A slash inside a lock's name is written %2F.",
            ),
            Self::MethodNotAllowed => (
                "method-not-allowed",
                405,
                "The method is not allowed here",
                "The path exists, and knows other methods: they are in the Allow header.",
            ),
            Self::BodyTooLarge => (
                "body-too-large",
                413,
                "The body is too large",
                "A request body may have at most 64 KiB.",
            ),
            Self::PathTooLong => (
                "path-too-long",
                414,
                "The path is too long",
                "A path with its query may have at most 16 KiB, and a lock's name at most 255 bytes.",
            ),
            Self::TooManyWaiters => (
                "too-many-waiters",
                429,
                "Too many requests wait",
                "A limit on waiting requests is reached; the detail names it. Try again later, or without \
                 wait_seconds.",
            ),
            Self::LimitReached => (
                "limit-reached",
                429,
                "A limit is reached",
                "A limit of this server is reached; the detail names it.",
            ),
            Self::Unavailable => (
                "unavailable",
                503,
                "The store does not answer",
                "The place where the locks are kept did not answer, or whether the request was carried out could \
                 not be found out. You hold nothing for certain. Repeat the request: with the same \
                 Idempotency-Key, a grant that was made after all is given to you.",
            ),
            Self::TooSlow => (
                "too-slow",
                503,
                "The request took too long",
                "The request was not carried out, or its lock was over before it could be answered. Nothing of \
                 it is left. Repeat it.",
            ),
            Self::ShuttingDown => (
                "shutting-down",
                503,
                "The server is stopping",
                "The server takes no new locks any more. Renewing and releasing works to the last. Ask another \
                 server, or this one again in a moment.",
            ),
            Self::Internal => (
                "internal",
                500,
                "The server made a mistake",
                "This is a bug. Please report it with the request's id, which the server's log has too.",
            ),
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        self.row().0
    }

    pub(super) fn status(self) -> u16 {
        self.row().1
    }

    pub(super) fn title(self) -> &'static str {
        self.row().2
    }

    pub(super) fn meaning(self) -> &'static str {
        self.row().3
    }
}

/// A problem on its way to the caller.
#[derive(Debug)]
pub(super) struct Problem {
    code: Code,
    status: StatusCode,
    detail: String,
    errors: Box<[FieldError]>,
    retry_after: Option<u64>,
    allow: Option<&'static str>,
    challenge: Option<&'static str>,
    limit: Option<&'static str>,
    /// What a refusal was about, for the audit trail.
    about: Option<Box<Asked>>,
}

/// How long a caller should stay away when the store is not there, in seconds.
const RETRY_SECONDS: u64 = 1;

impl Problem {
    pub(super) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            code,
            status: StatusCode::from_u16(code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            detail: detail.into(),
            errors: Box::default(),
            retry_after: None,
            allow: None,
            challenge: None,
            limit: None,
            about: None,
        }
    }

    pub(super) fn invalid(errors: Vec<FieldError>) -> Self {
        let said: Vec<String> = errors.iter().map(|error| error.message.clone()).collect();
        Self {
            errors: errors.into(),
            ..Self::new(Code::ValidationFailed, format!("{}.", said.join("; ")))
        }
    }

    pub(super) fn method_not_allowed(method: &Method, allow: &'static str) -> Self {
        let method: String = method.as_str().chars().take(20).collect();
        Self {
            allow: Some(allow),
            ..Self::new(
                Code::MethodNotAllowed,
                format!("{method} is not allowed here; these are: {allow}."),
            )
        }
    }

    pub(super) fn held(detail: String, retry_after: Duration) -> Self {
        Self::new(Code::Held, detail).with_retry_after(whole_seconds(retry_after))
    }

    pub(super) fn slow_body(limit: Duration) -> Self {
        Self {
            status: StatusCode::REQUEST_TIMEOUT,
            limit: Some("body-timeout-seconds"),
            ..Self::new(
                Code::TooSlow,
                format!(
                    "The body did not arrive within {} seconds (body-timeout-seconds).",
                    limit.as_secs()
                ),
            )
        }
    }

    /// The connection is one too many.
    pub(super) fn too_many_connections() -> Self {
        Self::new(
            Code::LimitReached,
            "All connections that max-connections allows are in use. This one is closed; try again later.",
        )
        .with_limit("max-connections")
        .with_retry_after(RETRY_SECONDS)
    }

    /// Names the limit that refused the request.
    pub(super) fn with_limit(mut self, name: &'static str) -> Self {
        self.limit = Some(name);
        self
    }

    /// Notes what was asked for, for the audit trail.
    pub(super) fn about(self, asked: Asked) -> Self {
        Self {
            about: Some(Box::new(asked)),
            ..self
        }
    }

    /// What was asked for, where it was refused for want of a right.
    pub(super) fn refused(&self) -> Option<Asked> {
        let is_refused = matches!(
            self.code,
            Code::Unauthorized | Code::Forbidden | Code::NotPermitted
        );
        is_refused.then(|| self.about.as_deref().cloned().unwrap_or_default())
    }

    pub(super) fn status(&self) -> u16 {
        self.status.as_u16()
    }

    fn with_retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    pub(super) fn code(&self) -> Code {
        self.code
    }

    pub(super) fn into_reply(self, path: &str, request_id: &str) -> Reply {
        let body = wire::Problem {
            kind: format!("/problems/{}", self.code.as_str()),
            title: self.code.title().to_owned(),
            status: self.status.as_u16(),
            detail: self.detail,
            instance: path.chars().take(1_000).collect(),
            code: self.code.as_str().to_owned(),
            request_id: request_id.to_owned(),
            errors: self.errors.into_vec(),
            limit: self.limit.map(str::to_owned),
        };
        let mut reply = Reply::json_as(self.status, "application/problem+json", &body);
        reply.retry_after = self.retry_after;
        reply.allow = self.allow;
        reply.challenge = self.challenge;
        reply
    }
}

/// A span in whole seconds for `Retry-After`: rounded up, at least one.
pub(super) fn whole_seconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis().div_ceil(1_000))
        .unwrap_or(u64::MAX)
        .max(1)
}

/// The challenges of 401. (Source: RFC 6750, section 3.)
impl From<Unidentified> for Problem {
    fn from(unidentified: Unidentified) -> Self {
        let (challenge, detail) = match unidentified {
            Unidentified::NoToken => (
                "Bearer realm=\"ferrolho\"",
                "This needs a token: send the header Authorization: Bearer TOKEN.",
            ),
            Unidentified::WrongToken => (
                "Bearer realm=\"ferrolho\", error=\"invalid_token\"",
                "What the Authorization header holds is no valid bearer token.",
            ),
            Unidentified::WrongCertificate => (
                "Bearer realm=\"ferrolho\"",
                "The subject of the client certificate is not in the file of those who may call, and there is no \
                 token: send the header Authorization: Bearer TOKEN.",
            ),
        };
        Self {
            challenge: Some(challenge),
            ..Self::new(Code::Unauthorized, detail)
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::TooManyWaiters(limit) => Self::new(
                Code::TooManyWaiters,
                format!("{} requests wait already, the most that {} allows.", limit.value, limit.limit),
            )
            .with_limit(limit.limit)
            .with_retry_after(RETRY_SECONDS),
            Refusal::LimitReached(limit) => Self::new(
                Code::LimitReached,
                format!("{} allows {}, and no more.", limit.limit, limit.value),
            )
            .with_limit(limit.limit)
            .with_retry_after(RETRY_SECONDS),
            Refusal::Unavailable => Self::new(
                Code::Unavailable,
                "The store did not answer, or whether the request was carried out is unknown. Repeat it.",
            )
            .with_retry_after(RETRY_SECONDS),
            Refusal::TooSlow => Self::new(
                Code::TooSlow,
                "The request's time was over before it could be carried out or answered. Nothing of it is left.",
            )
            .with_retry_after(RETRY_SECONDS),
            Refusal::ShuttingDown => {
                Self::new(Code::ShuttingDown, "The server is stopping and takes no new locks.")
                    .with_retry_after(RETRY_SECONDS)
            }
        }
    }
}
