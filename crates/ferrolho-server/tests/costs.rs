//! What a request costs the server's thread in allocations, over real connections and the memory engine. Counts and
//! not times, so that a slow machine changes nothing: whoever adds one to every request is told so here.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use allocation_counter::AllocationInfo;
use ferrolho_core::Ttl;
use ferrolho_server::audit::Audit;
use ferrolho_server::auth::Authenticator;
use ferrolho_server::service::{Limits, Service};
use ferrolho_server::{ConnectionLimits, Guard, Http, HttpOptions, serve};
use ferrolho_store::MemoryStore;
use ferrolho_store::clock::{Clock, HostTime};
use tokio::sync::oneshot;

/// What is asked for over and over, and how many allocations it costs. If a change lowers a figure, lower it here; if
/// one must raise it, raise it and say why in the change.
const COSTS: [(&str, &[Request], f64); 5] = [
    ("acquire and release", &[ACQUIRE, RELEASE], 79.0),
    ("an acquire of what another holds", &[ACQUIRE_HELD], 35.0),
    ("a renewal", &[RENEW], 38.0),
    ("a look", &[FIND], 16.0),
    ("a look at what is free", &[FIND_FREE], 23.0),
];

/// The request's line, its body, and the status of its answer.
type Request = (&'static str, &'static str, &'static str);

const HOLD: Request = ("POST /locks/held", r#"{"owner":"h","ttl_seconds":600}"#, "200");
const ACQUIRE: Request = ("POST /locks/r", r#"{"owner":"a","ttl_seconds":30}"#, "200");
const RELEASE: Request = ("DELETE /locks/r", r#"{"owner":"a"}"#, "204");
const ACQUIRE_HELD: Request = ("POST /locks/held", r#"{"owner":"a","ttl_seconds":30}"#, "200");
const RENEW: Request = (
    "POST /locks/held/renew",
    r#"{"owner":"h","ttl_seconds":600}"#,
    "200",
);
const FIND: Request = ("GET /locks/held", "", "200");
const FIND_FREE: Request = ("GET /locks/free", "", "404");

/// One caller that keeps its connection.
struct Caller(TcpStream);

impl Caller {
    fn call(&mut self, (line, body, status): Request) {
        let length = body.len();
        let request = format!(
            "{line} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        self.0.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        while !is_whole(&answer) {
            let mut piece = [0; 4096];
            let length = self.0.read(&mut piece).unwrap();
            assert!(length > 0, "hung up on");
            answer.extend_from_slice(&piece[..length]);
        }
        let text = String::from_utf8(answer).unwrap();
        assert_eq!(text.split(' ').nth(1), Some(status), "{text}");
    }
}

fn is_whole(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |length| length.parse().unwrap());
    body.len() >= length
}

/// A server on this thread until `stop` is over.
fn serve_here(listener: TcpListener, stop: oneshot::Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let service = Service::start(
            Arc::new(MemoryStore::new(Clock::new(Arc::new(HostTime)))),
            Limits::default(),
            Audit::default(),
        );
        let options = HttpOptions {
            max_ttl: Ttl::MAX,
            body_timeout: Duration::from_secs(10),
            guard: Guard::default(),
            auth: Arc::new(Authenticator::Off),
        };
        let stopped = async { stop.await.unwrap() };
        serve(
            listener,
            None,
            Http::new(service, options),
            ConnectionLimits::default(),
            stopped,
        )
        .await
        .unwrap();
    });
}

/// How many allocations a server makes in a life in which these calls come so many times.
fn allocations(calls: &'static [Request], times: u32) -> u64 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let calling = thread::spawn(move || {
        let mut caller = Caller(TcpStream::connect(address).unwrap());
        caller.call(HOLD);
        for _ in 0..times {
            for call in calls {
                caller.call(*call);
            }
        }
        stop.send(()).unwrap();
    });
    let AllocationInfo { count_total, .. } = allocation_counter::measure(|| serve_here(listener, stopped));
    calling.join().unwrap();
    count_total
}

/// For what grows now and then.
const SLACK: f64 = 0.5;

#[test]
fn requests_cost_no_more_allocations_than_they_did() {
    const FEW: u32 = 200;
    const MANY: u32 = 1_200;
    let mut costs = Vec::new();
    for (what, calls, most) in COSTS {
        let more = allocations(calls, MANY) - allocations(calls, FEW);
        let each = f64::from(u32::try_from(more).unwrap()) / f64::from(MANY - FEW);
        costs.push((what, each, most));
    }
    assert!(
        costs.iter().all(|(_, each, most)| *each <= most + SLACK),
        "what, allocations, most: {costs:#?}"
    );
}
