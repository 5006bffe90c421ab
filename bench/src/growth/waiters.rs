//! Callers that wait for one lock: what they cost while nothing happens, and how long a hand-over takes among them.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{Bench, endpoint};
use crate::fill;
use crate::load::{Crowd, QUEUE, Scenario, WAIT};
use crate::report::{Plot, Report, Series, Table, count, mebibytes, time};
use crate::systems::{Ferrolho, Store, memory_bytes};

/// How many clients work while others wait.
const CLIENTS: u32 = 64;
/// How long the server may take until it has taken in all who wait.
const PATIENCE: Duration = Duration::from_secs(30);

struct Point {
    waiters: u32,
    memory: u64,
    pairs: f64,
    handovers: f64,
    median: Duration,
    p99: Duration,
}

/// Measures up to `most` waiters, in steps of ten.
pub(super) fn measure(bench: &mut Bench<'_>, most: u32, report: &mut Report) -> Result<()> {
    let server = bench.start("waiters", Store::Sqlite)?;
    let mut points = Vec::new();
    let mut waiters = 1;
    while waiters <= most {
        points.push(point(bench, &server, waiters)?);
        waiters = waiters.saturating_mul(10);
    }
    let mut table = Table::new(
        format!("Callers that wait for one lock, SQLite ({CLIENTS} others work meanwhile)"),
        &[
            "waiters",
            "memory",
            "pairs of the others a second",
            "hand-overs a second",
            "median",
            "p99",
        ],
    );
    for point in &points {
        table.rows.push(vec![
            count(point.waiters.into()),
            mebibytes(point.memory),
            count(point.pairs),
            count(point.handovers),
            time(point.median),
            time(point.p99),
        ]);
    }
    report.table(&table);
    let line = |name: &str, of: fn(&Point) -> f64| Series {
        name: name.into(),
        dashed: false,
        points: points
            .iter()
            .map(|point| (point.waiters.into(), of(point)))
            .collect(),
    };
    report.plot(
        "waiters-handover",
        &Plot {
            title: "From a release to the next waiter's answer".into(),
            across: "waiters".into(),
            up: "ms".into(),
            series: vec![
                line("median", |point| point.median.as_secs_f64() * 1e3),
                line("p99", |point| point.p99.as_secs_f64() * 1e3),
            ],
        },
    )?;
    report.plot(
        "waiters-memory",
        &Plot {
            title: "Memory against callers that wait".into(),
            across: "waiters".into(),
            up: "MiB".into(),
            series: vec![line("sqlite", |point| point.memory as f64 / 1_048_576.0)],
        },
    )
}

fn point(bench: &mut Bench<'_>, server: &Ferrolho, waiters: u32) -> Result<Point> {
    let run = bench.runs.number();
    let mut queue = Crowd::gather(&endpoint(server), QUEUE, run, 0..waiters)?;
    queue.ask(WAIT)?;
    let give_up = Instant::now() + PATIENCE;
    while fill::waiters(server.address, &Crowd::shared_name(run))? < waiters as usize {
        ensure!(Instant::now() < give_up, "not all of {waiters} callers wait");
        std::thread::sleep(Duration::from_millis(20));
    }
    let memory = memory_bytes(&[server.process.id()]);
    let pairs = bench.run(server, Scenario::Pairs, CLIENTS)?;
    // They hang up.
    drop(queue);
    let handovers = bench.run(server, Scenario::Handovers, waiters)?;
    eprintln!("  {waiters} waiters: median {:?}", handovers.tally.quantile(0.5));
    Ok(Point {
        waiters,
        memory,
        pairs: pairs.per_second,
        handovers: handovers.per_second,
        median: handovers.tally.quantile(0.5),
        p99: handovers.tally.quantile(0.99),
    })
}
