//! A store that fails: away for a while, or losing its answers. (Cases: AMB.)

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ferrolho_core::rules::ReleaseResult;
use ferrolho_core::{Live, Resource};
use ferrolho_server::audit::{Audit, Origin};
use ferrolho_server::service::{Limits, Refusal, Service};
use ferrolho_store::{
    Attempt, EngineTraits, Feed, Health, ListQuery, MemoryStore, Outcome, Page, Store, StoreError,
};
use tokio::time::sleep;

use crate::support::*;

/// What happens to one attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// It is not carried out.
    Refused,
    /// It is carried out, and the answer is lost.
    AnswerLost,
    /// It is lost, or seems so.
    RequestLost,
    /// It seems lost, and is carried out this much later.
    CarriedOutAfter(Duration),
}

/// Decorates a store with faults: the next attempts meet the next faults, and while it is away nothing answers.
pub(crate) struct Faulty {
    inner: Arc<MemoryStore>,
    faults: Mutex<VecDeque<Fault>>,
    is_away: Mutex<bool>,
    is_shared: bool,
}

impl Faulty {
    pub(crate) fn new(is_shared: bool) -> Arc<Self> {
        Arc::new(Self {
            inner: memory(),
            faults: Mutex::default(),
            is_away: Mutex::new(false),
            is_shared,
        })
    }

    pub(crate) fn next(&self, faults: &[Fault]) {
        self.faults.lock().unwrap().extend(faults);
    }

    pub(crate) fn set_away(&self, is_away: bool) {
        *self.is_away.lock().unwrap() = is_away;
    }

    fn look(&self) -> Result<(), StoreError> {
        if *self.is_away.lock().unwrap() {
            Err(StoreError::unavailable("away"))
        } else {
            Ok(())
        }
    }
}

#[async_trait]
impl Store for Faulty {
    async fn find(&self, resource: &Resource) -> Result<Option<Live>, StoreError> {
        self.look()?;
        self.inner.find(resource).await
    }

    async fn apply(&self, attempt: Attempt) -> Result<Outcome, StoreError> {
        self.look()?;
        let fault = self.faults.lock().unwrap().pop_front();
        match fault {
            None => self.inner.apply(attempt).await,
            Some(Fault::Refused) => Err(StoreError::unavailable("refused")),
            Some(Fault::AnswerLost) => {
                self.inner.apply(attempt).await?;
                Err(StoreError::unknown("answer lost"))
            }
            Some(Fault::RequestLost) => Err(StoreError::unknown("request lost")),
            Some(Fault::CarriedOutAfter(span)) => {
                let inner = Arc::clone(&self.inner);
                tokio::spawn(async move {
                    sleep(span).await;
                    let _ = inner.apply(attempt).await;
                });
                Err(StoreError::unknown("late"))
            }
        }
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        self.look()?;
        self.inner.list(query).await
    }

    fn changes(&self) -> Feed {
        self.inner.changes()
    }

    async fn check(&self) -> Result<Health, StoreError> {
        self.look()?;
        self.inner.check().await
    }

    fn traits(&self) -> EngineTraits {
        EngineTraits {
            is_shared: self.is_shared,
            looking_is_free: !self.is_shared,
            ..self.inner.traits()
        }
    }

    async fn close(&self) {}
}

fn faulty_service(is_shared: bool) -> (Arc<Faulty>, Arc<Service>) {
    let store = Faulty::new(is_shared);
    let service = Service::start(
        Arc::clone(&store) as Arc<dyn Store>,
        Limits::default(),
        Audit::default(),
    );
    (store, service)
}

#[tokio::test(start_paused = true)]
async fn while_the_store_is_away_nothing_is_guessed() {
    let (store, service) = faulty_service(false);
    take(&service, "a", "r", 60).await.unwrap();
    store.set_away(true);
    assert_eq!(
        service.acquire(request("b", "r", 60, 0)).await,
        Err(Refusal::Unavailable)
    );
    assert_eq!(service.find(&resource("r")).await, Err(Refusal::Unavailable));
    assert_eq!(service.find(&resource("other")).await, Err(Refusal::Unavailable));
    store.set_away(false);
    assert_eq!(release(&service, "a", "r").await, ReleaseResult::Released);
    assert_nothing_left(&service).await;
}

