//! A private etcd cluster from the installed binaries.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::engine::{end, find_program, free_port, missing};

/// How long a cluster may take to answer after its start.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// How often a cluster is started anew because somebody else took one of its ports.
const START_TRIES: usize = 5;

/// How a private cluster differs from the default one.
#[derive(Clone, Debug, Default)]
pub struct EtcdOptions {
    /// At how many bytes etcd is out of space.
    pub quota_bytes: Option<u64>,
    /// The files of TLS towards clients.
    pub tls: Option<EtcdTls>,
}

/// The files of TLS, PEM: what the members show to clients, and by whom clients must be signed.
#[derive(Clone, Debug)]
pub struct EtcdTls {
    /// The authority of both sides.
    pub authority: PathBuf,
    /// The members' certificate, which must be valid for 127.0.0.1; `etcdctl` shows it too.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// A private cluster on free loopback ports, which ends when this is dropped. Members are counted from 0.
#[derive(Debug)]
pub struct Etcd {
    dir: TempDir,
    program: PathBuf,
    control: PathBuf,
    options: EtcdOptions,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    client_port: u16,
    peer_port: u16,
    child: Option<Child>,
}

impl Etcd {
    /// Starts one member; nothing when etcd is not installed (see [`missing`]).
    pub fn start() -> Option<Self> {
        Self::start_with(1, &EtcdOptions::default())
    }

    /// Starts a cluster of three members.
    pub fn start_cluster() -> Option<Self> {
        Self::start_with(3, &EtcdOptions::default())
    }

    /// Starts so many members with these options.
    pub fn start_with(members: usize, options: &EtcdOptions) -> Option<Self> {
        let (Some(program), Some(control)) = (find_program("etcd", &[]), find_program("etcdctl", &[])) else {
            missing(
                "etcd",
                "etcd or etcdctl (Debian's packages etcd-server and etcd-client)",
            );
            return None;
        };
        for _ in 0..START_TRIES {
            let mut etcd = Self {
                dir: tempfile::Builder::new()
                    .prefix("ferrolho-etcd-")
                    .tempdir()
                    .expect("a temporary directory"),
                program: program.clone(),
                control: control.clone(),
                options: options.clone(),
                members: (0..members).map(|_| Member::new()).collect(),
            };
            for member in 0..members {
                etcd.spawn(member);
            }
            if etcd.is_up() {
                return Some(etcd);
            }
        }
        panic!("etcd did not start {START_TRIES} times in a row");
    }

    /// How many members there are.
    pub fn count(&self) -> usize {
        self.members.len()
    }

    /// Where clients reach a member: `127.0.0.1:port`.
    pub fn address(&self, member: usize) -> String {
        format!("127.0.0.1:{}", self.members[member].client_port)
    }

    /// A store's URL with all members, without parameters.
    pub fn url(&self) -> String {
        let addresses: Vec<_> = (0..self.count()).map(|member| self.address(member)).collect();
        format!("etcd://{}", addresses.join(","))
    }

    /// Runs `etcdctl` against all members and gives back what it printed. It must succeed.
    pub fn control(&self, arguments: &[&str]) -> String {
        self.try_control(arguments)
            .unwrap_or_else(|error| panic!("etcdctl {arguments:?} failed: {error}"))
    }

