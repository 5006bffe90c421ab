//! `kill -9` under load: what was acknowledged is there afterwards.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::thread;

use crate::support::{Connection, Request, Server, acquire, lock_path, until};

const KILLS: usize = 30;
const CALLERS: usize = 16;

#[derive(Default)]
struct Known {
    /// Locks that are held for certain, with their tokens.
    held: HashMap<String, u64>,
    /// Locks that are released for certain.
    released: HashSet<String>,
    tokens: HashSet<u64>,
    top: u64,
}

#[test]
fn nothing_acknowledged_is_lost_and_no_token_comes_twice() {
    let mut server = Server::start();
    let known = Mutex::new(Known::default());
    for kill in 0..KILLS {
        let address = server.addr;
        let done_before = known.lock().unwrap().tokens.len();
        thread::scope(|scope| {
            for caller in 0..CALLERS {
                let known = &known;
                scope.spawn(move || load(address, &format!("k{kill}c{caller}"), known));
            }
            until("there is load", || {
                known.lock().unwrap().tokens.len() > done_before + 20 + 7 * kill
            });
            server.kill();
        });
        server.start_again();
        let known = known.lock().unwrap();
        for (name, token) in &known.held {
            assert_eq!(
                server.find(name).lock().fencing_token,
                *token,
                "{name} was acknowledged"
            );
        }
        for name in &known.released {
            server.find(name).not_found();
        }
        let next = server.acquire(&format!("after{kill}"), "a", 600).granted();
        assert!(
            next.fencing_token > known.top,
            "token {} after {}",
            next.fencing_token,
            known.top
        );
    }
}

/// Takes locks, and releases every other one, until the server is gone.
fn load(address: std::net::SocketAddr, name: &str, known: &Mutex<Known>) {
    let mut connection = Connection::to(address);
    let mut ask = |request: &Request| {
        connection.write(&request.bytes(address)).ok()?;
        connection.try_answer().ok()
    };
    for n in 0.. {
        let name = format!("{name}n{n}");
        let Some(answer) = ask(&acquire(&name, "a", 600)) else {
            return;
        };
        let token = answer.granted().fencing_token;
        {
            let mut known = known.lock().unwrap();
            assert!(known.tokens.insert(token), "token {token} came twice");
            known.top = known.top.max(token);
            known.held.insert(name.clone(), token);
        }
        if n % 2 == 0 {
            continue;
        }
        // Until its answer is there, nobody knows whether a release was carried out.
        known.lock().unwrap().held.remove(&name);
        let request = Request::delete(&format!("{}?owner=a", lock_path(&name)));
        let Some(answer) = ask(&request) else {
            return;
        };
        answer.done();
        known.lock().unwrap().released.insert(name);
    }
}
