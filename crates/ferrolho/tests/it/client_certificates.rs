//! Callers that show a certificate, a token, both or neither, and certificates that are not what they should be.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ferrolho_client::Client;
use ferrolho_testkit::{Authority, Certificate};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::auth::Made;
use crate::support::{Server, ferrolho, until};

/// A server over TLS that asks for certificates, with those that callers may have.
struct Lab {
    server: Server,
    dir: TempDir,
    authority: Authority,
    app: Certificate,
    token: Made,
}

impl Lab {
    fn new() -> Self {
        let authority = Authority::new();
        let server = authority.sign("server", &["localhost"]);
        Self::with(authority, &server)
    }

    fn with(authority: Authority, server: &Certificate) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let app = authority.sign("app", &[]);
        let token = Made::full("other", "*");
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let lines = format!("{}\n{}\n", Made::line_for(&app, "worker"), token.line);
        fs::write(path("tokens"), lines).unwrap();
        fs::copy(authority.file(), path("callers.pem")).unwrap();
        let args = [
            ("--tls-cert", text(&server.certificate)),
            ("--tls-key", text(&server.key)),
            ("--tls-client-ca", path("callers.pem")),
            ("--tokens", path("tokens")),
            ("--audit-log", "audit".to_owned()),
        ];
        let args: Vec<&str> = args
            .iter()
            .flat_map(|(flag, value)| [*flag, value.as_str()])
            .collect();
        let server = Server::start_on("memory:", &args, &[]);
        Self {
            server,
            dir,
            authority,
            app,
            token,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.server.addr.port())
    }

    fn curl(&self, certificate: Option<&Certificate>, token: Option<&str>, args: &[&str]) -> Output {
        let mut command = Command::new("curl");
        command
            .args(["--silent", "--show-error", "--cacert"])
            .arg(self.authority.file());
        if let Some(certificate) = certificate {
            command.arg("--cert").arg(&certificate.certificate);
            command.arg("--key").arg(&certificate.key);
        }
        if let Some(token) = token {
            command.args(["--header", &format!("authorization: Bearer {token}")]);
        }
        command.args(args).output().unwrap()
    }

    /// The status of an acquire, and the principal that then has the lock.
    fn acquire(
        &self,
        certificate: Option<&Certificate>,
        token: Option<&str>,
        version: &str,
    ) -> (u16, Option<String>) {
        let body = "{\"owner\":\"a\",\"ttl_seconds\":600}";
        let args = [
            version,
            "--data",
            body,
            "--write-out",
            "\n%{http_version} %{http_code}",
        ];
        let name = format!("/locks/r{}", rand::random::<u64>());
        let output = self.curl(certificate, token, &[&args[..], &[&self.url(&name)]].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        let (body, said) = text.rsplit_once('\n').unwrap();
        let (http, status) = said.split_once(' ').unwrap();
        assert_eq!(http == "2", version == "--http2" && status != "000", "{said}");
        let body: Value = serde_json::from_str(body).unwrap_or_default();
        let principal = body["lock"]["principal"].as_str().map(str::to_owned);
        (status.parse().unwrap(), principal)
    }

    /// Whether a caller with this certificate is refused while it says hello, before any request.
    fn refuses_to_speak(&self, certificate: &Certificate) -> bool {
        let output = self.curl(Some(certificate), Some(&self.token.token), &[&self.url("/locks")]);
        // It hears of it in the handshake, or when it goes on to its request. It is not the caller that gives up: 7 is
        // nobody there, 58 a file of its own, 60 the server's certificate.
        assert!(!matches!(output.status.code(), Some(7 | 58 | 60)), "{output:?}");
        !output.status.success()
    }
}

fn principal(name: &str) -> (u16, Option<String>) {
    (200, Some(name.to_owned()))
}

const UNAUTHORIZED: (u16, Option<String>) = (401, None);

#[test]
fn a_certificate_or_a_token_says_who_calls() {
    let lab = Lab::new();
    let unknown = lab.authority.sign("unknown", &[]);
    // Its common name reads like a whole name that is known.
    let look_alike = lab.authority.sign("app,CN=app", &[]);
    let (token, stranger) = (lab.token.token.as_str(), Made::full("worker", "*").token);
    for version in ["--http1.1", "--http2"] {
        let as_whom = |certificate, token| lab.acquire(certificate, token, version);
        assert_eq!(as_whom(Some(&lab.app), None), principal("worker"));
        assert_eq!(as_whom(None, Some(token)), principal("other"));
        // Who shows a token means it.
        assert_eq!(as_whom(Some(&lab.app), Some(token)), principal("other"));
        assert_eq!(as_whom(Some(&unknown), Some(token)), principal("other"));
        assert_eq!(as_whom(Some(&lab.app), Some(&stranger)), UNAUTHORIZED);
        assert_eq!(as_whom(None, None), UNAUTHORIZED);
        assert_eq!(as_whom(Some(&unknown), None), UNAUTHORIZED);
        assert_eq!(as_whom(Some(&look_alike), None), UNAUTHORIZED);
    }
    // What is open to everybody asks for neither.
    assert!(
        lab.curl(None, None, &["--fail", &lab.url("/healthz")])
            .status
            .success()
    );
    let audit = fs::read_to_string(lab.server.path("audit")).unwrap();
    assert!(audit.contains("\"principal\":\"worker\""), "{audit}");
}

