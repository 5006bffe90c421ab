//! etcd: its lock API, and the transaction that its client library's mutex is made of.
//!
//! A client has one session, that is one lease, which it makes when it connects and uses for all its locks, as the
//! client library does.

use super::grpc::{Grpc, Reply};
use super::{Answer, Ask, Dialect, Heard, Request, TTL_SECONDS, or_failed};

/// What a lock on etcd is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The lock API (`v3lockpb.Lock`), which queues and cannot try.
    LockApi,
    /// One transaction that creates the key if it is not there, and one delete.
    Transaction,
}

/// A connection to etcd.
pub(crate) struct Etcd {
    kind: Kind,
    asked: Ask,
    grpc: Grpc,
    lease: u64,
    /// The key that the lock API gave for the lock.
    key: Vec<u8>,
    /// For messages inside messages.
    inner: [Vec<u8>; 2],
}

impl Etcd {
    /// A connection that has said nothing yet.
    pub(crate) fn new(kind: Kind) -> Self {
        Self {
            kind,
            asked: Ask::Open,
            grpc: Grpc::new(),
            lease: 0,
            key: Vec::new(),
            inner: [Vec::new(), Vec::new()],
        }
    }

    fn create_if_absent(&mut self, name: &[u8], owner: &[u8], out: &mut Vec<u8>) {
        let lease = self.lease;
        let [message, operation] = &mut self.inner;
        self.grpc.call("/etcdserverpb.KV/Txn", out, |out| {
            // Compare: equal (left out), of the creation revision, with 0 (given, since it is one of several).
            message.clear();
            number_field(message, 2, 1);
            bytes_field(message, 3, name);
            number_field(message, 5, 0);
            bytes_field(out, 1, message);
            // Then: put.
            operation.clear();
            bytes_field(operation, 1, name);
            bytes_field(operation, 2, owner);
            number_field(operation, 3, lease);
            message.clear();
            bytes_field(message, 2, operation);
            bytes_field(out, 2, message);
            // Else: how the lock stands.
            operation.clear();
            bytes_field(operation, 1, name);
            message.clear();
            bytes_field(message, 1, operation);
            bytes_field(out, 3, message);
        });
    }

    fn answer(&mut self, went_well: bool) -> Answer {
        if !went_well {
            return Answer::Failed;
        }
        let message = self.grpc.message();
        match (self.asked, self.kind) {
            (Ask::Open, _) => {
                self.lease = number(message, 2).unwrap_or(0);
                or_failed(self.lease != 0, Answer::Done)
            }
            (Ask::Acquire | Ask::Wait, Kind::LockApi) => {
                self.key.clear();
                self.key.extend_from_slice(bytes(message, 2).unwrap_or_default());
                or_failed(!self.key.is_empty(), Answer::Granted)
            }
            (Ask::Acquire | Ask::Wait, Kind::Transaction) if number(message, 2) == Some(1) => Answer::Granted,
            (Ask::Acquire | Ask::Wait, Kind::Transaction) => Answer::Refused,
            (Ask::Release, Kind::Transaction) => or_failed(number(message, 2) == Some(1), Answer::Done),
            (Ask::Release, Kind::LockApi) => Answer::Done,
            // The lease lives if it has a lifetime.
            (Ask::Renew, _) => or_failed(number(message, 3).unwrap_or(0) > 0, Answer::Done),
            (Ask::Read, _) => or_failed(bytes(message, 2).is_some(), Answer::Done),
        }
    }
}

impl Dialect for Etcd {
    fn ask(&mut self, wanted: Request<'_>, out: &mut Vec<u8>) {
        self.asked = wanted.ask;
        let (name, lease) = (wanted.name, self.lease);
        match (wanted.ask, self.kind) {
            (Ask::Open, _) => {
                Grpc::open(out);
                self.grpc.call("/etcdserverpb.Lease/LeaseGrant", out, |out| {
                    number_field(out, 1, TTL_SECONDS.into());
                });
            }
            (Ask::Acquire | Ask::Wait, Kind::LockApi) => {
                self.grpc.call("/v3lockpb.Lock/Lock", out, |out| {
                    bytes_field(out, 1, name);
                    number_field(out, 2, lease);
                });
            }
            (Ask::Release, Kind::LockApi) => {
                let key = &self.key;
                self.grpc
                    .call("/v3lockpb.Lock/Unlock", out, |out| bytes_field(out, 1, key));
            }
            (Ask::Acquire | Ask::Wait, Kind::Transaction) => self.create_if_absent(name, wanted.owner, out),
            (Ask::Release, Kind::Transaction) => {
                self.grpc.call("/etcdserverpb.KV/DeleteRange", out, |out| {
                    bytes_field(out, 1, name);
                });
            }
            (Ask::Renew, _) => {
                self.grpc.call("/etcdserverpb.Lease/LeaseKeepAlive", out, |out| {
                    number_field(out, 1, lease);
                });
            }
            (Ask::Read, _) => {
                self.grpc
                    .call("/etcdserverpb.KV/Range", out, |out| bytes_field(out, 1, name));
            }
        }
    }

    fn hear(&mut self, input: &[u8], out: &mut Vec<u8>) -> Heard {
        match self.grpc.hear(input, out) {
            Reply::More => Heard::More,
            Reply::Part(used) => Heard::Part(used),
            Reply::Ended(used, went_well) => Heard::Answer(used, self.answer(went_well)),
        }
    }
}

// Protocol buffers: fields of numbers and of bytes.

fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn number_field(out: &mut Vec<u8>, field: u64, number: u64) {
    varint(out, field << 3);
    varint(out, number);
}

fn bytes_field(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    varint(out, field << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn number(message: &[u8], field: u64) -> Option<u64> {
    match find(message, field)? {
        Value::Number(number) => Some(number),
        Value::Bytes(_) => None,
    }
}

fn bytes(message: &[u8], field: u64) -> Option<&[u8]> {
    match find(message, field)? {
        Value::Bytes(bytes) => Some(bytes),
        Value::Number(_) => None,
    }
}

/// The first field with this number.
fn find(mut message: &[u8], wanted: u64) -> Option<Value<'_>> {
    loop {
        let (tag, rest) = take_varint(message)?;
        let (value, rest) = match tag & 7 {
            0 => {
                let (number, rest) = take_varint(rest)?;
                (Value::Number(number), rest)
            }
            2 => {
                let (length, rest) = take_varint(rest)?;
                let (bytes, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
                (Value::Bytes(bytes), rest)
            }
            _ => return None,
        };
        if tag >> 3 == wanted {
            return Some(value);
        }
        message = rest;
    }
}

fn take_varint(input: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0;
    for (place, byte) in input.iter().enumerate().take(10) {
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Some((number, input.get(place + 1..)?));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_again() {
        let mut message = Vec::new();
        bytes_field(&mut message, 1, b"header");
        number_field(&mut message, 2, 300);
        assert_eq!(number(&message, 2), Some(300));
        assert_eq!(bytes(&message, 1), Some(&b"header"[..]));
        assert_eq!(number(&message, 3), None);
    }
}
