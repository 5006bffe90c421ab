//! Wake-ups across servers: how long after a release at one server the next in line has its answer from another, that
//! shares the store with it, and from the same one.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::fill;
use crate::load::{self, Crowd, Endpoint, Tally};
use crate::report::{Report, Table, time};
use crate::rounds::{Effort, Runs};
use crate::systems::{Field, System};

/// How often the lock is passed on in one round, for each second that a round is measured.
const TIMES_A_SECOND: f64 = 100.0;
/// How long the server may take until it has taken in who waits.
const PATIENCE: Duration = Duration::from_secs(10);

/// Measures each pair of neighbours in the field: two servers on one store.
pub(crate) fn wakeups(field: &Field, effort: &Effort, runs: &mut Runs, report: &mut Report) -> Result<()> {
    report.field(field);
    let pairs: Vec<&[System]> = field
        .systems
        .chunk_by(|one, other| one.kind == other.kind)
        .collect();
    let mut tallies: Vec<[Tally; 2]> = pairs.iter().map(|_| [Tally::new(), Tally::new()]).collect();
    for round in 0..effort.rounds {
        for (pair, [same, across]) in pairs.iter().zip(&mut tallies) {
            let [one, other] = pair else {
                continue;
            };
            let (one, other) = (one.endpoint(), other.endpoint());
            same.add(&pass(&one, &one, effort, runs)?);
            across.add(&pass(&one, &other, effort, runs)?);
            eprintln!("  round {} {:?}", round + 1, across.quantile(0.5));
        }
    }
    let mut table = Table::new(
        "From a release to the answer of who waited, median / p99",
        &["system", "at the same server", "at another server"],
    );
    for (pair, [same, across]) in pairs.iter().zip(&tallies) {
        let show = |tally: &Tally| format!("{} / {}", time(tally.quantile(0.5)), time(tally.quantile(0.99)));
        let name = pair.first().map_or_else(String::new, |system| system.kind.name());
        table.rows.push(match pair {
            [_, _] => vec![name, show(same), show(across)],
            _ => vec![name, "no result".into(), "two servers are needed".into()],
        });
    }
    report.table(&table);
    Ok(())
}

fn pass(one: &Endpoint<'_>, other: &Endpoint<'_>, effort: &Effort, runs: &mut Runs) -> Result<Tally> {
    let run = runs.number();
    let times = (effort.measure.as_secs_f64() * TIMES_A_SECOND).ceil() as u32;
    load::relay([one, other], run, times, |endpoint| {
        let give_up = Instant::now() + PATIENCE;
        while fill::waiters(endpoint.address, &Crowd::shared_name(run))? == 0 {
            ensure!(Instant::now() < give_up, "nobody waits");
            std::thread::sleep(Duration::from_millis(1));
        }
        // The server may still be telling others of it.
        std::thread::sleep(Duration::from_millis(5));
        Ok(())
    })
}
