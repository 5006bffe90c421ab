//! ZooKeeper's protocol. A lock is an ephemeral node: who can create it has it. That is the cheapest lock that
//! ZooKeeper has, one write to take it and one to give it back. Who waits uses the recipe of its documentation:
//! a sequential ephemeral node for each, and a watch on the one before.

use super::message::{bytes, framed, int, int_at, length_at};
use super::{Answer, Ask, Dialect, Heard, Request, or_failed};

const CREATE: u32 = 1;
const DELETE: u32 = 2;
const EXISTS: u32 = 3;
const GET_DATA: u32 = 4;
const GET_CHILDREN: u32 = 8;
/// The number of an event where an answer has that of its request.
const EVENT: u32 = u32::MAX;
const NO_NODE: u32 = (-101_i32).cast_unsigned();
const NODE_EXISTS: u32 = (-110_i32).cast_unsigned();
const EPHEMERAL: u32 = 1;
const EPHEMERAL_SEQUENTIAL: u32 = 3;
/// How long a session may be silent, in milliseconds: the longest that the server grants.
const SESSION_MILLISECONDS: u32 = 40_000;
/// Any version of a node.
const ANY: u32 = u32::MAX;

/// Where a caller is on its way through the waiting recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Create,
    Look,
    Watch,
    Sleep,
}

/// A connection to ZooKeeper.
pub(crate) struct Zookeeper {
    asked: Ask,
    stage: Stage,
    /// The number of the last request.
    number: u32,
    /// The caller's node, with the leading `/`.
    node: Vec<u8>,
    /// The node is one of those that stand in line.
    in_line: bool,
}

impl Zookeeper {
    /// A connection that has said nothing yet.
    pub(crate) fn new() -> Self {
        Self {
            asked: Ask::Open,
            stage: Stage::Create,
            number: 0,
            node: Vec::new(),
            in_line: false,
        }
    }

    fn request(&mut self, kind: u32, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        self.number += 1;
        let number = self.number;
        framed(out, false, |out| {
            int(out, number);
            int(out, kind);
            write(out);
        });
    }

    fn create(&mut self, flags: u32, data: &[u8], out: &mut Vec<u8>) {
        let path = std::mem::take(&mut self.node);
        self.request(CREATE, out, |out| {
            bytes(out, &path);
            bytes(out, data);
            // One entry of access control: anybody may do anything.
            int(out, 1);
            int(out, 31);
            bytes(out, b"world");
            bytes(out, b"anyone");
            int(out, flags);
        });
        self.node = path;
    }

    fn on_node(&mut self, kind: u32, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        let path = std::mem::take(&mut self.node);
        self.request(kind, out, |out| {
            bytes(out, &path);
            write(out);
        });
        self.node = path;
    }

    fn look(&mut self, out: &mut Vec<u8>) {
        self.stage = Stage::Look;
        self.request(GET_CHILDREN, out, |out| {
            bytes(out, b"/");
            out.push(0);
        });
    }

    /// The next step of the waiting recipe after an answer; the lock when it is there.
    fn advance(&mut self, error: u32, body: &[u8], out: &mut Vec<u8>) -> Option<Answer> {
        match (self.stage, error) {
            (Stage::Create, 0) => {
                self.node.clear();
                self.node.extend_from_slice(string_at(body, 0)?.0);
                self.look(out);
                None
            }
            (Stage::Look, 0) => {
                let Some(before) = node_before(body, &self.node) else {
                    return Some(Answer::Granted);
                };
                self.stage = Stage::Watch;
                self.request(EXISTS, out, |out| {
                    int(out, u32::try_from(before.len() + 1).unwrap_or(0));
                    out.push(b'/');
                    out.extend_from_slice(before);
                    out.push(1);
                });
                None
            }
            (Stage::Watch, 0) => {
                self.stage = Stage::Sleep;
                None
            }
            (Stage::Watch, NO_NODE) => {
                self.look(out);
                None
            }
            _ => Some(Answer::Failed),
        }
    }

