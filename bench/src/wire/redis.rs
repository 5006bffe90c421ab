//! Redis's protocol and the usual lock on it: `SET name token NX PX ttl`, and scripts that compare the token before
//! they delete or prolong.
//!
//! The token of a grant is the owner's name and a counter, which is unique as a random one is, without its cost.

use std::io::Write as _;

use super::{Answer, Ask, Dialect, Heard, Request, TTL_SECONDS, or_failed};

/// Deletes the lock if the token is still the caller's.
const RELEASE: &str =
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
/// Prolongs the lock if the token is still the caller's.
const RENEW: &str = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end";

/// A connection to Redis.
#[derive(Default)]
pub(crate) struct Redis {
    asked: Option<Ask>,
    /// The hashes of the release and the renewal script, as the server named them.
    hashes: Vec<Vec<u8>>,
    grants: u64,
    token: Vec<u8>,
}

impl Redis {
    fn next_token(&mut self, owner: &[u8]) {
        self.grants += 1;
        self.token.clear();
        self.token.extend_from_slice(owner);
        let _ = write!(self.token, "-{:016}", self.grants);
    }

    fn script(&self, which: usize) -> &[u8] {
        self.hashes.get(which).map_or(b"", Vec::as_slice)
    }
}

impl Dialect for Redis {
    fn ask(&mut self, wanted: Request<'_>, out: &mut Vec<u8>) {
        self.asked = Some(wanted.ask);
        let name = wanted.name;
        match wanted.ask {
            Ask::Open => {
                self.hashes.clear();
                command(out, &[b"SCRIPT", b"LOAD", RELEASE.as_bytes()]);
                command(out, &[b"SCRIPT", b"LOAD", RENEW.as_bytes()]);
            }
            Ask::Acquire | Ask::Wait => {
                self.next_token(wanted.owner);
                command(out, &[b"SET", name, &self.token, b"NX", b"PX", &milliseconds()]);
            }
            Ask::Renew => command(
                out,
                &[
                    b"EVALSHA",
                    self.script(1),
                    b"1",
                    name,
                    &self.token,
                    &milliseconds(),
                ],
            ),
            Ask::Read => command(out, &[b"GET", name]),
            Ask::Release => command(out, &[b"EVALSHA", self.script(0), b"1", name, &self.token]),
        }
    }

    fn hear(&mut self, input: &[u8], _out: &mut Vec<u8>) -> Heard {
        let Some((length, reply)) = reply(input) else {
            return Heard::More;
        };
        let answer = match (self.asked, reply) {
            (Some(Ask::Open), Reply::Bulk(hash)) => {
                self.hashes.push(hash.to_vec());
                if self.hashes.len() < 2 {
                    return Heard::Part(length);
                }
                Answer::Done
            }
            (Some(Ask::Acquire), Reply::Simple(b"OK")) => Answer::Granted,
            (Some(Ask::Acquire), Reply::Nil) => Answer::Refused,
            (Some(Ask::Release | Ask::Renew), Reply::Simple(b"1")) => Answer::Done,
            (Some(Ask::Read), Reply::Bulk(token)) => or_failed(!token.is_empty(), Answer::Done),
            _ => Answer::Failed,
        };
        Heard::Answer(length, answer)
    }
}

/// The lifetime as a client library writes it. On the stack: no allocation.
fn milliseconds() -> [u8; 7] {
    let mut digits = [b'0'; 7];
    let mut rest = TTL_SECONDS * 1_000;
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789"[(rest % 10) as usize];
        rest /= 10;
    }
    digits
}

fn command(out: &mut Vec<u8>, words: &[&[u8]]) {
    let _ = write!(out, "*{}\r\n", words.len());
    for word in words {
        let _ = write!(out, "${}\r\n", word.len());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

enum Reply<'a> {
    /// `+OK` or `:1`
    Simple(&'a [u8]),
    Bulk(&'a [u8]),
    Nil,
    Error,
}

fn reply(input: &[u8]) -> Option<(usize, Reply<'_>)> {
    let end = input.windows(2).position(|window| window == b"\r\n")?;
    let (kind, line) = input.get(..end)?.split_first()?;
    let after = end + 2;
    Some(match kind {
        b'+' | b':' => (after, Reply::Simple(line)),
        b'$' if line == b"-1" => (after, Reply::Nil),
        b'$' => {
            let length: usize = std::str::from_utf8(line).ok()?.parse().ok()?;
            let whole = input.get(..after + length + 2)?;
            (whole.len(), Reply::Bulk(&whole[after..after + length]))
        }
        _ => (after, Reply::Error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lifetime_in_milliseconds() {
        assert_eq!(&milliseconds(), b"3600000");
    }

    #[test]
    fn an_acquire_is_granted_or_refused() {
        let mut redis = Redis::default();
        let mut out = Vec::new();
        let wanted = Request {
            ask: Ask::Acquire,
            name: b"n",
            owner: b"o",
        };
        redis.ask(wanted, &mut out);
        assert!(out.starts_with(b"*6\r\n$3\r\nSET\r\n$1\r\nn\r\n$18\r\no-0000000000000001\r\n"));
        assert_eq!(redis.hear(b"+OK\r", &mut out), Heard::More);
        assert_eq!(
            redis.hear(b"+OK\r\n", &mut out),
            Heard::Answer(5, Answer::Granted)
        );
        assert_eq!(
            redis.hear(b"$-1\r\n", &mut out),
            Heard::Answer(5, Answer::Refused)
        );
        assert_eq!(
            redis.hear(b"-OOM\r\n", &mut out),
            Heard::Answer(6, Answer::Failed)
        );
    }
}
