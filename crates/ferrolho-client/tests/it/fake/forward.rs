//! Passing a request on to a real server, and its answer back.
//!
//! A connection for each request: when the caller leaves, what is passed on for it ends too.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::locks::Ask;

type Failed = Box<dyn std::error::Error + Send + Sync>;

pub(super) async fn forward(upstream: SocketAddr, ask: &Ask) -> Result<Response<Full<Bytes>>, Failed> {
    let stream = TcpStream::connect(upstream).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let mut request = Request::new(Full::new(ask.bytes.clone()));
    *request.method_mut() = ask.head.method.clone();
    *request.uri_mut() = ask.head.uri.clone();
    *request.headers_mut() = ask.head.headers.clone();
    let exchange = async {
        let (head, body) = sender.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Response::from_parts(head, Full::new(body)))
    };
    tokio::pin!(exchange);
    tokio::select! {
        answer = &mut exchange => answer,
        ended = connection => {
            ended?;
            exchange.await
        }
    }
}
