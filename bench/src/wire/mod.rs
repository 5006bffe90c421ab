//! What a client says to a server and how it understands the answer: one dialect for each protocol, without I/O.
//!
//! Every server is asked in its own protocol by the same few lines of load generator, so that no server looks slow
//! because its client library is. A dialect appends requests to a buffer that is kept, and looks at the bytes that
//! came back in place: nothing is allocated for a request once the buffers have grown.

pub(crate) mod etcd;
pub(crate) mod ferrolho;
mod grpc;
pub(crate) mod http;
pub(crate) mod lockserver;
mod message;
pub(crate) mod postgres;
pub(crate) mod redis;
pub(crate) mod zookeeper;

/// How long every lock lives, in seconds: longer than any run, so that nothing ends by itself.
pub(crate) const TTL_SECONDS: u32 = 3_600;

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// What comes before the first request of a connection: greetings, sessions, prepared statements.
    Open,
    /// The lock, if it is free.
    Acquire,
    /// The lock, as soon as it is free.
    Wait,
    /// A new end for a lock that is held.
    Renew,
    /// How a lock stands.
    Read,
    /// The end of a lock that is held.
    Release,
}

/// One request: what, for which lock, and by whom. Names are plain ASCII letters, digits and `-`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) ask: Ask,
    pub(crate) name: &'a [u8],
    pub(crate) owner: &'a [u8],
}

/// What a server answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The lock is the caller's.
    Granted,
    /// Somebody else holds the lock.
    Refused,
    /// It was done, or here is what was asked for.
    Done,
    /// Anything else: an error, or what cannot be understood.
    Failed,
}

/// What the bytes that have come so far amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Not yet a whole message.
    More,
    /// So many bytes that do not end the request.
    Part(usize),
    /// So many bytes, and with them the answer.
    Answer(usize, Answer),
}

/// A protocol, seen from one connection, with one request under way at a time.
pub(crate) trait Dialect: Send {
    /// Appends the request to `out`.
    fn ask(&mut self, request: Request<'_>, out: &mut Vec<u8>);

    /// Looks for one whole message at the start of `input`. What the protocol wants said in between (an
    /// acknowledgement, the next of several steps) is appended to `out`.
    fn hear(&mut self, input: &[u8], out: &mut Vec<u8>) -> Heard;
}

/// `yes` when it holds, else a failure.
fn or_failed(holds: bool, yes: Answer) -> Answer {
    if holds { yes } else { Answer::Failed }
}
