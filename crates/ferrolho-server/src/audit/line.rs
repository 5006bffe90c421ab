//! A line of the trail: a JSON object in ASCII.
//!
//! Everything else than ASCII is escaped, so that no name can look like a line of its own or turn one around,
//! whatever program splits the file into lines or shows it.

use std::fmt::Write as _;
use std::net::SocketAddr;

use ferrolho_core::{FencingToken, Lock, Owner, Principal, Resource, Timestamp};
use ferrolho_store::clock::wall_now;
use serde::Serialize;

use super::Origin;

/// What is known of how an act ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// It is done.
    Done,
    /// The store did not say: it may have been done, and may not.
    Unknown,
    /// It was refused.
    Refused,
}

/// A line. What there is nothing to say about is left out.
#[derive(Debug, Serialize)]
pub(super) struct Line<'a> {
    /// When it was noted, by this machine's clock.
    time: Timestamp,
    event: &'static str,
    #[serde(flatten)]
    pub(super) what: What<'a>,
}

/// What a line says besides its time and its event.
#[derive(Debug, Default, Serialize)]
pub(super) struct What<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) outcome: Option<Outcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) resource: Option<&'a Resource>,
    /// The lock's, or whose the caller said to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) owner: Option<&'a Owner>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) principal: Option<&'a Principal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fencing_token: Option<FencingToken>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expires_at: Option<Timestamp>,
    /// Whether the owner held the lock already, and was granted it anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) again: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<&'a str>,
    /// The principal that asked for it, where it is not the lock's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) by: Option<&'a Principal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) route: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<SocketAddr>,
    /// How many lines are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lines: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<&'static str>,
}

impl<'a> What<'a> {
    /// Something about this lock.
    pub(super) fn of(lock: &'a Lock) -> Self {
        Self {
            resource: Some(&lock.resource),
            owner: Some(&lock.owner),
            principal: lock.principal.as_ref(),
            fencing_token: Some(lock.fencing_token),
            ..Self::default()
        }
    }

    /// The same, asked for in this request.
    pub(super) fn asked_in(self, origin: &'a Origin) -> Self {
        let Some(asker) = &origin.0 else {
            return self;
        };
        Self {
            request_id: Some(&asker.request_id),
            source: Some(asker.source),
            by: asker.principal.as_ref().filter(|by| Some(*by) != self.principal),
            ..self
        }
    }

    /// The line that says so now.
    pub(super) fn line(self, event: &'static str) -> Line<'a> {
        Line {
            time: wall_now(),
            event,
            what: self,
        }
    }
}

impl Line<'_> {
    /// The line as it is written, with its end.
    pub(super) fn text(&self) -> String {
        // Lines are plain structures, which always can be written.
        let json = serde_json::to_string(self).unwrap_or_default();
        let mut text = in_ascii(&json);
        text.push('\n');
        text
    }
}

/// JSON with everything that is not ASCII escaped. Outside of its texts there is nothing but ASCII.
fn in_ascii(json: &str) -> String {
    let mut text = String::with_capacity(json.len() + 1);
    for char in json.chars() {
        if char.is_ascii() && char != '\u{7f}' {
            text.push(char);
        } else {
            for unit in char.encode_utf16(&mut [0; 2]) {
                // Writing into a string does not fail.
                let _ = write!(text, "\\u{unit:04x}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_ascii_is_escaped_and_read_back_the_same() {
        let name = "é \u{2028}\u{202e}\u{1f512} \\\"}{\u{feff}";
        let resource = Resource::new(name).unwrap();
        let what = What {
            resource: Some(&resource),
            ..What::default()
        };
        let text = what.line("acquired").text();
        assert!(text.is_ascii(), "{text}");
        assert_eq!(text.matches('\n').count(), 1);
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["resource"], name);
    }
}
