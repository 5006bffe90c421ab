//! Live locks from a thousand upwards: what they cost in speed, in memory, on disk, and at a start.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::process::Signal;

use super::Bench;
use crate::fill;
use crate::load::Scenario;
use crate::report::{Plot, Report, Series, Table, count, mebibytes, time};
use crate::systems::{Ferrolho, Store, memory_bytes};

/// How many there are at first.
const FIRST: u32 = 1_000;
/// How many clients work meanwhile.
const CLIENTS: u32 = 64;

struct Point {
    locks: u32,
    memory: u64,
    pairs: f64,
    pair: Duration,
    reads: f64,
    /// Start after a stop, and after a kill; nothing where nothing is kept.
    starts: Option<[Duration; 2]>,
    memory_after: u64,
}

/// Measures up to `most` locks, in steps of ten, on SQLite and in memory.
pub(super) fn measure(bench: &mut Bench<'_>, most: u32, report: &mut Report) -> Result<()> {
    let mut table = Table::new(
        format!("Live locks ({CLIENTS} clients work meanwhile)"),
        &[
            "store",
            "locks",
            "pairs a second",
            "median",
            "reads a second",
            "memory",
            "a lock",
            "start after a stop",
            "start after kill -9",
            "memory after the start",
        ],
    );
    let mut all = Vec::new();
    for store in [Store::Sqlite, Store::Memory] {
        let name = if matches!(store, Store::Sqlite) {
            "sqlite"
        } else {
            "memory"
        };
        let points = grow(bench, name, store, most)?;
        let empty = points.first().map_or(0, |point| point.memory);
        for point in &points {
            let more = point.memory.saturating_sub(empty) / u64::from(point.locks);
            let start = |place: usize| {
                point
                    .starts
                    .map_or_else(|| "-".into(), |starts| time(starts[place]))
            };
            table.rows.push(vec![
                name.into(),
                count(point.locks.into()),
                count(point.pairs),
                time(point.pair),
                count(point.reads),
                mebibytes(point.memory),
                if more == 0 {
                    "-".into()
                } else {
                    format!("{more} bytes")
                },
                start(0),
                start(1),
                if point.starts.is_some() {
                    mebibytes(point.memory_after)
                } else {
                    "-".into()
                },
            ]);
        }
        all.push((name, points));
    }
    report.table(&table);
    let plot = |title: &str, up: &str, of: &dyn Fn(&Point) -> Option<f64>| Plot {
        title: title.into(),
        across: "live locks".into(),
        up: up.into(),
        series: all
            .iter()
            .map(|(name, points)| Series {
                name: (*name).into(),
                dashed: *name == "memory",
                points: points
                    .iter()
                    .filter_map(|p| Some((p.locks.into(), of(p)?)))
                    .collect(),
            })
            .collect(),
    };
    report.plot(
        "locks-pairs",
        &plot("Pairs a second against live locks", "pairs a second", &|p| {
            Some(p.pairs)
        }),
    )?;
    report.plot(
        "locks-memory",
        &plot("Memory against live locks", "MiB", &|p| {
            Some(p.memory as f64 / 1_048_576.0)
        }),
    )?;
    let start = |p: &Point| Some(p.starts?[0].as_secs_f64());
    report.plot(
        "locks-start",
        &plot("Time of a start against live locks", "seconds", &start),
    )
}

fn grow(bench: &mut Bench<'_>, name: &str, store: Store, most: u32) -> Result<Vec<Point>> {
    let keeps = matches!(store, Store::Sqlite);
    let mut server = bench.start(&format!("locks-{name}"), store)?;
    let mut points = Vec::new();
    let mut there = 0;
    let mut locks = FIRST;
    while locks <= most {
        fill::fill(server.address, there..locks)?;
        there = locks;
        let pairs = bench.run(&server, Scenario::Pairs, CLIENTS)?;
        let reads = bench.run(&server, Scenario::Reads, CLIENTS)?;
        let memory = memory_bytes(&[server.process.id()]);
        let starts = if keeps {
            Some([
                start_after(&mut server, Signal::TERM, locks)?,
                start_after(&mut server, Signal::KILL, locks)?,
            ])
        } else {
            None
        };
        points.push(Point {
            locks,
            memory,
            pairs: pairs.per_second,
            pair: pairs.tally.quantile(0.5),
            reads: reads.per_second,
            starts,
            memory_after: memory_bytes(&[server.process.id()]),
        });
        eprintln!("  {name}: {locks} locks, {:.0} pairs a second", pairs.per_second);
        locks = locks.saturating_mul(10);
    }
    Ok(points)
}

/// Ends the server, and how long it then takes from its start until it is ready, with all its locks.
fn start_after(server: &mut Ferrolho, signal: Signal, locks: u32) -> Result<Duration> {
    server.stop(signal)?;
    let start = Instant::now();
    server.restart()?;
    let took = start.elapsed();
    ensure!(
        fill::is_held(server.address, 0)? && fill::is_held(server.address, locks - 1)?,
        "locks are lost"
    );
    Ok(took)
}
