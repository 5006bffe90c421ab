//! The comparison: every scenario at every number of clients on every system, and a run at fixed rates.

use std::time::Duration;

use anyhow::Result;

use crate::load::Scenario;
use crate::report::{Plot, Report, Series, Table, count, mebibytes, targets, time};
use crate::rounds::{Effort, Figures, Runs, Setting, measure, warm_up};
use crate::systems::{Field, Kind};

/// Every system in closed loops.
pub(crate) fn compare(
    field: &Field,
    scenarios: &[Scenario],
    clients: &[u32],
    effort: &Effort,
    runs: &mut Runs,
    report: &mut Report,
) -> Result<()> {
    report.field(field);
    warm_up(&field.systems, runs);
    let mut all = Vec::new();
    for scenario in scenarios {
        let start = all.len();
        for clients in clients {
            let clients = match scenario {
                // The round number that the aim is about.
                Scenario::Handovers => (*clients).min(1_000),
                _ => *clients,
            };
            let setting = Setting {
                scenario: *scenario,
                clients,
                rate: None,
            };
            all.extend(measure(&field.systems, setting, effort, runs));
        }
        let figures = all.get(start..).unwrap_or_default();
        report.keep(figures);
        show(field, *scenario, figures, report)?;
    }
    let targets = targets::table(&all);
    if !targets.rows.is_empty() {
        report.table(&targets);
    }
    Ok(())
}

fn show(field: &Field, scenario: Scenario, all: &[Figures], report: &mut Report) -> Result<()> {
    let name = scenario.name();
    let unit = match scenario {
        Scenario::Handovers => "waiters",
        _ => "clients",
    };
    report.say(&format!("## {name}\n"));
    let rate = |f: &Figures| {
        let [median, low, high] = f.per_second()?;
        let spread = format!(" ({}–{})", count(low), count(high));
        Some(count(median) + if f.samples.len() > 1 { &spread } else { "" })
    };
    report.table(&by_clients(
        format!("{name} a second, median of the rounds (lowest–highest)"),
        unit,
        all,
        rate,
    ));
    let times = |f: &Figures| {
        Some(format!(
            "{} / {}",
            time(f.quantile(0.5)?),
            time(f.quantile(0.99)?)
        ))
    };
    report.table(&by_clients(
        format!("{name}: time, median / p99"),
        unit,
        all,
        times,
    ));
    let processor = |f: &Figures| {
        let server = f.median(|sample| sample.processor.as_secs_f64() * 1e6)?;
        let generator = f.median(|sample| sample.generator.as_secs_f64() * 1e6)?;
        Some(format!("{server:.1} + {generator:.1}"))
    };
    report.table(&by_clients(
        format!("{name}: processor time of each, µs, server + load generator"),
        unit,
        all,
        processor,
    ));
    let memory = |f: &Figures| Some(mebibytes(f.median(|sample| sample.memory_bytes as f64)? as u64));
    report.table(&by_clients(
        format!("{name}: memory of the server"),
        unit,
        all,
        memory,
    ));
    let syncs = |f: &Figures| {
        let syncs = f.median(|sample| sample.syncs.unwrap_or(f64::NAN))?;
        Some(if syncs.is_nan() {
            "-".into()
        } else {
            format!("{syncs:.2}")
        })
    };
    report.table(&by_clients(
        format!("{name}: syncs of the disk for each"),
        unit,
        all,
        syncs,
    ));
    for figures in all {
        if let Some(failure) = &figures.failure {
            let (kind, clients) = (figures.kind.name(), figures.setting.clients);
            report.say(&format!("No result for {kind} at {clients} {unit}: {failure}\n"));
        }
    }
    report.plot(name, &plot(field, format!("{name} a second"), unit, all))
}

/// A row for each system, a column for each number of clients.
fn by_clients(
    title: String,
    unit: &str,
    all: &[Figures],
    cell: impl Fn(&Figures) -> Option<String>,
) -> Table {
    let mut clients: Vec<u32> = all.iter().map(|figures| figures.setting.clients).collect();
    clients.dedup();
    let mut table = Table::new(title, &["system"]);
    table.columns.extend(clients.iter().map(|clients| match clients {
        1 => format!("1 {}", unit.trim_end_matches('s')),
        _ => format!("{} {unit}", count((*clients).into())),
    }));
    for kind in kinds(all) {
        let mut row = vec![kind.name()];
        row.extend(clients.iter().map(|clients| {
            let figures = all
                .iter()
                .find(|figures| figures.kind == kind && figures.setting.clients == *clients);
            figures.map_or_else(String::new, |figures| {
                cell(figures).unwrap_or_else(|| "no result".into())
            })
        }));
        table.rows.push(row);
    }
    table
}

fn kinds(all: &[Figures]) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = all.iter().map(|figures| figures.kind).collect();
    kinds.sort();
    kinds.dedup();
    kinds
}

fn plot(field: &Field, title: String, unit: &str, all: &[Figures]) -> Plot {
    let series = kinds(all)
        .into_iter()
        .map(|kind| Series {
            name: kind.name(),
            dashed: field
                .systems
                .iter()
                .any(|system| system.kind == kind && system.durability.starts_with("none")),
            points: all
                .iter()
                .filter(|figures| figures.kind == kind)
                .filter_map(|figures| Some((figures.setting.clients.into(), figures.per_second()?[0])))
                .collect(),
        })
        .collect();
    Plot {
        up: title.clone(),
        title,
        across: unit.to_owned(),
        series,
    }
}

/// Pairs that begin at fixed rates, measured from when they should have begun.
pub(crate) fn paced(
    field: &Field,
    clients: u32,
    rates: &[f64],
    effort: &Effort,
    runs: &mut Runs,
    report: &mut Report,
) -> Result<()> {
    report.field(field);
    warm_up(&field.systems, runs);
    let mut table = Table::new(
        format!("Pairs at fixed rates over {clients} connections: from when each should have begun"),
        &[
            "system",
            "rate",
            "median",
            "p99",
            "p99.9",
            "longest",
            "not kept up with",
        ],
    );
    let mut all = Vec::new();
    for rate in rates {
        let setting = Setting {
            scenario: Scenario::Pairs,
            clients,
            rate: Some(*rate),
        };
        all.extend(measure(&field.systems, setting, effort, runs));
    }
    report.keep(&all);
    all.sort_by_key(|figures| figures.kind);
    for figures in &all {
        let quantile = |share| figures.quantile(share).map_or_else(|| "no result".into(), time);
        let missed: u64 = figures.samples.iter().map(|sample| sample.tally.missed).sum();
        let begun: u64 = figures.samples.iter().map(|sample| sample.tally.cycles()).sum();
        let share = missed as f64 / (missed + begun).max(1) as f64;
        table.rows.push(vec![
            figures.kind.name(),
            format!("{}/s", count(figures.setting.rate.unwrap_or_default())),
            quantile(0.5),
            quantile(0.99),
            quantile(0.999),
            quantile(1.0),
            if missed == 0 {
                "-".into()
            } else {
                format!("{:.1} %", share * 100.0)
            },
        ]);
    }
    report.table(&table);
    let series = kinds(&all)
        .into_iter()
        .map(|kind| Series {
            name: kind.name(),
            dashed: false,
            points: all
                .iter()
                .filter(|figures| figures.kind == kind)
                .filter_map(|f| Some((f.setting.rate?, millis(f.quantile(0.99)?))))
                .collect(),
        })
        .collect();
    report.plot(
        "p99",
        &Plot {
            title: "p99 of pairs at fixed rates".into(),
            across: "pairs a second".into(),
            up: "ms".into(),
            series,
        },
    )
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
