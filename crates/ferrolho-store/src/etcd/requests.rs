//! The requests that this engine makes, and what it demands of every answer.
//!
//! All reads here are linearizable. An answer from another cluster than the first one, or from an earlier time
//! than an answer before it, means that etcd was restored from a snapshot or that the URL names members of two
//! clusters. Then what this server knows is of another history and nothing can be promised, so nothing is asked
//! any more until it is started anew.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use etcd_client::{
    GetOptions, KeyValue, LeaseGrantOptions, ResponseHeader, Txn, TxnOp, TxnOpResponse, TxnResponse,
    WatchOptions, WatchStream,
};
use tokio::time::Instant;
use tracing::error;

use super::failure::{Failure, Kind};
use super::members::{Effort, MAX_ANSWER_BYTES, MemberIndex, Members};
use crate::clock::Moment;

/// How many locks one page of a whole reading holds.
const PAGE: i64 = 500;

/// The cluster as one thing that answers.
pub(super) struct Cluster {
    members: Members,
    id: OnceLock<u64>,
    /// The highest revision that an answer has had.
    reached: AtomicI64,
    /// Why nothing is asked any more.
    condemned: OnceLock<String>,
}

/// What keys held at one revision.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) revision: i64,
    pub(super) values: Vec<Option<KeyValue>>,
}

/// What a transaction answered.
#[derive(Debug)]
pub(super) struct Committed {
    /// The revision of the transaction, if it wrote.
    pub(super) revision: i64,
    /// Whether its outermost comparisons held.
    pub(super) succeeded: bool,
    pub(super) answers: Vec<TxnOpResponse>,
}

/// A lease that etcd has granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) id: i64,
    /// It does not end before this.
    pub(super) ends: Moment,
}

impl Cluster {
    pub(super) fn new(members: Members) -> Self {
        Self {
            members,
            id: OnceLock::new(),
            reached: AtomicI64::new(0),
            condemned: OnceLock::new(),
        }
    }

    /// The cluster's id, once anything has been answered; 0 before.
    pub(super) fn id(&self) -> u64 {
        self.id.get().copied().unwrap_or(0)
    }

    /// What these keys hold, all at one revision.
    pub(super) async fn read(&self, keys: &[Vec<u8>], until: Instant) -> Result<Reading, Failure> {
        let gets: Vec<_> = keys.iter().map(|key| TxnOp::get(key.clone(), None)).collect();
        let committed = self
            .transact(Txn::new().and_then(gets), Effort::Repeat, until)
            .await?;
        Ok(Reading {
            revision: committed.revision,
            values: values(&committed.answers),
        })
    }

    /// Carries out a transaction. With [`Effort::Once`] it is sent again only when it was certainly not
    /// carried out before.
    pub(super) async fn transact(
        &self,
        txn: Txn,
        effort: Effort,
        until: Instant,
    ) -> Result<Committed, Failure> {
        let before = self.before_asking()?;
        let mut answer: TxnResponse = self
            .members
            .ask(effort, until, |client| {
                let mut kv = client.kv_client().max_decoding_message_size(MAX_ANSWER_BYTES);
                let txn = txn.clone();
                async move { kv.txn(txn).await }
            })
            .await?;
        let revision = match self.vet(answer.take_header(), before) {
            Ok(revision) => revision,
            // Its comparisons failed, so it has changed nothing wherever it was carried out.
            Err(failure) if !answer.succeeded() => {
                return Err(Failure::new(Kind::Denied, failure.to_string()));
            }
            Err(failure) => return Err(failure),
        };
        Ok(Committed {
            revision,
            succeeded: answer.succeeded(),
            answers: answer.op_responses(),
        })
    }

    /// Everything between two keys at one revision, and that revision.
    pub(super) async fn read_range(
        &self,
        start: &[u8],
        end: &[u8],
        patience: Duration,
    ) -> Result<(i64, Vec<KeyValue>), Failure> {
        let mut from = start.to_vec();
        let mut revision = None;
        let mut all = Vec::new();
        loop {
            let before = self.before_asking()?;
            let mut page = self
                .members
                .ask(Effort::Repeat, Instant::now() + patience, |client| {
                    let mut options = GetOptions::new().with_range(end).with_limit(PAGE);
                    if let Some(revision) = revision {
                        options = options.with_revision(revision);
                    }
                    let mut kv = client.kv_client().max_decoding_message_size(MAX_ANSWER_BYTES);
                    let from = from.clone();
                    async move { kv.get(from, Some(options)).await }
                })
                .await?;
            let now = self.vet(page.take_header(), before)?;
            let revision = *revision.get_or_insert(now);
            let more = page.more();
            all.append(&mut page.take_kvs());
            match all.last() {
                Some(last) if more => from = [last.key(), &[0]].concat(),
                _ => return Ok((revision, all)),
            }
        }
    }

