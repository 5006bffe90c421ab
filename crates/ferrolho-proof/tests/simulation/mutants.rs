//! The simulation bites: with each of these faults in a store or in a client, a few worlds suffice to find it.

use crate::mutant::Mutation;
use crate::world::{Nature, run};

/// How many worlds there are to find a fault in.
const WORLDS: u64 = 200;

/// The first world that a fault is found in, and what was seen of it there. Without the fault nothing is seen in it.
fn found(mutation: Mutation) -> String {
    let seen = (0..WORLDS).find_map(|seed| {
        let nature = Nature::of(seed).in_which_shows(mutation);
        let what = run(nature.with(mutation)).verdict.err()?;
        assert!(!what.starts_with("undecided"), "seed {seed}: {what}");
        run(nature).verdict.unwrap();
        Some(format!("seed {seed}: {what}"))
    });
    let seen = seen.unwrap_or_else(|| panic!("{mutation:?} is not found in {WORLDS} worlds"));
    println!("{mutation:?}, {seen}");
    seen
}

#[test]
fn a_release_without_owner_check_is_found() {
    found(Mutation::ReleaseWithoutOwnerCheck);
}

#[test]
fn an_expiry_one_second_early_is_found() {
    found(Mutation::ExpiryOneSecondEarly);
}

#[test]
fn a_token_drawn_outside_the_commit_is_found() {
    found(Mutation::TokenOutsideTheCommit);
}

#[test]
fn a_reply_before_the_sync_is_found() {
    found(Mutation::ReplyBeforeTheSync);
}

#[test]
fn the_seeds_read_then_update_is_found() {
    found(Mutation::ReadThenUpdate);
}

#[test]
fn a_hand_over_to_a_departed_waiter_is_found() {
    let seen = found(Mutation::HandOverToTheDeparted);
    assert!(seen.contains("leftovers"), "{seen}");
}

#[test]
fn a_removal_by_token_at_the_end_of_life_is_found() {
    found(Mutation::RemovalByToken);
}

#[test]
fn a_client_that_counts_from_the_answer_is_found() {
    let seen = found(Mutation::BeliefFromTheAnswer);
    assert!(seen.contains("witness") || seen.contains("client"), "{seen}");
}
