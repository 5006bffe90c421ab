//! As much of HTTP/1.1 as a client of a JSON service needs: requests with a length, answers with a length.

use std::io::Write as _;

/// A whole response at the start of the input.
pub(crate) struct Response<'a> {
    /// How many bytes it takes.
    pub(crate) length: usize,
    /// The status code.
    pub(crate) status: u16,
    /// The body.
    pub(crate) body: &'a [u8],
}

/// Appends a request to `out`. The body is JSON; the head has what every usual client sends and no more.
pub(crate) fn request(out: &mut Vec<u8>, method: &str, path: [&[u8]; 3], headers: &str, body: &[u8]) {
    out.extend_from_slice(method.as_bytes());
    out.push(b' ');
    for part in path {
        out.extend_from_slice(part);
    }
    out.extend_from_slice(b" HTTP/1.1\r\nhost: localhost\r\n");
    out.extend_from_slice(headers.as_bytes());
    if !body.is_empty() {
        // Writing to a vector cannot fail.
        let _ = write!(
            out,
            "content-type: application/json\r\ncontent-length: {}\r\n",
            body.len()
        );
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
}

/// The response at the start of `input`; nothing while it is not whole. A head that is not HTTP has status 0.
pub(crate) fn response(input: &[u8]) -> Option<Response<'_>> {
    let end = input.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = input.get(..end)?;
    let status = match head {
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', _, b' ', a, b, c, ..] => {
            number(&[*a, *b, *c]).unwrap_or(0)
        }
        _ => 0,
    };
    let length = end + content_length(head);
    let body = input.get(end..length)?;
    Some(Response {
        length,
        status: u16::try_from(status).unwrap_or(0),
        body,
    })
}

fn content_length(head: &[u8]) -> usize {
    const NAME: &[u8] = b"content-length:";
    head.split(|byte| *byte == b'\n')
        .find(|line| {
            line.get(..NAME.len())
                .is_some_and(|name| name.eq_ignore_ascii_case(NAME))
        })
        .and_then(|line| number(line.get(NAME.len()..)?.trim_ascii()))
        .unwrap_or(0)
}

fn number(digits: &[u8]) -> Option<usize> {
    digits.iter().try_fold(0_usize, |sum, digit| {
        let digit = digit.is_ascii_digit().then(|| usize::from(digit - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_whole_when_its_body_is() {
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nx: y\r\n\r\n{}HTTP/1.1 204";
        assert!(response(&bytes[..bytes.len() - 13]).is_none());
        let whole = response(bytes).unwrap();
        assert_eq!((whole.status, whole.body), (200, &b"{}"[..]));
        assert_eq!(&bytes[whole.length..], b"HTTP/1.1 204");
    }

    #[test]
    fn no_length_is_no_body() {
        let whole = response(b"HTTP/1.1 204 No Content\r\ncache-control: no-store\r\n\r\n").unwrap();
        assert_eq!((whole.status, whole.body.len()), (204, 0));
    }
}
