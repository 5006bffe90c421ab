//! Events: every change once, in the order of commits, and a reader that may have missed something is told so.
//! (Cases: row 111.)

use std::collections::HashMap;
use std::thread;

use serde_json::json;

use crate::support::{Block, Event, Lock, Request, Server, Stream, acquire, on_every_engine};

on_every_engine!(
    every_change_is_told_once_and_in_order,
    a_prefix_keeps_the_others_back,
    a_reader_that_comes_back_gets_exactly_what_it_missed,
    an_id_that_is_not_known_is_answered_with_one_reset,
    every_reader_is_told_the_same_under_load,
    refusals_and_looks_are_no_events,
);

fn kinds(events: &[Event]) -> Vec<(&str, &str, &str)> {
    let mut said = Vec::new();
    for event in events {
        said.push((
            event.kind.as_str(),
            event.resource.as_str(),
            event.lock.owner.as_str(),
        ));
    }
    said
}

/// Waits until the server has published what happened before: a lock of its own comes by.
fn marked(stream: &mut Stream, server: &Server) -> Vec<Event> {
    server.acquire("mark", "mark", 600).granted();
    let mut events = Vec::new();
    loop {
        match stream.event().1 {
            mark if mark.resource == "mark" => return events,
            event => events.push(event),
        }
    }
}

fn every_change_is_told_once_and_in_order(server: &Server) {
    let mut stream = server.events("", None);
    let first = server.acquire("r", "a", 600).granted();
    let again = server.acquire("r", "a", 600).granted();
    let renewed = server.renew("r", "a", 900).lock();
    let mut heir = server.wait_for("r", "b", 1, 300);
    server.until_waiting("r", 1);
    server.release("r", "a").done();
    let given = heir.answer().granted();
    // A lock is gone for everybody the moment it ends, and its removal is told when it is done.
    let mut events = stream.take(6);
    let set = json!({"resources": ["s", "t"], "owner": "c", "ttl_seconds": 600});
    assert_eq!(server.post("/locks", &set).json()["acquired"], true);
    server.release("t", "c").done();
    events.extend(stream.take(3));
    let mut said = kinds(&events);
    // A set is one change; its locks may come in either order.
    said[6..8].sort_unstable();
    assert_eq!(
        said,
        [
            ("acquired", "r", "a"),
            ("acquired", "r", "a"),
            ("renewed", "r", "a"),
            ("released", "r", "a"),
            ("acquired", "r", "b"),
            ("expired", "r", "b"),
            ("acquired", "s", "c"),
            ("acquired", "t", "c"),
            ("released", "t", "c"),
        ]
    );
    let locks: Vec<&Lock> = events.iter().map(|event| &event.lock).collect();
    assert_eq!(locks[..6], [&first, &again, &renewed, &renewed, &given, &given]);
    assert!(events.is_sorted_by_key(|event| &event.at));
    assert!(events[5].at >= given.expires_at);
    assert_eq!(marked(&mut stream, server), []);
}

fn refusals_and_looks_are_no_events(server: &Server) {
    let mut stream = server.events("", None);
    server.acquire("r", "a", 600).granted();
    assert_eq!(kinds(&stream.take(1)), [("acquired", "r", "a")]);
    server.acquire("r", "b", 600).refused();
    server.find("r").lock();
    server.renew("r", "b", 600).forbidden();
    server.release("r", "b").forbidden();
    server.release("none", "b").not_found();
    server.acquire("r", "", 600).invalid(&["owner"]);
    server.wait_for("r", "b", 600, 1).answer().refused();
    assert_eq!(marked(&mut stream, server), []);
}

fn a_prefix_keeps_the_others_back(server: &Server) {
    let mut stream = server.events("?prefix=team%2F", None);
    for name in ["other", "team/1", "team", "Team/2", "team/é"] {
        server.acquire(name, "a", 600).granted();
    }
    let events = stream.take(2);
    assert_eq!(
        kinds(&events),
        [("acquired", "team/1", "a"), ("acquired", "team/é", "a")]
    );
}

