//! Cases on engines that have to be started first, and that several servers can share.

use std::thread;

#[cfg(feature = "etcd")]
use ferrolho_testkit::Etcd;
use ferrolho_testkit::{Postgres, PostgresOptions};

use super::Server;

/// Makes a test of all the cases, each a function from two servers of one store, on each engine that several
/// servers can share.
macro_rules! on_every_shared_engine {
    ($($case:ident),+ $(,)?) => {
        const CASES: &[$crate::support::Case<$crate::support::Pair>] = &[$((stringify!($case), $case)),+];

        #[test]
        fn postgres() {
            $crate::support::on_postgres(CASES);
        }

        #[cfg(feature = "etcd")]
        #[test]
        fn etcd() {
            $crate::support::on_etcd(CASES);
        }
    };
}
pub(crate) use on_every_shared_engine;

/// A case, by its name.
pub(crate) type Case<On> = (&'static str, fn(&On));

/// Two servers of one store.
pub(crate) type Pair = (Server, Server);

/// What a case is run on.
pub(crate) trait OnStore {
    /// Starts it on this store.
    fn on_store(store: &str) -> Self;
}

impl OnStore for Server {
    fn on_store(store: &str) -> Self {
        Self::on(store)
    }
}

impl OnStore for Pair {
    fn on_store(store: &str) -> Self {
        let server = || Server::start_on(store, &["--audit-log", "audit"], &[]);
        (server(), server())
    }
}

/// Runs the cases on a database each of one server.
pub(crate) fn on_postgres<On: OnStore + 'static>(cases: &[Case<On>]) {
    let options = PostgresOptions {
        settings: vec!["max_connections = 500".to_owned()],
        ..PostgresOptions::default()
    };
    if let Some(postgres) = Postgres::start_with(&options) {
        side_by_side(cases, |number| {
            let database = format!("case_{number}");
            postgres.create_database(&database);
            postgres.url(&database)
        });
    }
}

/// Runs the cases on a part each of one cluster.
#[cfg(feature = "etcd")]
pub(crate) fn on_etcd<On: OnStore + 'static>(cases: &[Case<On>]) {
    if let Some(etcd) = Etcd::start() {
        side_by_side(cases, |number| format!("{}?prefix=case-{number}", etcd.url()));
    }
}

/// Runs the cases at the same time, each on the store of its number.
fn side_by_side<On: OnStore + 'static>(cases: &[Case<On>], store: impl Fn(usize) -> String + Sync) {
    thread::scope(|scope| {
        for (number, (name, case)) in cases.iter().enumerate() {
            let store = &store;
            let run = move || case(&On::on_store(&store(number)));
            // A case that fails says its name, which is that of its thread.
            thread::Builder::new()
                .name((*name).to_owned())
                .spawn_scoped(scope, run)
                .unwrap();
        }
    });
}
