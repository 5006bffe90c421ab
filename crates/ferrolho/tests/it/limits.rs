//! Limits on connections, readers of events and locks of a principal: who comes too late is told which, and nobody else
//! notices. (Cases: WEB. More on the limits on waiters is in `queue`, on bodies and heads in `bodies` and `protocol`.)

use std::collections::BTreeSet;
use std::io;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::json;

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

/// How a connection of HTTP/2 begins: the preface, and settings that change nothing.
const HTTP_2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A frame of HTTP/2 that asks for a sign of life.
const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0ferrolho";

/// The beginning of a head that never ends: HEADERS without their end, on stream 1.
const HALF_HEADERS: &[u8] = b"\0\0\x01\x01\0\0\0\0\x01\x82";

/// HTTP/2 has no heads of its own that could be late; its connections are idle when they have no request.
#[test]
fn idle_connections_of_http_2_are_freed_however_lively_they_look() {
    for says in [&[][..], PING, HALF_HEADERS] {
        let server = Server::with(&["--max-connections", "5", "--head-timeout-seconds", "1"]);
        let mut idle: Vec<Connection> = (0..5).map(|_| server.connect()).collect();
        for connection in &mut idle {
            connection.write(HTTP_2).unwrap();
            connection.write(says).unwrap();
        }
        until("a caller is served", || {
            for connection in &mut idle {
                let _hung_up = connection.write(if says == PING { PING } else { &[] });
            }
            ask(&server, "/locks").is_ok_and(|answer| answer.status == 200)
        });
    }
}

/// Who waits, or reads events, is not idle.
#[test]
fn a_request_of_http_2_may_take_longer_than_a_head() {
    let server = Server::with(&["--head-timeout-seconds", "1"]);
    server.acquire("r", "a", 600).granted();
    let curl = |arguments: &[&str]| {
        let mut command = Command::new("curl");
        command.args(["--silent", "--no-buffer", "--http2-prior-knowledge"]);
        command.args(arguments).stdout(Stdio::piped()).spawn().unwrap()
    };
    let url = |path: &str| format!("http://{}{path}", server.addr);
    let mut reader = curl(&[&url("/events")]);
    let body = "{\"owner\":\"b\",\"ttl_seconds\":600,\"wait_seconds\":60}";
    let waiting = curl(&["--data", body, &url("/locks/r")]);
    server.until_waiting("r", 1);
    thread::sleep(Duration::from_secs(3));
    assert_eq!(server.waiters("r"), ["b"]);
    server.release("r", "a").done();
    let answer = waiting.wait_with_output().unwrap().stdout;
    assert!(String::from_utf8(answer).unwrap().contains("\"acquired\":true"));
    server.release("r", "b").done();
    until("both were told", || {
        server.metrics().value("ferrolho_events_total{kind=\"released\"}") > 1.0
    });
    reader.kill().unwrap();
    let told = String::from_utf8(reader.wait_with_output().unwrap().stdout).unwrap();
    assert!(told.contains("\"owner\":\"b\""), "{told}");
}

/// Asks for much and takes nothing: its time is not that of heads, but that of a caller that is silently gone.
#[test]
fn who_does_not_read_its_answer_is_hung_up_on() {
    let server = Server::start_on("memory:", &["--head-timeout-seconds", "600"], &[]);
    let mut normal = server.connect();
    let metadata = json!({"text": "x".repeat(4_000)});
    for number in 0..1_000 {
        let body = json!({"owner": "a", "ttl_seconds": 600, "metadata": metadata});
        normal
            .call(&Request::post(&format!("/locks/r{number}")).json(&body))
            .granted();
    }
    let open = server.descriptors();
    let mut slow: Vec<Connection> = (0..3).map(|_| server.connect()).collect();
    for connection in &mut slow {
        // Four megabytes each time: more than fits on the way.
        for _ in 0..5 {
            connection.send(&Request::get("/locks?limit=1000"));
        }
    }
    until("they are taken", || server.descriptors() >= open + slow.len());
    until("they are given up", || {
        normal.call(&Request::get("/locks/r1")).lock();
        server.descriptors() <= open
    });
}

/// Every limit that refuses a request, with its status and its name in the answer.
#[test]
fn every_limit_has_its_status_and_its_name() {
    let made = Made::full("app", "*");
    let args = [
        "--max-locks-per-principal=3",
        "--max-waiters=2",
        "--max-waiters-per-resource=1",
        "--max-event-readers=1",
        "--max-connections=6",
        "--body-timeout-seconds=1",
    ];
    let server = Server::asking_with(&made.line, &made.token, &args);
    let mut seen = BTreeSet::new();
    let mut says = |answer: &Answer, status: u16, code: &str, limit: &str| {
        let problem = answer.problem(status, code);
        assert_eq!(problem["limit"], limit, "{problem}");
        seen.insert(limit.to_owned());
    };
    let mut connection = server.connect();
    let mut call = |request: &Request| connection.call(request);
    for name in ["r", "s"] {
        call(&acquire(name, "a", 600)).granted();
    }
    let long = Request::get(&format!("/locks?prefix={}", "x".repeat(17_000)));
    says(&call(&long), 414, "path-too-long", "path-bytes");
    let reader = server.events("", None);
    let late = server.get("/events");
    says(&late, 429, "limit-reached", "max-event-readers");
    drop(reader);
    let _one = server.wait_for("r", "b", 600, 60);
    server.until_waiting("r", 1);
    let more = acquire_waiting("r", "c", 600, 60);
    says(&call(&more), 429, "too-many-waiters", "max-waiters-per-resource");
    let _two = server.wait_for("s", "b", 600, 60);
    server.until_waiting("s", 1);
    let more = acquire_waiting("s", "c", 600, 60);
    says(&call(&more), 429, "too-many-waiters", "max-waiters");
    call(&acquire("t", "a", 600)).granted();
    says(&call(&acquire("u", "a", 600)), 429, "limit-reached", OF_PRINCIPAL);
    let slow = Request::post("/locks/r").header("content-length", "10").body("{");
    says(&call(&slow), 408, "too-slow", "body-timeout-seconds");
    let large = Request::post("/locks/r").body(vec![b' '; 65_537]);
    says(&server.call(&large), 413, "body-too-large", "body-bytes");
    let mut all = Vec::new();
    until("all connections are taken", || {
        let answer = ask(&server, "/locks").unwrap();
        if answer.status == 429 {
            says(&answer, 429, "limit-reached", "max-connections");
            return true;
        }
        all.push(server.connect());
        false
    });
    // No other is named where they are explained.
    let page = include_str!("../../../../docs/api.md");
    let (_, paragraph) = page.split_once("member `limit` has its name: ").unwrap();
    let (listed, _) = paragraph.split_once("A connection beyond").unwrap();
    let named: BTreeSet<String> = listed.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    assert_eq!(seen, named);
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