#[test]
fn a_certificate_of_another_authority_or_whose_time_is_over_is_none() {
    let lab = Lab::new();
    assert!(!lab.refuses_to_speak(&lab.app));
    let theirs = Authority::new();
    assert!(lab.refuses_to_speak(&theirs.sign("app", &[])));
    assert!(lab.refuses_to_speak(&lab.authority.sign_expired("app", &[])));
}

#[test]
fn a_caller_refuses_a_server_whose_time_is_over_or_that_has_another_name() {
    for make in [
        |authority: &Authority| authority.sign_expired("server", &["localhost"]),
        |authority: &Authority| authority.sign("server", &["elsewhere"]),
    ] {
        let authority = Authority::new();
        let server = make(&authority);
        let lab = Lab::with(authority, &server);
        let output = lab.curl(Some(&lab.app), None, &[&lab.url("/locks")]);
        assert_eq!(output.status.code(), Some(60), "{output:?}");
        let status = lab.command(&["list"]).output().unwrap().status;
        assert_eq!(status.code(), Some(69));
    }
}

impl Lab {
    /// The program, as a caller with the certificate.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = ferrolho(args);
        command
            .env("FERROLHO_URL", self.url(""))
            .env("FERROLHO_CA_FILE", self.authority.file())
            .env("FERROLHO_IDENTITY_FILE", &self.app.identity);
        command
    }
}

#[test]
fn the_commands_and_the_client_show_their_certificate_or_token() {
    let lab = Lab::new();
    let output = lab
        .command(&["acquire", "r", "--owner", "a", "--ttl", "60s", "--json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["lock"]["principal"], "worker");
    // With the token in place of the certificate it is somebody else's.
    let output = lab
        .command(&["release", "r", "--owner", "a"])
        .env_remove("FERROLHO_IDENTITY_FILE")
        .env("FERROLHO_TOKEN", &lab.token.token)
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(
        lab.command(&["release", "r", "--owner", "a"])
            .output()
            .unwrap()
            .status
            .success()
    );
    let mut run = lab.command(&["run", "r", "--ttl", "3s", "--", "sh", "-c", "sleep 4; echo done"]);
    let output = run.output().unwrap();
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(0), &b"done\n"[..]),
        "{output:?}"
    );
    let nobody = lab
        .command(&["list"])
        .env_remove("FERROLHO_IDENTITY_FILE")
        .output()
        .unwrap();
    assert!(!nobody.status.success());
    let roots = fs::read(lab.authority.file()).unwrap();
    let client = || {
        Client::builder()
            .url(&lab.url(""))
            .unwrap()
            .root_certificates(&roots)
    };
    let with_certificate = client()
        .identity(&fs::read(&lab.app.identity).unwrap())
        .build()
        .unwrap();
    let with_token = client().token(&lab.token.token).unwrap().build().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        for (client, principal) in [(with_certificate, "worker"), (with_token, "other")] {
            let resource = format!("of {principal}");
            let request = client
                .lock(&resource)
                .unwrap()
                .ttl(Duration::from_secs(3))
                .unwrap();
            let guard = request.acquire().await.unwrap();
            // It lives on by its renewals.
            tokio::time::sleep(Duration::from_secs(4)).await;
            let lock = client.find(&resource).await.unwrap().unwrap();
            assert_eq!(lock.principal.unwrap().as_str(), principal);
            assert!(guard.is_held());
            guard.release().await.unwrap();
        }
    });
}

