// SPDX-License-Identifier: Apache-2.0
//! Who may talk to us: the bearer token, and what protects a loopback listener without one from web pages.
//!
//! Invariant: with a token, nothing under `/v1` and no `/metrics` is answered without it, known path or not; it is
//! compared in constant time. Without one the listener is on loopback, where a browser of this machine could be
//! made to call it: a foreign `Origin`, or a `Host` that is a name (DNS rebinding), is refused.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::Path;

use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri};
use subtle::ConstantTimeEq;

use crate::problem::Problem;
use crate::server::StartError;

/// Bytes of a token file at most; a path may also lead to what has no end.
const LONGEST: u64 = 4096;
/// Fewest characters of a token: shorter ones can be guessed.
const LEAST: usize = 16;

/// The bearer token. Never shown.
pub(crate) struct Token(Vec<u8>);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Token {
    /// Reads the one line of the file.
    pub(crate) fn read(path: &Path) -> Result<Self, StartError> {
        let fail = |reason: &str| StartError::Token { path: path.to_owned(), reason: reason.to_owned() };
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text));
        read.map_err(|error| fail(&error.to_string()))?;
        if text.len() as u64 > LONGEST {
            return Err(fail("it has more than 4096 bytes"));
        }
        let token = text.trim();
        if token.is_empty() {
            return Err(fail("it is empty"));
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(fail("it must be one line of printable ASCII without spaces"));
        }
        if token.len() < LEAST {
            let reason = format!("it has {} characters, fewer than {LEAST}", token.len());
            return Err(fail(&reason));
        }
        warn_if_readable_by_all(path);
        Ok(Self(token.as_bytes().to_vec()))
    }

    fn admits(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().split_at_checked(7));
        given.is_some_and(|(scheme, token)| {
            scheme.eq_ignore_ascii_case(b"Bearer ") && bool::from(token.trim_ascii().ct_eq(&self.0))
        })
    }
}

fn warn_if_readable_by_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    if std::fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o004 != 0) {
        tracing::warn!(file = %path.display(), "the API token file can be read by every user of this machine");
    }
}

/// Lets a request through or says why not.
pub(crate) fn check(token: Option<&Token>, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    match token {
        Some(token) if guarded(uri.path()) && !token.admits(headers) => Err(Problem::new(
            StatusCode::UNAUTHORIZED,
            "this call needs the header `Authorization: Bearer` with the token of token_file",
        )
        .field("authorization")),
        Some(_) => Ok(()),
        None => no_web_page(headers),
    }
}

fn guarded(path: &str) -> bool {
    path == "/metrics" || path == "/v1" || path.starts_with("/v1/")
}

fn no_web_page(headers: &HeaderMap) -> Result<(), Problem> {
    let refuse = |field: &str, detail: &str| Err(Problem::new(StatusCode::FORBIDDEN, detail).field(field));
    let host = headers.get(HOST).and_then(|value| value.to_str().ok()).unwrap_or("");
    if !host.is_empty() && !is_address(host) {
        return refuse("host", "without a token only `localhost` and IP addresses are accepted as host");
    }
    let origin = headers.get(ORIGIN).map(|value| value.to_str().unwrap_or(""));
    match origin {
        Some(origin) if origin.strip_prefix("http://").or(origin.strip_prefix("https://")) != Some(host) => {
            refuse("origin", "without a token no other web page may call this API")
        }
        _ => Ok(()),
    }
}

fn is_address(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else {
        return false;
    };
    let name = authority.host();
    name.eq_ignore_ascii_case("localhost") || name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (axum::http::HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    fn status(token: Option<&Token>, path: &str, pairs: &[(&'static str, &str)]) -> Option<u16> {
        check(token, &path.parse().unwrap(), &headers(pairs)).err().map(|problem| problem.status.as_u16())
    }

    #[test]
    fn of_a_token_file_without_end_little_is_read() {
        let error = Token::read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(error.contains("/dev/zero") && error.contains("more than 4096 bytes"), "{error}");
        let path = std::env::temp_dir().join(format!("sluice-token-{}", std::process::id()));
        for (bytes, good) in [(4096, true), (4097, false)] {
            std::fs::write(&path, "t".repeat(bytes)).unwrap();
            assert_eq!(Token::read(&path).is_ok(), good, "{bytes}");
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_token_guards_v1_and_metrics_and_nothing_else() {
        let token = Token(b"0123456789abcdef".to_vec());
        for path in ["/v1", "/v1/subscribers", "/v1/no-such", "/metrics"] {
            assert_eq!(status(Some(&token), path, &[]), Some(401), "{path}");
            for wrong in ["Bearer", "Bearer ", "Bearer 0123456789abcdeF", "Basic 0123456789abcdef"] {
                assert_eq!(status(Some(&token), path, &[("authorization", wrong)]), Some(401), "{wrong}");
            }
            for right in ["Bearer 0123456789abcdef", "bearer 0123456789abcdef"] {
                assert_eq!(status(Some(&token), path, &[("authorization", right)]), None);
            }
        }
        for path in ["/", "/healthz", "/readyz", "/v1x"] {
            assert_eq!(status(Some(&token), path, &[]), None, "{path}");
        }
    }

    #[test]
    fn without_a_token_web_pages_of_others_are_refused() {
        for host in ["127.0.0.1:8480", "localhost", "LOCALHOST:1", "[::1]:8480"] {
            assert_eq!(status(None, "/v1/top", &[("host", host)]), None, "{host}");
            let own = format!("http://{host}");
            assert_eq!(status(None, "/v1/top", &[("host", host), ("origin", &own)]), None);
            for foreign in ["null", "http://example.net", "http://127.0.0.1:9"] {
                assert_eq!(status(None, "/", &[("host", host), ("origin", foreign)]), Some(403));
            }
        }
        for host in ["rebind.example", "127.0.0.1.example:80", "localhost.example"] {
            assert_eq!(status(None, "/v1/top", &[("host", host)]), Some(403), "{host}");
        }
    }
}
