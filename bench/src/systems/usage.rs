//! What a server and its children have used so far, from `/proc`.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// One process, as `/proc/ID/stat` has it.
struct Stat {
    parent: u32,
    ticks: u64,
}

/// The processor time of these processes and of all that descend from them, in user and kernel mode.
pub(crate) fn processor(roots: &[u32]) -> Duration {
    descendants(roots).map(|(_, stat)| ticks(stat.ticks)).sum()
}

/// The memory of these processes and of all that descend from them. What several share is counted once.
pub(crate) fn memory_bytes(roots: &[u32]) -> u64 {
    descendants(roots).map(|(id, _)| proportional_bytes(id)).sum()
}

fn descendants(roots: &[u32]) -> impl Iterator<Item = (u32, Stat)> {
    let all: BTreeMap<u32, Stat> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|id| Some((id, stat(id)?)))
        .collect();
    let mut wanted = roots.to_vec();
    let mut next = 0;
    while let Some(parent) = wanted.get(next).copied() {
        wanted.extend(
            all.iter()
                .filter(|(_, stat)| stat.parent == parent)
                .map(|(id, _)| *id),
        );
        next += 1;
    }
    all.into_iter().filter(move |(id, _)| wanted.contains(id))
}

fn stat(id: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name of the program, in parentheses, can hold anything.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |place: usize| fields.get(place)?.parse::<u64>().ok();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        // Its own time in both modes, and that of children which have ended and were waited for.
        ticks: number(11)? + number(12)? + number(13)? + number(14)?,
    })
}

fn ticks(count: u64) -> Duration {
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_nanos(count * (1_000_000_000 / per_second))
}

fn proportional_bytes(id: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{id}/smaps_rollup")).unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("Pss:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
        .unwrap_or(0)
        * 1_024
}

/// The processor time of one process, without its children.
pub(crate) fn own_processor(id: u32) -> Duration {
    stat(id).map_or(Duration::ZERO, |stat| ticks(stat.ticks))
}
