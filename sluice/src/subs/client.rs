// SPDX-License-Identifier: Apache-2.0
//! Calls to the HTTP interface: JSON in and out, errors as sentences.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use serde_json::Value;
use ureq::http::{Method, Request, Response, StatusCode};
use ureq::tls::{PemItem, RootCerts, TlsConfig};
use ureq::{Agent, Body, SendBody};

use super::Connection;

/// The shaper cannot be reached, or takes no calls now: another time it may.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Away(String);

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(5);
/// How long an ordinary call may take, and a bulk load of a million records.
const CALL: Duration = Duration::from_secs(30);
const BULK: Duration = Duration::from_mins(10);
/// How long a stream is read before it is asked for anew, so that a dead connection is found.
const STREAM: Duration = Duration::from_mins(10);
/// Largest answer that is read: a page of records or the errors of a bulk load.
const MOST_ANSWER: u64 = 256 << 20;

/// A shaper's interface.
pub(crate) struct Client {
    agent: Agent,
    base: String,
    authorization: Option<String>,
}

/// An answer of any status.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Value,
}

impl Client {
    /// Reads the token and the certificate; calls nobody yet.
    pub(crate) fn new(connection: &Connection) -> anyhow::Result<Self> {
        let base = connection.api.trim_end_matches('/').to_owned();
        if !base.starts_with("http://") && !base.starts_with("https://") {
            bail!("--api {base}: the address begins with http:// or https://");
        }
        let token = connection.token_file.as_ref().map(|path| {
            let text = std::fs::read_to_string(path);
            text.with_context(|| format!("token file {} cannot be read", path.display()))
        });
        let authorization = token.transpose()?.map(|token| format!("Bearer {}", token.trim()));
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // A shaper is reached directly; a proxy in the environment is for the web.
            .proxy(None)
            .max_redirects(0)
            .timeout_connect(Some(CONNECT))
            .tls_config(TlsConfig::builder().root_certs(roots(connection)?).build())
            .build();
        Ok(Self { agent: Agent::new_with_config(config), base, authorization })
    }

    pub(crate) fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.plain(Method::GET, path, SendBody::none())
    }

    /// An answer of any kind, as text; `patience` is for all of it, and what came by then is good.
    pub(crate) fn text(&self, path: &str, patience: Duration) -> anyhow::Result<String> {
        let request = self.request(Method::GET, path, "application/json", SendBody::none(), patience)?;
        let mut response = self.agent.run(request).map_err(|error| self.unreachable(&error))?;
        let mut text = Vec::new();
        let read = response.body_mut().as_reader().take(MOST_ANSWER).read_to_end(&mut text);
        let status = response.status();
        if !status.is_success() {
            bail!("HTTP {}: {}", status.as_u16(), String::from_utf8_lossy(&text).trim());
        }
        // a stream never ends by itself
        let rest = read.err().map(|error| format!("\n(broke off: {error})\n")).unwrap_or_default();
        Ok(String::from_utf8_lossy(&text).into_owned() + &rest)
    }

    /// As `get`; `None` where there is no such thing.
    pub(crate) fn find(&self, path: &str) -> anyhow::Result<Option<Value>> {
        let answer = self.call(Method::GET, path, "application/json", SendBody::none(), CALL)?;
        match answer.status {
            StatusCode::NOT_FOUND | StatusCode::NOT_IMPLEMENTED => Ok(None),
            status if status.is_success() => Ok(Some(answer.body)),
            _ => Err(answer.refusal()),
        }
    }

    /// A body without end, read as it comes until the connection is ten minutes old.
    pub(crate) fn stream(&self, path: &str) -> anyhow::Result<impl Read + 'static> {
        let request = self.request(Method::GET, path, "application/json", SendBody::none(), STREAM)?;
        let response = self.agent.run(request).map_err(|error| self.unreachable(&error))?;
        ensure!(response.status().is_success(), "HTTP {}", response.status().as_u16());
        Ok(response.into_body().into_reader())
    }

    pub(super) fn put(&self, path: &str, record: &Value) -> anyhow::Result<Value> {
        let text = record.to_string();
        self.plain(Method::PUT, path, SendBody::from_reader(&mut text.as_bytes()))
    }

    pub(super) fn patch(&self, path: &str, changes: &Value) -> anyhow::Result<Value> {
        let text = changes.to_string();
        self.plain(Method::PATCH, path, SendBody::from_reader(&mut text.as_bytes()))
    }

    pub(super) fn delete(&self, path: &str) -> anyhow::Result<()> {
        self.plain(Method::DELETE, path, SendBody::none()).map(drop)
    }

    /// Sends lines as they come; the answer may be a refusal.
    pub(super) fn bulk(&self, path: &str, lines: &mut dyn Read) -> anyhow::Result<Answer> {
        self.call(Method::POST, path, "application/x-ndjson", SendBody::from_reader(&mut Lent(lines)), BULK)
    }

    /// A call whose only good answer is 2xx.
    fn plain(&self, method: Method, path: &str, body: SendBody<'_>) -> anyhow::Result<Value> {
        let answer = self.call(method, path, "application/json", body, CALL)?;
        if answer.status.is_success() { Ok(answer.body) } else { Err(answer.refusal()) }
    }

    fn call(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: SendBody<'_>,
        patience: Duration,
    ) -> anyhow::Result<Answer> {
        let request = self.request(method, path, content_type, body, patience)?;
        let response = self.agent.run(request).map_err(|error| self.unreachable(&error))?;
        answer(response)
    }

    fn request<'b>(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: SendBody<'b>,
        patience: Duration,
    ) -> anyhow::Result<Request<SendBody<'b>>> {
        let uri = format!("{}{path}", self.base);
        let mut request = Request::builder().method(method).uri(&uri).header("content-type", content_type);
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        let request = request.body(body).with_context(|| format!("{uri} is not an address"))?;
        Ok(self.agent.configure_request(request).timeout_global(Some(patience)).build())
    }

    fn unreachable(&self, error: &ureq::Error) -> anyhow::Error {
        let text = error.to_string();
        let refused =
            matches!(error, ureq::Error::Io(io) if io.kind() == std::io::ErrorKind::ConnectionRefused);
        let hint = if refused {
            "; is the shaper running, and is --api its address?"
        } else if text.contains("CaUsedAsEndEntity") {
            // what `openssl req -x509` makes unless told otherwise
            "; its certificate says CA:TRUE, make it with -addext basicConstraints=critical,CA:FALSE"
        } else if text.contains("certificate") {
            "; --ca-file names the certificate to trust"
        } else {
            ""
        };
        Away(format!("{} does not answer: {text}{hint}", self.base)).into()
    }
}

