//! What `strace` has written down, as events in the order in which they happened.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// What is traced: everything that changes files, and what goes over sockets. A call that is missing here shows when
/// the record is compared with the files.
pub(crate) const CALLS: &str = "openat,creat,write,writev,pwrite64,pwritev,pwritev2,fdatasync,fsync,ftruncate,fallocate,\
     unlink,unlinkat,rename,renameat,renameat2,link,linkat,copy_file_range,sendfile,sendto,sendmsg,recvfrom";

/// A connection to one of the servers that ran one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CallerId {
    pub(crate) server: u16,
    pub(crate) port: u16,
}

/// Something that happened. Files are named without their directory, which is the only one that is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A file was opened, and made if it was not there.
    Made {
        name: String,
    },
    Written {
        name: String,
        offset: u64,
        bytes: Vec<u8>,
    },
    Truncated {
        name: String,
        length: u64,
    },
    /// All that had been written to the file before this is on the disk.
    SyncBegun {
        name: String,
    },
    SyncDone {
        name: String,
    },
    Removed {
        name: String,
    },
    /// The names in the directory are on the disk.
    NamesSynced,
    /// A request, or a part of one, came in from a caller.
    Received {
        caller: CallerId,
    },
    /// An answer to a caller began to leave.
    Answered {
        caller: CallerId,
    },
}

/// What a server did.
pub(crate) struct Trace {
    pub(crate) events: Vec<Event>,
    /// A change of a file that was under way when the server was killed, and has happened or not.
    pub(crate) cut_off: Option<Event>,
}

/// Reads what a server did in this directory.
pub(crate) fn read(trace: &Path, directory: &Path, server: u16) -> Trace {
    let mut reader = Reader {
        server,
        directory: directory.to_str().unwrap().to_owned(),
        unfinished: HashMap::new(),
        events: Vec::new(),
        cut_off: None,
    };
    let mut lines = BufReader::new(File::open(trace).unwrap());
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line).unwrap() > 0 {
        reader.line(std::str::from_utf8(&line).unwrap().trim_end());
        line.clear();
    }
    for (_, call) in std::mem::take(&mut reader.unfinished) {
        reader.cut_off(&call);
    }
    Trace {
        events: reader.events,
        cut_off: reader.cut_off,
    }
}

struct Reader {
    server: u16,
    directory: String,
    /// The beginnings of calls whose ends are on later lines, by thread.
    unfinished: HashMap<String, String>,
    events: Vec<Event>,
    cut_off: Option<Event>,
}

impl Reader {
    fn line(&mut self, line: &str) {
        let Some((thread, rest)) = line.split_once(' ') else {
            return;
        };
        let rest = rest.trim_start();
        if rest.starts_with("+++") || rest.starts_with("---") {
            return;
        }
        if let Some(begun) = rest.strip_suffix(" <unfinished ...>") {
            self.begun(begun);
            self.unfinished.insert(thread.to_owned(), begun.to_owned());
        } else if rest.starts_with("<... ") {
            let Some(begun) = self.unfinished.remove(thread) else {
                return;
            };
            let (_, end) = rest.split_once(" resumed>").unwrap();
            self.finished(&format!("{begun}{end}"));
        } else {
            self.begun(rest);
            self.finished(rest);
        }
    }

    /// What matters when a call begins: a sync covers what was written until then, and an answer may be on its way.
    fn begun(&mut self, call: &str) {
        let (name, arguments) = parts(call);
        match name {
            "fdatasync" | "fsync" => {
                if let Some(file) = self.file(arguments)
                    && !file.is_empty()
                {
                    self.events.push(Event::SyncBegun { name: file });
                }
            }
            "write" | "writev" | "sendto" | "sendmsg" => {
                if let Some(caller) = self.caller(arguments)
                    && text(arguments).is_some_and(|bytes| bytes.starts_with(b"HTTP/1.1"))
                {
                    self.events.push(Event::Answered { caller });
                }
            }
            _ => {}
        }
    }

