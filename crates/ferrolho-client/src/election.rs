//! Leader election: who holds the lock leads.

use std::time::Duration;

use ferrolho_core::{EventKind, FencingToken, Lock, Resource};
use serde::Serialize;

use crate::events::{Events, Notice};
use crate::guard::Guard;
use crate::request::{LockRequest, Patience};
use crate::{Client, Error};

/// An election of one leader among all who campaign under one name.
///
/// The winner holds an ordinary lock: it leads for as long as its [`Guard`] is held, and resigns by releasing it.
/// Its fencing token is the number of its term. What the candidate says of itself (its address, say) is the lock's
/// metadata.
#[derive(Clone, Debug)]
#[must_use]
pub struct Election {
    client: Client,
    request: LockRequest<Guard>,
}

impl Election {
    pub(crate) fn new(client: Client, name: &str) -> Result<Self, Error> {
        let request = client.lock(name)?.patience(Patience::Forever);
        Ok(Self { client, request })
    }

    /// How long a leader that is silent stays the leader, see [`LockRequest::ttl`].
    pub fn ttl(mut self, ttl: Duration) -> Result<Self, Error> {
        self.request = self.request.ttl(ttl)?;
        Ok(self)
    }

    /// What observers learn about this candidate when it leads, see [`LockRequest::metadata`].
    pub fn metadata(mut self, metadata: &impl Serialize) -> Result<Self, Error> {
        self.request = self.request.metadata(metadata)?;
        Ok(self)
    }

    /// Stands for election until elected. Dropping the future withdraws.
    pub async fn campaign(&self) -> Result<Leadership, Error> {
        let guard = self.request.acquire().await?;
        Ok(Leadership { guard })
    }

    /// Who leads: now, and whenever that changes.
    pub fn observe(&self) -> Observer {
        let resource = self.name().clone();
        Observer {
            events: self.client.events(resource.as_str(), None),
            client: self.client.clone(),
            resource,
            term: None,
            told: false,
            must_look: false,
        }
    }

    fn name(&self) -> &Resource {
        // A request for one lock has one name.
        &self.request.wanted.resources[0]
    }
}

/// Being the leader, until it is lost, resigned or dropped. It has all that its [`Guard`] has.
#[derive(Debug)]
#[must_use = "dropping it resigns"]
pub struct Leadership {
    guard: Guard,
}

impl Leadership {
    /// Makes way for another leader.
    pub async fn resign(self) -> Result<(), Error> {
        self.guard.release().await
    }
}

impl std::ops::Deref for Leadership {
    type Target = Guard;
    fn deref(&self) -> &Guard {
        &self.guard
    }
}

/// Sees one leader after the other.
#[derive(Debug)]
pub struct Observer {
    client: Client,
    events: Events,
    resource: Resource,
    /// The term that was told last: none while nobody leads.
    term: Option<FencingToken>,
    told: bool,
    must_look: bool,
}

impl Observer {
    /// The leader's lock, or nothing while there is none: at once the first time, then whenever it changes. Terms
    /// that were over before they could be seen may be left out. [`Error::Unreachable`] may pass: ask again.
    /// Nothing more after the stream of events has ended with an error.
    pub async fn next(&mut self) -> Option<Result<Option<Lock>, Error>> {
        loop {
            let leader = if self.must_look {
                match self.client.find(self.resource.as_str()).await {
                    Ok(leader) => leader,
                    Err(error) => return Some(Err(error)),
                }
            } else {
                match self.events.next().await? {
                    Err(error) => return Some(Err(error)),
                    Ok(Notice::Reset) => {
                        self.must_look = true;
                        continue;
                    }
                    Ok(Notice::Event { event, .. }) if event.resource != self.resource => continue,
                    Ok(Notice::Event { event, .. }) => match event.kind {
                        EventKind::Acquired | EventKind::Renewed => Some(event.lock),
                        EventKind::Released | EventKind::Expired | EventKind::Forced => None,
                    },
                }
            };
            self.must_look = false;
            let term = leader.as_ref().map(|lock| lock.fencing_token);
            let told = std::mem::replace(&mut self.told, true);
            if !told || self.term != term {
                self.term = term;
                return Some(Ok(leader));
            }
        }
    }
}
