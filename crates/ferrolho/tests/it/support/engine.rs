//! The same cases on every engine.

/// Makes a test of each case, a function from a server, on each engine that needs nothing but the program; and
/// one test of all of them, side by side, on each engine that has to be started first.
macro_rules! on_every_engine {
    ($($case:ident),+ $(,)?) => {
        const CASES: &[$crate::support::Case<$crate::support::Server>] = &[$((stringify!($case), $case)),+];

        mod memory {
            use crate::support::Server;
            $(#[test] fn $case() { super::$case(&Server::memory()); })+
        }

        mod sqlite {
            use crate::support::Server;
            $(#[test] fn $case() { super::$case(&Server::start()); })+
        }

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
pub(crate) use on_every_engine;
