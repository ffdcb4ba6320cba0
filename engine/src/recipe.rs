// SPDX-License-Identifier: Apache-2.0
//! How the state of a managed discipline is built, and what such a discipline is shown of a packet.
//!
//! Invariant: a recipe is checked when its profile is read, so [`Recipe::build`] succeeds from then on.

use aqm::{
    Cake, CakeConfig, Cocoa, CocoaConfig, Codel, CodelAf, CodelAfConfig, CodelConfig, CurvyRed,
    CurvyRedConfig, Ecn, Fq, FqCodel, FqCodelConfig, FqConfig, Nanos, ParamError, Pie, PieConfig, Qdisc,
};
use model::profile::{self, Aqm, HostFairness};

/// A managed discipline with its parameters.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    law: Law,
    /// What its state shows of packets.
    pub(crate) view: View,
}

#[derive(Clone, Copy, Debug)]
enum Law {
    Codel(CodelConfig),
    CodelAf(CodelAfConfig),
    Pie(PieConfig),
    CurvyRed(CurvyRedConfig),
    Cake(CakeConfig),
    Fq(FqConfig),
    FqCodel(FqCodelConfig),
    Cocoa(CocoaConfig),
}

/// What a discipline sees of the ECN field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    l4s: bool,
    ecn: bool,
}

impl View {
    /// The ECN field as the discipline is to see it: `l4s = false` makes Not-ECT of ECT(1) (RFC 9331 5.1),
    /// `ecn = false` makes Not-ECT of all.
    #[inline]
    pub(crate) const fn of(self, ecn: Ecn) -> Ecn {
        match ecn {
            _ if !self.ecn => Ecn::NotEct,
            Ecn::Ect1 if !self.l4s => Ecn::NotEct,
            _ => ecn,
        }
    }
}

impl Recipe {
    /// The recipe of a profile; `None` if its AQM keeps no state of that kind.
    ///
    /// # Errors
    ///
    /// When the AQM refuses its parameters.
    pub(crate) fn new(profile: &model::Profile) -> Result<Option<Self>, ParamError> {
        let Some(law) = law(profile) else {
            return Ok(None);
        };
        let recipe = Self { law, view: View { l4s: profile.l4s, ecn: profile.ecn } };
        recipe.build(0)?;
        Ok(Some(recipe))
    }

    /// Its state, empty.
    ///
    /// # Errors
    ///
    /// When the AQM refuses its parameters.
    pub(crate) fn build(&self, seed: u64) -> Result<Box<dyn Qdisc>, ParamError> {
        Ok(match self.law {
            Law::Codel(config) => Box::new(Codel::new(config)?),
            Law::CodelAf(config) => Box::new(CodelAf::new(config, seed)?),
            Law::Pie(config) => Box::new(Pie::new(config, seed)?),
            Law::CurvyRed(config) => Box::new(CurvyRed::new(config, seed)?),
            Law::Cake(config) => Box::new(Cake::new(config)?),
            Law::Fq(config) => Box::new(Fq::new(config)?),
            Law::FqCodel(config) => Box::new(FqCodel::new(config)?),
            Law::Cocoa(config) => Box::new(Cocoa::new(config)?),
        })
    }
}

/// A profile's AQM in the AQM's own terms.
fn law(profile: &model::Profile) -> Option<Law> {
    let mtu = profile.mtu;
    Some(match &profile.aqm {
        Aqm::Codel(keys) => Law::Codel(codel(keys, mtu)),
        Aqm::CodelAf(keys) => Law::CodelAf(codel_af(keys, profile)),
        Aqm::Pie(keys) => Law::Pie(PieConfig {
            target: Nanos::from_micros(keys.target_us),
            tupdate: Nanos::from_micros(keys.tupdate_us),
            alpha_hz: keys.alpha_hz,
            beta_hz: keys.beta_hz,
            max_burst: Nanos::from_micros(keys.max_burst_us),
            ecn_threshold_percent: keys.ecn_threshold_percent,
            // always active, as in RFC 8033 appendix A
            active_bytes: 0,
            mtu,
        }),
        Aqm::Fq(keys) => Law::Fq(fq(keys)),
        Aqm::FqCodel(keys) => Law::FqCodel(FqCodelConfig {
            codel: codel(&keys.codel, mtu),
            flows: keys.flows,
            quantum: keys.quantum_bytes,
            ce_threshold: keys.ce_threshold_us.map(Nanos::from_micros),
            ce_threshold_l4s: keys.ce_threshold_l4s,
        }),
        Aqm::Cocoa(keys) => Law::Cocoa(CocoaConfig {
            fq: fq(&keys.fq),
            guard_multiplier: keys.guard_multiplier,
            max_increase: keys.max_increase,
            max_guard: Nanos::from_micros(keys.max_guard_us),
        }),
        Aqm::CurvyRed(keys) => Law::CurvyRed(CurvyRedConfig {
            k_prime: keys.k_prime,
            tshift: Nanos::from_micros(keys.tshift_us),
            g_c: keys.g_c,
            s_c: keys.s_c,
            min_th: Nanos::from_micros(keys.min_th_us),
            t: Nanos::from_micros(keys.t_us),
            u: keys.u,
        }),
        Aqm::Cake(keys) => Law::Cake(CakeConfig {
            tins: match keys.tins {
                profile::Tins::BestEffort => aqm::Tins::BestEffort,
                profile::Tins::Diffserv4 => aqm::Tins::Diffserv4,
            },
            host_fairness: keys.host_fairness == HostFairness::TripleIsolate,
            rtt: Nanos::from_micros(keys.rtt_us),
            mtu,
        }),
        Aqm::DualPi2(_) | Aqm::Pi2(_) | Aqm::Fifo => return None,
    })
}

fn codel(keys: &profile::Codel, mtu: u32) -> CodelConfig {
    let us = Nanos::from_micros;
    CodelConfig { target: us(keys.target_us), interval: us(keys.interval_us), mtu }
}

fn fq(keys: &profile::Fq) -> FqConfig {
    FqConfig { flows: keys.flows, quantum: keys.quantum_bytes, flow_limit_packets: keys.flow_limit_packets }
}

fn codel_af(keys: &profile::CodelAf, profile: &model::Profile) -> CodelAfConfig {
    let defaults = CodelAfConfig::default();
    CodelAfConfig {
        target: Nanos::from_micros(keys.codel.target_us),
        interval: Nanos::from_micros(keys.codel.interval_us),
        limit_packets: profile.limit_packets.map_or(defaults.limit_packets, |limit| limit.min(1 << 20)),
        sparse: keys.sparse,
        mtu: profile.mtu,
        ..defaults
    }
}
