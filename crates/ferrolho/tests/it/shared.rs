//! Two servers on one store: whichever is asked, there is one truth. (Cases: rows 8, 16, 21, 37, 51, 57.)

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Pair, Request, acquire, on_every_shared_engine, until};

on_every_shared_engine!(
    tokens_rise_whichever_server_grants,
    no_server_keeps_a_copy_of_its_own,
    of_callers_at_both_servers_one_wins,
    a_release_on_one_wakes_those_who_wait_on_the_other,
    expiry_wakes_on_both,
    who_hung_up_on_one_is_passed_over_by_the_other,
    events_of_both_are_told_by_both,
    a_reader_goes_on_at_the_other_server,
    a_lost_answer_is_repeated_at_the_other_server,
    callers_at_both_servers_take_turns,
);

fn tokens_rise_whichever_server_grants((one, two): &Pair) {
    let mut last = 0;
    for round in 0..20 {
        let (server, other) = if round % 2 == 0 { (one, two) } else { (two, one) };
        let lock = server.acquire("r", "a", 600).granted();
        assert!(lock.fencing_token > last, "{lock:?} after {last}");
        last = lock.fencing_token;
        assert_eq!(other.find("r").lock(), lock);
        if round % 3 == 0 {
            other.release("r", "a").done();
        }
    }
}

fn no_server_keeps_a_copy_of_its_own((one, two): &Pair) {
    for (here, there) in [(one, two), (two, one)] {
        let lock = here.acquire("r", "a", 600).granted();
        assert_eq!(there.find("r").lock(), lock);
        there.acquire("r", "b", 600).refused();
        let renewed = there.renew("r", "a", 900).lock();
        assert_eq!(here.find("r").lock(), renewed);
        there.release("r", "b").forbidden();
        there.release("r", "a").done();
        here.find("r").not_found();
        here.renew("r", "a", 600).not_found();
        here.acquire("r", "b", 600).granted();
        there.release("r", "a").forbidden();
        there.delete("/owners/b", &json!({}));
        here.find("r").not_found();
        here.acquire("r", "a", 1).granted();
        until("it ends", || there.find("r").status == 404);
        here.find("r").not_found();
        here.release("r", "a").not_found();
    }
}

