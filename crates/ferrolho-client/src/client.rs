//! The client: one owner, its connections, and what it can ask.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ferrolho_core::wire::{LockList, RenewBody, Waiter};
use ferrolho_core::{FencingToken, Invalid, Lock, Owner, Resource, Timestamp, Ttl};

use crate::Error;
use crate::api::{self, ListQuery};
use crate::builder::{ClientBuilder, Identity, Settings};
use crate::claims::Claims;
use crate::clock::Clock;
use crate::election::Election;
use crate::engine::Engine;
use crate::events::Events;
use crate::guard::Guard;
use crate::heartbeat::Shared;
use crate::request::{LockRequest, MAX_SET};
use crate::set::SetGuard;
use crate::transport::{Call, Transport};

/// A client of a ferrolho service: one owner, with a thread of its own that does everything on the network.
///
/// Clone it freely; clones are the same client. Its guards exclude each other too: two tasks that ask one client
/// for the same name get it one after the other.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

/// What the client and everything that it does share.
pub(crate) struct Inner {
    pub(crate) engine: Engine,
    pub(crate) transport: Transport,
    pub(crate) identity: Identity,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) claims: Claims,
    /// The one heartbeat, where there is one for all guards.
    pub(crate) shared: Option<Arc<Shared>>,
}

impl Inner {
    pub(crate) fn start(settings: Settings) -> Result<Arc<Self>, Error> {
        Ok(Arc::new(Self {
            engine: Engine::start()?,
            transport: Transport::new(&settings)?,
            identity: Identity::of(&settings),
            claims: Claims::default(),
            shared: settings.shared_ttl.map(|ttl| Arc::new(Shared::new(ttl))),
            clock: settings.clock,
        }))
    }

    pub(crate) async fn release(
        &self,
        resource: &Resource,
        token: Option<FencingToken>,
    ) -> Result<(), Error> {
        api::release(&self.transport, resource, &self.identity.owner, token).await
    }

    /// Releases what perhaps is not there, and for which nobody waits.
    pub(crate) async fn release_quietly(&self, resource: &Resource, token: Option<FencingToken>) {
        match self.release(resource, token).await {
            Ok(()) | Err(Error::NotFound | Error::NotOwner) => {}
            Err(error) => tracing::warn!(%resource, "a lock may stay until its end: {error}"),
        }
    }

    pub(crate) fn release_in_background(self: &Arc<Self>, resource: Resource, token: Option<FencingToken>) {
        let inner = Arc::clone(self);
        self.engine
            .in_background(async move { inner.release_quietly(&resource, token).await });
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("owner", &self.identity.owner)
            .field("server", &self.transport.current_server().as_str())
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Begins to set up a client.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::new()
    }

    /// A client of this server, or of several with commas between their URLs, and otherwise the defaults.
    pub fn new(urls: &str) -> Result<Self, Error> {
        Self::builder().url(urls)?.build()
    }

    /// The owner of this client's locks.
    pub fn owner(&self) -> &Owner {
        &self.inner.identity.owner
    }

    /// The server that is asked next, as it was named.
    pub fn current_server(&self) -> &str {
        self.inner
            .transport
            .current_server()
            .as_str()
            .trim_end_matches('/')
    }

    /// A request for one lock. [`Error::Invalid`] for a name that no server would take.
    pub fn lock(&self, resource: &str) -> Result<LockRequest<Guard>, Error> {
        LockRequest::new(Arc::clone(&self.inner), vec![Resource::new(resource)?])
    }

