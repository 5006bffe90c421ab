//! TLS: only the named roots are trusted, and servers may ask for a certificate. The server is `openssl s_server`,
//! which answers with the file that the path names.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ferrolho_client::{Client, Error};
use tempfile::TempDir;

const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n\
    {\"resource\":\"r\",\"owner\":\"a\",\"fencing_token\":7,\"acquired_at\":\"2026-12-01T05:02:15.000000Z\",\
    \"expires_at\":\"2026-12-01T05:02:45.000000Z\"}";

fn openssl(dir: &Path, args: &str) {
    let mut command = Command::new("openssl");
    let output = command.args(args.split(' ')).current_dir(dir).output().unwrap();
    assert!(
        output.status.success(),
        "{args}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A folder with an authority, and a server and a client that it vouches for.
fn authority() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let new = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2";
    openssl(
        dir.path(),
        &format!("req -x509 {new} -keyout ca.key -out ca.pem -subj /CN=ca"),
    );
    for (name, usage) in [("server", "serverAuth"), ("client", "clientAuth")] {
        let asks = format!(
            "req -x509 {new} -CA ca.pem -CAkey ca.key -keyout {name}.key -out {name}.pem -subj /CN={name}"
        );
        let is = "-addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE";
        openssl(
            dir.path(),
            &format!("{asks} {is} -addext extendedKeyUsage={usage}"),
        );
    }
    fs::create_dir(dir.path().join("locks")).unwrap();
    fs::write(dir.path().join("locks/r"), ANSWER).unwrap();
    dir
}

struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(dir: &Path, more: &[&str]) -> Self {
        let mut command = Command::new("openssl");
        command.args([
            "s_server",
            "-HTTP",
            "-accept",
            "127.0.0.1:0",
            "-cert",
            "server.pem",
            "-key",
            "server.key",
        ]);
        command
            .args(more)
            .current_dir(dir)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let accepts = |line: String| Some(line.strip_prefix("ACCEPT ")?.to_owned());
        let addr = lines.map_while(Result::ok).find_map(accepts).unwrap();
        Self {
            child,
            url: format!("https://{addr}"),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

async fn find(url: &str, roots: Option<&Path>, identity: Option<&Path>) -> Result<u64, Error> {
    let mut builder = Client::builder().url(url)?;
    if let Some(dir) = roots {
        builder = builder.root_certificates(&fs::read(dir.join("ca.pem")).unwrap());
    }
    if let Some(dir) = identity {
        let parts = ["client.pem", "client.key"].map(|name| fs::read(dir.join(name)).unwrap());
        builder = builder.identity(&parts.concat());
    }
    let lock = builder.build()?.find("r").await?;
    Ok(lock.unwrap().fencing_token.get())
}

#[tokio::test]
async fn only_the_named_roots_are_trusted() {
    let (ours, others) = (authority(), authority());
    let server = Server::start(ours.path(), &[]);
    assert_eq!(find(&server.url, Some(ours.path()), None).await.unwrap(), 7);
    for roots in [None, Some(others.path())] {
        let error = find(&server.url, roots, None).await.unwrap_err();
        assert!(matches!(error, Error::Unreachable(_)), "{error}");
    }
    let plain = server.url.replace("https", "http");
    assert!(find(&plain, Some(ours.path()), None).await.is_err());
}

#[tokio::test]
async fn a_server_may_ask_who_calls() {
    let dir = authority();
    let server = Server::start(
        dir.path(),
        &["-Verify", "1", "-verify_return_error", "-CAfile", "ca.pem"],
    );
    assert_eq!(
        find(&server.url, Some(dir.path()), Some(dir.path()))
            .await
            .unwrap(),
        7
    );
    let error = find(&server.url, Some(dir.path()), None).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable(_)), "{error}");
}

#[test]
fn what_is_no_certificate_is_refused_at_once() {
    let builder = Client::builder().url("https://127.0.0.1:1").unwrap();
    assert!(matches!(
        builder.root_certificates(b"nothing").build(),
        Err(Error::Setup(_))
    ));
    let builder = Client::builder().url("https://127.0.0.1:1").unwrap();
    assert!(matches!(
        builder.identity(b"nothing").build(),
        Err(Error::Setup(_))
    ));
}
