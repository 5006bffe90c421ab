//! Requests that are sent behind one another on one connection. A second request hides its caller's hang-up, so a
//! request that another one is pipelined behind does not wait. (Source: the HTTP facts of the design.)

use serde_json::json;

use crate::support::{
    Connection, Request, Server, acquire, acquire_waiting, lock_path, on_every_engine, until,
};

on_every_engine!(
    who_sends_more_in_the_same_breath_does_not_wait,
    who_sends_more_while_it_waits_waits_no_longer,
    the_last_of_several_requests_waits,
    who_sent_more_and_left_is_given_nothing,
);

/// The acquire, in chunks if `is_chunked`.
fn waiting_bytes(server: &Server, resource: &str, is_chunked: bool) -> Vec<u8> {
    if !is_chunked {
        return acquire_waiting(resource, "b", 600, 300).bytes(server.addr);
    }
    let body = json!({"owner": "b", "ttl_seconds": 600, "wait_seconds": 300}).to_string();
    let (first, second) = body.split_at(7);
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\n\r\n",
        lock_path(resource),
        server.addr
    );
    let chunk = |part: &str| format!("{:x}\r\n{part}\r\n", part.len());
    format!("{head}{}{}0\r\n\r\n", chunk(first), chunk(second)).into_bytes()
}

fn both(server: &Server, resource: &str, is_chunked: bool) -> (Connection, Vec<u8>, Vec<u8>) {
    let next = Request::get("/healthz").bytes(server.addr);
    (
        server.connect(),
        waiting_bytes(server, resource, is_chunked),
        next,
    )
}

fn who_sends_more_in_the_same_breath_does_not_wait(server: &Server) {
    for is_chunked in [false, true] {
        let name = format!("breath-{is_chunked}");
        server.acquire(&name, "a", 600).granted();
        let (mut connection, mut bytes, next) = both(server, &name, is_chunked);
        bytes.extend(next);
        connection.write(&bytes).unwrap();
        connection.answer().refused();
        assert_eq!(connection.answer().status, 200);
        assert_eq!(server.waiters(&name), [] as [&str; 0]);
    }
}

fn who_sends_more_while_it_waits_waits_no_longer(server: &Server) {
    for is_chunked in [false, true] {
        let name = format!("later-{is_chunked}");
        server.acquire(&name, "a", 600).granted();
        let (mut connection, bytes, next) = both(server, &name, is_chunked);
        connection.write(&bytes).unwrap();
        server.until_waiting(&name, 1);
        connection.write(&next).unwrap();
        connection.answer().refused();
        assert_eq!(connection.answer().status, 200);
        assert_eq!(server.waiters(&name), [] as [&str; 0]);
    }
}

fn the_last_of_several_requests_waits(server: &Server) {
    server.acquire("held", "a", 600).granted();
    let mut connection = server.connect();
    let mut bytes = acquire("free", "b", 600).bytes(server.addr);
    bytes.extend(Request::get("/locks/free").bytes(server.addr));
    bytes.extend(waiting_bytes(server, "held", false));
    connection.write(&bytes).unwrap();
    connection.answer().granted();
    assert_eq!(connection.answer().status, 200);
    server.until_waiting("held", 1);
    server.release("held", "a").done();
    assert_eq!(connection.answer().granted().owner, "b");
}

fn who_sent_more_and_left_is_given_nothing(server: &Server) {
    for is_chunked in [false, true] {
        let name = format!("left-{is_chunked}");
        server.acquire(&name, "a", 600).granted();
        let (mut connection, bytes, next) = both(server, &name, is_chunked);
        connection.write(&bytes).unwrap();
        server.until_waiting(&name, 1);
        connection.write(&next).unwrap();
        until("it waits no longer", || server.waiters(&name).is_empty());
        drop(connection);
        server.release(&name, "a").done();
        // Had the one who left been handed the lock, it would be held for ten minutes.
        server.acquire(&name, "c", 600).granted();
    }
}
