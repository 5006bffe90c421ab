//! Power loss: what was acknowledged is on the disk.
//!
//! The real binary runs under `strace`, which records every write to its files with its bytes, every sync, and
//! every request and answer on its sockets, in the order in which they happened. From this record the disk is put
//! together as a power cut may leave it at any moment: what was synced is there; of what was written since, any
//! part may be, in any order, torn at any sector; a file whose directory was not synced may be missing, or be back.
//! The real engine opens each such disk, and must know every grant, renewal and release that had been answered, and
//! draw no token again. That the record is whole is seen too: replayed to its end it must equal the files.
//!
//! The kernel and the disk are taken at their word: what `fdatasync` has returned for is kept, and a sector of 512
//! bytes is written whole or not at all.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod caller;
mod disk;
mod judge;
mod known;
mod load;
mod record;
mod seed;
mod server;
mod trace;

use judge::Judge;
use record::{Mutation, Record};

/// How many disks are put together and opened in a normal run; another number with this variable.
const DISKS: usize = 240;
const DISKS_VARIABLE: &str = "FERROLHO_POWER_LOSS_DISKS";

/// How many disks are tried for a fault that was put in on purpose.
const DISKS_FOR_A_MUTANT: usize = 200;

/// How many such samples at most. Most mutants show in the first.
const SAMPLES_FOR_A_MUTANT: u64 = 25;

/// From how many disks a server is started while the power is lost again, and how many disks of each start are
/// tried.
const SECOND_LOSSES: usize = 4;
const DISKS_OF_A_START: usize = 50;

/// Everything random comes from this, so that a failure repeats on the same record.
const SEED: u64 = 20_261_201;

fn disks() -> usize {
    std::env::var(DISKS_VARIABLE).map_or(DISKS, |number| number.parse().expect("a number of disks"))
}

#[test]
fn what_was_answered_is_there_after_a_power_loss() {
    let Some(record) = Record::make(&load::everything) else {
        return;
    };
    eprintln!("{}", record.summary());
    record.assert_covers_all();
    let findings = Judge::new(&record).try_disks(disks(), SEED);
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

/// The judge is not blind: on a disk that does not keep what was synced it finds what is lost, and so it does for
/// a server that answers before it syncs.
#[test]
fn a_lost_sync_and_a_hasty_answer_are_found() {
    let Some(record) = Record::make(&load::a_little) else {
        return;
    };
    let findings = Judge::new(&record).try_disks(DISKS_FOR_A_MUTANT, SEED);
    assert!(findings.is_empty(), "{}", findings.join("\n"));
    for mutation in [Mutation::NoSyncOfTheLog, Mutation::AnswersBeforeTheSync] {
        let mutant = record.mutate(mutation);
        // Disks are a sample: a hasty answer shows only when the power goes in the moment after it.
        let is_found = (0..SAMPLES_FOR_A_MUTANT).any(|sample| {
            let findings = Judge::new(&mutant).try_disks(DISKS_FOR_A_MUTANT, SEED + sample);
            findings.iter().any(|finding| finding.contains("is lost"))
        });
        assert!(is_found, "{mutation:?} is not found");
    }
}

/// Power that is lost again while the server starts from what a first loss has left.
#[test]
fn a_second_loss_during_the_start_loses_nothing() {
    let Some(record) = Record::make(&load::a_little) else {
        return;
    };
    for case in Judge::new(&record).some_disks(SECOND_LOSSES, SEED) {
        let when = case.when.clone();
        let second = Record::of_a_start(case);
        let findings = Judge::new(&second).try_disks(DISKS_OF_A_START, SEED);
        assert!(findings.is_empty(), "{when}, then: {}", findings.join("\n"));
    }
}

/// The first start on a file with the seed's bare table, which it brings to another shape and another journal mode.
#[test]
fn a_loss_during_the_first_start_on_a_seed_file_loses_nothing() {
    let Some(record) = seed::record_a_first_start() else {
        return;
    };
    let findings = Judge::new(&record).try_disks(DISKS_FOR_A_MUTANT, SEED);
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}