impl Answer {
    /// Why not, in the words of the shaper (RFC 9457).
    pub(super) fn refusal(&self) -> anyhow::Error {
        let text = |name: &str| self.body.get(name).and_then(Value::as_str);
        let why = text("detail").or_else(|| text("title")).unwrap_or("no reason given");
        let hint =
            if self.status == StatusCode::UNAUTHORIZED { "; --token-file names the token" } else { "" };
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            return Away(format!("{why} (HTTP 503)")).into();
        }
        match text("field").filter(|field| !why.contains(field)) {
            Some(field) => anyhow!("{field}: {why} (HTTP {}){hint}", self.status.as_u16()),
            None => anyhow!("{why} (HTTP {}){hint}", self.status.as_u16()),
        }
    }
}

fn answer(mut response: Response<Body>) -> anyhow::Result<Answer> {
    let status = response.status();
    let bytes = response.body_mut().with_config().limit(MOST_ANSWER).read_to_vec();
    let bytes = bytes.context("the answer broke off")?;
    let body = match serde_json::from_slice(&bytes) {
        Ok(body) => body,
        Err(_) if bytes.is_empty() || !status.is_success() => Value::Null,
        Err(error) => return Err(error).context("the answer is not JSON: is this a Sluice interface?"),
    };
    Ok(Answer { status, body })
}

fn roots(connection: &Connection) -> anyhow::Result<RootCerts> {
    let Some(path) = &connection.ca_file else {
        return Ok(RootCerts::WebPki);
    };
    let pem =
        std::fs::read(path).with_context(|| format!("certificate {} cannot be read", path.display()))?;
    let mut certificates = Vec::new();
    for item in ureq::tls::parse_pem(&pem) {
        let item = item.with_context(|| format!("{} is not a PEM file", path.display()))?;
        if let PemItem::Certificate(certificate) = item {
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() {
        bail!("{} has no certificate in it", path.display());
    }
    Ok(RootCerts::Specific(Arc::new(certificates)))
}

/// A reader behind a reference, sized as the library wants it.
struct Lent<'a>(&'a mut dyn Read);

impl Read for Lent<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer)
    }
}

/// Percent-encodes all but the unreserved characters (RFC 3986 section 2.3).
pub(crate) fn encode(text: &str) -> String {
    let each = text.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    });
    each.collect()
}
