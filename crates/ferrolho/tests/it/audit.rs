//! The audit trail: a line for everything that must be accounted for, whole, once, and whatever becomes of its file.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::auth::Made;
use crate::support::{
    Connection, Pair, Request, Server, acquire, acquire_waiting, ferrolho, lock_path, micros,
    on_every_shared_engine, until,
};

on_every_shared_engine!(each_change_is_noted_once_by_the_server_that_made_it);

const TRAIL: [&str; 2] = ["--audit-log", "audit"];

/// The lines of a file, each of which must be whole.
fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.is_ascii());
    // What is being written just now may be seen in part.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn is(line: &Value, event: &str) -> bool {
    line["event"] == event
}

/// Its trail, once this many lines of such an event are in it.
fn trail(server: &Server, event: &str, count: usize) -> Vec<Value> {
    let path = server.path("audit");
    until("the lines are written", || {
        lines(&path).iter().filter(|line| is(line, event)).count() >= count
    });
    lines(&path)
}

/// A line without what differs from run to run.
fn known(line: &Value) -> Value {
    let mut line = line.clone();
    let fields = line.as_object_mut().unwrap();
    micros(fields.remove("time").unwrap().as_str().unwrap());
    fields.remove("expires_at");
    fields.remove("version");
    if let Some(source) = fields.remove("source") {
        assert!(source.as_str().unwrap().starts_with("127.0.0.1:"), "{source}");
    }
    line
}

fn named(request: Request, id: &str) -> Request {
    request.header("x-request-id", id)
}

#[test]
fn everything_that_must_be_accounted_for_has_its_line() {
    let app = Made::full("app", "r*");
    let admin = Made::new(&["--name", "root", "--allow", "*", "--admin"]);
    let known_tokens = format!("{}\n{}", app.line, admin.line);
    let mut server = Server::asking_with(&known_tokens, &app.token, &TRAIL);
    let call = |id: &str, request: Request| server.call(&named(request, id));
    let release = |owner: &str| Request::delete(&lock_path("r")).json(&json!({"owner": owner}));
    let one = call("1", acquire("r", "a", 600)).granted().fencing_token;
    let two = call("2", acquire("r", "a", 600)).granted().fencing_token;
    let mut waiting = server.begin(&named(acquire_waiting("r", "b", 600, 60), "3"));
    server.until_waiting("r", 1);
    call("4", release("c")).forbidden();
    call("5", release("a")).done();
    let three = waiting.answer().granted().fencing_token;
    call("6", acquire("secret", "a", 600)).problem(403, "not-permitted");
    Connection::to(server.addr)
        .call(&named(release("b"), "7"))
        .problem(401, "unauthorized");
    let force = Request::post("/locks/r/force-release").json(&json!({"reason": "host is on fire"}));
    call("8", force.clone()).problem(403, "not-permitted");
    call("9", force.token(&admin.token)).done();
    // What changes nothing has no line: a refusal that is an answer, a renewal, a look.
    let four = call("10", acquire("r", "a", 600)).granted().fencing_token;
    server.acquire("r", "b", 600).refused();
    server.renew("r", "a", 600).lock();
    server.find("r").lock();
    server.call(&Request::delete("/owners/a")).json();
    let five = call("11", acquire("r", "a", 1)).granted().fencing_token;
    trail(&server, "expired", 1);
    server.stop();
    let said: Vec<Value> = lines(&server.path("audit")).iter().map(known).collect();
    let lock = |event: &str, owner: &str, token: u64| {
        json!({"event": event, "outcome": "done", "resource": "r", "owner": owner, "principal": "app",
               "fencing_token": token})
    };
    let with = |mut line: Value, more: Value| {
        let more = more.as_object().unwrap().clone();
        line.as_object_mut().unwrap().extend(more);
        line
    };
    let refused = |status: u16, code: &str, id: &str| json!({"event": "refused", "outcome": "refused", "status": status, "code": code, "request_id": id});
    let delete = json!({"resource": "r", "method": "DELETE", "route": "/locks/{resource}"});
    let owners_release = said
        .iter()
        .position(|line| line["fencing_token"] == four && is(line, "released"));
    let its_id = said[owners_release.unwrap()]["request_id"].clone();
    let expected = [
        json!({"event": "started"}),
        with(lock("acquired", "a", one), json!({"request_id": "1"})),
        with(
            lock("acquired", "a", two),
            json!({"request_id": "2", "again": true}),
        ),
        with(
            with(refused(403, "forbidden", "4"), delete.clone()),
            json!({"owner": "c", "principal": "app"}),
        ),
        with(lock("released", "a", two), json!({"request_id": "5"})),
        with(lock("acquired", "b", three), json!({"request_id": "3"})),
        with(
            refused(403, "not-permitted", "6"),
            json!({"resource": "secret", "owner": "a", "principal": "app", "method": "POST",
                   "route": "/locks/{resource}"}),
        ),
        with(refused(401, "unauthorized", "7"), delete),
        with(
            refused(403, "not-permitted", "8"),
            json!({"resource": "r", "principal": "app", "method": "POST",
                   "route": "/locks/{resource}/force-release"}),
        ),
        with(
            lock("forced", "b", three),
            json!({"request_id": "9", "by": "root", "reason": "host is on fire"}),
        ),
        with(lock("acquired", "a", four), json!({"request_id": "10"})),
        with(lock("released", "a", four), json!({"request_id": its_id})),
        with(lock("acquired", "a", five), json!({"request_id": "11"})),
        lock("expired", "a", five),
        json!({"event": "stopped"}),
    ];
    assert_eq!(said, expected);
    let text = fs::read_to_string(server.path("audit")).unwrap();
    for made in [&app, &admin] {
        assert!(!text.contains(&made.token), "a secret is in the trail");
    }
}

