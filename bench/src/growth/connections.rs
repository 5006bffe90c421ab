//! Connections that all work: speed, memory, and how many changes share one sync.

use anyhow::Result;

use super::Bench;
use crate::load::Scenario;
use crate::report::{Plot, Report, Series, Table, count, mebibytes, time};
use crate::rounds::Sample;
use crate::systems::Store;

/// The numbers of connections, as far as they are wanted.
const STEPS: [u32; 10] = [1, 4, 16, 64, 128, 256, 512, 1_024, 2_500, 5_000];
/// A pair is two changes: a grant and a release.
const CHANGES: f64 = 2.0;

/// Measures up to `most` connections.
pub(super) fn measure(bench: &mut Bench<'_>, most: u32, report: &mut Report) -> Result<()> {
    let server = bench.start("connections", Store::Sqlite)?;
    let mut points = Vec::new();
    for connections in STEPS.into_iter().filter(|step| *step <= most) {
        let sample = bench.run(&server, Scenario::Pairs, connections)?;
        eprintln!(
            "  {connections} connections: {:.0} pairs a second",
            sample.per_second
        );
        points.push((connections, sample));
    }
    let mut table = Table::new(
        "Connections that all work, SQLite",
        &[
            "connections",
            "pairs a second",
            "median",
            "p99",
            "changes a sync",
            "processor time of a pair",
            "memory",
        ],
    );
    for (connections, sample) in &points {
        table.rows.push(vec![
            count((*connections).into()),
            count(sample.per_second),
            time(sample.tally.quantile(0.5)),
            time(sample.tally.quantile(0.99)),
            batch(sample).map_or_else(|| "-".into(), |batch| format!("{batch:.1}")),
            time(sample.processor),
            mebibytes(sample.memory_bytes),
        ]);
    }
    report.table(&table);
    let plot = |title: &str, up: &str, of: &dyn Fn(&Sample) -> Option<f64>| Plot {
        title: title.into(),
        across: "connections".into(),
        up: up.into(),
        series: vec![Series {
            name: "sqlite".into(),
            dashed: false,
            points: points
                .iter()
                .filter_map(|(n, sample)| Some(((*n).into(), of(sample)?)))
                .collect(),
        }],
    };
    report.plot(
        "connections-pairs",
        &plot("Pairs a second", "pairs a second", &|s| Some(s.per_second)),
    )?;
    report.plot(
        "connections-batch",
        &plot("Changes that share one sync", "changes", &batch),
    )?;
    let median = |s: &Sample| Some(s.tally.quantile(0.5).as_secs_f64() * 1e3);
    report.plot(
        "connections-median",
        &plot("Median time of a pair", "ms", &median),
    )
}

/// How many changes share one sync.
fn batch(sample: &Sample) -> Option<f64> {
    sample
        .syncs
        .filter(|syncs| *syncs > 0.0)
        .map(|syncs| CHANGES / syncs)
}
