// SPDX-License-Identifier: Apache-2.0
//! A running `sluice run`, driven over HTTP as an operator would.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use model::stats::SubscriberStats;
use serde_json::Value;
use ureq::SendBody;
use ureq::http::Request;
use ureq::http::header::AUTHORIZATION;
use ureq::middleware::MiddlewareNext;

use crate::machine::wait_for;
use crate::rig::Process;

/// Where this build's programs lie, beside the test's own.
pub fn program(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    // target/release/deps/some_test-… or target/release/demo
    let mut folder = own.parent().map(Path::to_path_buf).unwrap_or_default();
    if folder.ends_with("deps") {
        folder.pop();
    }
    folder.join(name)
}

fn agent(token: Option<&str>) -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(Duration::from_secs(10)))
        .http_status_as_error(false);
    let bearer = token.and_then(|token| format!("Bearer {token}").parse().ok());
    let authorize = move |mut request: Request<SendBody<'_>>, next: MiddlewareNext<'_>| {
        request.headers_mut().extend(bearer.clone().map(|bearer| (AUTHORIZATION, bearer)));
        next.handle(request)
    };
    config.middleware(authorize).build().new_agent()
}

/// A shaper with its folder, ended and removed on drop.
pub struct Shaper {
    process: Process,
    folder: PathBuf,
    api: String,
    agent: ureq::Agent,
    /// Long gaps of packet lcores before it was ready.
    gaps_before: u64,
}

impl Shaper {
    /// Starts `sluice run` on a configuration in which `@STORE@` stands for the store's path, and waits until
    /// `api` (`host:port`, as in the configuration) says it is ready.
    pub fn start(folder: &Path, config: &str, api: &str) -> Result<Self> {
        Self::start_with(folder, config, api, None)
    }

    /// [`Shaper::start`] with the bearer token that the configuration asks for.
    pub fn start_with(folder: &Path, config: &str, api: &str, token: Option<&str>) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let store = folder.join("sluice.db");
        let path = folder.join("sluice.toml");
        std::fs::write(&path, config.replace("@STORE@", &store.to_string_lossy()))?;
        let mut command = Command::new(program("sluice"));
        command.arg("run").arg("--config").arg(&path);
        let process = Process::start("sluice", &mut command, &folder.join("sluice.log"))?;
        let agent = agent(token);
        let mut made =
            Self { process, folder: folder.to_owned(), api: format!("http://{api}"), agent, gaps_before: 0 };
        let ready = wait_for(Duration::from_mins(1), || {
            made.process.ended().is_some() || made.get("/readyz").is_ok_and(|(status, _)| status == 200)
        });
        if let Some(status) = made.process.ended() {
            bail!("sluice ended with {status}: {}", made.process.output());
        }
        if !ready {
            let reasons = made.get("/readyz").map(|(_, body)| body).unwrap_or_default();
            bail!("sluice is not ready after 60 s: {reasons} {}", made.process.output());
        }
        (made.gaps_before, _) = made.gaps()?;
        Ok(made)
    }

    /// How often packet lcores were kept from looping for 2 ms or more, and the longest time, in microseconds.
    fn gaps(&self) -> Result<(u64, u64)> {
        let lcores = self.json("/v1/lcores")?;
        let packets =
            lcores["items"].as_array().into_iter().flatten().filter(|lcore| lcore["role"] != "control");
        let figures = packets.map(|lcore| [&lcore["long_gaps"], &lcore["longest_gap_us"]].map(Value::as_u64));
        let figures = figures.map(|[count, longest]| (count.unwrap_or(0), longest.unwrap_or(0)));
        Ok(figures.fold((0, 0), |(sum, most), (count, longest)| (sum + count, most.max(longest))))
    }

    /// The longest stretch that a packet lcore has lost, in microseconds; 0 where none of 2 ms or more came since it
    /// was ready.
    pub fn gap_us(&self) -> Result<u64> {
        let (count, longest) = self.gaps()?;
        Ok(if count > self.gaps_before { longest } else { 0 })
    }

    /// Where its API is.
    pub fn api(&self) -> &str {
        &self.api
    }

    /// GET: status and body.
    pub fn get(&self, path: &str) -> Result<(u16, String)> {
        let mut answer = self.agent.get(format!("{}{path}", self.api)).call()?;
        Ok((answer.status().as_u16(), answer.body_mut().read_to_string()?))
    }

    /// GET of JSON that must succeed.
    pub fn json(&self, path: &str) -> Result<Value> {
        let (status, body) = self.get(path)?;
        if status != 200 {
            bail!("GET {path}: {status} {body}");
        }
        serde_json::from_str(&body).with_context(|| format!("GET {path}: {body}"))
    }

    /// PATCH of JSON: status and body.
    pub fn patch(&self, path: &str, body: &str) -> Result<(u16, String)> {
        let request = self.agent.patch(format!("{}{path}", self.api)).content_type("application/json");
        let mut answer = request.send(body)?;
        Ok((answer.status().as_u16(), answer.body_mut().read_to_string()?))
    }

    /// PUT of JSON: status and body.
    pub fn put(&self, path: &str, body: &str) -> Result<(u16, String)> {
        let request = self.agent.put(format!("{}{path}", self.api)).content_type("application/json");
        let mut answer = request.send(body)?;
        Ok((answer.status().as_u16(), answer.body_mut().read_to_string()?))
    }

    /// POST of JSON: status and body.
    pub fn post(&self, path: &str, body: &str) -> Result<(u16, String)> {
        let request = self.agent.post(format!("{}{path}", self.api)).content_type("application/json");
        let mut answer = request.send(body)?;
        Ok((answer.status().as_u16(), answer.body_mut().read_to_string()?))
    }

    /// DELETE: status.
    pub fn delete(&self, path: &str) -> Result<u16> {
        Ok(self.agent.delete(format!("{}{path}", self.api)).call()?.status().as_u16())
    }

    /// One subscriber's statistics.
    pub fn stats(&self, id: &str) -> Result<SubscriberStats> {
        Ok(serde_json::from_value(self.json(&format!("/v1/subscribers/{id}/stats"))?)?)
    }

    /// The value of a metric with exactly these labels (`name{a="b"}`); 0 where it is not there.
    pub fn metric(&self, series: &str) -> Result<f64> {
        let (_, text) = self.get("/metrics")?;
        let line = text.lines().find_map(|line| line.strip_prefix(series)).unwrap_or(" 0");
        line.trim().parse().with_context(|| format!("{series}: {line}"))
    }

    /// Sum of all series of a metric whose labels contain each of `with`.
    pub fn metric_sum(&self, name: &str, with: &[&str]) -> Result<f64> {
        let (_, text) = self.get("/metrics")?;
        let lines = text.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
                && with.iter().all(|label| line.contains(label))
        });
        Ok(lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }

    /// What it printed.
    pub fn output(&self) -> String {
        self.process.output()
    }

    /// Whether it still runs.
    pub fn alive(&mut self) -> bool {
        self.process.ended().is_none()
    }

    /// Its process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// SIGTERM and its end.
    pub fn stop(mut self) -> Option<ExitStatus> {
        self.process.terminate(Duration::from_secs(6))
    }

    /// KILL, and the same again on the same store.
    pub fn kill(&mut self) {
        self.process.signal("KILL");
        wait_for(Duration::from_secs(5), || self.process.ended().is_some());
    }

    /// The folder of configuration, store and log.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}
