// SPDX-License-Identifier: Apache-2.0
//! `sluice run` as a service manager starts it, on two devices that deliver nothing: a notify socket, an environment,
//! a configuration that a test rewrites. No namespaces are needed.

use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::machine::wait_for;
use crate::rig::Process;
use crate::shaper::program;

static SERVICES: AtomicU32 = AtomicU32::new(0);

#[expect(clippy::disallowed_methods, reason = "what a service says bears the time at which it was said")]
fn now() -> Instant {
    Instant::now()
}

/// A message of the notify socket, and when it came.
#[derive(Clone, Debug)]
pub struct Said {
    /// When.
    pub at: Instant,
    /// Its lines.
    pub text: String,
}

/// The service manager's end of the notify socket.
#[derive(Clone)]
pub struct Manager(Arc<Mutex<Vec<Said>>>);

impl Manager {
    fn listen(path: &Path) -> Result<Self> {
        let socket = UnixDatagram::bind(path)?;
        let said = Self(Arc::default());
        let shared = said.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length) = socket.recv(&mut bytes) {
                let text = String::from_utf8_lossy(bytes.get(..length).unwrap_or_default()).into_owned();
                shared.0.lock().unwrap_or_else(PoisonError::into_inner).push(Said { at: now(), text });
            }
        });
        Ok(said)
    }

    /// All that was said so far.
    pub fn said(&self) -> Vec<Said> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The same, a message behind the other; without meals of the watchdog.
    pub fn text(&self) -> String {
        self.said().into_iter().map(|said| said.text).filter(|text| !text.starts_with("WATCHDOG=1")).collect()
    }

    /// Waits until something was said that holds all of `words`, in one message, from message `from` on.
    pub fn hears(&self, from: usize, words: &[&str]) -> Result<()> {
        let has = |said: &Said| words.iter().all(|word| said.text.contains(word));
        let heard = wait_for(Duration::from_secs(15), || self.said().iter().skip(from).any(has));
        ensure!(heard, "{words:?} was not said, but: {}", self.text());
        Ok(())
    }
}

/// A running service; ended and its folder removed on drop.
pub struct Service {
    /// The shaper.
    pub process: Process,
    /// What it tells its manager.
    pub manager: Manager,
    /// Where its files are.
    pub folder: PathBuf,
    /// Where its API is.
    pub api: String,
}

impl Service {
    /// Starts it with `more` at the end of its configuration, and further arguments; waits until it says that it is
    /// ready.
    pub fn start(more: &str, watchdog: Duration, arguments: &[&str]) -> Result<Self> {
        let folder = folder()?;
        let socket = folder.join("notify");
        let manager = Manager::listen(&socket)?;
        let api = format!("127.0.0.1:{}", free_port()?);
        let config = folder.join("sluice.toml");
        std::fs::write(&config, configuration(&folder, &api, more))?;
        // a process started by way of `env` keeps its id
        let mut command = Command::new("env");
        command.arg(format!("NOTIFY_SOCKET={}", socket.display()));
        command.arg(format!("WATCHDOG_USEC={}", watchdog.as_micros()));
        command.arg(program("sluice")).arg("run").arg("--config").arg(&config).args(arguments);
        let process = Process::start("sluice", &mut command, &folder.join("log"))?;
        let made = Self { process, manager, folder, api };
        made.manager.hears(0, &["READY=1"]).with_context(|| made.process.output())?;
        Ok(made)
    }

    /// Its configuration file.
    pub fn config(&self) -> PathBuf {
        self.folder.join("sluice.toml")
    }

    /// Changes the text of its configuration.
    pub fn edit(&self, from: &str, to: &str) -> Result<()> {
        let text = std::fs::read_to_string(self.config())?;
        ensure!(text.contains(from), "{from} is not in {text}");
        Ok(std::fs::write(self.config(), text.replace(from, to))?)
    }

    /// A call of its API: status and body.
    pub fn call(&self, method: &str, path: &str, token: Option<&str>) -> Result<(u16, String)> {
        let agent = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build();
        let agent = ureq::Agent::new_with_config(agent);
        let mut request =
            ureq::http::Request::builder().method(method).uri(format!("http://{}{path}", self.api));
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let mut answer = agent.run(request.body(())?)?;
        Ok((answer.status().as_u16(), answer.body_mut().read_to_string()?))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.process.terminate(Duration::from_secs(6));
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A new folder.
fn folder() -> Result<PathBuf> {
    let name = format!("sluice-service-{}-{}", std::process::id(), SERVICES.fetch_add(1, Relaxed));
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// A TCP port of loopback that nobody uses now.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn configuration(folder: &Path, api: &str, more: &str) -> String {
    let prefix = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let store = folder.join("sluice.db");
    format!(
        r#"[dataplane]
lcores = {{ compact = "1@1" }}
hugepages = "never"
buffers = 16384
subscribers = 1024
eal_args = ["--file-prefix={prefix}"]
[[port]]
name = "core"
device = "net_null0,no-rx=1"
role = "core"
peer = "access"
rate_bps = 1000000000
[[port]]
name = "access"
device = "net_null1,no-rx=1"
role = "access"
peer = "core"
[store]
path = "{}"
[log]
level = "info"
[api]
listen = "{api}"
{more}"#,
        store.display()
    )
}
