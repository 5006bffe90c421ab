//! How the figures stand against what was aimed at: ratios of medians, all from one run.

use super::{Table, time};
use crate::load::Scenario;
use crate::rounds::Figures;
use crate::systems::Kind;

/// What is compared with what.
struct Target {
    what: &'static str,
    aim: &'static str,
    ours: (Scenario, Kind, u32),
    theirs: (Scenario, Kind, u32),
    measure: Measure,
}

enum Measure {
    /// Ours a second, divided by theirs: more is better.
    Rate,
    /// Our median time, divided by theirs: less is better.
    Time,
}

use Kind::{
    EtcdLock, EtcdTxn, FerrolhoEtcd, FerrolhoMemory, FerrolhoPostgres, FerrolhoSqlite, Lockserver, Postgres,
    RedisAlways,
};
use Measure::{Rate, Time};
use Scenario::{Contended, Handovers, Pairs, Reads};

const TARGETS: [Target; 15] = [
    target(
        "pairs, 64 clients, against ferrolho in memory",
        "≥ 0.7",
        Pairs,
        (FerrolhoSqlite, 64),
        Pairs,
        (FerrolhoMemory, 64),
        Rate,
    ),
    target(
        "pairs, 64 clients, against Redis with its sync",
        "≥ 1.2",
        Pairs,
        (FerrolhoSqlite, 64),
        Pairs,
        (RedisAlways, 64),
        Rate,
    ),
    target(
        "pairs, 256 clients, against Redis with its sync",
        "≥ 1.2",
        Pairs,
        (FerrolhoSqlite, 256),
        Pairs,
        (RedisAlways, 256),
        Rate,
    ),
    target(
        "pairs, 1 client, median time against Redis with its sync",
        "≤ 1.1",
        Pairs,
        (FerrolhoSqlite, 1),
        Pairs,
        (RedisAlways, 1),
        Time,
    ),
    target(
        "pairs, 64 clients, against etcd's lock API",
        "≥ 8",
        Pairs,
        (FerrolhoSqlite, 64),
        Pairs,
        (EtcdLock, 64),
        Rate,
    ),
    target(
        "pairs, 64 clients, against etcd's transactions",
        "",
        Pairs,
        (FerrolhoSqlite, 64),
        Pairs,
        (EtcdTxn, 64),
        Rate,
    ),
    target(
        "pairs, 64 clients, against PostgreSQL directly",
        "≥ 4",
        Pairs,
        (FerrolhoSqlite, 64),
        Pairs,
        (Postgres, 64),
        Rate,
    ),
    target(
        "pairs, 64 clients, against lockserver",
        "≥ 0.9",
        Pairs,
        (FerrolhoSqlite, 64),
        Pairs,
        (Lockserver, 64),
        Rate,
    ),
    target(
        "contended acquires, 64 clients, against lockserver",
        "≥ 1.0",
        Contended,
        (FerrolhoSqlite, 64),
        Contended,
        (Lockserver, 64),
        Rate,
    ),
    target(
        "reads, 64 clients, against lockserver's refusals (it has no reads)",
        "≥ 1.0",
        Reads,
        (FerrolhoSqlite, 64),
        Contended,
        (Lockserver, 64),
        Rate,
    ),
    target(
        "hand-over, median time, 1 000 waiters against 1",
        "≤ 1.5",
        Handovers,
        (FerrolhoSqlite, 1_000),
        Handovers,
        (FerrolhoSqlite, 1),
        Time,
    ),
    target(
        "hand-overs of one lock, 16 waiters, against pairs of one client",
        "≥ 0.8",
        Handovers,
        (FerrolhoSqlite, 16),
        Pairs,
        (FerrolhoSqlite, 1),
        Rate,
    ),
    target(
        "ferrolho on PostgreSQL, pairs, 64 clients, against PostgreSQL directly",
        "≥ 1.0",
        Pairs,
        (FerrolhoPostgres, 64),
        Pairs,
        (Postgres, 64),
        Rate,
    ),
    target(
        "ferrolho on etcd, pairs, 64 clients, against etcd's lock API",
        "≥ 1.0",
        Pairs,
        (FerrolhoEtcd, 64),
        Pairs,
        (EtcdLock, 64),
        Rate,
    ),
    target(
        "ferrolho on etcd, pairs, 64 clients, against etcd's transactions",
        "",
        Pairs,
        (FerrolhoEtcd, 64),
        Pairs,
        (EtcdTxn, 64),
        Rate,
    ),
];

const fn target(
    what: &'static str,
    aim: &'static str,
    our_scenario: Scenario,
    ours: (Kind, u32),
    their_scenario: Scenario,
    theirs: (Kind, u32),
    measure: Measure,
) -> Target {
    Target {
        what,
        aim,
        ours: (our_scenario, ours.0, ours.1),
        theirs: (their_scenario, theirs.0, theirs.1),
        measure,
    }
}

/// The targets for which this run has figures.
pub(crate) fn table(all: &[Figures]) -> Table {
    let mut table = Table::new("Targets", &["what", "aim", "ratio", "ours", "theirs"]);
    for Target {
        what,
        aim,
        ours,
        theirs,
        measure,
    } in &TARGETS
    {
        let (Some(ours), Some(theirs)) = (find(all, *ours), find(all, *theirs)) else {
            continue;
        };
        let cells = match measure {
            Rate => rates(ours, theirs),
            Time => times(ours, theirs),
        };
        if let Some([ratio, ours, theirs]) = cells {
            table
                .rows
                .push(vec![(*what).to_owned(), (*aim).to_owned(), ratio, ours, theirs]);
        }
    }
    table
}

fn find(all: &[Figures], (scenario, kind, clients): (Scenario, Kind, u32)) -> Option<&Figures> {
    all.iter().find(|figures| {
        let setting = figures.setting;
        figures.kind == kind
            && setting.scenario == scenario
            && setting.clients == clients
            && setting.rate.is_none()
    })
}

fn rates(ours: &Figures, theirs: &Figures) -> Option<[String; 3]> {
    let ([ours, ..], [theirs, ..]) = (ours.per_second()?, theirs.per_second()?);
    let show = |rate| format!("{}/s", super::count(rate));
    Some([format!("{:.2}", ours / theirs), show(ours), show(theirs)])
}

fn times(ours: &Figures, theirs: &Figures) -> Option<[String; 3]> {
    let (ours, theirs) = (ours.quantile(0.5)?, theirs.quantile(0.5)?);
    Some([
        format!("{:.2}", ours.as_secs_f64() / theirs.as_secs_f64()),
        time(ours),
        time(theirs),
    ])
}