fn of_callers_at_both_servers_one_wins((one, two): &Pair) {
    const NAMES: usize = 40;
    const CALLERS: usize = 24;
    let run = |caller: usize| {
        let mut connection = if caller.is_multiple_of(2) {
            one.connect()
        } else {
            two.connect()
        };
        let owner = format!("caller-{caller}");
        let mut won = Vec::new();
        for number in 0..NAMES {
            let answer = connection.call(&acquire(&format!("r{number}"), &owner, 600));
            won.push(answer.is_granted().then(|| answer.granted()));
        }
        won
    };
    let won: Vec<_> = thread::scope(|scope| {
        let run = &run;
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| scope.spawn(move || run(caller)))
            .collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    for number in 0..NAMES {
        let locks: Vec<_> = won
            .iter()
            .filter_map(|of_caller| of_caller[number].clone())
            .collect();
        assert_eq!(locks.len(), 1, "{locks:?}");
        for server in [one, two] {
            assert_eq!(server.find(&format!("r{number}")).lock(), locks[0]);
        }
    }
}

fn a_release_on_one_wakes_those_who_wait_on_the_other((one, two): &Pair) {
    for round in 0..50_u64 {
        let (holder, waiter) = if round % 2 == 0 { (one, two) } else { (two, one) };
        let name = format!("r{round}");
        holder.acquire(&name, "a", 600).granted();
        let mut waiting = waiter.wait_for(&name, "b", 600, 300);
        thread::sleep(Duration::from_millis(round * 7 % 50));
        holder.release(&name, "a").done();
        let lock = waiting.answer().granted();
        assert_eq!(holder.find(&name).lock(), lock);
    }
}

fn expiry_wakes_on_both((one, two): &Pair) {
    let asked = Instant::now();
    one.acquire("r", "a", 2).granted();
    let mut here = one.wait_for("r", "b", 600, 300);
    let mut there = two.wait_for("r", "c", 600, 300);
    until("one has it", || here.has_news() || there.has_news());
    assert!(asked.elapsed() >= Duration::from_secs(2));
    let lock = one.find("r").lock();
    let (first, second) = if lock.owner == "b" {
        (&mut here, &mut there)
    } else {
        (&mut there, &mut here)
    };
    assert_eq!(first.answer().granted(), lock);
    assert!(!second.has_news());
    two.release("r", &lock.owner).done();
    second.answer().granted();
}

fn who_hung_up_on_one_is_passed_over_by_the_other((one, two): &Pair) {
    one.acquire("r", "a", 600).granted();
    let waiting = two.wait_for("r", "b", 600, 300);
    two.until_waiting("r", 1);
    waiting.reset();
    until("it is seen", || two.waiters("r").is_empty());
    one.release("r", "a").done();
    for server in [one, two] {
        server.acquire("r", "c", 600).granted();
    }
}

fn events_of_both_are_told_by_both((one, two): &Pair) {
    let mut streams = [one.events("", None), two.events("", None)];
    for round in 0..10 {
        let server = if round % 2 == 0 { one } else { two };
        server.acquire("r", &format!("o{round}"), 600).granted();
        two.release("r", &format!("o{round}")).done();
    }
    let [here, there] = streams.each_mut().map(|stream| stream.take(20));
    assert_eq!(here, there);
    assert!(here.iter().step_by(2).all(|event| event.kind == "acquired"));
    assert!(
        here.iter()
            .skip(1)
            .step_by(2)
            .all(|event| event.kind == "released")
    );
}

fn a_reader_goes_on_at_the_other_server((one, two): &Pair) {
    let mut stream = one.events("", None);
    // Both have seen it before the reader turns from one to the other.
    let mut other = two.events("", None);
    one.acquire("r", "a", 600).granted();
    let (id, first) = stream.event();
    assert_eq!(other.event(), (id.clone(), first));
    two.release("r", "a").done();
    one.acquire("s", "a", 600).granted();
    let mut back = two.events("", Some(&id));
    let missed: Vec<(String, String)> = back
        .take(2)
        .into_iter()
        .map(|event| (event.kind, event.resource))
        .collect();
    let as_expected =
        [("released", "r"), ("acquired", "s")].map(|(kind, name)| (kind.to_owned(), name.to_owned()));
    assert_eq!(missed, as_expected);
}

fn a_lost_answer_is_repeated_at_the_other_server((one, two): &Pair) {
    for round in 0..20 {
        let name = format!("r{round}");
        let request = acquire(&name, "a", 600).header("idempotency-key", "k");
        one.begin(&request).reset();
        let lock = two.call(&request).granted();
        two.acquire(&name, "b", 600).refused();
        one.acquire(&name, "b", 600).refused();
        assert_eq!(one.find(&name).lock().owner, lock.owner);
    }
}

/// Both servers have callers that want one lock all the time; each gets its turn.
fn callers_at_both_servers_take_turns((one, two): &Pair) {
    const TURNS: usize = 25;
    let run = |server: &crate::support::Server, owner: &str| {
        let mut connection = server.connect();
        let body = json!({"owner": owner, "ttl_seconds": 600, "wait_seconds": 300});
        let wait = Request::post("/locks/r").json(&body);
        let mut tokens = Vec::new();
        for _ in 0..TURNS {
            tokens.push(connection.call(&wait).granted().fencing_token);
            connection
                .call(&Request::delete(&format!("/locks/r?owner={owner}")))
                .done();
        }
        tokens
    };
    let mut tokens: Vec<u64> = thread::scope(|scope| {
        let run = &run;
        let callers: Vec<_> = (0..8)
            .map(|caller: usize| {
                let server = if caller.is_multiple_of(2) { one } else { two };
                scope.spawn(move || run(server, &format!("caller-{caller}")))
            })
            .collect();
        callers
            .into_iter()
            .flat_map(|caller| caller.join().unwrap())
            .collect()
    });
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 8 * TURNS);
    one.find("r").not_found();
}
