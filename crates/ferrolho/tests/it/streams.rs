//! Streams of events that are cut, slow, late or silent. (Cases: row 111.)

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Block, Request, Server, Stream, until};

#[test]
fn what_is_older_than_the_buffer_is_answered_with_a_reset() {
    let server = Server::with(&["--event-buffer", "10"]);
    let mut stream = server.events("", None);
    server.acquire("r", "a", 600).granted();
    let (id, _) = stream.event();
    for _ in 0..9 {
        server.acquire("r", "a", 600).granted();
    }
    stream.take(9);
    assert_eq!(server.events("", Some(&id)).take(9).len(), 9);
    server.acquire("r", "a", 600).granted();
    stream.take(1);
    let mut late = server.events("", Some(&id));
    assert_eq!(late.block(), Some(Block::Named("reset".to_owned())));
}

#[test]
fn an_id_from_before_a_restart_is_answered_with_a_reset_or_with_what_was_missed() {
    let mut server = Server::start();
    let mut stream = server.events("", None);
    server.acquire("r", "a", 600).granted();
    let (id, _) = stream.event();
    server.acquire("s", "a", 600).granted();
    server.kill();
    assert_eq!(stream.event().1.resource, "s");
    assert_eq!(stream.block(), None);
    server.start_again();
    let mut back = server.events("", Some(&id));
    match back.block() {
        Some(Block::Named(name)) => assert_eq!(name, "reset"),
        Some(Block::Event { event, .. }) => assert_eq!(event.resource, "s"),
        other => panic!("{other:?}"),
    }
}

/// A reader that does not read is dropped with a word, and nobody waits for it.
#[test]
fn a_slow_reader_is_dropped_and_slows_nobody() {
    let server = Server::start_on("memory:", &["--event-buffer", "100"], &[]);
    let mut slow = server.events("", None);
    let mut connection = server.connect();
    let metadata = json!({"long": "x".repeat(4_000)});
    let body = json!({"owner": "a", "ttl_seconds": 600, "metadata": metadata});
    let request = Request::post("/locks/r").json(&body);
    // More than what the kernel keeps for a reader, which is some megabytes.
    for _ in 0..5_000 {
        connection.call(&request).granted();
    }
    let mut count = 0;
    let last = loop {
        match slow.block() {
            Some(Block::Event { .. }) => count += 1,
            Some(other) => break other,
            None => panic!("it ended without a word"),
        }
    };
    assert_eq!(last, Block::Named("dropped".to_owned()));
    assert!(count < 5_000);
    assert_eq!(slow.block(), None);
}

#[test]
fn readers_that_leave_leave_nothing_behind() {
    let server = Server::memory();
    let before = server.descriptors();
    for _ in 0..5 {
        let readers: Vec<Stream> = (0..50).map(|_| server.events("", None)).collect();
        server.acquire("r", "a", 600).granted();
        drop(readers);
    }
    until("its descriptors are closed", || server.descriptors() <= before);
}

/// With nothing to say the stream says so every 15 s; and a reader whose prefix kept everything back is told how far
/// it has come.
#[test]
fn a_silent_stream_gives_a_sign_of_life() {
    let server = Server::memory();
    let mut filtered = server.events("?prefix=none", None);
    let mut all = server.events("", None);
    server.acquire("r", "a", 600).granted();
    all.event();
    let begun = Instant::now();
    let mut silent = server.events("?prefix=none", None);
    let Some(Block::Id(place)) = filtered.block() else {
        panic!("it is not told where it is");
    };
    assert_eq!(silent.block(), Some(Block::Comment));
    assert!(begun.elapsed() >= Duration::from_secs(15));
    server.acquire("s", "a", 600).granted();
    let mut back = server.events("", Some(&place));
    assert_eq!(back.event().1.resource, "s");
}
