//! The cluster's members and how requests reach them.
//!
//! There is one connection to each member and one member that is asked, until it fails; then the next one is.
//! The client library could spread requests over all members by itself, but then a member that hangs would go on
//! getting its share. Everything has a time limit: a member that hangs answers nothing and refuses nothing.
//! Connecting succeeds with nobody there, so only answers count as signs of life.

use std::future::Future;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, Error as EtcdError, Identity, TlsOptions};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout_at};

use super::config::{EtcdConfig, TlsFiles};
use super::failure::{Failure, Kind};

/// How long one attempt at something that may be repeated can take, before another member is asked.
pub(super) const ATTEMPT: Duration = Duration::from_secs(1);

/// How long it rests after all members have refused.
const PAUSE: Duration = Duration::from_millis(50);

/// How long connecting may take. Shorter than any attempt, so that what was never sent is known as such.
const CONNECT: Duration = Duration::from_millis(900);

/// After how long without a frame a connection is probed. etcd ends connections that are probed more often than
/// every 5 s.
const KEEP_ALIVE: Duration = Duration::from_secs(6);

/// How long the answer to a probe may take.
const KEEP_ALIVE_ANSWER: Duration = Duration::from_secs(2);

/// What an answer of etcd may weigh: a watch that catches up brings a thousand transactions at once.
pub(super) const MAX_ANSWER_BYTES: usize = 256 << 20;

/// All members of the cluster.
pub(super) struct Members {
    members: Vec<Member>,
    /// Who is asked; an index of `members`.
    current: AtomicUsize,
}

/// Which of the members.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemberIndex(usize);

struct Member {
    address: String,
    url: String,
    options: ConnectOptions,
    client: Mutex<Option<Client>>,
}

/// Whether a request may be sent again when its outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effort {
    /// It may: it changes nothing, or a second time changes nothing. Each attempt has its own limit.
    Repeat,
    /// It must not. One attempt has all the time, and none begins after this.
    Once(Instant),
}

/// Why the files of TLS are of no use.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {path}: {source}")]
pub struct TlsFileError {
    path: String,
    source: std::io::Error,
}

impl Members {
    /// The members of a cluster, not asked anything yet. Reads the files of TLS.
    pub(super) fn new(config: &EtcdConfig) -> Result<Self, TlsFileError> {
        let options = connect_options(config)?;
        let scheme = if config.tls.is_some() { "https" } else { "http" };
        let members: Vec<_> = config
            .members
            .iter()
            .map(|address| Member {
                address: address.clone(),
                url: format!("{scheme}://{address}"),
                options: options.clone(),
                client: Mutex::default(),
            })
            .collect();
        let first = rand::random_range(0..members.len());
        Ok(Self {
            members,
            current: AtomicUsize::new(first),
        })
    }

