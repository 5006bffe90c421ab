//! `/metrics`: true figures in a form that Prometheus reads, and no more of them than there are kinds of things.

use std::net::SocketAddr;

use serde_json::json;

use crate::support::metrics::{Metrics, promtool};
use crate::support::{Connection, Request, Server, ferrolho, lock_path, on_every_engine, until};

on_every_engine!(what_was_done_is_counted);

fn what_was_done_is_counted(server: &Server) {
    server.acquire("a", "one", 60).granted();
    server.acquire("a", "two", 60).refused();
    let waiting = server.wait_for("a", "three", 60, 60);
    server.until_waiting("a", 1);
    assert!((server.metrics().value("ferrolho_waiters") - 1.0).abs() < 0.1);
    server.renew("a", "one", 60).lock();
    server.renew("a", "other", 60).forbidden();
    server.release("a", "one").done();
    let mut waiting = waiting;
    waiting.answer().granted();
    server.release("nothing", "one").not_found();
    until("all of it is counted", || {
        let page = server.metrics();
        page.value("ferrolho_hand_over_duration_seconds_count") > 0.5
            && page.value("ferrolho_events_total{kind=\"renewed\"}") > 0.5
            && page.value("ferrolho_live_locks") > 0.5
    });
    let page = server.metrics();
    promtool(&["check", "metrics"], &page.text);
    for (series, value) in [
        ("ferrolho_acquires_total{outcome=\"granted\"}", 2.0),
        ("ferrolho_acquires_total{outcome=\"held\"}", 1.0),
        ("ferrolho_renewals_total{outcome=\"done\"}", 1.0),
        ("ferrolho_renewals_total{outcome=\"forbidden\"}", 1.0),
        ("ferrolho_releases_total{outcome=\"done\"}", 1.0),
        ("ferrolho_releases_total{outcome=\"not-found\"}", 1.0),
        ("ferrolho_wait_duration_seconds_count{outcome=\"granted\"}", 1.0),
        ("ferrolho_hand_over_duration_seconds_count", 1.0),
        ("ferrolho_live_locks", 1.0),
        ("ferrolho_waiters", 0.0),
        ("ferrolho_store_up", 1.0),
        ("ferrolho_http_requests_in_flight", 1.0),
        (
            "ferrolho_http_requests_total{route=\"/locks/{resource}\",method=\"POST\",status=\"200\"}",
            3.0,
        ),
        ("ferrolho_http_problems_total{code=\"forbidden\"}", 1.0),
    ] {
        let is = page.value(series);
        assert!((is - value).abs() < 0.1, "{series} is {is}\n{}", page.text);
    }
    assert!(page.value("process_start_time_seconds") > 1.7e9);
    assert!(page.text.contains("ferrolho_build_info{version=\"0.1.0\",store="));
}

#[test]
fn commits_are_counted_with_their_size_and_time() {
    let server = Server::start();
    let set = json!({"resources": ["a", "b", "c"], "owner": "o", "ttl_seconds": 60});
    assert_eq!(server.post("/locks", &set).status, 200);
    let page = server.metrics();
    assert!(page.value("ferrolho_store_commit_changes_sum") > 2.9);
    assert!(page.value("ferrolho_store_commit_duration_seconds_count") > 0.9);
    assert!(page.value("ferrolho_store_commit_duration_seconds_sum") > 0.0);
}

#[test]
fn an_expiry_and_a_caller_that_left_are_counted() {
    let server = Server::memory();
    server.expired("a", "one");
    server.acquire("b", "one", 60).granted();
    let waiting = server.wait_for("b", "two", 60, 60);
    server.until_waiting("b", 1);
    waiting.reset();
    until("both are counted", || {
        let page = server.metrics();
        page.value("ferrolho_events_total{kind=\"expired\"}") > 0.5
            && page.value("ferrolho_wait_duration_seconds_count{outcome=\"left\"}") > 0.5
            && page
                .value("ferrolho_http_requests_abandoned_total{route=\"/locks/{resource}\",method=\"POST\"}")
                > 0.5
    });
}

/// Sends all these requests over one connection and reads all answers.
fn pour(connection: &mut Connection, addr: SocketAddr, requests: impl Iterator<Item = Request>) {
    let requests: Vec<Request> = requests.collect();
    for some in requests.chunks(200) {
        let bytes: Vec<u8> = some.iter().flat_map(|request| request.bytes(addr)).collect();
        connection.write(&bytes).unwrap();
        for _ in some {
            connection.answer();
        }
    }
}

