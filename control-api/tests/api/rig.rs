// SPDX-License-Identifier: Apache-2.0
//! A server on loopback with a folder of its own, both gone at the end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use control_api::{Limits, Options, Server, ServerHandle, StartError, Store};
use serde_json::{Value, json};

use crate::client::Client;
use crate::fake::Fake;

/// A folder that goes when it is dropped.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("sluice-api-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Options with an access port, and limits short enough to wait for.
pub(crate) fn options() -> Options {
    Options {
        listen: "127.0.0.1:0".parse().unwrap(),
        token_file: None,
        tls_cert: None,
        tls_key: None,
        profiles: BTreeMap::new(),
        access_ports: vec!["access".to_owned()],
        seed_parents: Vec::new(),
        seeds: Vec::new(),
        limits: Limits { drain: Duration::from_millis(500), ..Limits::default() },
        thread_start: None,
    }
}

pub(crate) fn start(options: Options, shaper: &Arc<Fake>, store: &Path) -> Result<ServerHandle, StartError> {
    Server::start(options, Arc::clone(shaper) as Arc<_>, Store::open(store)?)
}

pub(crate) struct Rig {
    pub(crate) client: Client,
    pub(crate) shaper: Arc<Fake>,
    pub(crate) handle: ServerHandle,
    pub(crate) folder: Folder,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Options)) -> Self {
        let (folder, shaper, mut options) = (Folder::new(), Arc::new(Fake::default()), options());
        change(&mut options);
        let handle = start(options, &shaper, &folder.path("sluice.db")).unwrap();
        let client = Client::new(handle.local_addr());
        Self { client, shaper, handle, folder }
    }

    /// Stops the server and starts another on the same store, with a data plane that knows nothing.
    pub(crate) fn restart(self) -> Self {
        let Self { handle, folder, .. } = self;
        handle.shutdown();
        let shaper = Arc::new(Fake::default());
        let handle = start(options(), &shaper, &folder.path("sluice.db")).unwrap();
        let client = Client::new(handle.local_addr());
        Self { client, shaper, handle, folder }
    }

    /// All records by the pages of the interface.
    pub(crate) fn all(&self) -> Vec<Value> {
        self.client.get("/v1/subscribers?limit=100000").json(200)["items"].as_array().unwrap().clone()
    }

    #[track_caller]
    pub(crate) fn put(&self, id: &str, number: u32) {
        let reply = self.client.call("PUT", &format!("/v1/subscribers/{id}"), record(id, number).to_string());
        assert!(reply.status == 200 || reply.status == 201, "{}", reply.text());
    }
}

/// A record with an address of its own.
pub(crate) fn record(id: &str, number: u32) -> Value {
    let [_, a, b, c] = number.to_be_bytes();
    json!({
        "id": id, "down_bps": 100_000_000, "up_bps": 20_000_000, "profile": "default", "parent": null,
        "match": {"ipv4": [format!("10.{a}.{b}.{c}/32")]},
    })
}

/// Whether `done` comes true within 20 s of asking ten times a second.
#[expect(clippy::disallowed_methods, reason = "the server's own timer has to run out")]
pub(crate) fn soon(done: impl Fn() -> bool) -> bool {
    (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        done()
    })
}
