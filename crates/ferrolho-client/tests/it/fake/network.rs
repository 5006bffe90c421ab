//! Between the network and the rules: one request, and what happens to it on its way.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;

use super::locks::{self, Ask, respond};
use super::{Act, Fault, Seen, Shared, forward};

pub(super) async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            return;
        };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            shared.state.lock().unwrap().connections += 1;
            let service = service_fn(|request| serve(Arc::clone(&shared), request));
            // How a connection ends is the client's business.
            let _ended = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
            shared.state.lock().unwrap().connections -= 1;
        });
    }
}

/// The connection is to break.
#[derive(Debug)]
struct Break;

impl std::fmt::Display for Break {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("broken on purpose")
    }
}

impl std::error::Error for Break {}

type Answer = Result<Response<Full<Bytes>>, Break>;

async fn serve(shared: Arc<Shared>, request: Request<Incoming>) -> Answer {
    thawed(&shared).await;
    let method = request.method().as_str().to_owned();
    let path = request.uri().path().to_owned();
    let header = request.headers().get("idempotency-key");
    let key = header.map(|key| key.to_str().unwrap().to_owned());
    let (head, body) = request.into_parts();
    let bytes = body.collect().await.map_err(|_| Break)?.to_bytes();
    let body: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    let (act, name) = parse(&method, &path);
    let ask = Ask {
        act,
        name,
        body,
        key,
        head,
        bytes,
    };
    let fault = {
        let mut state = shared.state.lock().unwrap();
        state.seen.push(Seen {
            act,
            at: Instant::now(),
            body: ask.body.clone(),
            key: ask.key.clone(),
        });
        match &state.cut_off {
            Some(owner) if ask.body["owner"] == owner.as_str() => Some(Fault::Swallow),
            _ => state.next_fault(act),
        }
    };
    let answer = match fault {
        None => carry_out(&shared, &ask).await?,
        Some(Fault::DropRequest) => return Err(Break),
        Some(Fault::DropAnswer) => {
            let _lost = carry_out(&shared, &ask).await;
            return Err(Break);
        }
        Some(Fault::Swallow) => std::future::pending().await,
        Some(Fault::DelayRequest(delay)) => {
            let shared = Arc::clone(&shared);
            let late = tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                carry_out(&shared, &ask).await
            });
            late.await.unwrap()?
        }
        Some(Fault::DelayAnswer(delay)) => {
            let answer = carry_out(&shared, &ask).await?;
            tokio::time::sleep(delay).await;
            answer
        }
        Some(Fault::Double) => {
            let _first = carry_out(&shared, &ask).await;
            carry_out(&shared, &ask).await?
        }
        Some(Fault::Answer(status, body)) => respond(status, &body),
    };
    thawed(&shared).await;
    Ok(answer)
}

/// What comes of a request that arrived.
async fn carry_out(shared: &Arc<Shared>, ask: &Ask) -> Answer {
    match shared.upstream {
        Some(upstream) => forward::forward(upstream, ask).await.map_err(|_| Break),
        None => Ok(locks::carry_out(shared, ask).await),
    }
}

async fn thawed(shared: &Shared) {
    let mut frozen = shared.frozen.subscribe();
    // The sender is in `shared`.
    let _thawed = frozen.wait_for(|frozen| !frozen).await;
}

fn parse(method: &str, path: &str) -> (Act, String) {
    let mut parts = path.trim_start_matches('/').split('/');
    let (first, name, last) = (parts.next(), parts.next().unwrap_or_default(), parts.next());
    let name = percent_decode(name);
    let act = match (method, first, last) {
        ("POST", Some("locks"), None) => Act::Acquire,
        ("GET", Some("locks"), None) => Act::Find,
        ("POST", Some("locks"), Some("renew")) => Act::Renew,
        ("POST", Some("owners"), Some("renew")) => Act::RenewOwner,
        ("POST", Some("locks"), Some("release")) => Act::Release,
        _ => Act::Other,
    };
    (act, name)
}

fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        if *byte == b'%' {
            let hex = std::str::from_utf8(&after[..2]).unwrap();
            bytes.push(u8::from_str_radix(hex, 16).unwrap());
            rest = &after[2..];
        } else {
            bytes.push(*byte);
            rest = after;
        }
    }
    String::from_utf8(bytes).unwrap()
}