    /// A new lease of so many whole seconds.
    pub(super) async fn grant_lease(&self, seconds: i64, until: Instant) -> Result<Lease, Failure> {
        let (asked, answer) = self
            .members
            .ask(Effort::Repeat, until, |client| async move {
                let asked = Moment::now();
                let options = LeaseGrantOptions::new();
                let answer = client.lease_client().grant(seconds, Some(options)).await?;
                Ok((asked, answer))
            })
            .await?;
        let granted = u64::try_from(answer.ttl()).unwrap_or(0);
        Ok(Lease {
            id: answer.id(),
            ends: asked + Duration::from_secs(granted),
        })
    }

    /// How long a lease still has, in whole seconds, rounded down; nothing when it has ended.
    pub(super) async fn lease_left(&self, id: i64, until: Instant) -> Result<Option<Duration>, Failure> {
        let answer = self
            .members
            .ask(Effort::Repeat, until, |client| async move {
                client.lease_client().time_to_live(id, None).await
            })
            .await?;
        Ok(u64::try_from(answer.ttl()).ok().map(Duration::from_secs))
    }

    /// Everything under a prefix, from a revision on, and which member brings it. Ends when the member has lost its
    /// leader.
    pub(super) async fn watch(
        &self,
        prefix: &[u8],
        from: i64,
        limit: Duration,
    ) -> Result<(WatchStream, MemberIndex), Failure> {
        self.members
            .ask_one(limit, |client| async move {
                let options = WatchOptions::new().with_prefix().with_start_revision(from);
                client
                    .watch_client()
                    .max_decoding_message_size(MAX_ANSWER_BYTES)
                    .watch(prefix, Some(options))
                    .await
            })
            .await
    }

    /// Forgets what was before a revision.
    pub(super) async fn compact(&self, revision: i64, until: Instant) -> Result<(), Failure> {
        self.members
            .ask(Effort::Repeat, until, |client| async move {
                client.kv_client().compact(revision, None).await
            })
            .await
            .map(drop)
    }

    /// What a member complains about: alarms, a lost leader.
    pub(super) async fn complaints(&self, until: Instant) -> Result<Vec<String>, Failure> {
        let status = self
            .members
            .ask(Effort::Repeat, until, |client| async move {
                client.maintenance_client().status().await
            })
            .await?;
        Ok(status.errors().to_vec())
    }

    /// Gives up the connection to a member that does not bring what it should.
    pub(super) fn give_up(&self, member: MemberIndex) {
        self.members.give_up(member);
    }

    /// Refuses what does not come from the cluster that answered first.
    pub(super) fn same_cluster(&self, header: &ResponseHeader) -> Result<(), Failure> {
        let id = *self.id.get_or_init(|| header.cluster_id());
        if id == header.cluster_id() {
            return Ok(());
        }
        Err(self.condemn(format!(
            "an answer came from etcd cluster {:x}, not {id:x}: the URL names two clusters, or one was made anew",
            header.cluster_id()
        )))
    }

    /// From now on nothing is asked any more, because of this.
    pub(super) fn condemn(&self, reason: String) -> Failure {
        let reason = self.condemned.get_or_init(|| {
            error!(
                reason,
                "nothing is asked of etcd until this server is started anew"
            );
            reason
        });
        Failure::new(Kind::Foreign, reason)
    }

    /// The revision that an answer must have reached that is asked for now, if anything may be asked at all.
    fn before_asking(&self) -> Result<i64, Failure> {
        match self.condemned.get() {
            Some(reason) => Err(Failure::new(Kind::Denied, reason)),
            None => Ok(self.reached.load(Ordering::SeqCst)),
        }
    }

    /// The revision of an answer that was asked for when `before` had been reached.
    fn vet(&self, header: Option<ResponseHeader>, before: i64) -> Result<i64, Failure> {
        let header = header.ok_or_else(|| Failure::new(Kind::Foreign, "an answer of etcd had no header"))?;
        self.same_cluster(&header)?;
        let revision = header.revision();
        if revision < before {
            return Err(self.condemn(format!(
                "etcd went back from revision {before} to {revision}: it was restored from a snapshot"
            )));
        }
        self.reached.fetch_max(revision, Ordering::SeqCst);
        Ok(revision)
    }
}

/// The values that a list of reads found.
pub(super) fn values(answers: &[TxnOpResponse]) -> Vec<Option<KeyValue>> {
    answers
        .iter()
        .map(|answer| match answer {
            TxnOpResponse::Get(get) => get.kvs().first().cloned(),
            TxnOpResponse::Put(_) | TxnOpResponse::Delete(_) | TxnOpResponse::Txn(_) => None,
        })
        .collect()
}
