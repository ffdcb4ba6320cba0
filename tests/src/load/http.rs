// SPDX-License-Identifier: Apache-2.0
//! HTTP/1.1 with as little of it as possible: the client shares a CPU with the server it measures.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

/// A connection that is used again and again.
pub(super) struct Connection {
    stream: TcpStream,
    host: String,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Connection {
    pub(super) fn open(host: &str) -> Result<Self> {
        let stream = TcpStream::connect(host).with_context(|| format!("no connection to {host}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_mins(2)))?;
        Ok(Self { stream, host: host.to_owned(), request: Vec::new(), answer: Vec::new() })
    }

    /// A request with a JSON body; its status and the answer's body.
    pub(super) fn call(&mut self, method: &str, path: &str, body: &str) -> Result<(u16, String)> {
        self.request.clear();
        write!(
            self.request,
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.host,
            body.len()
        )?;
        self.stream.write_all(&self.request)?;
        self.answer()
    }

    /// A POST of NDJSON whose pieces `next` gives until one is empty.
    pub(super) fn stream(&mut self, path: &str, mut next: impl FnMut() -> Vec<u8>) -> Result<(u16, String)> {
        write!(
            self.stream,
            "POST {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n",
            self.host
        )?;
        loop {
            let piece = next();
            let chunk = [format!("{:x}\r\n", piece.len()).as_bytes(), &piece, b"\r\n"].concat();
            self.stream.write_all(&chunk)?;
            if piece.is_empty() {
                return self.answer();
            }
        }
    }

    fn answer(&mut self) -> Result<(u16, String)> {
        self.answer.clear();
        let mut piece = [0; 4096];
        loop {
            let length = self.stream.read(&mut piece)?;
            if length == 0 {
                bail!("the server hung up: {}", String::from_utf8_lossy(&self.answer));
            }
            self.answer.extend_from_slice(piece.get(..length).unwrap_or_default());
            if let Some(answer) = whole(&self.answer)? {
                return Ok(answer);
            }
        }
    }
}

/// Status and body, once all is there. The server gives lengths.
fn whole(answer: &[u8]) -> Result<Option<(u16, String)>> {
    let text = std::str::from_utf8(answer)?;
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return Ok(None) };
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let length = length.with_context(|| format!("no length: {head}"))?;
    Ok((body.len() >= length).then(|| (status, body.to_owned())))
}
