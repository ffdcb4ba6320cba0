// SPDX-License-Identifier: Apache-2.0
//! A configuration as TOML again, every key spelled out: what is in force, for people and for tests.
//!
//! Invariant: reading what was written gives the same configuration.

use serde_json::{Map, Value, json};

use super::{Classify, Config, Dataplane, HugePages, Lcore, Lcores, Port, Role, Unknown};
use crate::profile::{
    Aqm, Cake, Cells, Cocoa, Codel, CodelAf, Compat, CurvyRed, DualPi2, Fq, FqCodel, HostFairness, Native,
    Overload, Pie, Profile, Tins,
};

impl Config {
    /// The whole configuration with all defaults, as TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string(&without_nulls(self.to_value())).unwrap_or_default()
    }

    /// The whole configuration with all defaults; what is left out is null.
    pub fn to_value(&self) -> Value {
        let profiles: Map<_, _> =
            self.profiles.iter().map(|(name, profile)| (name.clone(), profile_value(profile))).collect();
        json!({
            "dataplane": dataplane(&self.dataplane),
            "port": self.ports.iter().map(|port| self.port_value(port)).collect::<Vec<_>>(),
            "classify": classify(&self.classify),
            "profile": profiles,
            "api": {
                "listen": self.api.listen.to_string(),
                "token_file": self.api.token_file,
                "tls_cert": self.api.tls_cert,
                "tls_key": self.api.tls_key,
            },
            "log": { "level": self.log.name() },
            "store": { "path": self.store },
            "parent": self.parents.iter().map(crate::Parent::to_value).collect::<Vec<_>>(),
            "subscriber": self.subscribers.iter().map(crate::Subscriber::to_value).collect::<Vec<_>>(),
        })
    }

    fn port_value(&self, port: &Port) -> Value {
        let role = match port.role {
            Role::Core => "core",
            Role::Access => "access",
        };
        json!({
            "name": port.name,
            "device": port.device,
            "role": role,
            "peer": self.ports.get(port.peer).map(|peer| &peer.name),
            "rate_bps": port.rate_bps,
            "mtu": port.mtu,
        })
    }
}

impl Profile {
    /// Every key of the profile with its value in force, as it would stand in the configuration.
    pub fn to_value(&self) -> Value {
        profile_value(self)
    }
}

/// TOML has no null: what is left out is left out.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(name, value)| (name, without_nulls(value))).collect())
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

fn dataplane(dataplane: &Dataplane) -> Value {
    let hugepages = match dataplane.hugepages {
        HugePages::Auto => "auto",
        HugePages::Require => "require",
        HugePages::Never => "never",
    };
    let list = |lcores: &[Lcore]| lcores.iter().copied().map(lcore).collect::<Vec<_>>();
    let lcores = match &dataplane.lcores {
        Lcores::Split { control, rx, tx } => {
            json!({ "control": lcore(*control), "rx": list(rx), "tx": list(tx) })
        }
        Lcores::Compact(only) => json!({ "compact": lcore(*only) }),
    };
    json!({
        "lcores": lcores,
        "hugepages": hugepages,
        "buffers": dataplane.buffers.unwrap_or(0),
        "subscribers": dataplane.subscribers,
        "seed": dataplane.seed,
        "eal_args": dataplane.eal_args,
    })
}

fn lcore(lcore: Lcore) -> Value {
    if lcore.id == lcore.cpu { lcore.id.into() } else { format!("{}@{}", lcore.id, lcore.cpu).into() }
}

fn classify(classify: &Classify) -> Value {
    let unknown = match classify.unknown {
        Unknown::Pass => "pass",
        Unknown::Drop => "drop",
    };
    let rules = &classify.rules;
    json!({
        "unknown": unknown,
        "unknown_bps": classify.unknown_bps.unwrap_or(0),
        "rules": {
            "nqb_dscp": rules.nqb_dscp,
            "exclude_dscp": rules.exclude_dscp,
            "classic_dscp": rules.classic_dscp,
            "l4s_dscp": rules.l4s_dscp,
        },
    })
}

