//! Uncertain outcomes: whatever the network does to a message, nobody believes more than is known, and a repeat
//! sets it right.

use std::time::{Duration, Instant};

use ferrolho_client::{Error, Loss, WorkError};

use crate::fake::{Act, Fake, Fault, problem_body};
use crate::{client, request, until};

fn faults() -> Vec<Fault> {
    vec![
        Fault::DropRequest,
        Fault::DropAnswer,
        Fault::Swallow,
        Fault::DelayRequest(Duration::from_millis(200)),
        Fault::DelayAnswer(Duration::from_millis(200)),
        Fault::Double,
        Fault::Answer(502, "<html>bad gateway</html>".to_owned()),
        Fault::Answer(503, problem_body(503, "unavailable")),
        Fault::Answer(200, "<html>welcome</html>".to_owned()),
        Fault::Answer(200, "{\"acquired\":true}".to_owned()),
    ]
}

#[tokio::test]
async fn one_fault_at_any_point_of_any_call_is_mended() {
    let acts = [Act::Acquire, Act::Renew, Act::Release];
    let all = acts
        .iter()
        .flat_map(|act| faults().into_iter().map(|fault| is_mended(*act, fault)));
    futures_util::future::join_all(all).await;
}

async fn is_mended(act: Act, fault: Fault) {
    // A release that is answered 200 is a release. One that a proxy doubled looks as if the lock had been taken
    // away: it cannot be proven that it was held to the end, see below.
    if act == Act::Release && matches!(fault, Fault::Answer(200, _) | Fault::Double) {
        return;
    }
    let case = format!("{act:?} {fault:?}");
    let fake = Fake::start();
    let client = client(&fake);
    fake.fault(act, 1, fault);
    let guard = request(&client, 2).acquire().await;
    let guard = guard.unwrap_or_else(|error| panic!("{case}: {error}"));
    let expected = (client.owner().to_string(), guard.fencing_token().get());
    assert_eq!(fake.holder("r"), Some(expected), "{case}");
    until("two renewals", || fake.seen(Act::Renew).len() >= 2).await;
    assert!(guard.is_held(), "{case}");
    let released = guard.release().await;
    released.unwrap_or_else(|error| panic!("{case}: {error}"));
    assert_eq!(fake.holder("r"), None, "{case}");
    let keys: Vec<_> = fake.seen(Act::Acquire).into_iter().map(|seen| seen.key).collect();
    assert!(
        keys[0].is_some() && keys.iter().all(|key| *key == keys[0]),
        "{case}: one key for one acquire"
    );
}

#[tokio::test]
async fn a_release_that_was_doubled_releases_and_claims_no_more_than_is_known() {
    let fake = Fake::start();
    fake.fault(Act::Release, 1, Fault::Double);
    let guard = request(&client(&fake), 2).acquire().await.unwrap();
    assert!(matches!(guard.release().await, Err(Error::Lost(Loss::Taken))));
    assert_eq!(fake.holder("r"), None);
}