    /// Runs `etcdctl` against all members: what it printed, or what it complained of.
    pub fn try_control(&self, arguments: &[&str]) -> Result<String, String> {
        let scheme = if self.options.tls.is_some() {
            "https"
        } else {
            "http"
        };
        let endpoints: Vec<_> = (0..self.count())
            .map(|member| format!("{scheme}://{}", self.address(member)))
            .collect();
        let mut command = Command::new(&self.control);
        command
            .env("ETCDCTL_API", "3")
            .arg("--endpoints")
            .arg(endpoints.join(","));
        if let Some(tls) = &self.options.tls {
            command.arg("--cacert").arg(&tls.authority);
            command
                .arg("--cert")
                .arg(&tls.certificate)
                .arg("--key")
                .arg(&tls.key);
        }
        let output = command.args(arguments).output().expect("etcdctl runs");
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// The member that leads now. Waits for one to be elected.
    pub fn leader(&self) -> usize {
        let give_up = Instant::now() + START_TIMEOUT;
        while Instant::now() < give_up {
            if let Some(leader) = self.find_leader() {
                return leader;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("no leader was elected within {START_TIMEOUT:?}");
    }

    fn find_leader(&self) -> Option<usize> {
        // A member that is down makes etcdctl fail, with the answers of the others printed all the same.
        (0..self.count()).find(|member| {
            self.status(*member).is_some_and(|status| {
                let leader = status["leader"].as_u64().unwrap_or(0);
                leader != 0 && status["header"]["member_id"].as_u64() == Some(leader)
            })
        })
    }

    fn status(&self, member: usize) -> Option<Value> {
        self.members[member].child.as_ref()?;
        let endpoint = format!("http://{}", self.address(member));
        let output = Command::new(&self.control)
            .env("ETCDCTL_API", "3")
            .args(["--command-timeout", "1s", "--dial-timeout", "1s"])
            .args(["--endpoints", &endpoint, "endpoint", "status", "-w", "json"])
            .output()
            .expect("etcdctl runs");
        let statuses: Value = serde_json::from_slice(&output.stdout).ok()?;
        Some(statuses[0]["Status"].clone())
    }

    /// Ends a member as a power cut would.
    pub fn kill(&mut self, member: usize) {
        if let Some(mut child) = self.members[member].child.take() {
            end(&mut child, Signal::KILL);
        }
    }

    /// Stops a member in its tracks: its connections stay and say nothing.
    pub fn pause(&self, member: usize) {
        self.signal(member, Signal::STOP);
    }

    /// Lets a member that was paused go on.
    pub fn resume(&self, member: usize) {
        self.signal(member, Signal::CONT);
    }

    /// Starts a member again that was killed. Does not wait for it to answer.
    pub fn boot(&mut self, member: usize) {
        assert!(self.members[member].child.is_none(), "the member runs already");
        self.spawn(member);
    }

    /// Keeps a copy of the data of a member that was killed, as a back-up would.
    pub fn save(&self, member: usize) {
        self.copy(member, "data", "saved");
    }

    /// Puts the saved copy in the place of what a member that was killed has.
    pub fn restore(&self, member: usize) {
        self.copy(member, "saved", "data");
    }

    fn copy(&self, member: usize, from: &str, to: &str) {
        assert!(self.members[member].child.is_none(), "the member runs");
        let place = |name: &str| self.dir.path().join(format!("{name}{member}"));
        let _ = fs::remove_dir_all(place(to));
        let copied = Command::new("cp")
            .arg("-r")
            .args([place(from), place(to)])
            .status();
        assert!(
            copied.is_ok_and(|status| status.success()),
            "cp of a member's data"
        );
    }

    /// Waits until the cluster answers again.
    pub fn wait_until_up(&mut self) {
        assert!(self.is_up(), "etcd did not come up again: {}", self.log());
    }

    /// What the members have logged.
    pub fn log(&self) -> String {
        (0..self.count())
            .map(|member| {
                fs::read_to_string(self.dir.path().join(format!("log{member}"))).unwrap_or_default()
            })
            .collect()
    }

    fn signal(&self, member: usize, signal: Signal) {
        let child = self.members[member].child.as_ref().expect("the member runs");
        let pid = i32::try_from(child.id())
            .ok()
            .and_then(Pid::from_raw)
            .expect("a process id");
        kill_process(pid, signal).expect("a signal to a child");
    }

    fn spawn(&mut self, index: usize) {
        let scheme = if self.options.tls.is_some() {
            "https"
        } else {
            "http"
        };
        let peers: Vec<_> = self
            .members
            .iter()
            .enumerate()
            .map(|(index, member)| format!("m{index}=http://127.0.0.1:{}", member.peer_port))
            .collect();
        let client = format!("{scheme}://{}", self.address(index));
        let peer = format!("http://127.0.0.1:{}", self.members[index].peer_port);
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join(format!("log{index}")))
            .expect("the member's log");
        // The kernel ends it when the test that started it ends in any way, even while it is stopped. It runs in
        // a process group of its own: a Ctrl-C at the terminal is for the test runner.
        let mut command = Command::new("setpriv");
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(&self.program)
            .args(["--name", &format!("m{index}"), "--data-dir"])
            .arg(self.dir.path().join(format!("data{index}")))
            .args([
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
            ])
            .args([
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
            ])
            .args([
                "--initial-cluster",
                &peers.join(","),
                "--initial-cluster-state",
                "new",
            ])
            .args(["--initial-cluster-token", &self.dir.path().display().to_string()]);
        if let Some(bytes) = self.options.quota_bytes {
            command.args(["--quota-backend-bytes", &bytes.to_string()]);
        }
        if let Some(tls) = &self.options.tls {
            add_tls(&mut command, tls);
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn()
            .expect("etcd starts");
        self.members[index].child = Some(child);
    }

    /// Waits until the cluster carries out a write; false when a member has ended or it takes too long.
    fn is_up(&mut self) -> bool {
        let give_up = Instant::now() + START_TIMEOUT;
        while Instant::now() < give_up {
            let ended = |child: &mut Child| !matches!(child.try_wait(), Ok(None));
            if self
                .members
                .iter_mut()
                .filter_map(|member| member.child.as_mut())
                .any(ended)
            {
                return false;
            }
            if self
                .try_control(&["--command-timeout", "1s", "put", "up", "1"])
                .is_ok()
            {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }
}

fn add_tls(command: &mut Command, tls: &EtcdTls) {
    let files: [(&str, &Path); 3] = [
        ("--trusted-ca-file", &tls.authority),
        ("--cert-file", &tls.certificate),
        ("--key-file", &tls.key),
    ];
    for (flag, file) in files {
        command.arg(flag).arg(file);
    }
    command.arg("--client-cert-auth");
}

impl Member {
    fn new() -> Self {
        Self {
            client_port: free_port(),
            peer_port: free_port(),
            child: None,
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for member in 0..self.count() {
            self.kill(member);
        }
    }
}
