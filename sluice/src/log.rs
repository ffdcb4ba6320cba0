// SPDX-License-Identifier: Apache-2.0
//! What is logged, to stderr: by `--log`, else by `RUST_LOG`, else by `[log] level` of the configuration, which a
//! reload changes while it runs.

use std::io::IsTerminal as _;

use anyhow::{Context as _, Result};
use model::config::LogLevel;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, Registry, fmt};

/// The running log.
pub(crate) struct Logging {
    filter: Handle<EnvFilter, Registry>,
    /// What goes before the configuration, if anything does.
    chosen_by: Option<&'static str>,
}

/// A level or, as `RUST_LOG` takes them, directives (`info,control_api=debug`).
pub(crate) fn parse_filter(text: &str) -> Result<String, String> {
    match EnvFilter::try_new(text) {
        Ok(_) if !text.trim().is_empty() => Ok(text.to_owned()),
        Ok(_) => Err("is empty".to_owned()),
        Err(error) => Err(format!("{error}; a level (error, warn, info, debug, trace) or TARGET=LEVEL,...")),
    }
}

/// The filter, and what chose it if that was not the configuration.
fn choose(flag: Option<&str>, environment: Option<&str>, level: LogLevel) -> (String, Option<&'static str>) {
    match (flag, environment.filter(|text| parse_filter(text).is_ok())) {
        (Some(text), _) => (text.to_owned(), Some("--log")),
        (None, Some(text)) => (text.to_owned(), Some("RUST_LOG")),
        (None, None) => (level.name().to_owned(), None),
    }
}

impl Logging {
    /// From now on everything is logged so.
    pub(crate) fn start(flag: Option<&str>, level: LogLevel) -> Result<Self> {
        let environment = std::env::var(EnvFilter::DEFAULT_ENV).ok();
        let (text, chosen_by) = choose(flag, environment.as_deref(), level);
        let (filter, handle) = reload::Layer::new(EnvFilter::try_new(text)?);
        // a journal or a file is no terminal: colours would be rubbish there
        let terminal = std::io::stderr().is_terminal();
        let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(terminal);
        tracing_subscriber::registry()
            .with(filter.and_then(lines))
            .try_init()
            .context("logging has been started already")?;
        Ok(Self { filter: handle, chosen_by })
    }

    /// Another level of the configuration; says so where something else goes before it.
    pub(crate) fn set(&self, level: LogLevel) -> Option<String> {
        if let Some(by) = self.chosen_by {
            return Some(format!("log.level: {by} goes before it"));
        }
        let changed = self.filter.reload(EnvFilter::new(level.name()));
        changed.err().map(|error| format!("log.level: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_goes_before_the_environment_and_that_before_the_configuration() {
        assert_eq!(choose(Some("debug"), Some("trace"), LogLevel::Warn), ("debug".into(), Some("--log")));
        assert_eq!(choose(None, Some("trace"), LogLevel::Warn), ("trace".into(), Some("RUST_LOG")));
        assert_eq!(choose(None, Some("a=nonsense"), LogLevel::Warn), ("warn".into(), None));
        assert_eq!(choose(None, None, LogLevel::Error), ("error".into(), None));
    }

    #[test]
    fn levels_and_directives_are_filters_and_nonsense_is_not() {
        for good in ["info", "warn,control_api=debug", "dataplane=trace"] {
            assert!(parse_filter(good).is_ok(), "{good}");
        }
        for bad in ["", "a=nonsense", "sluice=loud"] {
            assert!(parse_filter(bad).is_err(), "{bad}");
        }
    }
}
