//! A model of the algorithm: several servers on one store, a network that loses, clients that hang up and pause, lives
//! that end, and locks that are handed on. Every state that it can come to is looked at, for small sizes.
//!
//! The model is the design in a few lines (see `world`), not the program: what it shows is that the rules suffice. The
//! same model with one rule left out must break a promise each time, or the properties would show nothing.

mod world;

use stateright::{Checker, Model};
use world::{Flaw, World};

const EXCLUSION: &str = "of those who are awake one believes";
const TOKENS: &str = "the resource takes no older token";
const WAKE_UP: &str = "who could have a lock is on the way to it";
const NOBODYS: &str = "no lock is nobody's for long";

/// Two servers; two clients who want both locks, and one who wants the second.
fn world(flaw: Flaw) -> World {
    World {
        servers: 2,
        wants: vec![0b11, 0b11, 0b10],
        grants_max: 5,
        losses_max: 2,
        flaw,
    }
}

#[test]
fn every_state_keeps_the_promises() {
    let checker = world(Flaw::None).checker().threads(2).spawn_bfs().join();
    checker.assert_properties();
    println!("{} states", checker.unique_state_count());
    assert!(checker.unique_state_count() > 10_000);
}

/// With this flaw the promise is broken, and the way to it is found.
fn breaks(flaw: Flaw, promise: &'static str) {
    let checker = world(flaw).checker().threads(2).spawn_bfs().join();
    assert!(checker.discovery(promise).is_some(), "{flaw:?} is not seen");
}

#[test]
fn a_belief_that_counts_from_the_answer_is_seen() {
    breaks(Flaw::BeliefFromTheAnswer, EXCLUSION);
}

#[test]
fn a_token_drawn_before_the_commit_is_seen() {
    breaks(Flaw::TokenBeforeCommit, TOKENS);
}

#[test]
fn a_resource_that_takes_any_token_is_seen() {
    breaks(Flaw::NoFence, TOKENS);
}

#[test]
fn a_release_that_wakes_only_its_own_server_is_seen() {
    breaks(Flaw::WakesOwnServerOnly, WAKE_UP);
}

#[test]
fn a_look_before_standing_in_line_is_seen() {
    breaks(Flaw::LooksBeforeStanding, WAKE_UP);
}

#[test]
fn a_grant_that_the_departed_keep_is_seen() {
    breaks(Flaw::DepartedKeep, NOBODYS);
}

#[test]
fn sets_that_are_taken_one_by_one_are_seen() {
    breaks(Flaw::SetsOneByOne, WAKE_UP);
}
