//! Who may do what, when callers must show who they are. (Cases: WEB; SECURITY.md.)

use std::fs;

use ferrolho_testkit::Certificate;
use rustix::process::Signal;
use serde_json::json;

use crate::support::{Answer, Block, Request, Server, acquire, ferrolho, lock_path, until};

/// A token that `ferrolho token new` made, and its line.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) token: String,
    pub(crate) line: String,
}

impl Made {
    pub(crate) fn new(args: &[&str]) -> Self {
        let output = ferrolho(&["token", "new"]).args(args).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines = text.lines().map(str::to_owned);
        let (token, line) = (lines.next().unwrap(), lines.next().unwrap());
        assert_eq!(lines.next(), None);
        Self { token, line }
    }

    /// The right to acquire and read these names.
    pub(crate) fn full(name: &str, pattern: &str) -> Self {
        Self::new(&["--name", name, "--allow", pattern, "--read"])
    }

    /// The line for this certificate, with the right to everything.
    pub(crate) fn line_for(certificate: &Certificate, name: &str) -> String {
        let args = ["token", "certificate", "--name", name, "--allow", "*", "--read"];
        let output = ferrolho(&args).arg(&certificate.certificate).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    pub(crate) fn call(&self, server: &Server, request: Request) -> Answer {
        server.call(&request.token(&self.token))
    }

    pub(crate) fn get(&self, server: &Server, target: &str) -> Answer {
        self.call(server, Request::get(target))
    }

    pub(crate) fn acquire(&self, server: &Server, resource: &str, owner: &str) -> Answer {
        self.call(server, acquire(resource, owner, 600))
    }

    pub(crate) fn release(&self, server: &Server, resource: &str, owner: &str) -> Answer {
        let request = Request::delete(&lock_path(resource)).json(&json!({"owner": owner}));
        self.call(server, request)
    }
}

/// A server that knows all of these; what shows no token of its own shows the first.
pub(crate) fn asking(known: &[&Made]) -> Server {
    let lines: Vec<&str> = known.iter().map(|made| made.line.as_str()).collect();
    Server::asking(&lines.join("\n"), &known[0].token)
}

fn names(answer: &Answer) -> Vec<String> {
    let body = answer.json();
    let locks = body["locks"].as_array().unwrap().iter();
    locks
        .map(|lock| lock["resource"].as_str().unwrap().to_owned())
        .collect()
}

const PROTECTED: [(&str, &str); 13] = [
    ("POST", "/locks/r"),
    ("GET", "/locks/r"),
    ("DELETE", "/locks/r?owner=a"),
    ("POST", "/locks/r/renew"),
    ("POST", "/locks/r/release"),
    ("POST", "/locks/r/force-release"),
    ("GET", "/locks/r/waiters"),
    ("POST", "/locks"),
    ("GET", "/locks"),
    ("POST", "/owners/a/renew"),
    ("DELETE", "/owners/a"),
    ("GET", "/events"),
    ("GET", "/metrics"),
];

#[test]
fn without_a_valid_token_nothing_of_locks_is_answered() {
    let known = Made::full("app", "*");
    let stranger = Made::full("app", "*");
    let server = asking(&[&known]);
    server.acquire("r", "a", 600).granted();
    let hash = known.line.split('"').find(|part| part.len() == 64).unwrap();
    let wrong = [
        format!("Bearer {}", stranger.token),
        format!("Bearer {}x", known.token),
        format!("Bearer {}", &known.token[..known.token.len() - 1]),
        format!("Bearer {}", known.token.to_uppercase()),
        format!("Bearer {hash}"),
        format!("Basic {}", known.token),
        known.token.clone(),
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        String::new(),
    ];
    for (method, target) in PROTECTED {
        let request = Request::new(method, target);
        let nobody = crate::support::Connection::to(server.addr).call(&request);
        nobody.problem(401, "unauthorized");
        assert_eq!(
            nobody.header("www-authenticate"),
            Some("Bearer realm=\"ferrolho\"")
        );
        for value in &wrong {
            let answer = server.call(&request.clone().header("authorization", value));
            answer.problem(401, "unauthorized");
            let challenge = answer.header("www-authenticate").unwrap();
            assert!(challenge.ends_with("error=\"invalid_token\""), "{challenge}");
            assert!(!answer.text().contains(&stranger.token));
        }
        let twice = request.clone().token(&known.token).token(&known.token);
        server.call(&twice).problem(401, "unauthorized");
    }
    for open in ["/healthz", "/readyz", "/openapi.json", "/docs", "/problems"] {
        let answer = crate::support::Connection::to(server.addr).call(&Request::get(open));
        assert_eq!(answer.status, 200, "{open}");
    }
    let log = server.log();
    for secret in [&known.token, &stranger.token] {
        assert!(!log.contains(secret.as_str()), "a token is in the log");
    }
}

#[test]
fn a_lock_belongs_to_its_principal_and_owner_together() {
    let (one, other) = (Made::full("one", "*"), Made::full("other", "*"));
    let server = asking(&[&one, &other]);
    let lock = one.acquire(&server, "r", "worker").granted();
    assert_eq!(lock.principal.as_deref(), Some("one"));
    other.acquire(&server, "r", "worker").refused();
    other.release(&server, "r", "worker").forbidden();
    let renew = json!({"owner": "worker", "ttl_seconds": 600, "fencing_token": lock.fencing_token});
    other
        .call(&server, Request::post("/locks/r/renew").json(&renew))
        .forbidden();
    other.call(&server, Request::delete("/owners/worker")).not_found();
    other
        .call(
            &server,
            Request::post("/owners/worker/renew").json(&json!({"ttl_seconds": 1})),
        )
        .not_found();
    let key = acquire("r", "worker", 600).header("idempotency-key", "same");
    other.call(&server, key).refused();
    assert_eq!(one.get(&server, "/locks/r").lock(), lock);
    // Another token of the same name is the same principal: that is how tokens are exchanged.
    let newer = Made::full("one", "*");
    let lines = [&one.line, &other.line, &newer.line]
        .map(String::as_str)
        .join("\n");
    fs::write(server.token_file(), lines).unwrap();
    server.signal(Signal::HUP);
    until("the new token is known", || {
        newer.get(&server, "/locks/r").status == 200
    });
    newer.release(&server, "r", "worker").done();
}

#[test]
fn rights_are_about_the_names_of_the_patterns() {
    let ci = Made::new(&["--name", "ci", "--allow", "ci/*", "--allow", "deploy", "--read"]);
    let all = Made::full("all", "*");
    let server = asking(&[&all, &ci]);
    for name in ["ci/build", "ci/", "deploy"] {
        ci.acquire(&server, name, "o").granted();
        ci.get(&server, &lock_path(name)).lock();
        ci.release(&server, name, "o").done();
    }
    for name in ["ci", "ci2/build", "CI/build", "deploy/x", "deplo", "x/ci/build"] {
        let lock = all.acquire(&server, name, "o").granted();
        ci.acquire(&server, name, "o").problem(403, "not-permitted");
        ci.release(&server, name, "o").problem(403, "not-permitted");
        ci.get(&server, &lock_path(name)).problem(403, "not-permitted");
        ci.get(&server, &format!("{}/waiters", lock_path(name)))
            .problem(403, "not-permitted");
        assert_eq!(all.get(&server, &lock_path(name)).lock(), lock);
    }
    // A refusal of right tells nothing of whether the lock is there.
    let there = ci
        .get(&server, "/locks/ci2%2Fbuild")
        .problem(403, "not-permitted");
    let not_there = ci
        .get(&server, "/locks/ci2%2Fother")
        .problem(403, "not-permitted");
    assert_eq!(
        there["detail"].as_str().unwrap().replace("build", "other"),
        not_there["detail"].as_str().unwrap()
    );
    // Of a set every name must be permitted, and nothing is taken of one that is refused.
    let set = json!({"resources": ["ci/a", "other"], "owner": "o", "ttl_seconds": 60});
    ci.call(&server, Request::post("/locks").json(&set))
        .problem(403, "not-permitted");
    all.get(&server, "/locks/ci%2Fa").not_found();
}

#[test]
fn each_right_is_a_right_of_its_own() {
    let acquires = Made::new(&["--name", "a", "--allow", "*"]);
    let reads = Made::new(&["--name", "r", "--allow", "*", "--read", "--no-acquire"]);
    let administers = Made::new(&["--name", "x", "--allow", "ops/*", "--admin", "--no-acquire"]);
    let server = asking(&[&acquires, &reads, &administers]);
    acquires.acquire(&server, "ops/r", "o").granted();
    for target in [
        "/locks/ops%2Fr",
        "/locks/ops%2Fr/waiters",
        "/locks",
        "/events",
        "/metrics",
    ] {
        acquires.get(&server, target).problem(403, "not-permitted");
    }
    for target in ["/locks/ops%2Fr", "/locks/ops%2Fr/waiters", "/locks"] {
        assert_eq!(reads.get(&server, target).status, 200, "{target}");
        assert_eq!(administers.get(&server, target).status, 200, "{target}");
    }
    assert_eq!(reads.get(&server, "/metrics").status, 200);
    administers.get(&server, "/metrics").problem(403, "not-permitted");
    let force = || Request::post("/locks/ops%2Fr/force-release").json(&json!({"reason": "stuck"}));
    for may_not in [&reads, &administers] {
        may_not
            .acquire(&server, "ops/s", "o")
            .problem(403, "not-permitted");
        may_not
            .release(&server, "ops/r", "o")
            .problem(403, "not-permitted");
        may_not
            .call(&server, Request::delete("/owners/o"))
            .problem(403, "not-permitted");
    }
    for may_not in [&reads, &acquires] {
        may_not.call(&server, force()).problem(403, "not-permitted");
    }
    administers.call(&server, force()).done();
    reads.get(&server, "/locks/ops%2Fr").not_found();
}

#[test]
fn a_list_has_what_the_caller_may_read_page_by_page() {
    let all = Made::full("all", "*");
    let some = Made::new(&[
        "--name", "some", "--allow", "b/*", "--allow", "d", "--allow", "b/03", "--allow", "e/*", "--read",
    ]);
    let server = asking(&[&all, &some]);
    let mut expected = Vec::new();
    for prefix in ["a/", "b/", "c/", "d/", "e/", "f/"] {
        for n in 0..7 {
            let name = format!("{prefix}{n:02}");
            let owner = if n % 2 == 0 { "even" } else { "odd" };
            all.acquire(&server, &name, owner).granted();
            if ["b/", "e/"].contains(&prefix) {
                expected.push(name);
            }
        }
    }
    all.acquire(&server, "d", "even").granted();
    expected.insert(7, "d".to_owned());
    for limit in [1, 2, 3, 7, 8, 100] {
        let mut seen = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = some.get(&server, &format!("/locks?limit={limit}{cursor}"));
            let page_names = names(&page);
            assert!(!page_names.is_empty() && page_names.len() <= limit);
            seen.extend(page_names);
            match page.json()["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={}", next.replace('/', "%2F")),
                None => break,
            }
        }
        assert_eq!(seen, expected, "limit {limit}");
    }
    let list = |query: &str| names(&some.get(&server, &format!("/locks{query}")));
    assert_eq!(list("?prefix=d"), ["d"]);
    assert_eq!(list("?prefix=b%2F03"), ["b/03"]);
    assert_eq!(list("?prefix=c"), [] as [&str; 0]);
    assert_eq!(list("?prefix=e&owner=odd"), ["e/01", "e/03", "e/05"]);
}

