//! The normal run: many seeds, no fault in the program, and nothing may be found.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::world::{Nature, run};

/// How many worlds there are in a normal run; another number with this variable.
const SEEDS: u64 = 2_000;
const SEEDS_VARIABLE: &str = "FERROLHO_SIMULATIONS";

/// Runs one world alone, and prints what happens in it.
const SEED_VARIABLE: &str = "FERROLHO_SIMULATION_SEED";

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|number| number.parse().unwrap())
}

#[test]
fn every_answer_is_explained_and_nothing_is_left_behind() {
    if let Some(seed) = number(SEED_VARIABLE) {
        let course = run(Nature::of(seed));
        println!("{}", course.trace);
        return course.verdict.unwrap();
    }
    let seeds = number(SEEDS_VARIABLE).unwrap_or(SEEDS);
    let (next, calls) = (AtomicU64::new(0), AtomicU64::new(0));
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        return;
                    }
                    let course = run(Nature::of(seed));
                    calls.fetch_add(course.calls.try_into().unwrap(), Ordering::Relaxed);
                    if let Err(what) = course.verdict {
                        panic!("seed {seed}: {what}\n({SEED_VARIABLE}={seed} shows all of it)");
                    }
                }
            });
        }
    });
    println!("{seeds} worlds, {} calls", calls.load(Ordering::Relaxed));
}

#[test]
fn a_seed_repeats_exactly_here_and_in_another_process() {
    let here = run(Nature::of(7)).trace;
    assert!(here.lines().count() > 50, "{here}");
    assert_eq!(run(Nature::of(7)).trace, here);
    assert_ne!(run(Nature::of(8)).trace, here);
    let there = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "seeds::every_answer_is_explained_and_nothing_is_left_behind",
            "--nocapture",
        ])
        .env(SEED_VARIABLE, "7")
        .output()
        .unwrap();
    let there = String::from_utf8(there.stdout).unwrap();
    assert!(there.contains(&here), "{there}\n--- and here ---\n{here}");
}
