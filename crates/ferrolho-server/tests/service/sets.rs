//! Several locks at once, all or none.

use std::sync::Arc;
use std::time::Duration;

use ferrolho_server::service::Acquired;
use tokio::time::sleep;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_set_is_granted_whole_or_not_at_all() {
    let service = service();
    take(&service, "a", "s", 60).await.unwrap();
    let answer = service.acquire(request("b", "r s t", 60, 0)).await.unwrap();
    assert!(matches!(answer, Acquired::Held { resources, .. } if resources == [resource("s")]));
    assert_eq!(owner_of(&service, "r").await, None);
    release(&service, "a", "s").await;
    let set = locks(service.acquire(request("b", "t r s", 60, 0)).await).unwrap();
    let names: Vec<&str> = set.iter().map(|lock| lock.resource.as_str()).collect();
    assert_eq!(names, ["t", "r", "s"], "in the order asked for");
}

#[tokio::test(start_paused = true)]
async fn a_set_stands_in_every_queue_and_nobody_behind_it_overtakes() {
    let service = service();
    take(&service, "a", "s", 60).await.unwrap();
    let set = wait(&service, "b", "r s", 60, 60).await;
    let behind = wait(&service, "c", "r", 60, 60).await;
    let answer = service.acquire(request("d", "r", 60, 0)).await.unwrap();
    assert!(matches!(answer, Acquired::Held { resources, .. } if resources == [resource("r")]));
    settle().await;
    assert!(!behind.is_finished(), "r is free, but the set came first");
    release(&service, "a", "s").await;
    assert_eq!(locks(set.await.unwrap()).unwrap().len(), 2);
    release(&service, "b", "r").await;
    assert!(locks(behind.await.unwrap()).is_some());
    release(&service, "b", "s").await;
    release(&service, "c", "r").await;
    assert_nothing_left(&service).await;
}

#[tokio::test(start_paused = true)]
async fn a_set_that_gives_up_frees_those_behind_it_at_once() {
    let service = service();
    take(&service, "a", "s", 60).await.unwrap();
    let set = wait(&service, "b", "r s", 60, 2).await;
    let behind = wait(&service, "c", "r", 60, 60).await;
    assert_eq!(locks(set.await.unwrap()), None);
    settle().await;
    assert!(locks(behind.await.unwrap()).is_some());
}

#[tokio::test(start_paused = true)]
async fn crossing_sets_never_block_each_other_for_ever() {
    let service = service();
    let mut callers = Vec::new();
    for n in 0..32_usize {
        let service = Arc::clone(&service);
        callers.push(tokio::spawn(async move {
            let mut whole = 0;
            for round in 0..60_usize {
                let pick = |k: usize| format!("n{}", (n * 7 + round * 3 + k * (1 + n % 3)) % 8);
                let mut names = vec![pick(0), pick(1), pick(2)];
                names.dedup();
                names.sort();
                names.dedup();
                if n % 2 == 0 {
                    names.reverse();
                }
                let owner = format!("o{n}");
                let asked = request(&owner, &names.join(" "), 60, 300);
                if let Some(set) = locks(service.acquire(asked).await) {
                    assert_eq!(set.len(), names.len());
                    whole += 1;
                    sleep(Duration::from_millis(5)).await;
                    for name in &names {
                        assert_eq!(owner_of(&service, name).await.as_deref(), Some(owner.as_str()));
                    }
                    for name in &names {
                        release(&service, &owner, name).await;
                    }
                }
            }
            whole
        }));
    }
    for caller in callers {
        assert_eq!(
            caller.await.unwrap(),
            60,
            "somebody was stuck until its time was up"
        );
    }
    assert_nothing_left(&service).await;
}
