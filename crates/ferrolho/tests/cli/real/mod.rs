//! The client and `run` against the real server.

mod client;
mod programs;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ferrolho_client::Client;
use rustix::process::{Pid, Signal, kill_process};

use crate::lab::FERROLHO;

/// A real server.
pub(crate) struct Server {
    child: Child,
    addr: SocketAddr,
}

impl Server {
    pub(crate) fn start() -> Self {
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

    pub(crate) fn url(&self) -> String {
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
