//! Nobody is passed over: of many busy connections, each has its turns. (Cases: WEB.)

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::support::{Request, Server, acquire};

/// More than a worker of the runtime keeps at hand (256), but not by many: then a queue that it looks into first may
/// never be empty.
const CONNECTIONS: usize = 300;

/// How many turns a connection has on average before the count ends.
const MEAN: usize = 50;

#[test]
fn no_busy_connection_is_passed_over() {
    for store in ["memory:", "sqlite:ferrolho.db"] {
        let server = Server::start_on(store, &["--worker-threads", "1"], &[]);
        let (ready, total) = (Barrier::new(CONNECTIONS), AtomicUsize::new(0));
        let counts: Vec<usize> = thread::scope(|scope| {
            let clients: Vec<_> = (0..CONNECTIONS)
                .map(|number| {
                    let mut connection = server.connect();
                    let (ready, total) = (&ready, &total);
                    scope.spawn(move || {
                        ready.wait();
                        let name = format!("r{number}");
                        let take = acquire(&name, "a", 60);
                        let give_back = Request::delete(&format!("/locks/{name}?owner=a"));
                        let mut count = 0;
                        while total.fetch_add(1, Ordering::Relaxed) < CONNECTIONS * MEAN {
                            connection.call(&take).granted();
                            connection.call(&give_back).done();
                            count += 1;
                        }
                        count
                    })
                })
                .collect();
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        });
        let fewest = counts.iter().min().unwrap();
        assert!(
            *fewest >= MEAN / 10,
            "somebody had only {fewest} turns of {MEAN}, on {store}"
        );
    }
}