#[test]
fn the_page_does_not_grow_with_names_and_unknown_paths() {
    const NAMES: usize = 50_000;
    let server = Server::memory();
    let some = |from: usize, count: usize| {
        (from..from + count).flat_map(move |number| {
            let name = format!("name-{number}");
            [
                Request::post(&lock_path(&name)).json(&json!({"owner": name, "ttl_seconds": 60})),
                Request::get(&format!("/{name}/{number}")),
            ]
        })
    };
    let odd = |from: usize| {
        (from..from + 100).flat_map(|number| {
            [
                Request::new(&format!("METHOD{number}"), "/locks/a"),
                Request::delete(&format!("/owners/owner-{number}")),
                Request::get(&format!("/problems/code-{number}")),
            ]
        })
    };
    let mut connection = server.connect();
    pour(&mut connection, server.addr, some(0, 1));
    pour(&mut connection, server.addr, odd(0));
    server.metrics();
    let before = server.metrics();
    pour(&mut connection, server.addr, some(1, NAMES));
    pour(&mut connection, server.addr, odd(1_000));
    let after = server.metrics();
    assert_eq!(after.series(), before.series());
    assert!(
        after.text.len() < before.text.len() + 4_096,
        "{} bytes grew to {}",
        before.text.len(),
        after.text.len()
    );
    assert!(!after.text.contains("name-"));
    assert!(after.labels("route").contains("unknown"));
    assert_eq!(
        after.labels("method").into_iter().collect::<Vec<_>>(),
        ["DELETE", "GET", "POST", "other"]
    );
    let unknown = "ferrolho_http_requests_total{route=\"unknown\",method=\"GET\",status=\"404\"}";
    assert!(after.value(unknown) > f64::from(u32::try_from(NAMES).unwrap()));
}

#[test]
fn metrics_may_have_a_listener_of_their_own_and_are_then_nowhere_else() {
    let server = Server::start_on("memory:", &["--metrics-listen", "127.0.0.1:0"], &[]);
    let log = server.log();
    let (_, address) = log.split_once("metrics are on http://").unwrap();
    let own: SocketAddr = address.split_once("/metrics").unwrap().0.parse().unwrap();
    server.get("/metrics").problem(404, "no-such-route");
    let page = Metrics::read(&Connection::to(own).call(&Request::get("/metrics")));
    assert!(page.value("ferrolho_store_up") > 0.5);
    for path in ["/locks/a", "/locks", "/readyz", "/"] {
        Connection::to(own)
            .call(&Request::get(path))
            .problem(404, "no-such-route");
    }
    // Its callers are no more trusted than others.
    let foreign = Request::get("/metrics").header("host", "evil.example");
    Connection::to(own).call(&foreign).problem(403, "not-permitted");
}

#[test]
fn with_authentication_a_listener_that_others_reach_asks_for_a_token() {
    let own = |server: &Server| -> u16 {
        let log = server.log();
        let (_, rest) = log.split_once("metrics are on http://").unwrap();
        let (address, _) = rest.split_once("/metrics").unwrap();
        address.parse::<SocketAddr>().unwrap().port()
    };
    let tokens = tempfile::tempdir().unwrap();
    let file = tokens.path().join("tokens");
    let made = ferrolho(&[
        "token",
        "new",
        "--name",
        "p",
        "--allow",
        "*",
        "--read",
        "--no-acquire",
    ])
    .output()
    .unwrap();
    let made = String::from_utf8(made.stdout).unwrap();
    let (token, line) = made.split_once('\n').unwrap();
    std::fs::write(&file, line).unwrap();
    let asking = |listen: &str| {
        let file = file.to_str().unwrap();
        let server = Server::start_on("memory:", &["--metrics-listen", listen, "--tokens", file], &[]);
        let at = SocketAddr::from(([127, 0, 0, 1], own(&server)));
        (server, at)
    };
    let request = Request::get("/metrics");
    let (_exposed, at) = asking("0.0.0.0:0");
    Connection::to(at).call(&request).problem(401, "unauthorized");
    Metrics::read(&Connection::to(at).call(&request.clone().token(token)));
    let (_loopback, at) = asking("127.0.0.1:0");
    Metrics::read(&Connection::to(at).call(&request));
}

#[test]
fn a_parameter_is_refused_as_everywhere() {
    Server::memory().get("/metrics?name=x").invalid(&["name"]);
}
