// SPDX-License-Identifier: Apache-2.0
//! A small blocking client over hyper: one connection a call.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::HeaderMap;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The JSON of a good answer.
    #[track_caller]
    pub(crate) fn json(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.header("content-type"), "application/json");
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The problem document of an error.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.header("content-type"), "application/problem+json");
        let problem: Value = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(problem["status"], status);
        assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()));
        problem
    }

    /// The `field` of an error.
    #[track_caller]
    pub(crate) fn field(&self, status: u16) -> String {
        self.problem(status)["field"].as_str().unwrap_or_default().to_owned()
    }
}

/// Calls one server.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    pub(crate) tls: Option<Arc<ClientConfig>>,
    pub(crate) headers: Vec<(String, String)>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address, tls: None, headers: Vec::new() }
    }

    pub(crate) fn with(&self, name: &str, value: &str) -> Self {
        let mut client = self.clone();
        client.headers.push((name.to_owned(), value.to_owned()));
        client
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Reply {
        self.call("GET", path, "")
    }

    #[track_caller]
    pub(crate) fn call(&self, method: &str, path: &str, body: impl Into<Bytes>) -> Reply {
        self.try_call(method, path, body).expect("an answer")
    }

    /// An answer, or why there is none.
    pub(crate) fn try_call(&self, method: &str, path: &str, body: impl Into<Bytes>) -> Result<Reply, String> {
        let mut request = hyper::Request::builder().method(method).uri(path);
        if !self.headers.iter().any(|(name, _)| name == "host") {
            request = request.header("host", self.address.to_string());
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body.into())).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let stream = TcpStream::connect(self.address).await.map_err(|error| error.to_string())?;
            let Some(tls) = &self.tls else {
                return exchange(stream, request).await;
            };
            let name = ServerName::try_from("localhost").unwrap();
            let stream = TlsConnector::from(Arc::clone(tls)).connect(name, stream).await;
            exchange(stream.map_err(|error| error.to_string())?, request).await
        })
    }
}

async fn exchange<S>(stream: S, request: hyper::Request<Full<Bytes>>) -> Result<Reply, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let text = |error: hyper::Error| error.to_string();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(text)?;
    tokio::spawn(connection);
    let (parts, body) = sender.send_request(request).await.map_err(text)?.into_parts();
    Ok(Reply {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body: body.collect().await.map_err(text)?.to_bytes().to_vec(),
    })
}