#[tokio::test(start_paused = true)]
async fn waiters_stay_while_the_store_is_away_and_are_refused_if_it_still_is() {
    let (store, service) = faulty_service(false);
    take(&service, "a", "r", 4).await.unwrap();
    let short = wait(&service, "b", "r", 60, 10).await;
    let long = wait(&service, "c", "r", 60, 60).await;
    store.set_away(true);
    assert_eq!(short.await.unwrap(), Err(Refusal::Unavailable));
    sleep(Duration::from_secs(5)).await;
    store.set_away(false);
    assert!(locks(long.await.unwrap()).is_some());
    release(&service, "c", "r").await;
    assert_nothing_left(&service).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_settled_by_the_mark() {
    let (store, service) = faulty_service(false);
    store.next(&[Fault::AnswerLost]);
    let lock = take(&service, "a", "r", 60).await.unwrap();
    assert_eq!(service.find(&resource("r")).await.unwrap(), Some(lock));
    let waiting = wait(&service, "b", "r", 60, 30).await;
    store.next(&[Fault::AnswerLost]);
    assert_eq!(release(&service, "a", "r").await, ReleaseResult::Released);
    assert_eq!(locks(waiting.await.unwrap()).unwrap()[0].owner.as_str(), "b");
    release(&service, "b", "r").await;
    assert_nothing_left(&service).await;
}

#[tokio::test(start_paused = true)]
async fn an_unknown_grant_that_shows_up_later_is_taken_back() {
    let (store, service) = faulty_service(false);
    store.next(&[Fault::CarriedOutAfter(Duration::from_secs(3))]);
    assert_eq!(
        service.acquire(request("a", "r", 600, 0)).await,
        Err(Refusal::Unavailable)
    );
    sleep(Duration::from_secs(6)).await;
    assert_eq!(owner_of(&service, "r").await, None);
    assert!(take(&service, "b", "r", 60).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn an_unknown_grant_under_a_key_is_given_to_who_comes_back_with_it() {
    let (store, service) = faulty_service(false);
    store.next(&[Fault::CarriedOutAfter(Duration::from_millis(100))]);
    let asked = || keyed("k", request("a", "r", 600, 0));
    assert_eq!(service.acquire(asked()).await, Err(Refusal::Unavailable));
    sleep(Duration::from_millis(200)).await;
    let again = locks(service.acquire(asked()).await).unwrap();
    sleep(Duration::from_secs(40)).await;
    assert_eq!(
        service.find(&resource("r")).await.unwrap(),
        Some(again[0].clone()),
        "told, so it stays"
    );
    release(&service, "a", "r").await;
    assert_nothing_left(&service).await;
}

/// The first request is lost for good, and its repeat makes the grant itself, at once or by a hand-over. Whoever
/// still looks out for the first must not take the second for it.
#[tokio::test(start_paused = true)]
async fn a_grant_of_a_repeat_is_not_taken_back_for_the_attempt_that_was_lost() {
    let (store, service) = faulty_service(false);
    store.next(&[Fault::RequestLost]);
    let asked = |wait| keyed("k", request("a", "r", 600, wait));
    assert_eq!(service.acquire(asked(0)).await, Err(Refusal::Unavailable));
    let at_once = locks(service.acquire(asked(0)).await).unwrap();
    sleep(Duration::from_secs(40)).await;
    assert_eq!(
        service.find(&resource("r")).await.unwrap(),
        Some(at_once[0].clone())
    );
    release(&service, "a", "r").await;

    store.next(&[Fault::RequestLost]);
    let asked = |wait| keyed("l", request("a", "r", 600, wait));
    assert_eq!(service.acquire(asked(0)).await, Err(Refusal::Unavailable));
    take(&service, "b", "r", 60).await.unwrap();
    let waiting = stand(&service, asked(60)).await;
    release(&service, "b", "r").await;
    let handed_over = locks(waiting.await.unwrap()).unwrap();
    sleep(Duration::from_secs(40)).await;
    assert_eq!(
        service.find(&resource("r")).await.unwrap(),
        Some(handed_over[0].clone())
    );
    release(&service, "a", "r").await;
    assert_nothing_left(&service).await;
}

/// Likewise when that repeat's answer is lost and settled by the mark, and when its caller leaves: then it is undone.
#[tokio::test(start_paused = true)]
async fn a_grant_of_a_repeat_is_settled_and_undone_as_any_other() {
    let (store, service) = faulty_service(false);
    store.next(&[Fault::RequestLost, Fault::AnswerLost]);
    let asked = |key, wait| keyed(key, request("a", "r", 600, wait));
    assert_eq!(service.acquire(asked("k", 0)).await, Err(Refusal::Unavailable));
    let settled = locks(service.acquire(asked("k", 0)).await).unwrap();
    sleep(Duration::from_secs(40)).await;
    assert_eq!(
        service.find(&resource("r")).await.unwrap(),
        Some(settled[0].clone())
    );
    release(&service, "a", "r").await;

    store.next(&[Fault::RequestLost]);
    assert_eq!(service.acquire(asked("l", 0)).await, Err(Refusal::Unavailable));
    take(&service, "b", "r", 60).await.unwrap();
    let waiting = stand(&service, asked("l", 60)).await;
    waiting.abort();
    settle().await;
    release(&service, "b", "r").await;
    sleep(Duration::from_secs(40)).await;
    assert_eq!(owner_of(&service, "r").await, None);
    assert_nothing_left(&service).await;
}

#[tokio::test(start_paused = true)]
async fn a_hand_over_that_fails_frees_nobody_and_loses_nobody() {
    for fault in [Fault::Refused, Fault::RequestLost] {
        let (store, service) = faulty_service(false);
        take(&service, "a", "r", 60).await.unwrap();
        let first = wait(&service, "b", "r", 60, 300).await;
        let second = wait(&service, "c", "r", 60, 300).await;
        store.next(&[fault]);
        let refused = service
            .release(ferrolho_server::service::ReleaseRequest {
                resource: resource("r"),
                claim: ferrolho_core::Claim {
                    holder: holder("a"),
                    token: None,
                },
                arrived: tokio::time::Instant::now(),
                origin: Origin::default(),
            })
            .await;
        assert_eq!(refused, Err(Refusal::Unavailable));
        assert_eq!(owner_of(&service, "r").await.as_deref(), Some("a"));
        release(&service, "a", "r").await;
        if matches!(fault, Fault::Refused) {
            assert!(
                locks(first.await.unwrap()).is_some(),
                "nothing was done: b kept its place"
            );
            release(&service, "b", "r").await;
        } else {
            let unknown = first.await.unwrap();
            assert_eq!(
                unknown,
                Err(Refusal::Unavailable),
                "an unknown outcome is never repeated"
            );
        }
        assert!(locks(second.await.unwrap()).is_some());
        release(&service, "c", "r").await;
        assert_nothing_left(&service).await;
    }
}

#[tokio::test(start_paused = true)]
async fn on_a_shared_store_a_long_run_of_hand_overs_is_broken_for_other_servers() {
    let (_store, service) = faulty_service(true);
    take(&service, "w0", "r", 60).await.unwrap();
    let mut waiting = Vec::new();
    for n in 1..40 {
        waiting.push(wait(&service, &format!("w{n}"), "r", 60, 300).await);
    }
    let mut moments_free = 0;
    for n in 0..39 {
        release(&service, &format!("w{n}"), "r").await;
        if owner_of(&service, "r").await.is_none() {
            moments_free += 1;
        }
        sleep(Duration::from_millis(100)).await;
        assert_eq!(
            owner_of(&service, "r").await,
            Some(format!("w{}", n + 1)),
            "order is kept"
        );
    }
    assert!(
        (2..=4).contains(&moments_free),
        "free {moments_free} times in four seconds"
    );
}
