//! What the kernel says of this process, under the names that all exporters use.

use std::fmt;
use std::fs;

use rustix::process::{Resource, getrlimit};

use super::page::Page;

/// Ticks per second in `/proc`, the same on every Linux (proc(5), sysconf(3)).
const TICKS: f64 = 100.0;

/// Memory, processor time and open files; what cannot be read is left out.
pub(super) fn write(page: &mut Page<'_>) -> fmt::Result {
    if let Some(seconds) = cpu_seconds() {
        page.counter_of_seconds("process_cpu_seconds", "Processor time used, in seconds.", seconds)?;
    }
    page.gauge(
        "process_resident_memory_bytes",
        "Memory in use, in bytes.",
        resident_bytes(),
    )?;
    let open = fs::read_dir("/proc/self/fd").ok().map(Iterator::count);
    page.gauge("process_open_fds", "Open files and connections.", open)?;
    let limit = getrlimit(Resource::Nofile).current;
    page.gauge(
        "process_max_fds",
        "How many files and connections may be open.",
        limit,
    )
}

fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name, in parentheses, may hold spaces; user and system time are the 12th and 13th field behind it.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut times = rest.split_whitespace().skip(11);
    let user: u32 = times.next()?.parse().ok()?;
    let system: u32 = times.next()?.parse().ok()?;
    Some((f64::from(user) + f64::from(system)) / TICKS)
}

fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