#[test]
fn rights_and_authorities_are_exchanged_while_it_runs() {
    let lab = Lab::new();
    assert_eq!(lab.acquire(Some(&lab.app), None, "--http2"), principal("worker"));
    // An open connection asks anew for each request.
    let reads = Command::new("curl")
        .args(["--silent", "--no-buffer", "--cacert"])
        .arg(lab.authority.file())
        .arg("--cert")
        .arg(&lab.app.certificate)
        .arg("--key")
        .arg(&lab.app.key)
        .args(["--output", "/dev/null", "--write-out", "%{http_code}"])
        .arg(lab.url("/events"))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    until("it reads", || {
        let readers = lab.curl(None, Some(&lab.token.token), &[&lab.url("/metrics")]);
        String::from_utf8(readers.stdout)
            .unwrap()
            .contains("\nferrolho_event_readers 1\n")
    });
    fs::write(lab.path("tokens"), &lab.token.line).unwrap();
    lab.server.signal(Signal::HUP);
    until("its subject is gone", || {
        lab.acquire(Some(&lab.app), None, "--http2") == UNAUTHORIZED
    });
    // The stream ends with the next thing that it would have been told.
    assert_eq!(lab.acquire(None, Some(&lab.token.token), "--http1.1").0, 200);
    assert_eq!(reads.wait_with_output().unwrap().stdout, b"200");
    let theirs = Authority::new();
    fs::copy(theirs.file(), lab.path("callers.pem")).unwrap();
    fs::write(lab.path("tokens"), Made::line_for(&lab.app, "worker")).unwrap();
    lab.server.signal(Signal::HUP);
    let new = theirs.sign("app", &[]);
    until("the other authority vouches for callers", || {
        lab.acquire(Some(&new), None, "--http2") == principal("worker")
    });
    assert!(lab.refuses_to_speak(&lab.app));
    // What is of no use changes nothing.
    fs::write(lab.path("callers.pem"), "").unwrap();
    lab.server.signal(Signal::HUP);
    until("it is said", || {
        lab.server.log().contains("there is no certificate in it")
    });
    assert_eq!(lab.acquire(Some(&new), None, "--http2"), principal("worker"));
}

/// How often everything is read again.
const RELOADS: usize = 10;

/// How many requests one run of curl makes on its connection.
const REQUESTS: usize = 50;

#[test]
fn everything_is_read_again_under_load_without_one_failed_request() {
    let authority = Authority::new();
    let certificate = authority.sign("server", &["localhost"]);
    let lab = Lab::with(authority, &certificate);
    let lines = fs::read_to_string(lab.path("tokens")).unwrap();
    let is_over = AtomicBool::new(false);
    let asked: usize = thread::scope(|scope| {
        let (lab, is_over) = (&lab, &is_over);
        let work = move |version: &str, certificate: Option<&Certificate>, token: Option<&str>| {
            let mut asked = 0;
            while !is_over.load(Ordering::Relaxed) {
                let body = "{\"owner\":\"a\",\"ttl_seconds\":600}";
                let url = lab.url(&format!("/locks/{}-[1-{REQUESTS}]", rand::random::<u64>()));
                let args = [version, "--data", body, "--write-out", "\n%{http_code}\n", &url];
                let output = lab.curl(certificate, token, &args);
                let said = String::from_utf8(output.stdout).unwrap();
                let good = said.lines().filter(|line| *line == "200").count();
                assert_eq!(good, REQUESTS, "{said} {:?}", output.stderr);
                asked += good;
            }
            asked
        };
        let callers: Vec<_> = ["--http1.1", "--http2"]
            .into_iter()
            .flat_map(|version| {
                [(Some(&lab.app), None), (None, Some(lab.token.token.as_str()))]
                    .map(|(certificate, token)| scope.spawn(move || work(version, certificate, token)))
            })
            .collect();
        for number in 1..=RELOADS {
            // A new key, and another line for somebody else.
            lab.authority.sign("server", &["localhost"]);
            let another = Made::full(&format!("another-{number}"), "*");
            fs::write(lab.path("tokens"), format!("{lines}{}\n", another.line)).unwrap();
            fs::rename(
                lab.server.path("audit"),
                lab.server.path(&format!("audit.{number}")),
            )
            .unwrap();
            lab.server.signal(Signal::HUP);
            until("all is read", || {
                let certificates = lab.server.log().matches("the certificate was read again").count();
                certificates == number && lab.server.path("audit").exists()
            });
            assert_eq!(lab.acquire(None, Some(&another.token), "--http2").0, 200);
        }
        is_over.store(true, Ordering::Relaxed);
        callers.into_iter().map(|caller| caller.join().unwrap()).sum()
    });
    assert!(asked >= RELOADS, "{asked}");
    assert!(!lab.server.log().contains("stay"), "nothing was refused");
}

#[test]
fn what_asks_for_certificates_needs_the_rest() {
    let authority = Authority::new();
    let file = authority.sign("server", &["localhost"]);
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (cert, key, ca) = (text(&file.certificate), text(&file.key), text(&authority.file()));
    for (args, what) in [
        (vec!["--tls-client-ca", &ca], "both tls_cert and tls_key"),
        (
            vec!["--tls-client-ca", &ca, "--tls-cert", &cert, "--tls-key", &key],
            "tls_client_ca needs tokens",
        ),
    ] {
        let mut command = ferrolho(&["serve", "--store", "memory:", "--listen", "127.0.0.1:0"]);
        let output = command.args(&args).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(what) && said.trim().lines().count() == 1, "{said}");
    }
    let output = ferrolho(&["token", "certificate", "--name", "a", "--allow", "*", &key])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(64));
}
