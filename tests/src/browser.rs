// SPDX-License-Identifier: Apache-2.0
//! A headless Chromium, driven by ChromeDriver over WebDriver (W3C), as somebody at a keyboard would use it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::machine::{has, wait_for};
use crate::rig::Process;

/// Key codes of WebDriver (section 17.4.2).
pub mod keys {
    /// Tab.
    pub const TAB: &str = "\u{e004}";
    /// Enter.
    pub const ENTER: &str = "\u{e007}";
    /// Escape.
    pub const ESCAPE: &str = "\u{e00c}";
    /// Right arrow.
    pub const RIGHT: &str = "\u{e014}";
}

/// How long a page gets to come to the state that is waited for.
const PATIENCE: Duration = Duration::from_secs(20);
/// Member under which WebDriver names an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// The browser; it ends when dropped.
pub struct Browser {
    session: String,
    agent: ureq::Agent,
    folder: PathBuf,
    _driver: Process,
}

/// Why there is no browser here, if there is none.
pub fn no_browser() -> Option<String> {
    let missing = [("chromium", "chromium"), ("chromedriver", "chromium-driver")]
        .into_iter()
        .find(|(program, _)| !has(program));
    missing.map(|(program, package)| format!("`{program}` is missing (Debian package {package})"))
}

impl Browser {
    /// Starts it, 1280 x 900, with a profile of its own below `folder`.
    pub fn start(folder: &Path) -> Result<Self> {
        let mut command = Command::new("chromedriver");
        command.arg("--port=0");
        let driver = Process::start("chromedriver", &mut command, &folder.join("chromedriver.log"))?;
        let said = || {
            let output = driver.output();
            let port = output.split("successfully on port ").nth(1)?;
            port.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u16>().ok()
        };
        ensure!(wait_for(PATIENCE, || said().is_some()), "chromedriver says: {}", driver.output());
        let at = format!("http://127.0.0.1:{}", said().unwrap_or_default());
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_mins(1)))
            .http_status_as_error(false)
            .build()
            .new_agent();
        let mut made = Self { session: at.clone(), agent, folder: folder.to_owned(), _driver: driver };
        let profile = format!("--user-data-dir={}", folder.join("chromium").display());
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            "--window-size=1280,900",
            &profile,
        ];
        let options = json!({"args": arguments, "binary": "/usr/bin/chromium"});
        let wanted = json!({"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}});
        let session = made.call("POST", "/session", &json!({"capabilities": {"alwaysMatch": wanted}}))?;
        let id = session["sessionId"].as_str().context("a session without a name")?;
        made.session = format!("{at}/session/{id}");
        Ok(made)
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let url = format!("{}{path}", self.session);
        let mut answer = match method {
            "POST" => self.agent.post(url).content_type("application/json").send(body.to_string()),
            "DELETE" => self.agent.delete(url).call(),
            _ => self.agent.get(url).call(),
        }?;
        let text = answer.body_mut().with_config().limit(64 << 20).read_to_string()?;
        let mut value: Value = serde_json::from_str(&text).with_context(|| format!("{path}: {text}"))?;
        if answer.status().as_u16() != 200 {
            bail!("{method} {path} {body}: {}", value["value"]["message"]);
        }
        Ok(value["value"].take())
    }

    /// Opens a page.
    pub fn open(&self, url: &str) -> Result<()> {
        self.call("POST", "/url", &json!({"url": url})).map(drop)
    }

    /// Runs the body of a function in the page and returns what it does.
    pub fn run(&self, script: &str) -> Result<Value> {
        self.call("POST", "/execute/sync", &json!({"script": script, "args": []}))
    }

    /// The value of an expression.
    pub fn value(&self, expression: &str) -> Result<Value> {
        self.run(&format!("return ({expression});"))
    }

    /// What an element says, as it is rendered.
    pub fn text(&self, css: &str) -> Result<String> {
        let text = self.value(&format!("document.querySelector({})?.innerText", json!(css)))?;
        text.as_str().map(str::to_owned).with_context(|| format!("there is no {css}"))
    }

    /// Waits until an expression is true.
    pub fn until(&self, expression: &str) -> Result<()> {
        let mut last = Ok(Value::Null);
        let came = wait_for(PATIENCE, || {
            last = self.value(expression);
            matches!(last, Ok(Value::Bool(true)))
        });
        if came {
            return Ok(());
        }
        let page = self.text("body").unwrap_or_default();
        bail!("{expression} did not come true ({last:?}); the page says: {page}")
    }

    /// Clicks in the middle of an element, which must be there to be clicked.
    pub fn click(&self, css: &str) -> Result<()> {
        let found = self.call("POST", "/element", &json!({"using": "css selector", "value": css}))?;
        let id = found[ELEMENT].as_str().with_context(|| format!("there is no {css}"))?;
        self.call("POST", &format!("/element/{id}/click"), &json!({})).map(drop)
    }

    /// Types on the keyboard, wherever the focus is.
    pub fn press(&self, text: &str) -> Result<()> {
        let strokes = text
            .chars()
            .flat_map(|key| ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": key.to_string()})));
        let strokes: Vec<Value> = strokes.collect();
        let actions = json!({"actions": [{"type": "key", "id": "keyboard", "actions": strokes}]});
        self.call("POST", "/actions", &actions).map(drop)
    }

    /// A command of the browser's own protocol.
    pub fn devtools(&self, command: &str, parameters: &Value) -> Result<Value> {
        self.call("POST", "/goog/cdp/execute", &json!({"cmd": command, "params": parameters}))
    }

    /// Makes the window this wide and high; narrow ones are a phone's.
    pub fn resize(&self, width: u32, height: u32) -> Result<()> {
        let phone = width < 500;
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone});
        self.devtools("Emulation.setDeviceMetricsOverride", &size).map(drop)
    }

    /// Dark mode on or off.
    pub fn dark(&self, on: bool) -> Result<()> {
        let scheme = if on { "dark" } else { "light" };
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.devtools("Emulation.setEmulatedMedia", &media).map(drop)
    }

    /// Writes the whole page as a picture, `NAME.png` in the folder.
    pub fn picture(&self, name: &str) -> Result<PathBuf> {
        let height = self.value("Math.min(document.documentElement.scrollHeight, 6000)")?;
        let width = self.value("innerWidth")?;
        let clip = json!({"x": 0, "y": 0, "width": width, "height": height, "scale": 1});
        let wanted = json!({"format": "png", "captureBeyondViewport": true, "clip": clip});
        let picture = self.devtools("Page.captureScreenshot", &wanted)?;
        let path = self.folder.join(format!("{name}.png"));
        let bytes = decode(picture["data"].as_str().context("no picture")?);
        std::fs::write(&path, bytes).with_context(|| format!("{} cannot be written", path.display()))?;
        Ok(path)
    }

    fn log(&self, kind: &str) -> Result<Vec<Value>> {
        let log = self.call("POST", "/se/log", &json!({"type": kind}))?;
        Ok(log.as_array().cloned().unwrap_or_default())
    }

    /// What the console was told since the last question, warnings and errors only.
    pub fn complaints(&self) -> Result<Vec<String>> {
        let log = self.log("browser")?;
        let loud = log.iter().filter(|line| line["level"] == "SEVERE" || line["level"] == "WARNING");
        Ok(loud.map(|line| line["message"].as_str().unwrap_or_default().to_owned()).collect())
    }

    /// Addresses asked for since the last question.
    pub fn requests(&self) -> Result<Vec<String>> {
        let url = |line: &Value| {
            let message: Value = serde_json::from_str(line["message"].as_str()?).ok()?;
            let asked = message["message"]["method"] == "Network.requestWillBeSent";
            let url = message["message"]["params"]["request"]["url"].as_str()?.to_owned();
            asked.then_some(url)
        };
        Ok(self.log("performance")?.iter().filter_map(url).collect())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // the driver takes the browser along
        let _ = self.call("DELETE", "", &Value::Null);
    }
}

/// Base64 (RFC 4648 section 4).
fn decode(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let sixes: Vec<u32> = text.bytes().filter_map(value).map(u32::from).collect();
    let bytes = sixes.chunks(4).flat_map(|four| {
        let bits = four.iter().fold(0, |bits, six| bits << 6 | six) << (6 * (4 - four.len()));
        bits.to_be_bytes()[1..four.len()].to_vec()
    });
    bytes.collect()
}