    /// Asks one member after the other until one answers or `until` has come.
    pub(super) async fn ask<T, F>(
        &self,
        effort: Effort,
        until: Instant,
        work: impl Fn(Client) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, EtcdError>>,
    {
        for attempt in 1usize.. {
            let left = until.saturating_duration_since(Instant::now());
            let limit = match effort {
                Effort::Repeat => left.min(ATTEMPT),
                Effort::Once(_) => left,
            };
            let failure = match self.ask_one(limit, &work).await {
                Ok((answer, _)) => return Ok(answer),
                Err(failure) => failure,
            };
            let again = match failure.kind {
                Kind::Refused | Kind::SignIn => true,
                Kind::Unknown => effort == Effort::Repeat,
                Kind::Denied | Kind::NoLease | Kind::NoSpace | Kind::Compacted | Kind::Foreign => false,
            };
            let last_start = match effort {
                Effort::Repeat => until,
                Effort::Once(begin_by) => until.min(begin_by),
            };
            if !again || Instant::now() + PAUSE >= last_start {
                return Err(failure);
            }
            if attempt.is_multiple_of(self.members.len()) {
                sleep(PAUSE).await;
            }
        }
        Err(Failure::new(Kind::Refused, "etcd was asked too often"))
    }

    /// Asks the current member once, and says which that is; if it fails, the next one becomes the current one.
    pub(super) async fn ask_one<T, F>(
        &self,
        limit: Duration,
        work: impl FnOnce(Client) -> F,
    ) -> Result<(T, MemberIndex), Failure>
    where
        F: Future<Output = Result<T, EtcdError>>,
    {
        let index = self.current.load(Ordering::Relaxed);
        let member = &self.members[index];
        let until = Instant::now() + limit;
        let answer = async {
            let client = timeout_at(until, member.client()).await.unwrap_or_else(|_| {
                Err(Failure::new(
                    Kind::Refused,
                    format!("cannot reach {}", member.address),
                ))
            })?;
            if let Ok(answer) = timeout_at(until, work(client)).await {
                return answer.map_err(Failure::from);
            }
            self.give_up(MemberIndex(index));
            Err(Failure::timeout(&member.address))
        }
        .await;
        if let Err(failure) = &answer {
            match failure.kind {
                Kind::Refused | Kind::Unknown => self.suspect(index),
                Kind::SignIn => *member.client.lock().await = None,
                Kind::Denied | Kind::NoLease | Kind::NoSpace | Kind::Compacted | Kind::Foreign => {}
            }
        }
        answer.map(|answer| (answer, MemberIndex(index)))
    }

    /// Gives up the connection to a member that keeps silent on it, and turns to the next member. It may be that
    /// the network has lost the connection, and not the member: the next request takes a new one, instead of
    /// waiting again for what will never come.
    pub(super) fn give_up(&self, MemberIndex(index): MemberIndex) {
        // Whoever has it locked is making a new connection.
        if let Ok(mut client) = self.members[index].client.try_lock() {
            *client = None;
        }
        self.suspect(index);
    }

    /// Turns to the next member, unless that was done already.
    fn suspect(&self, index: usize) {
        let next = (index + 1) % self.members.len();
        let _ = self
            .current
            .compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl Member {
    /// The connection to this member, made and signed in when there is none. Nothing of the request itself has
    /// been sent when this fails.
    async fn client(&self) -> Result<Client, Failure> {
        let mut slot = self.client.lock().await;
        if let Some(client) = &*slot {
            return Ok(client.clone());
        }
        let client = Client::connect([&self.url], Some(self.options.clone()))
            .await
            .map_err(|error| match Failure::from(error) {
                failure if failure.kind == Kind::Unknown => Failure::new(Kind::Refused, failure.to_string()),
                failure => failure,
            })?;
        Ok(slot.insert(client).clone())
    }
}

fn connect_options(config: &EtcdConfig) -> Result<ConnectOptions, TlsFileError> {
    // A member that has lost its leader refuses at once, so that another one can be asked.
    let mut options = ConnectOptions::new()
        .with_connect_timeout(CONNECT)
        .with_keep_alive(KEEP_ALIVE, KEEP_ALIVE_ANSWER)
        .with_keep_alive_while_idle(true)
        .with_require_leader(true);
    if let Some(user) = &config.user {
        options = options
            .with_user(&user.name, &user.password)
            .with_auto_token_refresh(true);
    }
    match &config.tls {
        Some(files) => Ok(options.with_tls(tls_options(files)?)),
        None => Ok(options),
    }
}

fn tls_options(files: &TlsFiles) -> Result<TlsOptions, TlsFileError> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|source| TlsFileError {
            path: path.display().to_string(),
            source,
        })
    };
    let mut tls = TlsOptions::new().ca_certificate(Certificate::from_pem(read(&files.authority)?));
    if let Some(own) = &files.own {
        tls = tls.identity(Identity::from_pem(read(&own.certificate)?, read(&own.key)?));
    }
    if let Some(name) = &files.name {
        tls = tls.domain_name(name);
    }
    Ok(tls)
}
