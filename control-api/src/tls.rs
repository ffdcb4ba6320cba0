// SPDX-License-Identifier: Apache-2.0
//! TLS 1.2 and 1.3 by rustls with the `ring` provider, from PEM files.
//!
//! HTTP/1.1 only is offered, as the server speaks nothing else: what a slow client can hold is then one request a
//! connection.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::server::StartError;

/// The keys that name the files.
const CERT: &str = "api.tls_cert";
const KEY: &str = "api.tls_key";

/// Reads both files and checks that they belong together.
pub(crate) fn acceptor(cert: &Path, key: &Path) -> Result<TlsAcceptor, StartError> {
    let chain = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| fail(CERT, cert, &describe(&error, "certificate")))?;
    if chain.is_empty() {
        return Err(fail(CERT, cert, "it holds no PEM certificate"));
    }
    let secret = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| fail(KEY, key, &describe(&error, "private key")))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| fail(CERT, cert, &error.to_string()))?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|error| fail(KEY, key, &format!("it does not fit {}: {error}", cert.display())))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn fail(key: &'static str, path: &Path, reason: &str) -> StartError {
    StartError::Tls { key, path: PathBuf::from(path), reason: reason.to_owned() }
}

fn describe(error: &pem::Error, what: &str) -> String {
    match error {
        pem::Error::NoItemsFound => format!("it holds no PEM {what}"),
        pem::Error::Io(error) => error.to_string(),
        other => format!("it is not good PEM: {other}"),
    }
}