    /// A request for several locks, all or none: 1 to 32, none twice.
    pub fn lock_all<'a>(
        &self,
        resources: impl IntoIterator<Item = &'a str>,
    ) -> Result<LockRequest<SetGuard>, Error> {
        let mut names: Vec<Resource> = Vec::new();
        for name in resources {
            let name = Resource::new(name)?;
            if names.contains(&name) {
                return Err(Invalid::new("duplicate", format!("{name} is asked for twice")).into());
            }
            names.push(name);
        }
        if names.is_empty() || names.len() > MAX_SET {
            let why = format!("a set has 1 to {MAX_SET} names, not {}", names.len());
            return Err(Invalid::new("out-of-range", why).into());
        }
        LockRequest::new(Arc::clone(&self.inner), names)
    }

    /// The lock on a resource, if anybody holds it.
    pub async fn find(&self, resource: &str) -> Result<Option<Lock>, Error> {
        let (inner, resource) = (Arc::clone(&self.inner), Resource::new(resource)?);
        let work = async move { api::find(&inner.transport, &resource).await };
        self.inner.engine.carry_out(work).await?
    }

    /// A page of live locks, ordered by the bytes of their names.
    pub async fn list(&self, query: ListQuery) -> Result<LockList, Error> {
        let inner = Arc::clone(&self.inner);
        let work = async move { api::list(&inner.transport, &query).await };
        self.inner.engine.carry_out(work).await?
    }

    /// Who waits for a lock on the server that answers, the next one first.
    pub async fn waiters(&self, resource: &str) -> Result<Vec<Waiter>, Error> {
        let (inner, resource) = (Arc::clone(&self.inner), Resource::new(resource)?);
        let work = async move { api::waiters(&inner.transport, &resource).await };
        Ok(self.inner.engine.carry_out(work).await??.waiters)
    }

    /// Renews a lock of this owner that has no guard here, such as one of another process: its new end is now and
    /// `ttl`. Without a token, whichever grant the owner has.
    pub async fn renew(&self, resource: &str, ttl: Ttl, token: Option<FencingToken>) -> Result<Lock, Error> {
        let (inner, resource) = (Arc::clone(&self.inner), Resource::new(resource)?);
        let body = RenewBody {
            owner: self.owner().clone(),
            ttl_seconds: ttl.seconds(),
            fencing_token: token,
        };
        let work = async move { api::fetch(&inner.transport, &Call::renew(&resource, &body)).await };
        self.inner.engine.carry_out(work).await?
    }

    /// Releases a lock of this owner that has no guard here. Without a token, whichever grant the owner has.
    pub async fn release(&self, resource: &str, token: Option<FencingToken>) -> Result<(), Error> {
        let (inner, resource) = (Arc::clone(&self.inner), Resource::new(resource)?);
        let work = async move { inner.release(&resource, token).await };
        self.inner.engine.carry_out(work).await?
    }

    /// Asks whether a server is ready to work: what it says of itself, or [`Error::Unreachable`].
    pub async fn ready(&self) -> Result<String, Error> {
        let inner = Arc::clone(&self.inner);
        let work = async move { api::ready(&inner.transport).await };
        self.inner.engine.carry_out(work).await?
    }

    /// What the servers' wall clock shows now, to a second, going by the last answer; nothing before the first. To
    /// show people how long a lock still lives: with it a wrong clock here does no harm.
    pub fn server_now(&self) -> Option<Timestamp> {
        self.inner.transport.server_now()
    }

    /// What happens to locks whose names begin with `prefix`, from now on or from where an earlier stream ended.
    pub fn events(&self, prefix: &str, last_id: Option<String>) -> Events {
        Events::start(&self.inner, prefix, last_id)
    }

    /// An election: who holds the lock of this name leads.
    pub fn election(&self, name: &str) -> Result<Election, Error> {
        Election::new(self.clone(), name)
    }

    /// Waits until nothing is left to do in the background: all guards are gone and what they held is given back,
    /// or could not be. Call it before the program ends, if guards were dropped shortly before.
    pub async fn settle(&self) {
        self.inner.engine.idle().await;
    }

    /// How long one request may take, apart from time spent waiting for a lock.
    pub fn request_timeout(&self) -> Duration {
        self.inner.transport.request_timeout()
    }
}