fn a_reader_that_comes_back_gets_exactly_what_it_missed(server: &Server) {
    let mut stream = server.events("", None);
    server.acquire("r", "a", 600).granted();
    let (id, _) = stream.event();
    drop(stream);
    server.release("r", "a").done();
    server.acquire("r", "b", 600).granted();
    server.renew("r", "b", 600).lock();
    server.acquire("s", "b", 600).granted();
    server.release("r", "b").done();
    let missed = [
        ("released", "r", "a"),
        ("acquired", "r", "b"),
        ("renewed", "r", "b"),
        ("acquired", "s", "b"),
        ("released", "r", "b"),
    ];
    // However often it comes back for them.
    for _ in 0..2 {
        let mut back = server.events("", Some(&id));
        assert_eq!(kinds(&back.take(5)), missed);
    }
    let mut back = server.events("", Some(&id));
    let (middle, _) = (back.event(), back.event()).1;
    let mut back = server.events("", Some(&middle));
    assert_eq!(kinds(&back.take(3)), missed[2..]);
    server.acquire("later", "b", 600).granted();
    assert_eq!(back.event().1.resource, "later");
    // And with a prefix, its own part of it.
    let mut back = server.events("?prefix=s", Some(&id));
    assert_eq!(kinds(&back.take(1)), [("acquired", "s", "b")]);
}

fn an_id_that_is_not_known_is_answered_with_one_reset(server: &Server) {
    let mut stream = server.events("", None);
    server.acquire("r", "a", 600).granted();
    let (id, _) = stream.event();
    let changed = format!("{id}9");
    for foreign in [
        "0",
        "nonsense",
        "1-1-0",
        "99999999999999999999-0-0",
        "é",
        changed.as_str(),
    ] {
        let mut stream = server.events("", Some(foreign));
        assert_eq!(
            stream.block(),
            Some(Block::Named("reset".to_owned())),
            "{foreign}"
        );
        server.acquire("r", "a", 600).granted();
        assert_eq!(stream.event().1.kind, "acquired");
    }
    let twice = Request::get("/events")
        .header("last-event-id", "1")
        .header("last-event-id", "2");
    server.call(&twice).invalid(&["Last-Event-ID"]);
}

/// Eight callers change sixteen locks while two readers follow from the start, one cut and resumed all the time.
fn every_reader_is_told_the_same_under_load(server: &Server) {
    const EACH: usize = 60;
    let mut steady = server.events("", None);
    let mut restless = server.events("", None);
    let run = |caller: usize| {
        let mut connection = server.connect();
        let owner = format!("caller-{caller}");
        let mut tokens = Vec::new();
        for step in 0..EACH {
            let name = format!("r{}", (step * 5 + caller) % 16);
            let answer = connection.call(&acquire(&name, &owner, 600));
            if answer.is_granted() {
                tokens.push((name.clone(), answer.granted().fencing_token));
                let target = format!("/locks/{name}?owner={owner}");
                connection.call(&Request::delete(&target)).done();
            }
        }
        tokens
    };
    let (granted, read) = thread::scope(|scope| {
        let run = &run;
        let callers: Vec<_> = (0..8).map(|caller| scope.spawn(move || run(caller))).collect();
        let reader = scope.spawn(|| {
            let mut events = Vec::new();
            loop {
                let (id, event) = restless.event();
                if event.resource == "mark" {
                    return events;
                }
                events.push(event);
                if events.len() % 10 == 0 {
                    restless = server.events("", Some(&id));
                }
            }
        });
        let granted: Vec<(String, u64)> = callers
            .into_iter()
            .flat_map(|caller| caller.join().unwrap())
            .collect();
        (granted, (marked(&mut steady, server), reader.join().unwrap()))
    });
    let (steady, restless) = read;
    assert_eq!(steady.len(), 2 * granted.len());
    assert_eq!(steady, restless);
    // Every grant once, then its release, and tokens rise: the order of events is that of commits.
    let mut last: HashMap<String, (u64, &str)> = HashMap::new();
    for event in &steady {
        let (token, kind) = last.get(&event.resource).copied().unwrap_or((0, "released"));
        match event.kind.as_str() {
            "acquired" => assert!(
                kind == "released" && event.lock.fencing_token > token,
                "{event:?}"
            ),
            "released" => assert!(
                kind == "acquired" && event.lock.fencing_token == token,
                "{event:?}"
            ),
            other => panic!("{other}"),
        }
        last.insert(event.resource.clone(), (event.lock.fencing_token, &event.kind));
    }
    for (name, token) in granted {
        let is_grant = |event: &&Event| event.resource == name && event.lock.fencing_token == token;
        assert_eq!(steady.iter().filter(is_grant).count(), 2, "{name} {token}");
    }
}