#[test]
fn a_grant_that_nobody_heard_of_is_noted_with_its_end() {
    let server = Server::with(&TRAIL);
    server.acquire("r", "a", 600).granted();
    for round in 0..40 {
        let name = format!("r{round}");
        server.acquire(&name, "a", 600).granted();
        let waiting = server.wait_for(&name, "b", 600, 60);
        server.until_waiting(&name, 1);
        thread::scope(|scope| {
            scope.spawn(|| waiting.reset());
            server.release(&name, "a").done();
        });
        server.acquire(&name, "a", 600);
        server.call(&Request::delete("/owners/b"));
    }
    server.delete("/owners/a", &json!({}));
    let tokens = |event: &str| -> Vec<u64> {
        let lines = lines(&server.path("audit"));
        let of_event = lines.iter().filter(|line| is(line, event));
        let mut tokens: Vec<u64> = of_event
            .filter_map(|line| line["fencing_token"].as_u64())
            .collect();
        tokens.sort_unstable();
        tokens
    };
    // Whatever became of the callers: each grant has ended once, and no other.
    until("all has ended", || {
        server.get("/locks").json()["locks"] == json!([]) && tokens("acquired") == tokens("released")
    });
}

#[test]
fn names_cannot_forge_a_line_and_the_file_is_nobody_elses() {
    let server = Server::with(&TRAIL);
    let forged = "x\",\"event\":\"forced\u{2028}{\"event\":\"forced\"}\u{85}\u{202e}\\";
    let names = [
        forged.replace('\u{85}', ""),
        "}{".to_owned(),
        "é \u{1f512}".to_owned(),
    ];
    for name in &names {
        server.acquire(name, name, 600).granted();
        let request = Request::delete(&lock_path(name))
            .json(&json!({"owner": "another"}))
            .header("x-request-id", "a\",\"event\":\"forced");
        server.call(&request).forbidden();
    }
    let lines = trail(&server, "refused", names.len());
    assert_eq!(lines.len(), 1 + 2 * names.len());
    for (name, pair) in names.iter().zip(lines[1..].chunks(2)) {
        assert!(is(&pair[0], "acquired") && is(&pair[1], "refused"), "{pair:?}");
        assert_eq!(
            (&pair[0]["resource"], &pair[0]["owner"]),
            (&json!(name), &json!(name))
        );
        assert_eq!(pair[1]["resource"], *name);
        assert!(!pair[1]["request_id"].as_str().unwrap().contains('"'));
    }
    let mode = fs::metadata(server.path("audit")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn what_ended_while_nobody_ran_is_noted_at_the_next_start() {
    let mut server = Server::with(&TRAIL);
    let token = server.acquire("r", "a", 1).granted().fencing_token;
    server.kill();
    thread::sleep(Duration::from_millis(1_100));
    server.start_again();
    let lines = trail(&server, "expired", 1);
    let expired: Vec<&Value> = lines.iter().filter(|line| is(line, "expired")).collect();
    assert_eq!(expired.len(), 1, "{lines:?}");
    assert_eq!(expired[0]["fencing_token"], token);
}

/// How often the file is exchanged.
const ROTATIONS: usize = 20;

#[test]
fn a_file_is_rotated_under_load_without_a_lost_or_torn_line() {
    let mut server = Server::with(&TRAIL);
    let is_over = AtomicBool::new(false);
    let done: Vec<u64> = thread::scope(|scope| {
        let (server, is_over) = (&server, &is_over);
        let work = move |worker: usize| {
            let mut connection = server.connect();
            let mut tokens = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let name = format!("r{worker}");
                tokens.push(connection.call(&acquire(&name, "a", 600)).granted().fencing_token);
                let release = Request::delete(&lock_path(&name)).json(&json!({"owner": "a"}));
                connection.call(&release).done();
            }
            tokens
        };
        let workers: Vec<_> = (0..4).map(|worker| scope.spawn(move || work(worker))).collect();
        for number in 0..ROTATIONS {
            fs::rename(server.path("audit"), server.path(&format!("audit.{number}"))).unwrap();
            server.signal(Signal::HUP);
            until("it is opened anew and used", || {
                fs::metadata(server.path("audit")).is_ok_and(|file| file.len() > 0)
            });
        }
        is_over.store(true, Ordering::Relaxed);
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap())
            .collect()
    });
    server.stop();
    let files = (0..ROTATIONS).map(|number| format!("audit.{number}"));
    let mut seen: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut last = None;
    for file in files.chain(["audit".to_owned()]) {
        let text = fs::read_to_string(server.path(&file)).unwrap();
        assert!(
            text.is_empty() || text.ends_with('\n'),
            "{file} ends in half a line"
        );
        for line in lines(&server.path(&file)) {
            if let Some(token) = line["fencing_token"].as_u64() {
                let event = line["event"].as_str().unwrap().to_owned();
                seen.entry(token).or_default().push(event);
            }
            last = Some(line);
        }
    }
    assert!(last.is_some_and(|line| is(&line, "stopped")));
    let all: Vec<u64> = seen.keys().copied().collect();
    let mut expected = done.clone();
    expected.sort_unstable();
    assert_eq!(all, expected);
    for (token, events) in seen {
        assert_eq!(events, ["acquired", "released"], "{token}");
    }
}

