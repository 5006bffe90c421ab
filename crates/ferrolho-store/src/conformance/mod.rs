//! What every engine must hold, as tests that any engine's tests call.
//!
//! An engine's test file says how to come by a fresh store ([`Engine`]) and calls [`conformance_suite!`], which
//! makes one test of each check here. A check is a function named for what it holds. The suite works in real
//! time, since most engines' clocks cannot be stepped: it waits for what it expects, at most [`PATIENCE`], and
//! never for a guessed time. An engine that keeps its locks over a restart, or that serves several servers, says
//! so ([`Restarts`], [`Servers`]) and names these groups of checks too.
//!
//! [`conformance_suite!`]: crate::conformance_suite
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a test suite: what does not hold is a panic"
)]

pub mod bounded;
pub mod expiry;
pub mod feed;
pub mod histories;
pub mod kit;
pub mod listing;
pub mod races;
pub mod restarts;
pub mod servers;
pub mod swaps;
pub mod values;
pub mod working;

use std::sync::Arc;

use async_trait::async_trait;

use crate::Store;

pub use kit::PATIENCE;

/// How the suite comes by an engine's stores. When the value is dropped, what it made may go.
#[async_trait]
pub trait Engine: Sized + Send + Sync + 'static {
    /// A store that is empty and nobody else's; nothing when the engine is not installed, which whoever finds that
    /// out has then said on stderr.
    async fn start() -> Option<Self>;

    /// This server's handle on it.
    fn store(&self) -> Arc<dyn Store>;
}

/// An engine that keeps its locks over a restart.
#[async_trait]
pub trait Restarts: Engine {
    /// Closes this server's handle and opens a new one on the same data.
    async fn reopen(&mut self) -> Arc<dyn Store>;
}

/// An engine that serves several servers.
#[async_trait]
pub trait Servers: Engine {
    /// Another server's handle on the same store.
    async fn another(&self) -> Arc<dyn Store>;
}

/// Makes a test of each check, for this [`Engine`], with those of the groups
/// `restarts` and `servers` where they are named. The calling crate needs tokio with its macros.
#[macro_export]
macro_rules! conformance_suite {
    ($engine:ty $(, $group:ident)*) => {
        $crate::conformance_suite! { @tests $engine:
            swaps::a_free_resource_is_granted,
            swaps::a_change_happens_when_its_expectation_holds_and_only_then,
            swaps::an_expired_lock_is_free_and_nobodys,
            swaps::a_set_is_carried_out_whole_or_not_at_all,
            swaps::a_set_may_be_as_large_as_allowed,
            swaps::a_set_may_mix_what_it_does,
            swaps::a_repeated_grant_fences_off_the_one_before,
            swaps::a_renewal_moves_the_end_and_nothing_else,
            swaps::a_handover_is_one_step,
            swaps::tokens_rise_for_ever,
            swaps::an_attempt_that_comes_too_late_does_nothing,
            swaps::reading_sees_every_answer_given,
            values::names_are_kept_byte_for_byte_and_apart,
            values::metadata_comes_back_as_it_came,
            values::marks_come_back_as_they_came,
            values::the_longest_lifetime_is_kept,
            expiry::a_lock_ends_by_itself_never_early_and_is_reported_once,
            expiry::a_renewed_lock_outlives_its_first_end,
            expiry::a_shortened_lock_ends_at_its_new_end,
            expiry::many_ends_are_reported_once_each,
            feed::every_change_is_reported_in_order,
            feed::what_was_refused_is_not_reported,
            feed::an_unchanged_store_is_silent_to_a_new_watcher,
            listing::pages_follow_the_bytes_of_the_names,
            listing::a_prefix_an_owner_and_a_holder_narrow_the_list,
            listing::what_is_over_is_not_listed,
            races::one_of_many_gets_a_fresh_lock,
            races::one_of_many_gets_an_expired_lock,
            races::crossing_sets_never_share_a_lock,
            races::tokens_order_the_grants_of_many,
            working::a_working_store_says_so,
            working::a_closed_store_refuses,
        }
        $($crate::conformance_suite! { @$group $engine })*
    };
    (@restarts $engine:ty) => {
        $crate::conformance_suite! { @tests $engine:
            restarts::live_locks_survive_and_released_ones_do_not,
            restarts::tokens_rise_over_a_restart,
            restarts::a_lock_that_ends_while_closed_is_over,
        }
    };
    (@servers $engine:ty) => {
        $crate::conformance_suite! { @tests $engine:
            servers::an_answer_of_one_is_seen_by_the_other,
            servers::both_see_the_same_history,
            servers::one_of_many_on_two_servers_wins,
            servers::a_lock_outlives_the_server_that_granted_it,
            servers::three_behave_as_one_map,
        }
    };
    (@tests $engine:ty: $($module:ident :: $check:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $check() {
                if let Some(mut engine) = <$engine as $crate::conformance::Engine>::start().await {
                    $crate::conformance::$module::$check(&mut engine).await;
                }
            }
        )*
    };
}

#[cfg(test)]
mod tests {
    /// Every check that is written is one that runs.
    #[test]
    fn no_check_is_missing_in_the_suite() {
        let suite = include_str!("mod.rs");
        for (module, source) in [
            ("swaps", include_str!("swaps.rs")),
            ("values", include_str!("values.rs")),
            ("expiry", include_str!("expiry.rs")),
            ("feed", include_str!("feed.rs")),
            ("listing", include_str!("listing.rs")),
            ("races", include_str!("races.rs")),
            ("working", include_str!("working.rs")),
            ("restarts", include_str!("restarts.rs")),
            ("servers", include_str!("servers.rs")),
        ] {
            let checks = source.split("pub async fn ").skip(1);
            let names: Vec<_> = checks.filter_map(|rest| rest.split('(').next()).collect();
            assert!(!names.is_empty(), "{module}");
            for name in names {
                assert!(suite.contains(&format!("{module}::{name},")), "{module}::{name}");
            }
        }
    }
}