#[test]
fn events_are_of_what_the_caller_may_read_and_end_with_its_token() {
    let (all, some) = (Made::full("all", "*"), Made::full("some", "ci/*"));
    let server = asking(&[&some, &all]);
    let mut stream = server.events("", None);
    for name in ["other", "ci/a", "ci", "secret", "ci/b"] {
        all.acquire(&server, name, "o").granted();
    }
    let seen: Vec<String> = stream.take(2).into_iter().map(|event| event.resource).collect();
    assert_eq!(seen, ["ci/a", "ci/b"]);
    // The token goes, and with it what it was good for, but nobody else's.
    fs::write(server.token_file(), &all.line).unwrap();
    server.signal(Signal::HUP);
    until("the token is gone", || some.get(&server, "/locks").status == 401);
    all.acquire(&server, "ci/c", "o").granted();
    assert_eq!(stream.block(), None::<Block>);
}

#[test]
fn with_tokens_any_address_and_any_host_will_do() {
    let made = Made::full("app", "*");
    let server = asking(&[&made]);
    let foreign = Request::get("/locks").header("host", "locks.example");
    assert_eq!(server.call(&foreign).status, 200);
    let page = Request::get("/locks").header("sec-fetch-site", "cross-site");
    server.call(&page).problem(403, "not-permitted");
    let both = ferrolho(&[
        "serve",
        "--tokens",
        "t",
        "--allow-anonymous",
        "--store",
        "memory:",
    ])
    .output()
    .unwrap();
    assert_eq!(both.status.code(), Some(1));
}

/// The answer is ready before the body has come; were the connection closed then, the caller might not see it.
#[test]
fn who_is_refused_before_its_body_has_come_hears_of_it() {
    let known = Made::full("app", "*");
    let server = asking(&[&known]);
    for (target, status) in [("/locks/r", 401), ("/nowhere", 404), ("/healthz", 405)] {
        let mut connection = crate::support::Connection::to(server.addr);
        let body = "{\"owner\":\"a\",\"ttl_seconds\":60}";
        let head = format!(
            "POST {target} HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\n\r\n",
            server.addr,
            body.len()
        );
        connection.write(head.as_bytes()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        connection.write(body.as_bytes()).unwrap();
        assert_eq!(connection.answer().status, status, "{target}");
        assert_eq!(connection.call(&Request::get("/healthz")).status, 200);
    }
}
