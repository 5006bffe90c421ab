//! Histories: what clients asked, what they were told, and when.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ferrolho_core::{Claim, Grant, Lock, Mark, Resource, Ttl, Wait};
use parking_lot::Mutex;

/// A moment of a history: how long after the start of the record. No two are the same, so the clock gives microseconds,
/// as the service's times are, and nanoseconds tell the order of what falls on the same one.
pub type Moment = Duration;

/// A duration in whole microseconds.
pub fn at_micros(span: Duration) -> Moment {
    Duration::from_micros(u64::try_from(span.as_micros()).unwrap_or(u64::MAX))
}

/// What a client asked for.
#[derive(Clone, Debug)]
pub enum Ask {
    /// One lock, or all of several. A grant with a random mark is one without an `Idempotency-Key`.
    Acquire {
        /// Which.
        resources: Vec<Resource>,
        /// For whom, for how long, under which mark.
        grant: Grant,
        /// How long the request may wait.
        wait: Wait,
    },
    /// A new end for a lock.
    Renew {
        /// Which.
        resource: Resource,
        /// Who says to hold it.
        claim: Claim,
        /// The new lifetime.
        ttl: Ttl,
    },
    /// The end of a lock, by its holder.
    Release {
        /// Which.
        resource: Resource,
        /// Who says to hold it.
        claim: Claim,
    },
    /// The end of a lock, whoever holds it.
    Force {
        /// Which.
        resource: Resource,
    },
    /// The lock as it is.
    Find {
        /// Which.
        resource: Resource,
    },
}

/// What a client was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The locks are granted, one for each resource, in their order.
    Granted(Vec<Lock>),
    /// `acquired:false`.
    Held,
    /// The lock with its new end.
    Renewed(Lock),
    /// The lock is gone.
    Released,
    /// The lock.
    Found(Lock),
    /// There is no lock.
    NotFound,
    /// The lock is another's, or another grant.
    Forbidden,
    /// No answer, or one that says that nobody knows: it may have happened, or may yet.
    Unknown,
    /// For certain nothing was done, and nothing was said about the lock.
    NotDone,
}

/// One call.
#[derive(Clone, Debug)]
pub struct Call {
    /// Who called, for those who read the history.
    pub client: String,
    /// What for.
    pub ask: Ask,
    /// What came of it.
    pub answer: Answer,
    /// Before the request was sent.
    pub start: Moment,
    /// After the answer had come. Of a call whose outcome is unknown: after this it cannot happen any more, if that is
    /// known.
    pub end: Option<Moment>,
}

impl Ask {
    /// The resources that it is about.
    pub fn resources(&self) -> &[Resource] {
        match self {
            Self::Acquire { resources, .. } => resources,
            Self::Renew { resource, .. }
            | Self::Release { resource, .. }
            | Self::Force { resource }
            | Self::Find { resource } => std::slice::from_ref(resource),
        }
    }
}

/// Writes down calls as they happen. A call that is never answered stays unknown.
pub struct Recorder {
    clock: Box<dyn Fn() -> Moment + Send + Sync>,
    record: Mutex<Record>,
}

#[derive(Default)]
struct Record {
    calls: Vec<Call>,
    /// The last moment that was noted.
    last: Moment,
}

impl Record {
    /// The moment that the clock shows, or the next one if it was noted before.
    fn tick(&mut self, clock: Moment) -> Moment {
        self.last = clock.max(self.last + Duration::from_nanos(1));
        self.last
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}

impl Recorder {
    /// A recorder on this clock, which must never go back.
    pub fn new(clock: impl Fn() -> Moment + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            clock: Box::new(clock),
            record: Mutex::default(),
        })
    }

    /// Notes that a request is about to be sent. A grant without a key gets a mark of its own.
    pub fn begin(self: &Arc<Self>, client: &str, mut ask: Ask) -> Open {
        let mut record = self.record.lock();
        let start = record.tick((self.clock)());
        let index = record.calls.len();
        if let Ask::Acquire { grant, .. } = &mut ask
            && matches!(grant.mark, Mark::Random(_))
        {
            grant.mark = Mark::Random(index.try_into().unwrap_or(u64::MAX));
        }
        record.calls.push(Call {
            client: client.to_owned(),
            ask,
            answer: Answer::Unknown,
            start,
            end: None,
        });
        Open {
            recorder: Arc::clone(self),
            index,
        }
    }

    /// Whatever has not been answered by now cannot happen any more, since all servers and all that they had sent to
    /// their store are gone.
    pub fn cut(&self) {
        let mut record = self.record.lock();
        let now = record.tick((self.clock)());
        let open = record
            .calls
            .iter_mut()
            .filter(|call| call.answer == Answer::Unknown && call.end.is_none());
        for call in open {
            call.end = Some(now);
        }
    }

    /// What has been written down so far.
    pub fn calls(&self) -> Vec<Call> {
        self.record.lock().calls.clone()
    }
}

/// A call under way.
#[derive(Debug)]
pub struct Open {
    recorder: Arc<Recorder>,
    index: usize,
}

impl Open {
    /// Notes the answer, which has just come.
    pub fn answered(self, answer: Answer) {
        let mut record = self.recorder.record.lock();
        let now = record.tick((self.recorder.clock)());
        if let Some(call) = record.calls.get_mut(self.index)
            && answer != Answer::Unknown
        {
            call.answer = answer;
            call.end = Some(now);
        }
    }
}

/// One line, as evidence.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>11.6} .. ", self.start.as_secs_f64())?;
        match self.end {
            Some(end) => write!(f, "{:>11.6}", end.as_secs_f64())?,
            None => write!(f, "{:>11}", "")?,
        }
        write!(f, "  {:<8} {} -> {}", self.client, self.ask, self.answer)
    }
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = |f: &mut fmt::Formatter<'_>, claim: &Claim| match claim.token {
            Some(token) => write!(f, " by {} with {token}", claim.holder.owner),
            None => write!(f, " by {}", claim.holder.owner),
        };
        match self {
            Self::Acquire {
                resources,
                grant,
                wait,
            } => {
                f.write_str("acquire")?;
                for resource in resources {
                    write!(f, " {resource}")?;
                }
                write!(f, " for {} ttl {}", grant.holder.owner, grant.ttl)?;
                if !wait.is_none() {
                    write!(f, " wait {}", wait.seconds())?;
                }
                match &grant.mark {
                    Mark::Key(key) => write!(f, " key {key}"),
                    Mark::Random(_) => Ok(()),
                }
            }
            Self::Renew { resource, claim, ttl } => {
                write!(f, "renew {resource}")?;
                by(f, claim)?;
                write!(f, " ttl {ttl}")
            }
            Self::Release { resource, claim } => {
                write!(f, "release {resource}")?;
                by(f, claim)
            }
            Self::Force { resource } => write!(f, "force {resource}"),
            Self::Find { resource } => write!(f, "find {resource}"),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted(locks) => {
                f.write_str("granted")?;
                locks
                    .iter()
                    .try_for_each(|lock| write!(f, " {}", lock.fencing_token))
            }
            Self::Held => f.write_str("held"),
            Self::Renewed(lock) => write!(f, "renewed {} until {}", lock.fencing_token, lock.expires_at),
            Self::Released => f.write_str("released"),
            Self::Found(lock) => write!(
                f,
                "{} has it with {} until {}",
                lock.owner, lock.fencing_token, lock.expires_at
            ),
            Self::NotFound => f.write_str("not found"),
            Self::Forbidden => f.write_str("forbidden"),
            Self::Unknown => f.write_str("?"),
            Self::NotDone => f.write_str("not done"),
        }
    }
}
