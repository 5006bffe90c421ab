//! The table at the end.

use std::time::Duration;

use crate::court::Court;
use crate::engine::EngineName;
use crate::server::Server;

pub(crate) fn print(engine: EngineName, took: Duration, seed: u64, court: &Court, servers: &[Server]) {
    println!("\n{engine:?}, {:.1} min, seed {seed}", took.as_secs_f64() / 60.0);
    for (what, count) in court.counts() {
        println!("  {count:>9}  {what}");
    }
    for (what, longest) in court.longest() {
        println!("  {:>8.3}s  longest {what}", longest.as_secs_f64());
    }
    for (number, server) in servers.iter().enumerate() {
        if let Some((kib, descriptors)) = server.usage() {
            println!(
                "  {:>6} MiB  server {number} at the end, with {descriptors} descriptors",
                kib / 1024
            );
        }
    }
    let violations = court.violations();
    println!("  {:>9}  violations", violations.len());
    for violation in violations {
        println!("  {violation}");
    }
}
