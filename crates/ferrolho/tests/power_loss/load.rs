//! What callers do while the server is traced, and what they were told.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{slice, thread};

use serde_json::{Value, json};

use crate::record::{LARGE_LOG_BYTES, Recorder, Serving};
use crate::server::until;
use crate::trace::CallerId;

/// How long all locks are meant to live: far beyond the end of the test.
const TTL_SECONDS: u32 = 86_000;

/// A request that can change something, and what its caller was told.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) caller: CallerId,
    /// How many requests the caller sent before this one.
    pub(crate) nth: usize,
    pub(crate) act: Act,
}

/// What was asked, with the answer if there was one.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Acquire {
        owner: String,
        names: Vec<String>,
        granted: Option<Vec<Grant>>,
    },
    Renew {
        name: String,
        token: u64,
        /// The new end.
        end: Option<String>,
    },
    Release {
        name: String,
        token: u64,
    },
    /// Somebody else saw the lock.
    Look {
        owner: String,
        seen: Grant,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) name: String,
    pub(crate) token: u64,
    pub(crate) end: String,
}

/// Everything that the engine does: writes straight into the table, the journal and its folding, a log that is
/// copied and starts over, rest, hand-overs, `kill -9` under load, a start from what that has left, a clean stop.
pub(crate) fn everything(recorder: &mut Recorder) {
    let log = recorder.directory.path().join("ferrolho.db-wal");
    let log_bytes = || log.metadata().unwrap().len();
    let server = recorder.start();
    one_by_one(&server, "alone", 12);
    many(&server, "crowd", 20, 10, 1);
    hand_overs(&server, 6);
    let mut round = 0;
    while log_bytes() < LARGE_LOG_BYTES {
        many(&server, &format!("large-{round}"), 6, 4, 14);
        round += 1;
        assert!(round < 20, "the log does not grow: {}", log_bytes());
    }
    // And past the point where it starts over.
    many(&server, "larger", 6, 8, 14);
    many(&server, "after", 12, 4, 3);
    until("the log is emptied at rest", || (log_bytes() == 0).then_some(()));
    until_killed(&server, "killed", 16);
    recorder.end(server);

    let server = recorder.start();
    many(&server, "again", 12, 4, 2);
    server.traced.stop();
    recorder.end(server);

    let server = recorder.start();
    one_by_one(&server, "last", 4);
    many(&server, "end", 8, 3, 1);
    server.traced.kill();
    recorder.end(server);
}

/// Some of that, for what is repeated.
pub(crate) fn a_little(recorder: &mut Recorder) {
    let server = recorder.start();
    one_by_one(&server, "alone", 4);
    until_killed(&server, "killed", 12);
    recorder.end(server);

    let server = recorder.start();
    many(&server, "again", 12, 5, 2);
    server.traced.kill();
    recorder.end(server);
}

/// One caller, one request after the other: each is written straight into the table.
fn one_by_one(server: &Serving, prefix: &str, rounds: usize) {
    let mut caller = Caller::to(server);
    for round in 0..rounds {
        caller
            .round(&[format!("{prefix}-{round}")], round, &json!({}))
            .unwrap();
    }
}

/// Many callers at once, each with so many names at a time: large batches, which go through the journal. With more
/// names than ten each lock carries about as much metadata as it may.
fn many(server: &Serving, prefix: &str, callers: usize, rounds: usize, names: usize) {
    let weight = if names > 10 { 4000 } else { 10 };
    let metadata = json!({"what": "x".repeat(weight)});
    thread::scope(|scope| {
        for caller in 0..callers {
            let metadata = &metadata;
            scope.spawn(move || {
                let mut to_server = Caller::to(server);
                for round in 0..rounds {
                    let names: Vec<_> = (0..names)
                        .map(|name| format!("{prefix}-{caller}-{round}-{name}"))
                        .collect();
                    to_server.round(&names, round, metadata).unwrap();
                }
            });
        }
    });
}

/// Likewise, until the server is killed in the middle of it. Somebody looks at what the others take: what is seen
/// counts as told.
fn until_killed(server: &Serving, prefix: &str, callers: usize) {
    let rounds: Vec<_> = (0..callers).map(|_| AtomicUsize::new(0)).collect();
    let name = |caller: usize, round: usize| format!("{prefix}-{caller}-{round}");
    thread::scope(|scope| {
        for (caller, at) in rounds.iter().enumerate() {
            scope.spawn(move || {
                let mut to_server = Caller::to(server);
                for round in 0.. {
                    at.store(round, Ordering::Relaxed);
                    if to_server
                        .round(&[name(caller, round)], round, &json!({}))
                        .is_err()
                    {
                        return;
                    }
                }
            });
        }
        scope.spawn(|| {
            let mut looking = Caller::to(server);
            let mut each = rounds.iter().enumerate().cycle();
            while let Some((caller, at)) = each.next()
                && looking.look(&name(caller, at.load(Ordering::Relaxed))).is_ok()
            {}
        });
        let done = || rounds.iter().map(|at| at.load(Ordering::Relaxed)).sum::<usize>();
        until("there is load", || (done() > 10 * callers).then_some(()));
        server.traced.kill();
    });
}