    fn finished(&mut self, call: &str) {
        let Some((call, result)) = call.rsplit_once(" = ") else {
            return;
        };
        let call = call.trim_end();
        let result = result.split([' ', '<']).next().unwrap();
        if result == "?" {
            self.cut_off(call);
        } else if let Ok(result) = result.parse() {
            self.events.extend(self.event(call, result));
        }
        // What failed has changed nothing.
    }

    /// A call that the end of the process has cut off. What was to be synced is not certain to be, and what was
    /// asked was not heard.
    fn cut_off(&mut self, call: &str) {
        match self.event(call, 0) {
            Some(Event::SyncDone { .. } | Event::NamesSynced | Event::Received { .. }) | None => {}
            Some(event) => {
                let other = self.cut_off.replace(event);
                assert_eq!(other, None, "two changes at a time");
            }
        }
    }

    /// What a call that has returned `result` has done.
    fn event(&self, call: &str, result: u64) -> Option<Event> {
        let (name, arguments) = parts(call);
        if name == "recvfrom" {
            let caller = self.caller(arguments)?;
            return (result > 0).then_some(Event::Received { caller });
        }
        let file = self.file(arguments)?;
        let event = match name {
            "openat" if arguments.contains("O_CREAT") => {
                assert!(!arguments.contains("O_TRUNC"), "{arguments}");
                Event::Made { name: file }
            }
            "openat" => return None,
            "pwrite64" => {
                let bytes = text(arguments).unwrap();
                let offset = last_number(arguments);
                assert!(
                    result == 0 || result == bytes.len() as u64,
                    "a short write: {result}"
                );
                Event::Written {
                    name: file,
                    offset,
                    bytes,
                }
            }
            "ftruncate" => {
                let length = last_number(arguments);
                Event::Truncated { name: file, length }
            }
            "fdatasync" | "fsync" if file.is_empty() => Event::NamesSynced,
            "fdatasync" | "fsync" => Event::SyncDone { name: file },
            "unlink" => Event::Removed { name: file },
            _ => panic!("a call that is not foreseen: {name} on {file}"),
        };
        Some(event)
    }

    /// The caller, if the call is about a connection.
    fn caller(&self, arguments: &str) -> Option<CallerId> {
        let (_, ends) = arguments.split_once("<TCP:[")?;
        let (_, port) = ends.split_once("]>")?.0.rsplit_once(':')?;
        Some(CallerId {
            server: self.server,
            port: port.parse().ok()?,
        })
    }

    /// The file that a call is about, if it is in the directory: the first text that is a path. Empty for the
    /// directory itself. The index of the log is memory, and no more than that.
    fn file(&self, arguments: &str) -> Option<String> {
        let descriptor = arguments
            .split_once('<')
            .filter(|(number, _)| number.bytes().all(|b| b.is_ascii_digit()));
        let path = match descriptor {
            Some((_, rest)) => unescape(rest.split_once('>')?.0)?,
            None => text(arguments)?,
        };
        let path = String::from_utf8(path).ok()?;
        let name = path.strip_prefix(&self.directory)?;
        let name = name.strip_prefix('/').unwrap_or(name);
        (!name.ends_with("-shm")).then(|| name.to_owned())
    }
}

fn parts(call: &str) -> (&str, &str) {
    call.split_once('(').unwrap_or((call, ""))
}

/// The last argument, a number.
fn last_number(arguments: &str) -> u64 {
    let last = arguments.rsplit(", ").next().unwrap();
    last.trim_end_matches(')').parse().unwrap()
}

/// The first quoted text.
fn text(arguments: &str) -> Option<Vec<u8>> {
    let (_, rest) = arguments.split_once('"')?;
    let (quoted, rest) = rest.split_once('"')?;
    assert!(!rest.starts_with("..."), "strace has cut a text short");
    unescape(quoted)
}

/// `\x66\x6f\x6f` as bytes.
fn unescape(hex: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    hex.as_bytes()
        .chunks(4)
        .map(|four| match four {
            [b'\\', b'x', high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        })
        .collect()
}
