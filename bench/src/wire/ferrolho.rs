//! ferrolho's own HTTP and JSON.

use std::io::Write as _;

use super::http::{request, response};
use super::{Answer, Ask, Dialect, Heard, Request, TTL_SECONDS, or_failed};

/// How long a waiter is ready to wait, in seconds: the longest that the service takes.
const WAIT_SECONDS: u32 = 300;

/// A connection to ferrolho.
#[derive(Default)]
pub(crate) struct Ferrolho {
    asked: Option<Ask>,
    body: Vec<u8>,
}

impl Dialect for Ferrolho {
    fn ask(&mut self, wanted: Request<'_>, out: &mut Vec<u8>) {
        self.asked = Some(wanted.ask);
        self.body.clear();
        let owner = wanted.owner;
        self.body.extend_from_slice(b"{\"owner\":\"");
        self.body.extend_from_slice(owner);
        self.body.push(b'"');
        match wanted.ask {
            Ask::Acquire | Ask::Renew => {
                let _ = write!(self.body, ",\"ttl_seconds\":{TTL_SECONDS}");
            }
            Ask::Wait => {
                let _ = write!(
                    self.body,
                    ",\"ttl_seconds\":{TTL_SECONDS},\"wait_seconds\":{WAIT_SECONDS}"
                );
            }
            Ask::Open | Ask::Read | Ask::Release => {}
        }
        self.body.push(b'}');
        let (method, action, body): (_, &[u8], &[u8]) = match wanted.ask {
            Ask::Open => return request(out, "GET", [b"/healthz", b"", b""], "", b""),
            Ask::Acquire | Ask::Wait => ("POST", b"", &self.body),
            Ask::Renew => ("POST", b"/renew", &self.body),
            Ask::Read => ("GET", b"", b""),
            Ask::Release => ("DELETE", b"", &self.body),
        };
        request(out, method, [b"/locks/", wanted.name, action], "", body);
    }

    fn hear(&mut self, input: &[u8], _out: &mut Vec<u8>) -> Heard {
        let Some(heard) = response(input) else {
            return Heard::More;
        };
        let answer = match (self.asked, heard.status) {
            (Some(Ask::Acquire | Ask::Wait), 200) if heard.body.starts_with(b"{\"acquired\":true") => {
                Answer::Granted
            }
            (Some(Ask::Acquire | Ask::Wait), 200) => {
                or_failed(heard.body.starts_with(b"{\"acquired\":false"), Answer::Refused)
            }
            (Some(Ask::Open | Ask::Renew | Ask::Read), 200) | (Some(Ask::Release), 204) => Answer::Done,
            _ => Answer::Failed,
        };
        Heard::Answer(heard.length, answer)
    }
}