#[test]
fn a_file_that_takes_nothing_holds_nobody_up_and_loses_nothing() {
    // Started elsewhere first, since the file has to be there.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit");
    symlink("/dev/full", &path).unwrap();
    let server = Server::with(&["--audit-log", path.to_str().unwrap()]);
    let value = |name: &str| server.metrics().value(name);
    let names: Vec<String> = (0..200).map(|number| format!("r{number}")).collect();
    for name in &names {
        server.acquire(name, "a", 600).granted();
    }
    until("it is said", || {
        server.log().contains("the audit trail cannot be written")
    });
    assert!(value("ferrolho_audit_failing") > 0.0);
    assert!(value("ferrolho_audit_lines_lost_total") < 1.0);
    fs::remove_file(&path).unwrap();
    server.signal(Signal::HUP);
    let resources = || -> Vec<String> {
        let lines = fs::read_to_string(&path).is_ok().then(|| lines(&path));
        lines
            .iter()
            .flatten()
            .filter_map(|line| Some(line["resource"].as_str()?.to_owned()))
            .collect()
    };
    until("all is written", || resources().len() == names.len());
    assert_eq!(resources(), names);
    until("it is well again", || value("ferrolho_audit_failing") < 1.0);
    assert!((value("ferrolho_audit_lines_total") - 201.0).abs() < 0.5);
}

#[test]
fn what_a_crash_left_is_gone_on_with() {
    let mut server = Server::with(&TRAIL);
    server.acquire("r", "a", 600).granted();
    trail(&server, "acquired", 1);
    server.kill();
    let path = server.path("audit");
    let before = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{before}{{\"time\":\"20")).unwrap();
    server.start_again();
    server.release("r", "a").done();
    until("it goes on", || {
        fs::read_to_string(&path).unwrap().contains("released")
    });
    let text = fs::read_to_string(&path).unwrap();
    let rest: Vec<&str> = text.strip_prefix(&before).unwrap().lines().collect();
    assert_eq!(rest[0], "{\"time\":\"20");
    for line in &rest[1..] {
        serde_json::from_str::<Value>(line).unwrap();
    }
}

#[test]
fn it_goes_to_standard_output_too_and_a_place_that_cannot_be_is_said_at_start() {
    let serve = |to: &str| {
        let mut command = ferrolho(&["serve", "--store", "memory:", "--listen", "127.0.0.1:0"]);
        command.args(["--audit-log", to]);
        command
    };
    let output = serve("/nowhere/audit").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("/nowhere/audit") && said.trim().lines().count() == 1,
        "{said}"
    );
    let out = tempfile::NamedTempFile::new().unwrap();
    let mut child = serve("-").stdout(out.reopen().unwrap()).spawn().unwrap();
    let text = || fs::read_to_string(out.path()).unwrap();
    until("it is ready", || text().contains(" listening on "));
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    let events: Vec<String> = text()
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .map(|line| line["event"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(events, ["started", "stopped"]);
}

fn each_change_is_noted_once_by_the_server_that_made_it((one, two): &Pair) {
    let first = one.acquire("r", "a", 600).granted().fencing_token;
    let mut waiting = two.wait_for("r", "b", 600, 60);
    two.until_waiting("r", 1);
    // The name of the owner is enough to give it back at the other server.
    two.release("r", "a").done();
    let second = waiting.answer().granted().fencing_token;
    one.release("r", "b").done();
    let third = one.acquire("s", "a", 1).granted().fencing_token;
    let of = |server: &Server| -> Vec<(String, u64)> {
        let lines = trail(server, "expired", 1);
        lines
            .iter()
            .filter_map(|line| {
                Some((
                    line["event"].as_str()?.to_owned(),
                    line["fencing_token"].as_u64()?,
                ))
            })
            .collect()
    };
    let said = |event: &str, token: u64| (event.to_owned(), token);
    let at_one = [
        said("acquired", first),
        said("released", second),
        said("acquired", third),
        said("expired", third),
    ];
    assert_eq!(of(one), at_one);
    // An end that nobody made is noted by every server: one of them may be down.
    let at_two = [
        said("released", first),
        said("acquired", second),
        said("expired", third),
    ];
    assert_eq!(of(two), at_two);
}
