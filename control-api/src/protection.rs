// SPDX-License-Identifier: Apache-2.0
//! Token and TLS of the listener, which a reload may replace: a certificate that was renewed needs no restart.
//!
//! Invariant: what is in force has passed the same checks as at start, for the address that is really listened on;
//! new ones take the place of the old ones together or not at all. Connections that are open keep their TLS session,
//! and every call is held against the token of its moment.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

use axum::http::{HeaderMap, Uri};
use tokio_rustls::TlsAcceptor;

use crate::auth::{self, Token};
use crate::options::Options;
use crate::problem::Problem;
use crate::server::StartError;
use crate::tls;

/// See the module; clones are the same.
#[derive(Clone)]
pub struct Protection(Arc<RwLock<InForce>>);

struct InForce {
    token: Option<Token>,
    tls: Option<TlsAcceptor>,
}

impl InForce {
    fn read(options: &Options) -> Result<Self, StartError> {
        exposed(options)?;
        Ok(Self { tls: acceptor(options)?, token: token(options)? })
    }
}

impl Protection {
    /// As the options say; refuses to be reached by others without token and TLS.
    pub(crate) fn new(options: &Options) -> Result<Self, StartError> {
        Ok(Self(Arc::new(RwLock::new(InForce::read(options)?))))
    }

    /// Reads the files of `options` again.
    ///
    /// # Errors
    /// Where one of them cannot be used; then nothing changes. `options.listen` must be the address in force.
    pub fn renew(&self, options: &Options) -> Result<(), StartError> {
        let new = InForce::read(options)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    /// Lets a request through or says why not.
    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        let now = self.0.read().unwrap_or_else(PoisonError::into_inner);
        auth::check(now.token.as_ref(), uri, headers)
    }

    /// What takes a new connection through its handshake.
    pub(crate) fn tls(&self) -> Option<TlsAcceptor> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).tls.clone()
    }
}

/// Everything that would keep a listener from being protected.
pub(crate) fn problems(options: &Options) -> Vec<StartError> {
    match exposed(options) {
        Ok(()) => [acceptor(options).err(), token(options).err()].into_iter().flatten().collect(),
        Err(error) => vec![error],
    }
}

fn exposed(options: &Options) -> Result<(), StartError> {
    let missing: Vec<_> = [
        ("token_file", options.token_file.is_none()),
        ("tls_cert", options.tls_cert.is_none()),
        ("tls_key", options.tls_key.is_none()),
    ]
    .into_iter()
    .filter_map(|(name, missing)| missing.then_some(name))
    .collect();
    if !is_loopback(options.listen) && !missing.is_empty() {
        return Err(StartError::Exposed { listen: options.listen, missing: missing.join(", ") });
    }
    Ok(())
}

fn is_loopback(listen: SocketAddr) -> bool {
    listen.ip().to_canonical().is_loopback()
}

fn acceptor(options: &Options) -> Result<Option<TlsAcceptor>, StartError> {
    match (&options.tls_cert, &options.tls_key) {
        (Some(cert), Some(key)) => tls::acceptor(cert, key).map(Some),
        (Some(_), None) => Err(StartError::HalfTls("tls_key")),
        (None, Some(_)) => Err(StartError::HalfTls("tls_cert")),
        (None, None) => Ok(None),
    }
}

fn token(options: &Options) -> Result<Option<Token>, StartError> {
    options.token_file.as_deref().map(Token::read).transpose()
}
