//! Limits on connections, readers of events and locks of a principal: who comes too late is told which, and nobody else notices.
//! (Cases: WEB. The limits on waiters are in `queue`, those on bodies and heads in `bodies` and `protocol`.)

use std::io;

use crate::auth::Made;
use crate::support::{Answer, Connection, Request, Server, Stream, acquire, acquire_waiting, until};

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
    normal.call(&acquire("r", "a", 600)).granted();
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
        normal.call(&acquire("other", "a", 600)).granted();
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
    let mut late = server.begin(&Request::get("/events"));
    let head = late.head().unwrap();
    assert_eq!(head.status, 429, "its body would be a stream without end");
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

const OF_PRINCIPAL: &str = "max-locks-per-principal";

/// Takes locks of new names until that is refused. The count comes a moment after the grants, so it may be some more
/// than the limit, and never less.
fn take_all(server: &Server, prefix: &str, limit: usize) -> usize {
    let mut connection = server.connect();
    let mut granted = 0;
    until("the limit is reached", || {
        let answer = connection.call(&acquire(&format!("{prefix}{granted}"), "a", 600));
        if answer.status == 429 {
            limited(&answer, OF_PRINCIPAL);
            return true;
        }
        answer.granted();
        granted += 1;
        false
    });
    assert!(granted >= limit, "{granted}");
    granted
}

#[test]
fn one_principal_cannot_take_all_locks() {
    let (greedy, other) = (Made::full("greedy", "*"), Made::full("other", "*"));
    let lines = format!("{}\n{}", greedy.line, other.line);
    let args = ["--max-locks-per-principal", "5"];
    let mut server = Server::asking_with(&lines, &greedy.token, &args);
    let granted = take_all(&server, "r", 5);
    // Another owner's name is no way round, nor is waiting or a set.
    limited(&server.acquire("s", "b", 600), OF_PRINCIPAL);
    limited(&server.call(&acquire_waiting("s", "b", 600, 60)), OF_PRINCIPAL);
    let set = serde_json::json!({"resources": ["r0", "s"], "owner": "a", "ttl_seconds": 600});
    limited(&server.post("/locks", &set), OF_PRINCIPAL);
    // What it has it may use, and others are not concerned.
    server.acquire("r0", "a", 600).granted();
    server.acquire("r0", "b", 600).refused();
    server.renew("r1", "a", 600).lock();
    other.acquire(&server, "s", "a").granted();
    // The count is of the store: a new server knows it.
    server.stop();
    server.start_again();
    until("it has counted", || server.acquire("t", "b", 600).status == 429);
    // What is given back, and what has ended, makes room.
    for number in 0..granted {
        server.release(&format!("r{number}"), "a").done();
    }
    server.call(&Request::delete("/owners/b"));
    until("there is room", || server.acquire("u", "a", 1).status == 200);
    for number in 0..5 {
        let name = format!("v{number}");
        until("there is room, at last that of u, which expires", || {
            server.acquire(&name, "a", 600).status == 200
        });
    }
    server.find("u").not_found();
}

#[test]
fn without_principals_their_limit_is_nobodys() {
    let server = Server::with(&["--max-locks-per-principal", "1"]);
    for number in 0..20 {
        server.acquire(&format!("r{number}"), "a", 600).granted();
    }
}