/// One lock that passes from one owner to the next: a release and a grant in one commit.
fn hand_overs(server: &Serving, rounds: usize) {
    let name = "passed-on".to_owned();
    let mut holder = (Caller::to(server), "p0".to_owned());
    let granted = holder
        .0
        .acquire(&holder.1, slice::from_ref(&name), &json!({}), 0)
        .unwrap();
    let mut token = granted[0].token;
    for round in 1..=rounds {
        let owner = format!("p{round}");
        let mut heir = Caller::to(server);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                heir.acquire(&owner, slice::from_ref(&name), &json!({}), 60)
                    .unwrap()
            });
            let mut looking = Caller::to(server);
            until("the heir waits", || {
                let path = format!("/locks/{name}/waiters");
                let body = looking.call("GET", &path, &Value::Null).unwrap();
                (body["waiters"].as_array()?.len() == 1).then_some(())
            });
            holder.0.release(&holder.1, &name, token).unwrap();
            token = waiting.join().unwrap()[0].token;
        });
        holder = (heir, owner);
    }
}

/// A caller over one connection.
struct Caller<'a> {
    server: &'a Serving,
    stream: BufReader<TcpStream>,
    id: CallerId,
    requests: usize,
}

impl<'a> Caller<'a> {
    fn to(server: &'a Serving) -> Self {
        let stream = TcpStream::connect(server.traced.address).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            server,
            id: CallerId {
                server: server.number,
                port: stream.local_addr().unwrap().port(),
            },
            stream: BufReader::new(stream),
            requests: 0,
        }
    }

    /// Acquires, renews some, and releases two of three.
    fn round(&mut self, names: &[String], round: usize, metadata: &Value) -> io::Result<()> {
        let owner = format!("o{}", self.id.port);
        let granted = self.acquire(&owner, names, metadata, 0)?;
        for (at, grant) in granted.iter().enumerate() {
            if (at + round) % 4 == 1 {
                self.renew(&owner, &grant.name, grant.token)?;
            }
            if !(at + round).is_multiple_of(3) {
                self.release(&owner, &grant.name, grant.token)?;
            }
        }
        Ok(())
    }

    fn acquire(
        &mut self,
        owner: &str,
        names: &[String],
        metadata: &Value,
        wait: u32,
    ) -> io::Result<Vec<Grant>> {
        let mut body = json!({"owner": owner, "ttl_seconds": TTL_SECONDS, "metadata": metadata});
        if wait > 0 {
            body["wait_seconds"] = json!(wait);
        }
        let path = if let [name] = names {
            format!("/locks/{name}")
        } else {
            body["resources"] = json!(names);
            "/locks".to_owned()
        };
        let nth = self.requests;
        let answer = self.call("POST", &path, &body);
        let granted = answer.map(|answer| {
            assert_eq!(answer["acquired"], json!(true), "{answer}");
            match &answer["lock"] {
                Value::Null => answer["locks"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(Grant::read)
                    .collect(),
                lock => vec![Grant::read(lock)],
            }
        });
        let act = Act::Acquire {
            owner: owner.to_owned(),
            names: names.to_vec(),
            granted: granted.as_ref().ok().cloned(),
        };
        self.note(nth, act);
        granted
    }

    fn renew(&mut self, owner: &str, name: &str, token: u64) -> io::Result<()> {
        let body = json!({"owner": owner, "ttl_seconds": TTL_SECONDS / 2, "fencing_token": token});
        let nth = self.requests;
        let answer = self.call("POST", &format!("/locks/{name}/renew"), &body);
        let end = answer.as_ref().ok().map(|lock| Grant::read(lock).end);
        self.note(
            nth,
            Act::Renew {
                name: name.to_owned(),
                token,
                end,
            },
        );
        answer.map(drop)
    }

    fn release(&mut self, owner: &str, name: &str, token: u64) -> io::Result<()> {
        let nth = self.requests;
        let answer = self.call(
            "DELETE",
            &format!("/locks/{name}"),
            &json!({"owner": owner, "fencing_token": token}),
        );
        self.note(
            nth,
            Act::Release {
                name: name.to_owned(),
                token,
            },
        );
        answer.map(drop)
    }

    fn look(&mut self, name: &str) -> io::Result<()> {
        let nth = self.requests;
        let lock = self.call("GET", &format!("/locks/{name}"), &Value::Null)?;
        if let Some(owner) = lock["owner"].as_str() {
            let act = Act::Look {
                owner: owner.to_owned(),
                seen: Grant::read(&lock),
            };
            self.note(nth, act);
        }
        Ok(())
    }

    fn note(&self, nth: usize, act: Act) {
        let asked = Asked {
            caller: self.id,
            nth,
            act,
        };
        self.server.asked.lock().unwrap().push(asked);
    }

    fn call(&mut self, method: &str, path: &str, body: &Value) -> io::Result<Value> {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let host = self.server.traced.address;
        let length = body.len();
        self.requests += 1;
        let request =
            format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: {length}\r\n\r\n{body}");
        self.stream.get_mut().write_all(request.as_bytes())?;
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.stream.read_line(&mut head)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let head = head.to_ascii_lowercase();
        let is_well = head.starts_with("http/1.1 20") || method == "GET" && head.starts_with("http/1.1 404");
        assert!(is_well, "{method} {path}: {head}");
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        self.stream.read_exact(&mut body)?;
        Ok(serde_json::from_slice(&body).unwrap_or_default())
    }
}

impl Grant {
    fn read(lock: &Value) -> Self {
        Self {
            name: lock["resource"].as_str().unwrap().to_owned(),
            token: lock["fencing_token"].as_u64().unwrap(),
            end: lock["expires_at"].as_str().unwrap().to_owned(),
        }
    }
}
