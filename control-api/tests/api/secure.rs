// SPDX-License-Identifier: Apache-2.0
//! Token and TLS.

use std::path::PathBuf;
use std::sync::Arc;

use control_api::{Options, Server, StartError};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::client::Client;
use crate::fake::Fake;
use crate::rig::{Folder, Rig, options, start};

const TOKEN: &str = "correct-horse-battery-staple";

struct Files {
    folder: Folder,
    cert: PathBuf,
    key: PathBuf,
    token: PathBuf,
    client: Arc<ClientConfig>,
}

impl Files {
    fn new() -> Self {
        let folder = Folder::new();
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (cert, key, token) = (folder.path("cert.pem"), folder.path("key.pem"), folder.path("token"));
        std::fs::write(&cert, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        std::fs::write(&token, format!("{TOKEN}\n")).unwrap();
        let client = Arc::new(trusting(made.cert.der()));
        Self { folder, cert, key, token, client }
    }

    fn protect(&self, options: &mut Options) {
        options.tls_cert = Some(self.cert.clone());
        options.tls_key = Some(self.key.clone());
        options.token_file = Some(self.token.clone());
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

fn trusting(cert: &CertificateDer<'static>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(cert.clone()).unwrap();
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

fn refusal(change: impl FnOnce(&mut Options)) -> StartError {
    let (folder, mut options) = (Folder::new(), options());
    change(&mut options);
    start(options, &Arc::new(Fake::default()), &folder.path("sluice.db")).unwrap_err()
}

#[test]
fn with_a_token_v1_and_metrics_need_it() {
    let files = Files::new();
    let rig = Rig::with(|options| options.token_file = Some(files.token.clone()));
    for path in ["/v1/subscribers", "/metrics", "/v1/nothing", "/v1/events"] {
        let reply = rig.client.get(path);
        assert_eq!(reply.field(401), "authorization", "{path}");
        assert_eq!(reply.header("www-authenticate"), "Bearer");
        assert_eq!(rig.client.with("authorization", "Bearer wrong").get(path).status, 401);
    }
    let known = rig.client.with("authorization", &format!("Bearer {TOKEN}"));
    assert_eq!(known.get("/v1/subscribers").status, 200);
    assert_eq!(known.get("/metrics").status, 200);
    known.get("/v1/nothing").problem(404);
    for path in ["/healthz", "/readyz", "/"] {
        assert_eq!(rig.client.get(path).status, 200, "{path}");
    }
}

#[test]
fn tls_serves_those_who_speak_it_and_no_others() {
    let files = Files::new();
    let rig = Rig::with(|options| files.protect(options));
    let secure = Client { tls: Some(Arc::clone(&files.client)), ..rig.client.clone() };
    assert_eq!(secure.get("/healthz").status, 200);
    assert_eq!(secure.get("/v1/top").status, 401);
    assert_eq!(secure.with("authorization", &format!("Bearer {TOKEN}")).get("/v1/top").status, 200);
    assert!(rig.client.try_call("GET", "/healthz", "").is_err());
    assert_eq!(secure.get("/healthz").status, 200);
}

#[test]
fn beyond_loopback_it_listens_only_with_token_and_tls() {
    let files = Files::new();
    for listen in ["0.0.0.0:0", "[::]:0", "[::ffff:0.0.0.0]:0"] {
        let error = refusal(|options| options.listen = listen.parse().unwrap()).to_string();
        assert!(error.ends_with("missing: token_file, tls_cert, tls_key"), "{error}");
    }
    let error = refusal(|options| {
        files.protect(options);
        options.listen = "0.0.0.0:0".parse().unwrap();
        options.token_file = None;
    });
    assert!(error.to_string().ends_with("missing: token_file"), "{error}");
    let rig = Rig::with(|options| {
        files.protect(options);
        options.listen = "0.0.0.0:0".parse().unwrap();
    });
    let address = format!("127.0.0.1:{}", rig.client.address.port()).parse().unwrap();
    let client = Client { address, tls: Some(Arc::clone(&files.client)), ..rig.client.clone() };
    assert_eq!(client.get("/healthz").status, 200);
}

/// A change that spoils the options, the file at fault, words of the error.
type Case<'a> = (Box<dyn Fn(&mut Options) + 'a>, &'a PathBuf, &'a str);

#[test]
fn bad_files_are_named_with_what_is_wrong() {
    let files = Files::new();
    let other = Files::new();
    let missing = files.folder.path("missing");
    let empty = files.write("empty", "\n");
    let spaced = files.write("spaced", "two words");
    let short = files.write("short", "fifteen-letters");
    let cases: [Case; 10] = [
        (Box::new(|options| options.token_file = Some(missing.clone())), &missing, "No such file"),
        (Box::new(|options| options.token_file = Some(empty.clone())), &empty, "empty"),
        (Box::new(|options| options.token_file = Some(spaced.clone())), &spaced, "one line"),
        (
            Box::new(|options| options.token_file = Some(short.clone())),
            &short,
            "15 characters, fewer than 16",
        ),
        (Box::new(|options| options.tls_cert = Some(missing.clone())), &missing, "No such file"),
        (Box::new(|options| options.tls_cert = Some(empty.clone())), &empty, "no PEM certificate"),
        (Box::new(|options| options.tls_cert = Some(files.key.clone())), &files.key, "no PEM certificate"),
        (Box::new(|options| options.tls_key = Some(files.cert.clone())), &files.cert, "no PEM private key"),
        (Box::new(|options| options.tls_key = Some(other.key.clone())), &other.key, "api.tls_key = "),
        (Box::new(|options| options.tls_key = Some(other.key.clone())), &other.key, "does not fit"),
    ];
    for (change, path, words) in cases {
        let error = refusal(|options| {
            files.protect(options);
            change(options);
        })
        .to_string();
        assert!(error.contains(&path.display().to_string()) && error.contains(words), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let mut options = options();
    files.protect(&mut options);
    assert!(Server::check(&options).is_empty());
    (options.token_file, options.tls_cert) = (Some(short), Some(missing));
    let all: Vec<_> = Server::check(&options).iter().map(ToString::to_string).collect();
    assert!(all[0].starts_with("api.tls_cert = ") && all[1].starts_with("api.token_file = "), "{all:?}");
    assert_eq!(all.len(), 2);
    let half = refusal(|options| options.tls_cert = Some(files.cert.clone())).to_string();
    assert!(half.contains("tls_key is missing"), "{half}");
}

#[test]
fn an_address_in_use_is_named() {
    let rig = Rig::new();
    let error = refusal(|options| options.listen = rig.client.address).to_string();
    assert!(error.contains(&rig.client.address.to_string()) && error.contains("in use"), "{error}");
}

#[test]
fn a_renewed_certificate_is_shown_to_the_next_connection() {
    let (old, new) = (Files::new(), Files::new());
    let rig = Rig::with(|options| old.protect(options));
    let secure = |files: &Files| Client { tls: Some(Arc::clone(&files.client)), ..rig.client.clone() };
    assert_eq!(secure(&old).get("/healthz").status, 200);
    let mut options = options();
    new.protect(&mut options);
    rig.handle.protection().renew(&options).unwrap();
    assert_eq!(secure(&new).get("/healthz").status, 200);
    assert!(secure(&old).try_call("GET", "/healthz", "").is_err());
}
