//! HTTPS: both versions of HTTP, certificates that are exchanged while it runs, and callers that look closely.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use ferrolho_testkit::{Authority, Certificate};
use rustix::process::Signal;

use crate::support::{Server, ferrolho, until};

fn serve(certificate: &Certificate) -> Server {
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let (cert, key) = (path(&certificate.certificate), path(&certificate.key));
    Server::start_on("memory:", &["--tls-cert", &cert, "--tls-key", &key], &[])
}

/// What curl says of an answer, or its exit code.
fn curl(server: &Server, authority: &Authority, args: &[&str]) -> Result<String, i32> {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--cacert"])
        .arg(authority.file())
        .args([
            "--output",
            "/dev/null",
            "--write-out",
            "%{http_version} %{http_code}",
        ])
        .args(args)
        .arg(format!("https://localhost:{}/locks", server.addr.port()))
        .output()
        .unwrap();
    if output.status.success() {
        Ok(String::from_utf8(output.stdout).unwrap())
    } else {
        Err(output.status.code().unwrap())
    }
}

/// Whether curl refused the certificate: 60 for an authority that it does not know, 35 when that one has the same name.
fn is_refused(said: &Result<String, i32>) -> bool {
    matches!(said, Err(35 | 60))
}

/// What the small command ends with.
fn list(server: &Server, host: &str, authority: &Authority) -> Option<i32> {
    let output = ferrolho(&["list"])
        .env("FERROLHO_URL", format!("https://{host}:{}", server.addr.port()))
        .env("FERROLHO_CA_FILE", authority.file())
        .output()
        .unwrap();
    output.status.code()
}

#[test]
fn both_versions_of_http_with_and_without_tls() {
    let authority = Authority::new();
    let server = serve(&authority.sign("server", &["localhost", "127.0.0.1"]));
    assert_eq!(
        curl(&server, &authority, &["--http1.1"]),
        Ok("1.1 200".to_owned())
    );
    assert_eq!(curl(&server, &authority, &["--http2"]), Ok("2 200".to_owned()));
    assert_eq!(list(&server, "127.0.0.1", &authority), Some(0));
    let plain = Server::memory();
    let output = Command::new("curl")
        .args([
            "--silent",
            "--http2-prior-knowledge",
            "--write-out",
            "%{http_version} %{http_code}",
        ])
        .args(["--output", "/dev/null", &format!("http://{}/locks", plain.addr)])
        .output()
        .unwrap();
    assert_eq!(output.stdout, b"2 200");
}

#[test]
fn a_caller_refuses_another_authority_and_another_name() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let server = serve(&ours.sign("server", &["localhost"]));
    assert_eq!(list(&server, "localhost", &ours), Some(0));
    assert_eq!(list(&server, "localhost", &theirs), Some(69));
    assert_eq!(list(&server, "127.0.0.1", &ours), Some(69));
    assert!(is_refused(&curl(&server, &theirs, &[])));
}

#[test]
fn who_waits_over_tls_and_leaves_is_passed_over() {
    let authority = Authority::new();
    let server = serve(&authority.sign("server", &["localhost"]));
    let url = |path: &str| format!("https://localhost:{}{path}", server.addr.port());
    let call = |version: &str, owner: &str, wait: u32| {
        let mut command = Command::new("curl");
        command
            .args(["--silent", version, "--cacert"])
            .arg(authority.file())
            .args([
                "--data",
                &format!("{{\"owner\":\"{owner}\",\"ttl_seconds\":600,\"wait_seconds\":{wait}}}"),
            ])
            .arg(url("/locks/r"))
            .stdout(std::process::Stdio::piped());
        command
    };
    let said = |mut command: Command| String::from_utf8(command.output().unwrap().stdout).unwrap();
    let waiters = || {
        let mut command = Command::new("curl");
        command
            .args(["--silent", "--cacert"])
            .arg(authority.file())
            .arg(url("/locks/r/waiters"));
        said(command)
    };
    assert!(said(call("--http1.1", "a", 0)).contains("\"acquired\":true"));
    for version in ["--http1.1", "--http2"] {
        let mut waiting = call(version, "gone", 60).spawn().unwrap();
        until("it waits", || waiters().contains("gone"));
        waiting.kill().unwrap();
        waiting.wait().unwrap();
        until("it is passed over", || !waiters().contains("gone"));
    }
}

#[test]
fn a_certificate_is_exchanged_without_one_failed_request() {
    let (old, new) = (Authority::new(), Authority::new());
    let certificate = old.sign("server", &["localhost"]);
    let server = serve(&certificate);
    assert!(curl(&server, &old, &[]).is_ok());
    let next = new.sign("server", &["localhost"]);
    thread::scope(|scope| {
        let caller = scope.spawn(|| {
            for _ in 0..40 {
                assert!(curl(&server, &old, &["--insecure"]).is_ok());
            }
        });
        fs::copy(&next.key, &certificate.key).unwrap();
        fs::copy(&next.certificate, &certificate.certificate).unwrap();
        server.signal(Signal::HUP);
        until("the new one is shown", || curl(&server, &new, &[]).is_ok());
        caller.join().unwrap();
    });
    assert!(is_refused(&curl(&server, &old, &[])));
    // What is of no use changes nothing.
    fs::write(&certificate.certificate, "nonsense").unwrap();
    server.signal(Signal::HUP);
    until("it is said", || {
        server.log().contains("the certificate stays as it was")
    });
    assert!(curl(&server, &new, &[]).is_ok());
}

/// Who connects and says nothing, or no TLS, holds up nobody.
#[test]
fn a_handshake_that_never_comes_holds_up_nobody() {
    let authority = Authority::new();
    let certificate = authority.sign("server", &["localhost"]);
    let (cert, key) = (
        certificate.certificate.to_str().unwrap(),
        certificate.key.to_str().unwrap(),
    );
    let args = [
        "--tls-cert",
        cert,
        "--tls-key",
        key,
        "--head-timeout-seconds",
        "1",
    ];
    let server = Server::start_on("memory:", &args, &[]);
    let silent: Vec<_> = (0..50)
        .map(|_| TcpStream::connect(server.addr).unwrap())
        .collect();
    assert!(curl(&server, &authority, &[]).is_ok());
    for mut stream in silent {
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        let mut byte = [0];
        // It is hung up on, one way or the other.
        assert!(!matches!(std::io::Read::read(&mut stream, &mut byte), Ok(1..)));
    }
}

#[test]
fn what_cannot_be_used_is_said_at_start() {
    let authority = Authority::new();
    let (one, other) = (
        authority.sign("one", &["localhost"]),
        authority.sign("other", &["localhost"]),
    );
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    for (args, what) in [
        (
            vec!["--tls-cert".to_owned(), path(&one.certificate)],
            "both tls_cert and tls_key",
        ),
        (
            vec![
                "--tls-cert".to_owned(),
                "/nowhere.pem".to_owned(),
                "--tls-key".to_owned(),
                path(&one.key),
            ],
            "/nowhere.pem",
        ),
        (
            vec![
                "--tls-cert".to_owned(),
                path(&one.certificate),
                "--tls-key".to_owned(),
                path(&other.key),
            ],
            "one.pem",
        ),
    ] {
        let mut command = ferrolho(&["serve", "--store", "memory:", "--listen", "127.0.0.1:0"]);
        let output = command.args(&args).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(what) && said.trim().lines().count() == 1, "{said}");
    }
}
