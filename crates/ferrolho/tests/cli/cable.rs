//! A cable to a server that can be pulled out.

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::{io, thread};

/// Passes bytes on for as long as it is plugged in; then every connection breaks, new ones too.
pub(crate) struct Cable {
    addr: SocketAddr,
    ends: Arc<Mutex<Ends>>,
}

#[derive(Default)]
struct Ends {
    is_out: bool,
    open: Vec<TcpStream>,
}

impl Cable {
    pub(crate) fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let cable = Self {
            addr: listener.local_addr().unwrap(),
            ends: Arc::default(),
        };
        let ends = Arc::clone(&cable.ends);
        // It ends with the test's process.
        thread::spawn(move || {
            for near in listener.incoming() {
                let near = near.unwrap();
                let mut ends = ends.lock().unwrap();
                if ends.is_out {
                    continue;
                }
                let far = TcpStream::connect(server).unwrap();
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    thread::spawn(move || {
                        // However it ended, both ends are to see it.
                        let _ended = io::copy(&mut from, &mut to);
                        let _gone = to.shutdown(Shutdown::Both);
                    });
                }
                ends.open.extend([near, far]);
            }
        });
        cable
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub(crate) fn pull_out(&self) {
        let mut ends = self.ends.lock().unwrap();
        ends.is_out = true;
        for end in ends.open.drain(..) {
            let _gone = end.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn plug_in(&self) {
        self.ends.lock().unwrap().is_out = false;
    }
}