fn profile_value(profile: &Profile) -> Value {
    let cells = match profile.overhead.cells {
        Cells::None => "none",
        Cells::Atm => "atm",
        Cells::Ptm => "ptm",
    };
    let mut members = match &profile.aqm {
        Aqm::DualPi2(aqm) | Aqm::Pi2(aqm) => dualpi2(aqm),
        Aqm::Pie(pie) => self::pie(pie),
        Aqm::Codel(codel) => self::codel(codel),
        Aqm::FqCodel(fq_codel) => self::fq_codel(fq_codel),
        Aqm::Fq(fq) => self::fq(fq),
        Aqm::Cake(cake) => self::cake(cake),
        Aqm::Cocoa(cocoa) => self::cocoa(cocoa),
        Aqm::CurvyRed(curvy_red) => self::curvy_red(curvy_red),
        Aqm::CodelAf(codel_af) => self::codel_af(codel_af),
        Aqm::Fifo => json!({}),
    };
    let common = json!({
        "aqm": profile.aqm.name(),
        "l4s": profile.l4s,
        "limit_us": profile.limit_us,
        "limit_packets": profile.limit_packets,
        "overhead": { "bytes": profile.overhead.bytes, "mpu": profile.overhead.mpu, "cells": cells },
        "ecn": profile.ecn,
        "mtu": profile.mtu,
    });
    if let (Value::Object(members), Value::Object(common)) = (&mut members, common) {
        members.extend(common);
    }
    members
}

fn dualpi2(aqm: &DualPi2) -> Value {
    let (step, ramp) = match aqm.native {
        Native::Step { threshold_us } => (Some(threshold_us), None),
        Native::Ramp { min_us, range_us } => (None, Some((min_us, range_us))),
    };
    let overload = match aqm.overload {
        Overload::Drop => "drop",
        Overload::Overflow => "overflow",
    };
    let compat = match aqm.compat {
        Compat::Rfc => "rfc",
        Compat::Linux => "linux",
    };
    json!({
        "target_us": aqm.target_us,
        "tupdate_us": aqm.tupdate_us,
        "alpha_hz": aqm.alpha_hz,
        "beta_hz": aqm.beta_hz,
        "coupling": aqm.coupling,
        "step_us": step,
        "ramp_min_us": ramp.map(|(min, _)| min),
        "ramp_range_us": ramp.map(|(_, range)| range),
        "floor_packets": aqm.floor_packets,
        "classic_protection_percent": aqm.classic_protection_percent,
        "overload": overload,
        "any_ect": aqm.any_ect,
        "queue_protection": aqm.queue_protection,
        "compat": compat,
    })
}

fn pie(pie: &Pie) -> Value {
    json!({
        "target_us": pie.target_us,
        "tupdate_us": pie.tupdate_us,
        "alpha_hz": pie.alpha_hz,
        "beta_hz": pie.beta_hz,
        "max_burst_us": pie.max_burst_us,
        "ecn_threshold_percent": pie.ecn_threshold_percent,
    })
}

fn codel(codel: &Codel) -> Value {
    json!({ "target_us": codel.target_us, "interval_us": codel.interval_us })
}

fn codel_af(codel_af: &CodelAf) -> Value {
    json!({
        "target_us": codel_af.codel.target_us,
        "interval_us": codel_af.codel.interval_us,
        "sparse": codel_af.sparse,
    })
}

fn fq_codel(fq_codel: &FqCodel) -> Value {
    json!({
        "target_us": fq_codel.codel.target_us,
        "interval_us": fq_codel.codel.interval_us,
        "flows": fq_codel.flows,
        "quantum_bytes": fq_codel.quantum_bytes,
        "ce_threshold_us": fq_codel.ce_threshold_us,
        "ce_threshold_l4s": fq_codel.ce_threshold_l4s,
    })
}

fn fq(fq: &Fq) -> Value {
    json!({
        "flows": fq.flows,
        "quantum_bytes": fq.quantum_bytes,
        "flow_limit_packets": fq.flow_limit_packets,
    })
}

fn cake(cake: &Cake) -> Value {
    let tins = match cake.tins {
        Tins::BestEffort => "besteffort",
        Tins::Diffserv4 => "diffserv4",
    };
    let host_fairness = match cake.host_fairness {
        HostFairness::TripleIsolate => "triple-isolate",
        HostFairness::None => "none",
    };
    json!({ "tins": tins, "host_fairness": host_fairness, "rtt_us": cake.rtt_us })
}

fn cocoa(cocoa: &Cocoa) -> Value {
    json!({
        "flows": cocoa.fq.flows,
        "quantum_bytes": cocoa.fq.quantum_bytes,
        "flow_limit_packets": cocoa.fq.flow_limit_packets,
        "guard_multiplier": cocoa.guard_multiplier,
        "max_increase": cocoa.max_increase,
        "max_guard_us": cocoa.max_guard_us,
    })
}

fn curvy_red(curvy_red: &CurvyRed) -> Value {
    json!({
        "k_prime": curvy_red.k_prime,
        "tshift_us": curvy_red.tshift_us,
        "g_c": curvy_red.g_c,
        "s_c": curvy_red.s_c,
        "min_th_us": curvy_red.min_th_us,
        "t_us": curvy_red.t_us,
        "u": curvy_red.u,
    })
}
