//! The HTTP of the `lockserver` crate: acquire and release, nothing else. A refusal is 409.

use std::io::Write as _;

use super::http::{request, response};
use super::{Answer, Ask, Dialect, Heard, Request, TTL_SECONDS};

/// The secret that the server is started with; it answers nobody without one.
pub(crate) const SECRET: &str = "bench";
/// The header that carries it.
const SECRET_HEADER: &str = "x-lockserver-secret: bench\r\n";

/// A connection to a lockserver.
#[derive(Default)]
pub(crate) struct Lockserver {
    asked: Option<Ask>,
    body: Vec<u8>,
}

impl Dialect for Lockserver {
    fn ask(&mut self, wanted: Request<'_>, out: &mut Vec<u8>) {
        self.asked = Some(wanted.ask);
        self.body.clear();
        self.body.extend_from_slice(b"{\"resource\":\"");
        self.body.extend_from_slice(wanted.name);
        self.body.extend_from_slice(b"\",\"owner\":\"");
        self.body.extend_from_slice(wanted.owner);
        let path: &[u8] = if wanted.ask == Ask::Release {
            self.body.extend_from_slice(b"\"}");
            b"/release"
        } else {
            let _ = write!(self.body, "\",\"expire\":{TTL_SECONDS}}}");
            b"/acquire"
        };
        let body: &[u8] = if wanted.ask == Ask::Open { b"" } else { &self.body };
        request(out, "POST", [path, b"", b""], SECRET_HEADER, body);
    }

    fn hear(&mut self, input: &[u8], _out: &mut Vec<u8>) -> Heard {
        let Some(heard) = response(input) else {
            return Heard::More;
        };
        let answer = match (self.asked, heard.status) {
            // It has nothing to greet with: a request without a body, which it refuses, shows that it is there.
            (Some(Ask::Open), 400) | (Some(Ask::Release), 200) => Answer::Done,
            (Some(Ask::Acquire), 200) => Answer::Granted,
            (Some(Ask::Acquire), 409) => Answer::Refused,
            _ => Answer::Failed,
        };
        Heard::Answer(heard.length, answer)
    }
}
