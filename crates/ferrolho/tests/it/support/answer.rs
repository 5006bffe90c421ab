//! Answers, and what a test may say of them. Each way of looking at one checks its whole form.

use ferrolho_core::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

/// An answer to a request.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// A lock, with exactly the fields that it may have.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Lock {
    pub(crate) resource: String,
    pub(crate) owner: String,
    pub(crate) expires_at: String,
    pub(crate) acquired_at: String,
    pub(crate) fencing_token: u64,
    pub(crate) metadata: Option<Value>,
    pub(crate) principal: Option<String>,
}

/// Reads a point in time, which must have the one form that there is: `2026-12-01T05:02:15.000000Z`.
pub(crate) fn micros(text: &str) -> i64 {
    let form = "dddd-dd-ddTdd:dd:dd.ddddddZ";
    let fits = |(is, form): (char, char)| {
        if form == 'd' {
            is.is_ascii_digit()
        } else {
            is == form
        }
    };
    assert!(
        text.len() == form.len() && text.chars().zip(form.chars()).all(fits),
        "{text}"
    );
    Timestamp::parse(text).unwrap().as_micros()
}

impl Lock {
    /// From the grant, or else from the last renewal, to the end: what `expires_at` and `acquired_at` say.
    pub(crate) fn life(&self) -> Duration {
        let life = micros(&self.expires_at) - micros(&self.acquired_at);
        Duration::from_micros(life.try_into().unwrap())
    }
}

impl Answer {
    pub(super) fn from_status_line(line: &str) -> Self {
        let status = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
        Self {
            status: status.unwrap_or_else(|| panic!("{line}")).parse().unwrap(),
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    pub(super) fn add_header(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap();
        self.headers
            .push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }

    /// A header that must not be there twice.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(n, _)| n == name);
        let value = values.next().map(|(_, value)| value.as_str());
        assert_eq!(values.next(), None, "{name} comes twice");
        value
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// The keys of the JSON object that this is.
    fn keys(value: &Value) -> Vec<&str> {
        let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        keys
    }

    fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text());
        assert_eq!(self.header("content-type"), Some("application/json"));
        assert_eq!(self.header("cache-control"), Some("no-store"));
        assert_eq!(self.header("x-content-type-options"), Some("nosniff"));
        self.json()
    }

    /// The lock that was acquired.
    pub(crate) fn granted(&self) -> Lock {
        let json = self.ok();
        assert_eq!(Self::keys(&json), ["acquired", "lock"], "{json}");
        assert_eq!(json["acquired"], true);
        assert_eq!(self.header("retry-after"), None);
        serde_json::from_value(json["lock"].clone()).unwrap()
    }

    /// Nothing was acquired; the seconds after which to try again.
    pub(crate) fn refused(&self) -> u64 {
        let json = self.ok();
        assert_eq!(Self::keys(&json), ["acquired", "resource"], "{json}");
        assert_eq!(json["acquired"], false);
        let seconds = self.header("retry-after").unwrap().parse().unwrap();
        assert!(seconds >= 1);
        seconds
    }

    /// Whether something was acquired. It is one or the other.
    pub(crate) fn is_granted(&self) -> bool {
        let is_granted = self.json()["acquired"] == true;
        if is_granted {
            self.granted();
        } else {
            self.refused();
        }
        is_granted
    }

    /// The lock that was found or renewed.
    pub(crate) fn lock(&self) -> Lock {
        serde_json::from_value(self.ok()).unwrap()
    }

    /// It is done, and there is no more to say.
    pub(crate) fn done(&self) {
        assert_eq!(self.status, 204, "{}", self.text());
        assert!(self.body.is_empty());
        assert_eq!(self.header("cache-control"), Some("no-store"));
        assert_eq!(self.header("x-content-type-options"), Some("nosniff"));
    }

    /// A problem (RFC 9457) in the one form that there is.
    pub(crate) fn problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        assert_eq!(self.header("cache-control"), Some("no-store"));
        assert_eq!(self.header("x-content-type-options"), Some("nosniff"));
        let json = self.json();
        assert_eq!(json["status"], status, "{json}");
        assert_eq!(json["code"], code, "{json}");
        assert_eq!(json["type"], format!("/problems/{code}"));
        assert_eq!(json["request_id"], self.header("x-request-id").unwrap());
        let mut keys = vec![
            "code",
            "detail",
            "instance",
            "request_id",
            "status",
            "title",
            "type",
        ];
        if code == "validation-failed" {
            keys.insert(2, "errors");
        }
        // What a limit refused names it.
        if matches!(status, 408 | 413 | 414 | 429) {
            keys.insert(3, "limit");
        }
        assert_eq!(Self::keys(&json), keys);
        for text in ["title", "detail", "instance"] {
            assert!(json[text].as_str().is_some_and(|text| !text.is_empty()), "{json}");
        }
        json
    }

    /// The request was not valid because of these fields and no others.
    pub(crate) fn invalid(&self, fields: &[&str]) {
        let json = self.problem(422, "validation-failed");
        let errors = json["errors"].as_array().unwrap();
        for error in errors {
            assert_eq!(Self::keys(error), ["code", "field", "message"], "{json}");
            assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()));
        }
        let mut named: Vec<&str> = errors
            .iter()
            .filter_map(|error| error["field"].as_str())
            .collect();
        named.sort_unstable();
        let mut fields = fields.to_vec();
        fields.sort_unstable();
        assert_eq!(named, fields, "{json}");
    }

    /// There is no such lock.
    pub(crate) fn not_found(&self) {
        self.problem(404, "not-found");
    }

    /// The lock is another's.
    pub(crate) fn forbidden(&self) {
        self.problem(403, "forbidden");
    }
}
