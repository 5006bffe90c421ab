//! Everything at once for some seconds, or as long as is asked for: arrivals, hang-ups, expiries, releases and renewals in no order. Afterwards
//! nobody ever had what another had, and nothing is left behind.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Lock, Server, acquire_waiting, on_every_engine, until};

on_every_engine!(nobody_has_what_another_has_and_nothing_is_left_behind);

const CALLERS: u64 = 24;
const NAMES: u64 = 5;

/// How long it goes on, in seconds, unless [`SECONDS_VARIABLE`] asks for more.
const SECONDS: u64 = 5;
const SECONDS_VARIABLE: &str = "FERROLHO_SOAK_SECONDS";

/// Numbers in no order, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        // Marsaglia's xorshift.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// A grant that somebody was told of, and whether it was given back or its end was moved.
struct Grant {
    lock: Lock,
    is_touched: bool,
}

fn caller(server: &Server, number: u64, soak: Duration) -> Vec<Grant> {
    let mut numbers = Numbers(0x9E37_79B9_7F4A_7C15 ^ number);
    let owner = format!("caller-{number}");
    let begun = Instant::now();
    let mut grants = Vec::new();
    while begun.elapsed() < soak {
        let name = format!("r{}", numbers.below(NAMES));
        let wait = u32::try_from(numbers.below(3)).unwrap();
        let mut connection = server.begin(&acquire_waiting(&name, &owner, 1, wait));
        let leaves = numbers.below(4);
        if leaves < 2 {
            thread::sleep(Duration::from_millis(numbers.below(60)));
            if leaves == 0 {
                connection.reset();
            }
            continue;
        }
        let answer = connection.answer();
        // A grant that was over before it could be told is none.
        if answer.status == 503 || !answer.is_granted() {
            continue;
        }
        let lock = answer.granted();
        let next = numbers.below(4);
        let is_touched = match next {
            0 => server.renew(&name, &owner, 1).status == 200,
            1 | 2 => server.release(&name, &owner).status == 204,
            _ => false,
        };
        grants.push(Grant { lock, is_touched });
    }
    grants
}

fn nobody_has_what_another_has_and_nothing_is_left_behind(server: &Server) {
    let seconds = std::env::var(SECONDS_VARIABLE).map_or(SECONDS, |text| text.parse().unwrap());
    let soak = Duration::from_secs(seconds);
    let before = server.descriptors();
    let grants: Vec<Grant> = thread::scope(|scope| {
        let callers: Vec<_> = (1..=CALLERS)
            .map(|number| scope.spawn(move || caller(server, number, soak)))
            .collect();
        callers
            .into_iter()
            .flat_map(|caller| caller.join().unwrap())
            .collect()
    });
    assert!(!grants.is_empty());
    let mut by_token: BTreeMap<(&str, u64), &Grant> = BTreeMap::new();
    for grant in &grants {
        let key = (grant.lock.resource.as_str(), grant.lock.fencing_token);
        assert!(by_token.insert(key, grant).is_none(), "{key:?} was granted twice");
    }
    let in_order: Vec<&Grant> = by_token.into_values().collect();
    for pair in in_order.windows(2) {
        let (first, second) = (&pair[0].lock, &pair[1].lock);
        if first.resource != second.resource {
            continue;
        }
        assert!(first.acquired_at <= second.acquired_at, "{first:?} {second:?}");
        if !pair[0].is_touched && first.owner != second.owner {
            assert!(first.expires_at <= second.acquired_at, "{first:?} {second:?}");
        }
    }
    for number in 0..NAMES {
        let name = format!("r{number}");
        until("nobody waits", || server.waiters(&name).is_empty());
        until("nobody holds it", || server.find(&name).status == 404);
        server.acquire(&name, "last", 600).granted();
    }
    until("its descriptors are closed", || server.descriptors() <= before);
}
