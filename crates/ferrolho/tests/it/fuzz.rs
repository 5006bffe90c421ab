//! Whole requests broken in small ways, over bare sockets: every answer is one, none is a mistake of ours, and the
//! server goes on.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use ferrolho_testkit::fuzz::{broken, try_all};
use proptest::prelude::*;

use crate::support::{PATIENCE, Server};

const REQUESTS: &[&str] = &[
    "POST /locks/payment:42 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 31\r\n\r\n{\"owner\":\"a\",\"ttl_seconds\":3600}",
    "POST /locks/a?fail_if_held=true HTTP/1.1\r\nHost: 127.0.0.1:7400\r\nContent-Type: application/json\r\n\
     Idempotency-Key: k-1\r\nX-Request-Id: abc\r\nTransfer-Encoding: chunked\r\n\r\n1f\r\n{\"owner\":\"a\",\"ttl_seconds\":3600}\r\n0\r\n\r\n",
    "DELETE /locks/team%2Fjob?owner=a&fencing_token=7 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET /locks?prefix=a&limit=10&cursor=a HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n\r\n",
    "GET /events HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: 1-2-0\r\nSec-Fetch-Site: same-origin\r\n\r\n",
    "POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 52\r\n\r\n{\"resources\":[\"a\",\"b\"],\"owner\":\"o\",\"ttl_seconds\":9000}",
    "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\nGET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u{4}\0\0\0\0\0",
];

/// The first line of what comes; nothing when the server closes without a word.
fn first_line(server: &Server, request: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(server.addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // A server that has refused need not read the rest.
    let _unread = stream.write_all(request);
    let _ended = stream.shutdown(Shutdown::Write);
    let mut read = vec![0; 64];
    let mut length = 0;
    while length < read.len() {
        match stream.read(&mut read[length..]) {
            Ok(0) | Err(_) => break,
            Ok(more) => length += more,
        }
    }
    read.truncate(length);
    read
}

#[test]
fn broken_requests_are_answered_or_closed_and_the_server_goes_on() {
    let server = Server::memory();
    let pid = server.pid();
    try_all(1_000, &broken(REQUESTS), |request| {
        let line = first_line(&server, &request);
        if line.is_empty() || line.starts_with(&[0, 0]) {
            // Closed, or frames of HTTP/2.
            return Ok(());
        }
        let line = String::from_utf8_lossy(&line);
        prop_assert!(line.starts_with("HTTP/1."), "{}", line);
        let status: u16 = line[9..12].parse().unwrap();
        prop_assert!(
            (200..500).contains(&status),
            "{} to {:?}",
            status,
            String::from_utf8_lossy(&request)
        );
        Ok(())
    });
    assert_eq!(server.pid(), pid);
    server.acquire("after all", "one", 60).granted();
    assert!(
        server
            .metrics()
            .value("ferrolho_http_problems_total{code=\"internal\"}")
            < 0.5
    );
    assert!(!server.log().contains("panicked"), "{}", server.log());
}
