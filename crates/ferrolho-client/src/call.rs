//! Requests and answers in the terms of the HTTP interface: where each call goes, and what a refusal means.

use ferrolho_core::wire::{Problem, ReleaseBody, RenewBody, RenewOwnerBody};
use ferrolho_core::{Owner, Resource, Ttl};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Error;
use crate::transport::{Call, Failure, Reply};

/// Everything but what RFC 3986 calls unreserved is encoded, so that a name is always one segment of a path or
/// one value of a query.
const NAME: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A name as one segment of a path, or one value of a query.
pub(crate) fn encode(name: &str) -> String {
    utf8_percent_encode(name, NAME).to_string()
}

impl Call {
    pub(crate) fn get(target: impl Into<String>) -> Self {
        Self {
            method: Method::GET,
            target: target.into(),
            body: None,
            idempotency_key: None,
        }
    }

    pub(crate) fn post(target: impl Into<String>, body: &impl Serialize) -> Self {
        Self {
            method: Method::POST,
            // The bodies are plain data of our own: there is nothing in them that cannot be written.
            body: Some(serde_json::to_vec(body).unwrap_or_default()),
            ..Self::get(target)
        }
    }

    pub(crate) fn renew(resource: &Resource, body: &RenewBody) -> Self {
        Self::post(format!("/locks/{}/renew", encode(resource.as_str())), body)
    }

    pub(crate) fn release(resource: &Resource, body: &ReleaseBody) -> Self {
        // Not DELETE, whose body some proxies drop.
        Self::post(format!("/locks/{}/release", encode(resource.as_str())), body)
    }

    pub(crate) fn renew_owner(owner: &Owner, ttl: Ttl) -> Self {
        let body = RenewOwnerBody {
            ttl_seconds: ttl.seconds(),
        };
        Self::post(format!("/owners/{}/renew", encode(owner.as_str())), &body)
    }
}

impl Reply {
    /// The body of a 200, or that nothing is clear.
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(&self.body)
            .map_err(|error| Failure::unclear(format!("an answer that makes no sense: {error}")))
    }

    /// What an answer other than 200 and 204 means.
    pub(crate) fn refusal(&self) -> Error {
        let problem: Option<Problem> = serde_json::from_slice(&self.body).ok();
        let code = problem.as_ref().map_or("", |problem| problem.code.as_str());
        match (self.status.as_u16(), code) {
            (404, "not-found") => Error::NotFound,
            (403, "forbidden") => Error::NotOwner,
            _ => match problem {
                Some(problem) => Error::Refused(Box::new(problem)),
                None => Error::Protocol(format!("status {} without a problem", self.status)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_legal_name_is_one_segment() {
        assert_eq!(encode("team/job"), "team%2Fjob");
        assert_eq!(encode("%2e%2E"), "%252e%252E");
        assert_eq!(encode("a b?c#d\\"), "a%20b%3Fc%23d%5C");
        assert_eq!(encode("café 語"), "caf%C3%A9%20%E8%AA%9E");
        assert_eq!(encode("...-_~"), "...-_~");
        for name in ["a;b=c", "a+b&c", "..%2f", "%2e", "…", "a//b"] {
            let url = reqwest::Url::parse(&format!("http://h/locks/{}/renew", encode(name))).unwrap();
            let segments: Vec<&str> = url.path_segments().unwrap().collect();
            assert_eq!(segments.len(), 3, "{name}");
            let back = percent_encoding::percent_decode_str(segments[1])
                .decode_utf8()
                .unwrap();
            assert_eq!(back, name);
        }
    }
}
