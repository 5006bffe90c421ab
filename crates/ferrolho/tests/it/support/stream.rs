//! Server-sent events, read one by one.

use std::io;

use serde::Deserialize;

use super::{Connection, Lock, Request, Server, micros};

/// What the data of an event says.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Event {
    pub(crate) kind: String,
    pub(crate) resource: String,
    pub(crate) lock: Lock,
    pub(crate) at: String,
    pub(crate) reason: Option<String>,
}

/// One block of a stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Block {
    Event {
        id: String,
        event: Box<Event>,
    },
    /// An event of another name, such as `reset`.
    Named(String),
    /// A sign of life.
    Comment,
    /// An id alone: the reader's place moves on.
    Id(String),
    /// How soon to come back, in milliseconds.
    Retry(u32),
}

/// A stream of events.
#[derive(Debug)]
pub(crate) struct Stream {
    connection: Connection,
    text: String,
}

impl Server {
    /// Opens `/events` with this query, going on after this id; the stream has begun when this returns.
    pub(crate) fn events(&self, query: &str, after: Option<&str>) -> Stream {
        let request = Request::get(&format!("/events{query}"));
        let request = match after {
            Some(id) => request.header("last-event-id", id),
            None => request,
        };
        let mut connection = self.begin(&request);
        let head = connection.head().unwrap();
        assert_eq!(head.status, 200);
        assert_eq!(head.header("content-type"), Some("text/event-stream"));
        assert_eq!(head.header("cache-control"), Some("no-store"));
        let mut stream = Stream {
            connection,
            text: String::new(),
        };
        assert!(matches!(stream.block(), Some(Block::Retry(_))));
        stream
    }
}

impl Stream {
    /// The next block; nothing when the stream has ended.
    pub(crate) fn block(&mut self) -> Option<Block> {
        while !self.text.contains("\n\n") {
            let chunk = String::from_utf8(self.chunk()?).unwrap();
            self.text.push_str(&chunk);
        }
        let end = self.text.find("\n\n")?;
        let block: String = self.text.drain(..end + 2).collect();
        Some(read(&block))
    }

    fn chunk(&mut self) -> Option<Vec<u8>> {
        match self.connection.chunk() {
            Ok(chunk) => chunk,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => panic!("nothing comes: {}", self.text),
            Err(_) => None,
        }
    }

    /// The next event, which must come next but for signs of life.
    pub(crate) fn event(&mut self) -> (String, Event) {
        loop {
            match self.block() {
                Some(Block::Event { id, event }) => return (id, *event),
                Some(Block::Comment | Block::Id(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// The next so many events.
    pub(crate) fn take(&mut self, count: usize) -> Vec<Event> {
        (0..count).map(|_| self.event().1).collect()
    }
}

fn read(block: &str) -> Block {
    let (mut id, mut name, mut data) = (None, None, None);
    for line in block.trim_end().lines() {
        match line.split_once(": ") {
            Some(("id", value)) => id = Some(value.to_owned()),
            Some(("event", value)) => name = Some(value.to_owned()),
            Some(("data", value)) => data = Some(value.to_owned()),
            Some(("retry", value)) => return Block::Retry(value.parse().unwrap()),
            Some(("", _)) => return Block::Comment,
            _ => panic!("{block:?}"),
        }
    }
    match (id, name, data) {
        (Some(id), None, Some(data)) => {
            let event: Box<Event> =
                serde_json::from_str(&data).unwrap_or_else(|error| panic!("{error}: {data}"));
            assert_eq!(event.resource, event.lock.resource);
            micros(&event.at);
            Block::Event { id, event }
        }
        (None, Some(name), Some(_)) => Block::Named(name),
        (Some(id), None, None) => Block::Id(id),
        other => panic!("{other:?} in {block:?}"),
    }
}
