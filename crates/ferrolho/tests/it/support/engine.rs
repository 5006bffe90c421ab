//! The same cases on every engine.

/// Makes a test of each case, a function from a server, on each engine that needs nothing but the program; and
/// one test of all of them, side by side, on each engine that has to be started first.
macro_rules! on_every_engine {
    ($($case:ident),+ $(,)?) => {
        mod memory {
            use crate::support::Server;
            $(#[test] fn $case() { super::$case(&Server::memory()); })+
        }

        mod sqlite {
            use crate::support::Server;
            $(#[test] fn $case() { super::$case(&Server::start()); })+
        }

        #[cfg(feature = "etcd")]
        #[test]
        fn etcd() {
            const CASES: &[$crate::support::Case] = &[$((stringify!($case), $case)),+];
            $crate::support::on_etcd(CASES);
        }
    };
}
pub(crate) use on_every_engine;

/// A case, by its name.
#[cfg(feature = "etcd")]
pub(crate) type Case = (&'static str, fn(&super::Server));

/// Runs each case on a server of its own, on a part of one cluster of its own.
#[cfg(feature = "etcd")]
pub(crate) fn on_etcd(cases: &[Case]) {
    if let Some(etcd) = ferrolho_testkit::Etcd::start() {
        side_by_side(cases, |number| format!("{}?prefix=case-{number}", etcd.url()));
    }
}

#[cfg(feature = "etcd")]
fn side_by_side(cases: &[Case], store: impl Fn(usize) -> String + Sync) {
    std::thread::scope(|scope| {
        for (number, (name, case)) in cases.iter().enumerate() {
            let store = &store;
            let run = move || case(&super::Server::on(&store(number)));
            // A case that fails says its name, which is that of its thread.
            std::thread::Builder::new()
                .name((*name).to_owned())
                .spawn_scoped(scope, run)
                .unwrap();
        }
    });
}
