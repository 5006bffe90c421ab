//! A few plain requests outside the measured load: to fill a store, and to ask how it stands.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, anyhow, bail};

use crate::wire::{TTL_SECONDS, http};

/// How many locks are taken with one request: the most that the service allows.
const SET: u32 = 32;
/// How many connections fill at a time.
const CONNECTIONS: u32 = 32;

/// Takes the locks with these numbers.
pub(crate) fn fill(address: SocketAddr, numbers: std::ops::Range<u32>) -> Result<()> {
    let sets: Vec<u32> = numbers.clone().step_by(SET as usize).collect();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..CONNECTIONS as usize)
            .map(|worker| {
                let mine = sets.iter().skip(worker).step_by(CONNECTIONS as usize).copied();
                let end = numbers.end;
                scope.spawn(move || {
                    let mut stream = connect(address)?;
                    for first in mine {
                        take(&mut stream, first..end.min(first + SET))?;
                    }
                    anyhow::Ok(())
                })
            })
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| anyhow!("a filler panicked"))?)
    })
}

fn take(stream: &mut TcpStream, numbers: std::ops::Range<u32>) -> Result<()> {
    let mut body = String::from("{\"resources\":[");
    for (place, number) in numbers.enumerate() {
        let comma = if place == 0 { "" } else { "," };
        let _ = write!(body, "{comma}\"{}\"", name(number));
    }
    let _ = write!(body, "],\"owner\":\"keeper\",\"ttl_seconds\":{TTL_SECONDS}}}");
    let answer = ask(stream, "POST", "/locks", body.as_bytes())?;
    if !answer.1.starts_with(b"{\"acquired\":true") {
        bail!(
            "a set was not granted: {} {}",
            answer.0,
            String::from_utf8_lossy(&answer.1)
        );
    }
    Ok(())
}

/// The name of a stored lock.
fn name(number: u32) -> String {
    format!("stored-{number:010}")
}

/// Whether a stored lock is there.
pub(crate) fn is_held(address: SocketAddr, number: u32) -> Result<bool> {
    let (status, _) = ask(
        &mut connect(address)?,
        "GET",
        &format!("/locks/{}", name(number)),
        b"",
    )?;
    Ok(status == 200)
}

/// How many wait for a resource.
pub(crate) fn waiters(address: SocketAddr, resource: &str) -> Result<usize> {
    let path = format!("/locks/{resource}/waiters");
    let (_, body) = ask(&mut connect(address)?, "GET", &path, b"")?;
    Ok(String::from_utf8_lossy(&body).matches("\"since\"").count())
}

fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A request and its answer: status and body.
fn ask(stream: &mut TcpStream, method: &str, path: &str, body: &[u8]) -> Result<(u16, Vec<u8>)> {
    let mut out = Vec::new();
    http::request(&mut out, method, [path.as_bytes(), b"", b""], "", body);
    stream.write_all(&out)?;
    let mut input = Vec::new();
    let mut piece = [0; 16_384];
    loop {
        let count = stream.read(&mut piece).context("no answer")?;
        if count == 0 {
            bail!("the server closed the connection");
        }
        input.extend_from_slice(piece.get(..count).unwrap_or_default());
        if let Some(answer) = http::response(&input) {
            return Ok((answer.status, answer.body.to_vec()));
        }
    }
}
