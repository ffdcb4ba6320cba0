// SPDX-License-Identifier: Apache-2.0
//! A scenario file as it stands: every key of the contract with its default, unknown ones refused. Nothing is checked
//! here.

use serde::Deserialize;

/// Long enough for 120 s to need no warm-up of their own choice.
const DURATION_S: f64 = 120.0;

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawScenario {
    pub(super) name: Option<String>,
    pub(super) duration_s: f64,
    pub(super) warmup_s: Option<f64>,
    pub(super) link: RawLink,
    /// Read by `model` from the text itself.
    #[serde(rename = "profile")]
    _profile: Option<toml::Table>,
    pub(super) flow: Vec<RawFlow>,
    pub(super) web: Vec<RawWeb>,
}

impl Default for RawScenario {
    fn default() -> Self {
        Self {
            name: None,
            duration_s: DURATION_S,
            warmup_s: None,
            link: RawLink::default(),
            _profile: None,
            flow: Vec::new(),
            web: Vec::new(),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawLink {
    pub(super) rate_bps: Option<u64>,
    pub(super) steps: Option<Vec<RawStep>>,
    pub(super) buffer_packets: u32,
    pub(super) burst_ms: f64,
    pub(super) jitter_ms: f64,
    pub(super) loss: f64,
    pub(super) reverse: Option<RawReverse>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawStep {
    pub(super) at_s: f64,
    pub(super) rate_bps: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawReverse {
    pub(super) rate_bps: u64,
    #[serde(rename = "profile")]
    _profile: Option<toml::Table>,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawFlow {
    pub(super) label: Option<String>,
    pub(super) cc: String,
    pub(super) count: u32,
    pub(super) rtt_ms: f64,
    pub(super) ecn: String,
    pub(super) rate_bps: u64,
    pub(super) packet_bytes: u32,
    pub(super) start_s: f64,
    pub(super) stop_s: f64,
    pub(super) rtt_independence: bool,
    pub(super) hystart: bool,
    pub(super) on_ms: f64,
    pub(super) off_ms: f64,
}

impl Default for RawFlow {
    fn default() -> Self {
        Self {
            label: None,
            cc: "prague".to_owned(),
            count: 1,
            rtt_ms: 5.0,
            ecn: "auto".to_owned(),
            rate_bps: 0,
            packet_bytes: crate::FULL_PACKET,
            start_s: 0.0,
            stop_s: 0.0,
            rtt_independence: true,
            hystart: true,
            on_ms: 0.0,
            off_ms: 0.0,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawWeb {
    pub(super) cc: String,
    pub(super) rtt_ms: f64,
    pub(super) ecn: String,
    pub(super) arrivals_per_s: f64,
    pub(super) size: RawSize,
}

impl Default for RawWeb {
    fn default() -> Self {
        Self {
            cc: "cubic".to_owned(),
            rtt_ms: 10.0,
            ecn: "auto".to_owned(),
            arrivals_per_s: 10.0,
            size: RawSize { fixed: None, pareto: Some(RawPareto::default()) },
        }
    }
}

/// One of the two.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSize {
    pub(super) fixed: Option<u64>,
    pub(super) pareto: Option<RawPareto>,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawPareto {
    pub(super) shape: f64,
    pub(super) min_bytes: u64,
    pub(super) max_bytes: u64,
}

impl Default for RawPareto {
    fn default() -> Self {
        Self { shape: 0.9, min_bytes: 1_000, max_bytes: 1_000_000 }
    }
}
