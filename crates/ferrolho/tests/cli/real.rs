//! The client and `run` against the real server, over a faulty network, frozen, killed and started again.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ferrolho_client::{Client, Error, Event, EventKind, Events, ListQuery, Loss, Notice, Patience, Ttl};
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinSet;

use crate::cable::Cable;
use crate::fake::{Act, Fake, Fault, problem_body};
use crate::lab::{FERROLHO, Lab, is_alive, until};

/// A real server.
struct Server {
    child: Child,
    addr: SocketAddr,
}

impl Server {
    fn start() -> Self {
        Self::start_with("memory:", "127.0.0.1:0")
    }

    fn start_with(store: &str, listen: &str) -> Self {
        let mut command = Command::new(FERROLHO);
        command.args(["serve", "--listen", listen, "--store", store]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut ready)
            .unwrap();
        let (_, rest) = ready.split_once("http://").unwrap();
        let addr = rest.split(' ').next().unwrap().parse().unwrap();
        Self { child, addr }
    }

    fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    fn client(&self) -> Client {
        Client::new(&self.url()).unwrap()
    }

    /// Whoever holds a lock, asking past any faulty network.
    async fn holder(&self, resource: &str) -> Option<(String, u64)> {
        let lock = self.client().find(resource).await.unwrap()?;
        Some((lock.owner.to_string(), lock.fencing_token.get()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[tokio::test]
async fn one_fault_at_any_point_of_any_call_is_mended() {
    let server = Arc::new(Server::start());
    let mut cases = JoinSet::new();
    for act in [Act::Acquire, Act::Renew, Act::Release] {
        for fault in [
            Fault::DropRequest,
            Fault::DropAnswer,
            Fault::Swallow,
            Fault::DelayRequest(Duration::from_millis(200)),
            Fault::DelayAnswer(Duration::from_millis(200)),
            Fault::Double,
            Fault::Answer(502, "<html>bad gateway</html>".to_owned()),
            Fault::Answer(503, problem_body(503, "unavailable")),
        ] {
            // To the client this looks as if the lock had been taken away.
            if !matches!((act, &fault), (Act::Release, Fault::Double)) {
                cases.spawn(is_mended(Arc::clone(&server), act, fault));
            }
        }
    }
    while let Some(case) = cases.join_next().await {
        case.unwrap();
    }
}

async fn is_mended(server: Arc<Server>, act: Act, fault: Fault) {
    let case = format!("{act:?} {fault:?}");
    let network = Fake::before(server.addr);
    let builder = Client::builder().url(&network.url()).unwrap();
    let client = builder
        .request_timeout(Duration::from_millis(500))
        .build()
        .unwrap();
    network.fault(act, 1, fault);
    let request = client.lock(&case).unwrap().ttl(seconds(2)).unwrap();
    let guard = request
        .acquire()
        .await
        .unwrap_or_else(|error| panic!("{case}: {error}"));
    let expected = (client.owner().to_string(), guard.fencing_token().get());
    assert_eq!(server.holder(&case).await, Some(expected), "{case}");
    let begun = Instant::now();
    while network.seen(Act::Renew).len() < 2 {
        assert!(begun.elapsed() < seconds(20), "{case}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(guard.is_held(), "{case}");
    guard
        .release()
        .await
        .unwrap_or_else(|error| panic!("{case}: {error}"));
    assert_eq!(server.holder(&case).await, None, "{case}");
}

#[tokio::test]
async fn belief_ends_before_another_is_let_in() {
    let server = Server::start();
    let network = Fake::before(server.addr);
    let cut_off = Client::new(&network.url()).unwrap();
    let guard = cut_off
        .lock("r")
        .unwrap()
        .ttl(seconds(2))
        .unwrap()
        .acquire()
        .await
        .unwrap();
    network.freeze();
    let lease = guard.lease();
    let watching = thread::spawn(move || {
        // The time is taken before the look: what is believed at `last` was believed then.
        let mut last = Instant::now();
        loop {
            let now = Instant::now();
            if !lease.is_held() {
                return last;
            }
            last = now;
            thread::sleep(Duration::from_micros(200));
        }
    });
    let other = server.client();
    let (asking, taken) = {
        let request = other.lock("r").unwrap().wait(seconds(10));
        let taken = request.acquire().await.unwrap();
        // It was granted before this; the belief must have ended earlier still.
        (Instant::now(), taken)
    };
    let believed_until = watching.join().unwrap();
    assert!(believed_until < asking);
    assert!(taken.fencing_token() > guard.fencing_token());
    assert_eq!(guard.check(), Err(Loss::NotRenewed));
}

#[tokio::test]
async fn waiters_come_in_turn_and_a_long_wait_keeps_its_place() {
    let server = Server::start();
    let holder = server.client();
    let guard = holder.lock("r").unwrap().acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for n in 0..3 {
        let request = server.client().lock("r").unwrap().patience(Patience::Forever);
        let order = Arc::clone(&order);
        waiting.push(tokio::spawn(async move {
            let guard = request.acquire().await.unwrap();
            order.lock().unwrap().push(n);
            guard.release().await.unwrap();
        }));
        while holder.waiters("r").await.unwrap().len() <= n {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    // Longer than one poll, so that each has had to come back to its place.
    tokio::time::sleep(seconds(22)).await;
    guard.release().await.unwrap();
    for waiting in waiting {
        waiting.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
}

#[tokio::test]
async fn who_stops_waiting_is_passed_over() {
    let server = Server::start();
    let holder = server.client();
    let guard = holder.lock("r").unwrap().acquire().await.unwrap();
    let leaver = server.client();
    let waiting = tokio::spawn({
        let request = leaver.lock("r").unwrap().patience(Patience::Forever);
        async move { request.acquire().await }
    });
    while holder.waiters("r").await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    waiting.abort();
    leaver.settle().await;
    guard.release().await.unwrap();
    assert!(
        server
            .client()
            .lock("r")
            .unwrap()
            .try_acquire()
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn sets_lists_and_one_heartbeat() {
    let server = Server::start();
    let ttl = Ttl::new(1, Ttl::MAX).unwrap();
    let builder = Client::builder().url(&server.url()).unwrap().one_heartbeat(ttl);
    let client = builder.build().unwrap();
    let set = client.lock_all(["s/b", "s/a", "s/ü"]).unwrap();
    let set = set
        .metadata(&serde_json::json!({"k": [1, {"x": null}]}))
        .unwrap()
        .acquire()
        .await
        .unwrap();
    let single = client.lock("single").unwrap().acquire().await.unwrap();
    tokio::time::sleep(seconds(2)).await;
    assert!(set.is_held() && single.is_held());

    let query = ListQuery {
        prefix: "s/".to_owned(),
        owner: Some(client.owner().clone()),
        limit: 2,
        cursor: None,
    };
    let page = client.list(query.clone()).await.unwrap();
    let names: Vec<&str> = page.locks.iter().map(|lock| lock.resource.as_str()).collect();
    assert_eq!(names, ["s/a", "s/b"]);
    assert_eq!(
        page.locks[0].metadata.as_ref().unwrap().as_str(),
        "{\"k\":[1,{\"x\":null}]}"
    );
    let cursor = page.next_cursor;
    let page = client.list(ListQuery { cursor, ..query }).await.unwrap();
    assert_eq!((page.locks.len(), page.next_cursor), (1, None));

    let Err(Error::Held { resources, .. }) = server.client().lock_all(["s/a", "z"]).unwrap().acquire().await
    else {
        panic!("one of them is held");
    };
    assert_eq!(resources[0].as_str(), "s/a");
    set.release().await.unwrap();
    single.release().await.unwrap();
    assert!(client.list(ListQuery::default()).await.unwrap().locks.is_empty());
}

#[tokio::test]
async fn events_are_resumed_where_they_broke() {
    let server = Server::start();
    let cable = Cable::to(server.addr);
    let client = server.client();
    let mut events = Client::new(&cable.url()).unwrap().events("e/", None);
    assert!(matches!(events.next().await, Some(Ok(Notice::Reset))));
    let take = async |n: usize| {
        client
            .lock(&format!("other/{n}"))
            .unwrap()
            .acquire()
            .await
            .unwrap()
            .detach();
        client
            .lock(&format!("e/{n}"))
            .unwrap()
            .acquire()
            .await
            .unwrap()
            .detach();
    };
    take(0).await;
    let first = event(&mut events).await;
    assert_eq!(
        (first.kind, first.resource.as_str()),
        (EventKind::Acquired, "e/0")
    );
    cable.pull_out();
    for n in 1..5 {
        take(n).await;
    }
    cable.plug_in();
    take(5).await;
    for n in 1..6 {
        assert_eq!(event(&mut events).await.resource.as_str(), format!("e/{n}"));
    }
}

/// The next notice, which must be an event: nothing was missed.
async fn event(events: &mut Events) -> Event {
    match events.next().await {
        Some(Ok(Notice::Event { event, .. })) => *event,
        other => panic!("no event: {other:?}"),
    }
}

#[tokio::test]
async fn one_leads_and_all_can_see_who() {
    let server = Server::start();
    let (one, two) = (server.client(), server.client());
    let mut observer = server.client().election("boss").unwrap().observe();
    assert!(observer.next().await.unwrap().unwrap().is_none());
    let first = one
        .election("boss")
        .unwrap()
        .metadata(&serde_json::json!({"at": "one"}))
        .unwrap();
    let first = first.campaign().await.unwrap();
    let seen = observer.next().await.unwrap().unwrap().unwrap();
    assert_eq!(
        (seen.owner, seen.fencing_token),
        (one.owner().clone(), first.fencing_token())
    );
    let second = tokio::spawn({
        let election = two.election("boss").unwrap();
        async move { election.campaign().await }
    });
    while one.waiters("boss").await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let term = first.fencing_token();
    first.resign().await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert!(second.fencing_token() > term);
    loop {
        // There may have been a moment without a leader.
        if let Some(lock) = observer.next().await.unwrap().unwrap() {
            assert_eq!(lock.owner, *two.owner());
            break;
        }
    }
}

#[test]
fn a_run_that_is_told_to_end_while_it_waits_leaves_the_queue() {
    let lab = Lab::new();
    let server = Server::start();
    let url = server.url();
    let mut holder = lab.start(&["--url", &url, "--", "sleep", "300"]);
    let waiters = || {
        let output = lab.command(&["status", "r", "--url", &url]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().matches("waits").count()
    };
    until("it holds", || {
        lab.command(&["status", "r", "--url", &url])
            .output()
            .unwrap()
            .status
            .success()
    });
    let mut waiting = lab.start(&["--url", &url, "--wait", "60s", "--", "touch", "ran"]);
    until("it waits", || waiters() == 1);
    let sent = Instant::now();
    waiting.send(Signal::TERM);
    assert_eq!(waiting.wait().code(), Some(143));
    assert!(sent.elapsed() < seconds(1));
    holder.send(Signal::TERM);
    assert_eq!(holder.wait().code(), Some(143));
    // At once, and not when the place or a ghost's lifetime is over.
    assert_eq!(lab.run(&["--url", &url, "--", "true"]).status.code(), Some(0));
    assert!(!lab.file("ran").exists());
}

#[test]
fn a_frozen_server_ends_the_command_before_the_lock() {
    let lab = Lab::new();
    let server = Server::start();
    let script = "trap '' TERM; echo $$ >main; while :; do sleep 0.02; done";
    let run = lab.start(&["--url", &server.url(), "--ttl", "2s", "--", "sh", "-c", script]);
    let main = lab.pid("main");
    server.send(Signal::STOP);
    let stopped = Instant::now();
    until("the command is dead", || !is_alive(main));
    // No request was answered after the stop, so the lock ends at most its lifetime after it.
    assert!(stopped.elapsed() < seconds(2), "{:?}", stopped.elapsed());
    server.send(Signal::CONT);
    assert_eq!(run.end().status.code(), Some(74));
}

#[test]
fn a_server_that_is_killed_and_started_again_loses_no_lock() {
    let lab = Lab::new();
    let store = format!("sqlite:{}", lab.file("locks.db").display());
    let mut server = Server::start_with(&store, "127.0.0.1:0");
    let (url, listen) = (server.url(), server.addr.to_string());
    let mut run = lab.start(&[
        "--url",
        &url,
        "--ttl",
        "6s",
        "--",
        "sh",
        "-c",
        "echo $$ >main; sleep 7; exit 3",
    ]);
    lab.pid("main");
    server.send(Signal::KILL);
    server.child.wait().unwrap();
    let server = Server::start_with(&store, &listen);
    let other = lab.start(&["--url", &url, "--", "true"]);
    assert_eq!(other.end().status.code(), Some(75));
    assert_eq!(run.wait().code(), Some(3));
    assert_eq!(
        lab.run(&["--url", &server.url(), "--", "true"]).status.code(),
        Some(0)
    );
}

#[test]
fn a_run_costs_no_more_than_a_few_calls_of_curl() {
    let lab = Lab::new();
    let server = Server::start();
    let median = |mut act: Box<dyn FnMut() + '_>| {
        let mut times: Vec<Duration> = (0..21)
            .map(|_| {
                let begun = Instant::now();
                act();
                begun.elapsed()
            })
            .collect();
        times.sort();
        times[times.len() / 2]
    };
    let url = server.url();
    let run = median(Box::new(|| {
        let mut run = lab.command(&["run", "r", "--url", &url, "--", "true"]);
        assert!(run.status().unwrap().success());
    }));
    let post = |path: &str, body: &str| {
        let mut curl = Command::new("curl");
        curl.args([
            "-sf",
            "-o",
            "/dev/null",
            "-d",
            body,
            &format!("{url}/locks/c{path}"),
        ]);
        assert!(curl.status().unwrap().success());
    };
    let curl = median(Box::new(|| {
        post("", "{\"owner\":\"a\",\"ttl_seconds\":30}");
        post("/release", "{\"owner\":\"a\"}");
        assert!(Command::new("true").status().unwrap().success());
    }));
    // About the same where this was measured, in a debug build.
    assert!(run < curl * 4, "run {run:?}, curl {curl:?}");
}

#[test]
fn watch_and_list_show_what_happens() {
    let lab = Lab::new();
    let server = Server::start();
    let mut watch = lab.command(&["watch", "w/", "--json", "--url", &server.url()]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let mut next = || -> serde_json::Value { serde_json::from_str(&lines.next().unwrap()).unwrap() };
    assert_eq!(next(), serde_json::json!({"reset": true}));
    let run = |name: &str, command: &str| {
        let mut run = lab.command(&["run", name, "--url", &server.url(), "--", "sh", "-c", command]);
        assert!(run.status().unwrap().success());
    };
    let list = format!(
        "{FERROLHO} list w/ --url {} >list; {FERROLHO} list --json --url {} >json",
        server.url(),
        server.url()
    );
    run("w/ü '\"", &list);
    let acquired = next();
    assert_eq!(
        (&acquired["kind"], &acquired["resource"]),
        (&"acquired".into(), &"w/ü '\"".into())
    );
    assert!(acquired["id"].is_string());
    assert_eq!(next()["kind"], "released");
    assert!(lab.read("list").contains("w/ü '\""), "{}", lab.read("list"));
    let json: serde_json::Value = serde_json::from_str(&lab.read("json")).unwrap();
    assert_eq!(json["locks"][0]["resource"], "w/ü '\"");
    watch.kill().unwrap();
    watch.wait().unwrap();
}