#[tokio::test]
async fn a_grant_that_is_answered_again_counts_from_a_renewal() {
    let fake = Fake::start();
    fake.fault(Act::Acquire, 1, Fault::DelayAnswer(Duration::from_secs(30)));
    let begun = Instant::now();
    let guard = request(&client(&fake), 1).acquire().await.unwrap();
    // The grant was made at the beginning and half of it had gone by when it was answered again.
    assert!(begun.elapsed() > Duration::from_millis(500));
    assert_eq!(fake.happened().len(), 1);
    assert_eq!(fake.seen(Act::Renew).len(), 1);
    assert!(guard.remaining() > Duration::from_millis(500));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn answers_about_other_locks_are_not_believed() {
    let time = "2026-12-01T05:02:15.000000Z";
    for (resource, owner) in [("s", "me"), ("r", "somebody")] {
        let fake = Fake::start();
        let lock = format!(
            "{{\"acquired\":true,\"lock\":{{\"resource\":\"{resource}\",\"owner\":\"{owner}\",\"expires_at\":\"{time}\",\
             \"acquired_at\":\"{time}\",\"fencing_token\":1}}}}"
        );
        fake.fault(Act::Acquire, usize::MAX, Fault::Answer(200, lock));
        let client = crate::client_of(&fake, "me");
        assert!(matches!(
            request(&client, 1).acquire().await,
            Err(Error::Unreachable(_))
        ));
    }
}

#[tokio::test]
async fn nobody_believes_a_server_that_is_away() {
    let fake = Fake::start();
    let client = client(&fake);
    for fault in [
        Fault::Answer(503, problem_body(503, "unavailable")),
        Fault::DropRequest,
        Fault::Swallow,
    ] {
        fake.fault(Act::Acquire, 2, fault);
        let result = request(&client, 1).try_acquire().await;
        assert!(matches!(result, Err(Error::Unreachable(_))), "{result:?}");
    }
    for fault in [
        Fault::Answer(503, problem_body(503, "unavailable")),
        Fault::DropRequest,
    ] {
        fake.fault(Act::Find, 2, fault);
        assert!(matches!(client.find("r").await, Err(Error::Unreachable(_))));
    }
    let nobody = ferrolho_client::Client::new("http://127.0.0.1:1").unwrap();
    let begun = Instant::now();
    assert!(matches!(
        nobody.lock("r").unwrap().acquire().await,
        Err(Error::Unreachable(_))
    ));
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn what_was_perhaps_granted_is_given_back() {
    let fake = Fake::start();
    let client = client(&fake);
    fake.fault(Act::Acquire, 2, Fault::DropAnswer);
    assert!(matches!(
        request(&client, 600).acquire().await,
        Err(Error::Unreachable(_))
    ));
    client.settle().await;
    assert_eq!(fake.holder("r"), None);
}

#[tokio::test]
async fn what_is_perhaps_anothers_is_left_alone() {
    let fake = Fake::start();
    fake.seize("r", "shared", Duration::from_mins(1));
    let client = crate::client_of(&fake, "shared");
    fake.fault(Act::Acquire, 2, Fault::DropRequest);
    assert!(matches!(
        request(&client, 600).acquire().await,
        Err(Error::Unreachable(_))
    ));
    client.settle().await;
    assert!(fake.seen(Act::Release).is_empty());
}

#[tokio::test]
async fn a_refusal_is_passed_on_with_its_fields() {
    let fake = Fake::start();
    let mut problem: serde_json::Value =
        serde_json::from_str(&problem_body(422, "validation-failed")).unwrap();
    problem["errors"] =
        serde_json::json!([{"field": "ttl_seconds", "code": "too-large", "message": "at most 5"}]);
    fake.fault(Act::Acquire, 1, Fault::Answer(422, problem.to_string()));
    let error = request(&client(&fake), 600).acquire().await.unwrap_err();
    assert!(error.to_string().contains("ttl_seconds: at most 5"), "{error}");
    assert!(
        fake.seen(Act::Release).is_empty(),
        "a refusal leaves nothing to give back"
    );
}

#[tokio::test]
async fn names_that_no_url_can_carry_are_refused_before_anything_is_sent() {
    let fake = Fake::start();
    let client = client(&fake);
    for name in ["", ".", "..", " r", "r\n", "a\0b", &"x".repeat(256)] {
        assert!(matches!(client.lock(name), Err(Error::Invalid(_))), "{name:?}");
        assert!(
            matches!(client.find(name).await, Err(Error::Invalid(_))),
            "{name:?}"
        );
        assert!(
            matches!(client.release(name, None).await, Err(Error::Invalid(_))),
            "{name:?}"
        );
    }
    assert_eq!(fake.connections(), 0);
    for name in ["team/job", "%2e%2e", "a b?c#d", "café", "cafe\u{301}", "..."] {
        let guard = client.lock(name).unwrap().acquire().await.unwrap();
        assert_eq!(guard.resource().as_str(), name);
        assert!(fake.holder(name).is_some(), "{name}");
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn work_is_not_begun_without_the_lock() {
    let fake = Fake::start();
    fake.seize("r", "b", Duration::from_mins(1));
    let result: Result<(), WorkError<()>> = request(&client(&fake), 1)
        .with_lock(async |_| panic!("it was begun"))
        .await;
    assert!(matches!(result, Err(WorkError::NotAcquired(Error::Held { .. }))));
}
