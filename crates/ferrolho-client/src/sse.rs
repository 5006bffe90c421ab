//! Reading server-sent events, as the WHATWG's HTML standard has them (section 9.2.6).

use crate::transport::Failure;

/// The most bytes that one event may have: a lock with the longest names and metadata, and room.
const MAX_EVENT_BYTES: usize = 64 << 10;

/// One event of the stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    /// Its type; empty for an ordinary one.
    pub(crate) event: String,
    pub(crate) data: String,
}

/// Takes the stream in pieces, as they come, and gives out events.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// What came after the last whole line.
    rest: Vec<u8>,
    message: Message,
    has_data: bool,
    last_id: Option<String>,
}

impl Reader {
    /// The id to resume from: that of the last event that was given out, or that the stream set without one.
    pub(crate) fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// Takes one piece and gives out the events that it completes.
    pub(crate) fn take(&mut self, piece: &[u8]) -> Result<Vec<(Message, Option<String>)>, Failure> {
        let mut messages = Vec::new();
        self.rest.extend_from_slice(piece);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches(['\n', '\r']);
            if line.is_empty() {
                messages.extend(self.finish());
            } else {
                self.line(line);
            }
        }
        if self.rest.len() + self.message.data.len() > MAX_EVENT_BYTES {
            return Err(Failure::unclear(format!(
                "an event of more than {MAX_EVENT_BYTES} bytes"
            )));
        }
        Ok(messages)
    }

    fn line(&mut self, line: &str) {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.message.event),
            "data" => {
                if self.has_data {
                    self.message.data.push('\n');
                }
                self.has_data = true;
                self.message.data.push_str(value);
            }
            "id" if !value.contains('\0') => self.last_id = Some(value.to_owned()),
            // Comments (an empty field), `retry`, and what the future may bring.
            _ => {}
        }
    }

    fn finish(&mut self) -> Option<(Message, Option<String>)> {
        let message = std::mem::take(&mut self.message);
        std::mem::take(&mut self.has_data).then(|| (message, self.last_id.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_whole_however_they_are_cut() {
        let text = ": hello\nid: 7-1\nevent: acquired\ndata: {\"a\":\ndata: 1}\n\n:\n\nid:7-2\r\ndata:x\r\n\r\nid: 7-3\n\n";
        let whole = Reader::default().take(text.as_bytes()).unwrap();
        assert_eq!(whole.len(), 2);
        assert_eq!(whole[0].0.event, "acquired");
        assert_eq!(whole[0].0.data, "{\"a\":\n1}");
        assert_eq!(whole[0].1.as_deref(), Some("7-1"));
        assert_eq!(
            (whole[1].0.data.as_str(), whole[1].1.as_deref()),
            ("x", Some("7-2"))
        );

        let mut reader = Reader::default();
        let mut pieces = Vec::new();
        for byte in text.as_bytes() {
            pieces.extend(reader.take(&[*byte]).unwrap());
        }
        assert_eq!(pieces, whole);
        assert_eq!(reader.last_id(), Some("7-3"));
    }

    /// However the stream is broken, and wherever the network cuts it, the events are the same.
    #[test]
    fn a_broken_stream_is_read_alike_however_it_is_cut() {
        use ferrolho_testkit::fuzz::{broken, try_all};
        use proptest::prelude::*;

        const STREAMS: &[&str] = &[
            "retry: 1000\n\nid: 1-2-0\ndata: {\"kind\":\"acquired\"}\n\n: alive\n\nid: 1-3-0\n\n",
            "event: reset\ndata: {}\n\nid: 1-4-0\ndata: a\ndata: b\n\n",
        ];
        let inputs = (broken(STREAMS), prop::collection::vec(1..40usize, 1..8));
        try_all(1_000, &inputs, |(stream, cuts)| {
            let whole = Reader::default().take(&stream);
            let mut reader = Reader::default();
            let (mut pieces, mut rest, mut cuts) = (Vec::new(), stream.as_slice(), cuts.iter().cycle());
            while !rest.is_empty() {
                let cut = cuts.next().copied().unwrap_or(1).min(rest.len());
                let (piece, behind) = rest.split_at(cut);
                match reader.take(piece) {
                    Ok(some) => pieces.extend(some),
                    Err(_) => return Ok(()),
                }
                rest = behind;
            }
            prop_assert_eq!(
                pieces,
                whole.map_err(|_| TestCaseError::fail("refused when whole"))?
            );
            Ok(())
        });
    }

    #[test]
    fn an_endless_line_is_refused() {
        let mut reader = Reader::default();
        assert!(reader.take(&vec![b'x'; MAX_EVENT_BYTES + 1]).is_err());
    }
}
