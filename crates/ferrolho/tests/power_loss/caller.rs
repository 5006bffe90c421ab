//! A caller over one connection, who writes down what it asks and what it is told.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::load::{Act, Asked, Grant};
use crate::record::Serving;
use crate::trace::CallerId;

/// How long all locks are meant to live: far beyond the end of the test.
const TTL_SECONDS: u32 = 86_000;

/// A caller over one connection.
pub(crate) struct Caller<'a> {
    server: &'a Serving,
    stream: BufReader<TcpStream>,
    id: CallerId,
    requests: usize,
}

impl<'a> Caller<'a> {
    pub(crate) fn to(server: &'a Serving) -> Self {
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
    pub(crate) fn round(&mut self, names: &[String], round: usize, metadata: &Value) -> io::Result<()> {
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

    pub(crate) fn acquire(
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

    pub(crate) fn release(&mut self, owner: &str, name: &str, token: u64) -> io::Result<()> {
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

    pub(crate) fn look(&mut self, name: &str) -> io::Result<()> {
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

    pub(crate) fn call(&mut self, method: &str, path: &str, body: &Value) -> io::Result<Value> {
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
