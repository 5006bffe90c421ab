//! Limits on connections and readers of events: who comes too late is told which, and nobody else notices.
//! (Cases: WEB. The limits on waiters are in `queue`, those on bodies and heads in `bodies` and `protocol`.)

use std::io;

use crate::support::{Answer, Connection, Request, Server, Stream, until};

/// How many connections beyond the limit are told so; see the server's `room`.
const SPARE: usize = 64;

/// Half a head: whoever sends it holds its connection without asking for anything.
const HALF: &[u8] = b"GET /locks HTTP/1.1\r\nhost:";

fn limited(answer: &Answer, limit: &str) {
    let problem = answer.problem(429, "limit-reached");
    assert_eq!(problem["limit"], limit);
    assert!(problem["detail"].as_str().unwrap().contains(limit), "{problem}");
    assert!(answer.header("retry-after").is_some());
}

fn ask(server: &Server, target: &str) -> io::Result<Answer> {
    let mut connection = server.connect();
    connection.try_send(&Request::get(target))?;
    connection.try_answer()
}

/// Slow senders take all connections that there are, and try for many more.
#[test]
fn a_flood_of_connections_leaves_those_alone_who_are_there() {
    let server = Server::with(&["--max-connections", "20"]);
    let mut normal = server.connect();
    normal.call(&crate::support::acquire("r", "a", 600)).granted();
    let mut flood: Vec<Connection> = Vec::new();
    for _ in 0..19 {
        flood.push(server.connect());
    }
    until("the last is told", || {
        ask(&server, "/locks").is_ok_and(|answer| answer.status == 429)
    });
    let mut late = server.connect();
    late.send(&Request::get("/locks/r"));
    let refused = late.answer();
    limited(&refused, "max-connections");
    assert_eq!(refused.header("connection"), Some("close"));
    assert!(late.try_answer().is_err(), "it is hung up on");
    // A probe sees that the server lives.
    assert_eq!(ask(&server, "/healthz").unwrap().status, 200);
    // Now more than are even told so.
    for _ in 0..3 * SPARE {
        let mut connection = server.connect();
        let _hung_up = connection.write(HALF);
        flood.push(connection);
    }
    until("nobody new is heard", || ask(&server, "/healthz").is_err());
    let open = server.descriptors();
    for _ in 0..50 {
        flood.push(server.connect());
        normal.call(&crate::support::acquire("other", "a", 600)).granted();
        normal.call(&Request::get("/locks/r")).lock();
    }
    until("they cost nothing", || server.descriptors() <= open);
    drop(flood);
    until("there is room again", || {
        ask(&server, "/locks/r").is_ok_and(|answer| answer.status == 200)
    });
    normal.call(&Request::delete("/locks/r?owner=a")).done();
}

/// Slowloris: heads that come byte by byte. Each is hung up on when its time is over, however lively it looks.
#[test]
fn slow_heads_free_their_connections() {
    let server = Server::with(&["--max-connections", "5", "--head-timeout-seconds", "1"]);
    let mut slow: Vec<Connection> = (0..5).map(|_| server.connect()).collect();
    for connection in &mut slow {
        connection.write(HALF).unwrap();
    }
    until("a caller is served", || {
        for connection in &mut slow {
            let _hung_up = connection.write(b"x");
        }
        ask(&server, "/locks").is_ok_and(|answer| answer.status == 200)
    });
}

#[test]
fn readers_of_events_have_a_limit() {
    let server = Server::with(&["--max-event-readers", "3"]);
    let mut readers: Vec<Stream> = (0..3).map(|_| server.events("", None)).collect();
    limited(&server.get("/events"), "max-event-readers");
    // Nobody else is refused, and those who read go on.
    server.acquire("r", "a", 600).granted();
    for reader in &mut readers {
        assert_eq!(reader.event().1.resource, "r");
    }
    readers.pop();
    until("there is room again", || {
        let mut connection = server.begin(&Request::get("/events"));
        connection.head().unwrap().status == 200
    });
}
