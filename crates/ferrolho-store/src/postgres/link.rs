//! A connection to the database that is made again whenever it is lost.
//!
//! A session is thrown away, and never cancelled, when a call on it takes too long: with a synchronous standby away a
//! cancelled call would be answered as done. Every call is one flight of messages with unnamed statements, so that a
//! pooler in transaction mode may stand between.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::error::Severity;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Connection, Notification, Row, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;
use tracing::debug;

use super::config::SessionConfig;
use super::failure::{Failure, said};
use super::tls::{RootFileError, connector};

/// How many notifications may wait to be looked at. A listener that lags further begins anew.
const MAX_WAITING_NOTIFICATIONS: usize = 65_536;

/// How sessions are made.
#[derive(Clone)]
pub(super) struct Door {
    config: SessionConfig,
    tls: MakeRustlsConnect,
}

/// A session with the database. It ends when this is dropped.
pub(super) struct Session {
    pub(super) client: Client,
    /// The database has warned: what it says it did may not be on its standby.
    has_warned: Arc<AtomicBool>,
    driver: AbortHandle,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Door {
    pub(super) fn new(config: &SessionConfig) -> Result<Self, RootFileError> {
        Ok(Self {
            config: config.clone(),
            tls: connector(&config.trust)?,
        })
    }

    /// Makes a session on which nobody listens.
    pub(super) async fn open(&self, until: Instant) -> Result<Session, Failure> {
        self.open_heard(None, until).await
    }

    /// Makes a session, and the way to what is notified on it.
    pub(super) async fn open_listening(
        &self,
        until: Instant,
    ) -> Result<(Session, mpsc::Receiver<Notification>), Failure> {
        let (sender, receiver) = mpsc::channel(MAX_WAITING_NOTIFICATIONS);
        let session = self.open_heard(Some(sender), until).await?;
        Ok((session, receiver))
    }

    async fn open_heard(
        &self,
        listener: Option<mpsc::Sender<Notification>>,
        until: Instant,
    ) -> Result<Session, Failure> {
        let connecting = self.config.client.connect(self.tls.clone());
        let (client, connection) = timeout_at(until, connecting)
            .await
            .map_err(|_| Failure::Away("the database does not answer".into()))?
            .map_err(|error| Failure::Away(said(&error)))?;
        let has_warned = Arc::new(AtomicBool::new(false));
        let driving = drive(connection, Arc::clone(&has_warned), listener);
        Ok(Session {
            client,
            has_warned,
            driver: tokio::spawn(driving).abort_handle(),
        })
    }
}

type Stream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

/// Moves what goes over the connection, until it ends.
async fn drive(
    mut connection: Connection<Socket, Stream>,
    has_warned: Arc<AtomicBool>,
    listener: Option<mpsc::Sender<Notification>>,
) {
    while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
        match message {
            Ok(AsyncMessage::Notice(notice)) => {
                if notice.parsed_severity() == Some(Severity::Warning) {
                    debug!(warning = notice.message(), "the database warns");
                    has_warned.store(true, Ordering::Release);
                }
            }
            Ok(AsyncMessage::Notification(notification)) => {
                if let Some(listener) = &listener
                    && listener.try_send(notification).is_err()
                {
                    return;
                }
            }
            Ok(_) => {}
            Err(error) => {
                debug!(error = said(&error), "a connection to the database has ended");
                return;
            }
        }
    }
}

/// A session that is there when it is needed.
pub(super) struct Link {
    door: Door,
    session: Mutex<Option<Arc<Session>>>,
    /// Held while a session is made, so that not all who need one make one.
    opening: tokio::sync::Mutex<()>,
}

/// Parameters with their types: the database is not asked for them.
pub(super) type Parameters<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

impl Link {
    pub(super) fn new(door: Door) -> Self {
        Self {
            door,
            session: Mutex::new(None),
            opening: tokio::sync::Mutex::new(()),
        }
    }

    fn open_session(&self) -> Option<Arc<Session>> {
        let session = self.session.lock().clone();
        session.filter(|session| !session.client.is_closed())
    }

    pub(super) async fn session(&self, until: Instant) -> Result<Arc<Session>, Failure> {
        if let Some(session) = self.open_session() {
            return Ok(session);
        }
        let _opening = timeout_at(until, self.opening.lock())
            .await
            .map_err(|_| Failure::Away("the database does not answer".into()))?;
        if let Some(session) = self.open_session() {
            return Ok(session);
        }
        let session = Arc::new(self.door.open(until).await?);
        *self.session.lock() = Some(Arc::clone(&session));
        Ok(session)
    }

    /// Nobody uses this session any more.
    fn forget(&self, session: &Arc<Session>) {
        let mut current = self.session.lock();
        if current
            .as_ref()
            .is_some_and(|current| Arc::ptr_eq(current, session))
        {
            *current = None;
        }
    }

    /// Lets go of the session.
    pub(super) fn close(&self) {
        self.session.lock().take();
    }

    /// One statement, one round trip, one commit.
    pub(super) async fn call(
        &self,
        sql: &str,
        parameters: Parameters<'_>,
        until: Instant,
    ) -> Result<Vec<Row>, Failure> {
        let session = self.session(until).await?;
        session.has_warned.store(false, Ordering::Release);
        let answer = timeout_at(until, session.client.query_typed(sql, parameters)).await;
        let failure = match answer {
            Ok(Ok(rows)) if !session.has_warned.load(Ordering::Acquire) => return Ok(rows),
            Ok(Ok(_)) => Failure::Unknown("the database warned while it committed".into()),
            Ok(Err(error)) => match Failure::of_call(&error) {
                // The session is as good as before, unless it leads to where nothing can be written: behind the
                // same name another server may be the primary by now.
                failure @ Failure::Again(_) => return Err(failure),
                failure => failure,
            },
            Err(_) => Failure::Unknown("the database does not answer".into()),
        };
        self.forget(&session);
        Err(failure)
    }
}
