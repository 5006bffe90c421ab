//! Standing in line.

use std::sync::Arc;

use ferrolho_core::Grant;
use ferrolho_store::clock;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};

use super::meters::WaitEnd;
use super::queue::{PlaceId, PlaceKey, Request, RequestId};
use super::{AcquireRequest, Acquired, No, Refusal, Service, Verdict};

/// How long the look at the end of a wait may take: whoever waits n seconds is answered within n and a half.
const LAST_LOOK_WITHIN: std::time::Duration = std::time::Duration::from_millis(400);

impl Service {
    /// Stands in line until the grant, or until the time is up or the caller is in a hurry.
    pub(super) async fn wait_for(
        self: &Arc<Self>,
        request: &AcquireRequest,
        key: PlaceKey,
        grant: Grant,
        hurried: impl Future<Output = ()> + Send,
    ) -> Result<Acquired, Refusal> {
        let deadline = request.deadline();
        let mut ticket = self.enter(request, &key, grant)?;
        // Standing in line comes before the look that makes it wait: whatever ends from now on is seen.
        self.poke(&key.resources);
        let verdict = tokio::select! {
            biased;
            verdict = &mut ticket.answer => Some(verdict),
            () = sleep_until(deadline) => None,
            () = hurried => None,
        };
        let is_answered_by_try = || {
            let mut queues = self.queues.lock();
            queues.is_answered_by_try(ticket.place, ticket.request, Instant::now())
        };
        let verdict = match verdict {
            Some(verdict) => verdict,
            // Once its grant is on the way, the commit answers a caller and not its deadline.
            None if is_answered_by_try() => (&mut ticket.answer).await,
            None => Ok(Err(No::TimeIsUp)),
        };
        // The sender is gone without a word only when the place was removed under its caller.
        let verdict = verdict.unwrap_or(Err(No::TimeIsUp));
        ticket.ended_as(match verdict {
            Ok(_) => WaitEnd::Granted,
            Err(No::TimeIsUp) => WaitEnd::Held,
            Err(_) => WaitEnd::Refused,
        });
        match verdict {
            Ok(given) => self.answer_given(&request.resources, given).await,
            Err(No::TimeIsUp) => {
                drop(ticket);
                timeout(LAST_LOOK_WITHIN, self.held(request, &key))
                    .await
                    .unwrap_or(Err(Refusal::Unavailable))
            }
            Err(no) => Err(no.into()),
        }
    }

    fn enter(
        self: &Arc<Self>,
        request: &AcquireRequest,
        key: &PlaceKey,
        grant: Grant,
    ) -> Result<Ticket, Refusal> {
        let (sender, answer) = oneshot::channel();
        let mut queues = self.queues.lock();
        if self.is_shutting_down() {
            return Err(Refusal::ShuttingDown);
        }
        let id = queues.next_id();
        let waiting = Request {
            id,
            grant,
            origin: request.origin.clone(),
            wait: request.wait,
            deadline: request.deadline(),
            answer: sender,
        };
        let place = queues
            .enter(key, waiting, clock::wall_now())
            .map_err(Refusal::TooManyWaiters)?;
        Ok(Ticket {
            service: Arc::clone(self),
            place,
            request: id,
            answer,
            since: Instant::now(),
            is_answered: false,
        })
    }
}

/// A caller's hold on its place: it leaves when this is dropped, and a grant that it did not take is undone.
struct Ticket {
    service: Arc<Service>,
    place: PlaceId,
    request: RequestId,
    answer: oneshot::Receiver<Verdict>,
    since: Instant,
    is_answered: bool,
}

impl Ticket {
    /// The wait is over and its caller learns how.
    fn ended_as(&mut self, end: WaitEnd) {
        self.is_answered = true;
        self.service.meters.waited(end, self.since);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.is_answered {
            self.service.meters.waited(WaitEnd::Left, self.since);
        }
        let freed = self
            .service
            .queues
            .lock()
            .leave(self.place, self.request, Instant::now());
        self.service.timekeeper.notify_one();
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        self.service.poke(&freed);
        self.answer.close();
        if let (false, Ok(Ok(given))) = (self.is_answered, self.answer.try_recv()) {
            let service = Arc::clone(&self.service);
            runtime.spawn(async move { service.undo_given(given).await });
        }
    }
}