    fn answer(&mut self, error: u32, body: &[u8], out: &mut Vec<u8>) -> Option<Answer> {
        Some(match (self.asked, error) {
            (Ask::Wait, _) => return self.advance(error, body, out),
            (Ask::Acquire, 0) => Answer::Granted,
            (Ask::Acquire, NODE_EXISTS) => Answer::Refused,
            (asked, error) => or_failed(asked != Ask::Acquire && error == 0, Answer::Done),
        })
    }
}

impl Dialect for Zookeeper {
    fn ask(&mut self, wanted: Request<'_>, out: &mut Vec<u8>) {
        self.asked = wanted.ask;
        // The server has named the node that stands in line.
        let named = self.in_line && wanted.ask == Ask::Release;
        if !named {
            self.node.clear();
            self.node.push(b'/');
            self.node.extend_from_slice(wanted.name);
        }
        self.in_line = wanted.ask == Ask::Wait;
        match wanted.ask {
            Ask::Open => framed(out, false, |out| {
                // Protocol 0, nothing seen yet, a new session without a password.
                out.extend_from_slice(&[0; 12]);
                int(out, SESSION_MILLISECONDS);
                out.extend_from_slice(&[0; 8]);
                bytes(out, &[0; 16]);
            }),
            Ask::Acquire => self.create(EPHEMERAL, wanted.owner, out),
            Ask::Wait => {
                self.node.push(b'-');
                self.stage = Stage::Create;
                self.create(EPHEMERAL_SEQUENTIAL, wanted.owner, out);
            }
            // A session is renewed as a whole; there is nothing to say for one lock.
            Ask::Renew => {}
            Ask::Read => self.on_node(GET_DATA, out, |out| out.push(0)),
            Ask::Release => self.on_node(DELETE, out, |out| int(out, ANY)),
        }
    }

    fn hear(&mut self, input: &[u8], out: &mut Vec<u8>) -> Heard {
        let Some(length) = length_at(input, 0) else {
            return Heard::More;
        };
        let Some(message) = input.get(4..4 + length) else {
            return Heard::More;
        };
        let used = 4 + length;
        if self.asked == Ask::Open {
            return Heard::Answer(used, or_failed(int_at(message, 4) != Some(0), Answer::Done));
        }
        // Number of the request, 8 bytes of transaction number, error, body.
        let (Some(number), Some(error), Some(body)) =
            (int_at(message, 0), int_at(message, 12), message.get(16..))
        else {
            return Heard::Answer(used, Answer::Failed);
        };
        if number == EVENT {
            // The node before is gone. An event that comes before the answer to its watch cannot be.
            if self.asked == Ask::Wait && self.stage == Stage::Sleep {
                self.look(out);
            }
            return Heard::Part(used);
        }
        match self.answer(error, body, out) {
            Some(answer) => Heard::Answer(used, answer),
            None => Heard::Part(used),
        }
    }
}

/// The string at this place, and the place after it.
fn string_at(input: &[u8], place: usize) -> Option<(&[u8], usize)> {
    let start = place + 4;
    let end = start + length_at(input, place)?;
    Some((input.get(start..end)?, end))
}

/// How many digits ZooKeeper puts behind the name of a sequential node.
const DIGITS: usize = 10;

/// Of a list of nodes, the one that stands in line just before the node with this path.
fn node_before<'a>(children: &'a [u8], path: &[u8]) -> Option<&'a [u8]> {
    let own = path.get(1..)?;
    let name = own.get(..own.len().checked_sub(DIGITS)?)?;
    let count = length_at(children, 0)?;
    let mut place = 4;
    let mut best: Option<&[u8]> = None;
    for _ in 0..count {
        let (child, next) = string_at(children, place)?;
        place = next;
        let before = child.starts_with(name) && child < own;
        if before && best.is_none_or(|best| child > best) {
            best = Some(child);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_before_is_the_last_of_the_smaller_ones() {
        let mut children = Vec::new();
        int(&mut children, 4);
        for child in ["zookeeper", "n-0000000003", "n-0000000001", "n-0000000002"] {
            bytes(&mut children, child.as_bytes());
        }
        assert_eq!(
            node_before(&children, b"/n-0000000003"),
            Some(&b"n-0000000002"[..])
        );
        assert_eq!(node_before(&children, b"/n-0000000001"), None);
    }
}
