//! PostgreSQL's protocol with prepared statements: one flight of bind, execute and sync for a request.

use super::message::{bytes, framed, int, length_at};
use super::{Answer, Ask, Dialect, Heard, Request, or_failed};

/// What a lock on PostgreSQL is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// A row: one upsert takes it, one delete gives it back. No fencing token.
    Row,
    /// A session's advisory lock: in shared memory only.
    Advisory,
}

/// The table of [`Kind::Row`].
pub(crate) const TABLE: &str = "CREATE TABLE locks (resource text PRIMARY KEY, owner text NOT NULL, \
     expires_at timestamptz NOT NULL, acquired_at timestamptz NOT NULL)";

/// The statements of [`Kind::Row`], under the names that they are prepared by.
const ROW: [(&str, &str); 4] = [
    (
        "acquire",
        "INSERT INTO locks VALUES ($1, $2, now() + interval '1 hour', now()) ON CONFLICT (resource) DO UPDATE \
         SET owner = excluded.owner, expires_at = excluded.expires_at, acquired_at = excluded.acquired_at \
         WHERE locks.expires_at <= now() OR locks.owner = excluded.owner RETURNING expires_at",
    ),
    (
        "renew",
        "UPDATE locks SET expires_at = now() + interval '1 hour' \
         WHERE resource = $1 AND owner = $2 AND expires_at > now() RETURNING expires_at",
    ),
    (
        "read",
        "SELECT owner, expires_at FROM locks WHERE resource = $1 AND expires_at > now()",
    ),
    (
        "release",
        "DELETE FROM locks WHERE resource = $1 AND owner = $2 RETURNING owner",
    ),
];

/// The statements of [`Kind::Advisory`].
const ADVISORY: [(&str, &str); 3] = [
    ("acquire", "SELECT pg_try_advisory_lock(hashtextextended($1, 0))"),
    ("wait", "SELECT pg_advisory_lock(hashtextextended($1, 0))"),
    ("release", "SELECT pg_advisory_unlock(hashtextextended($1, 0))"),
];

/// A connection to PostgreSQL.
pub(crate) struct Postgres {
    kind: Kind,
    asked: Ask,
    /// How many more times the server says that it is ready before the request has its answer.
    awaited: u32,
    rows: u32,
    /// The last row was the one value "false".
    refused: bool,
    failed: bool,
}

impl Postgres {
    /// A connection that has said nothing yet.
    pub(crate) fn new(kind: Kind) -> Self {
        Self {
            kind,
            asked: Ask::Open,
            awaited: 0,
            rows: 0,
            refused: false,
            failed: false,
        }
    }

    fn open(&mut self, out: &mut Vec<u8>) {
        framed(out, true, |out| {
            int(out, 196_608);
            out.extend_from_slice(b"user\0postgres\0database\0postgres\0\0");
        });
        let statements: &[(&str, &str)] = match self.kind {
            Kind::Row => &ROW,
            Kind::Advisory => &ADVISORY,
        };
        for (name, text) in statements {
            out.push(b'P');
            framed(out, true, |out| {
                text_field(out, name);
                text_field(out, text);
                out.extend_from_slice(&[0, 0]);
            });
        }
        sync(out);
        // Once after the greeting, once after the statements.
        self.awaited = 2;
    }

    fn execute(&mut self, statement: &str, parameters: &[&[u8]], out: &mut Vec<u8>) {
        out.push(b'B');
        framed(out, true, |out| {
            text_field(out, "");
            text_field(out, statement);
            out.extend_from_slice(&[0, 0, 0, u8::try_from(parameters.len()).unwrap_or(0)]);
            for parameter in parameters {
                bytes(out, parameter);
            }
            out.extend_from_slice(&[0, 0]);
        });
        out.push(b'E');
        framed(out, true, |out| {
            text_field(out, "");
            int(out, 0);
        });
        sync(out);
        self.awaited = 1;
    }

    fn answer(&self) -> Answer {
        if self.failed {
            return Answer::Failed;
        }
        match (self.asked, self.rows) {
            (Ask::Open, _) => Answer::Done,
            (Ask::Acquire, 0) => Answer::Refused,
            (Ask::Acquire | Ask::Wait, 1) if self.refused => Answer::Refused,
            (Ask::Acquire | Ask::Wait, 1) => Answer::Granted,
            (_, rows) => or_failed(rows == 1 && !self.refused, Answer::Done),
        }
    }
}

impl Dialect for Postgres {
    fn ask(&mut self, wanted: Request<'_>, out: &mut Vec<u8>) {
        (self.asked, self.rows, self.refused, self.failed) = (wanted.ask, 0, false, false);
        let both = [wanted.name, wanted.owner];
        let statement = match wanted.ask {
            Ask::Open => return self.open(out),
            Ask::Acquire => "acquire",
            Ask::Wait => "wait",
            Ask::Renew => "renew",
            Ask::Read => "read",
            Ask::Release => "release",
        };
        let parameters = match (self.kind, wanted.ask) {
            (Kind::Row, Ask::Acquire | Ask::Renew | Ask::Release) => &both[..],
            _ => &both[..1],
        };
        self.execute(statement, parameters, out);
    }

    fn hear(&mut self, input: &[u8], _out: &mut Vec<u8>) -> Heard {
        let mut used = 0;
        while let Some(length) = length_at(input, used + 1) {
            let end = used + 1 + length;
            let Some([kind, _, _, _, _, body @ ..]) = input.get(used..end) else {
                break;
            };
            match kind {
                b'D' => {
                    self.rows += 1;
                    // One column with the one character `f`.
                    self.refused = body == [0, 1, 0, 0, 0, 1, b'f'];
                }
                b'E' => self.failed = true,
                b'Z' => self.awaited = self.awaited.saturating_sub(1),
                _ => {}
            }
            used = end;
            if self.awaited == 0 {
                return Heard::Answer(used, self.answer());
            }
        }
        if used == 0 { Heard::More } else { Heard::Part(used) }
    }
}

fn text_field(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

fn sync(out: &mut Vec<u8>) {
    out.push(b'S');
    framed(out, true, |_| {});
}
