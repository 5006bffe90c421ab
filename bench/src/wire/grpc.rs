//! As much of gRPC over HTTP/2 as unary calls need, so that etcd is asked the way its own clients ask and not
//! through its slower JSON gateway.
//!
//! The header block of a call never changes (nothing of it goes into the compression table), so it is written once.
//! A call that went well has a message in its answer, and one that failed has only trailers; so answers need no
//! header decompression at all.

use super::message::int;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const ACKNOWLEDGE: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// Length, kind, flags, stream.
const FRAME_HEAD: usize = 9;
/// Of a message inside a data frame: compressed or not, and its length.
const MESSAGE_HEAD: usize = 5;
/// So much may the server send in all before it waits for permission: far more than one run brings.
const WINDOW: u32 = 0x7fff_0000;

/// A connection with one call under way at a time.
pub(super) struct Grpc {
    stream: u32,
    message: Vec<u8>,
    has_message: bool,
}

/// What frames have amounted to.
pub(super) enum Reply {
    /// Not yet a whole frame.
    More,
    /// So many bytes that do not end the call.
    Part(usize),
    /// So many bytes; the call has ended, with a message if it went well.
    Ended(usize, bool),
}

impl Grpc {
    pub(super) fn new() -> Self {
        Self {
            stream: 0,
            message: Vec::new(),
            has_message: false,
        }
    }

    /// Appends what opens a connection.
    pub(super) fn open(out: &mut Vec<u8>) {
        out.extend_from_slice(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        frame(out, SETTINGS, 0, 0, &[]);
        frame(out, WINDOW_UPDATE, 0, 0, &WINDOW.to_be_bytes());
    }

    /// Appends a call of `path` with the message that `write` appends.
    pub(super) fn call(&mut self, path: &str, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        // A client's streams have odd numbers.
        self.stream = if self.stream == 0 { 1 } else { self.stream + 2 };
        self.has_message = false;
        let start = out.len();
        frame_head(out, 0, HEADERS, END_HEADERS, self.stream);
        header_block(out, path);
        let length = out.len() - start - FRAME_HEAD;
        patch_length(out, start, length);
        let start = out.len();
        frame_head(out, 0, DATA, END_STREAM, self.stream);
        out.push(0);
        int(out, 0);
        write(out);
        let length = out.len() - start - FRAME_HEAD - MESSAGE_HEAD;
        patch_length(out, start, length + MESSAGE_HEAD);
        if let Some(place) = out.get_mut(start + FRAME_HEAD + 1..start + FRAME_HEAD + MESSAGE_HEAD) {
            place.copy_from_slice(&u32::try_from(length).unwrap_or(0).to_be_bytes());
        }
    }

    /// The message of the call that ended last.
    pub(super) fn message(&self) -> &[u8] {
        self.message.get(MESSAGE_HEAD..).unwrap_or_default()
    }

    /// Looks at the frame at the start of `input`.
    pub(super) fn hear(&mut self, input: &[u8], out: &mut Vec<u8>) -> Reply {
        let Some(&[a, b, c, kind, flags, s1, s2, s3, s4]) = input.first_chunk::<FRAME_HEAD>() else {
            return Reply::More;
        };
        let used = FRAME_HEAD + (usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c));
        let Some(payload) = input.get(FRAME_HEAD..used) else {
            return Reply::More;
        };
        let stream = u32::from_be_bytes([s1, s2, s3, s4]);
        match kind {
            SETTINGS if flags & ACKNOWLEDGE == 0 => frame(out, SETTINGS, ACKNOWLEDGE, 0, &[]),
            PING if flags & ACKNOWLEDGE == 0 => frame(out, PING, ACKNOWLEDGE, 0, payload),
            GO_AWAY => return Reply::Ended(used, false),
            DATA if stream == self.stream => {
                if !self.has_message {
                    self.message.clear();
                }
                self.has_message = true;
                self.message.extend_from_slice(payload);
            }
            RESET if stream == self.stream => return Reply::Ended(used, false),
            _ => {}
        }
        let ends = matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 && stream == self.stream;
        if ends {
            Reply::Ended(used, self.has_message)
        } else {
            Reply::Part(used)
        }
    }
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    frame_head(out, payload.len(), kind, flags, stream);
    out.extend_from_slice(payload);
}

fn frame_head(out: &mut Vec<u8>, length: usize, kind: u8, flags: u8, stream: u32) {
    let [_, a, b, c] = u32::try_from(length).unwrap_or(0).to_be_bytes();
    out.extend_from_slice(&[a, b, c, kind, flags]);
    int(out, stream);
}

fn patch_length(out: &mut [u8], start: usize, length: usize) {
    let [_, a, b, c] = u32::try_from(length).unwrap_or(0).to_be_bytes();
    if let Some(place) = out.get_mut(start..start + 3) {
        place.copy_from_slice(&[a, b, c]);
    }
}

/// A block of header fields (RFC 7541) without indexing: numbers name entries of the static table.
fn header_block(out: &mut Vec<u8>, path: &str) {
    // `:method: POST` and `:scheme: http` are in the table as they are.
    out.extend_from_slice(&[0x83, 0x86]);
    // `:path`, `:authority` and `content-type` have their names in the table; 15 and above takes a second byte.
    literal(out, &[0x04], path);
    literal(out, &[0x01], "localhost");
    literal(out, &[0x0f, 31 - 15], "application/grpc");
    out.push(0);
    text(out, "te");
    text(out, "trailers");
}

fn literal(out: &mut Vec<u8>, name: &[u8], value: &str) {
    out.extend_from_slice(name);
    text(out, value);
}

/// Plain text of less than 127 bytes.
fn text(out: &mut Vec<u8>, text: &str) {
    out.push(u8::try_from(text.len()).unwrap_or(0));
    out.extend_from_slice(text.as_bytes());
}
