// SPDX-License-Identifier: Apache-2.0
//! Keys of the AQMs beside `dualpi2` and `pi2`; defaults are those of each one's own source.

/// Keys of `pie`; defaults of RFC 8033 section 5.1 and appendix A.
#[derive(Clone, Debug, PartialEq)]
pub struct Pie {
    /// QDELAY_REF.
    pub target_us: u64,
    /// T_UPDATE.
    pub tupdate_us: u64,
    /// Integral gain, per second.
    pub alpha_hz: f64,
    /// Proportional gain, per second.
    pub beta_hz: f64,
    /// MAX_BURST.
    pub max_burst_us: u64,
    /// ECN-capable packets are marked up to this drop probability and dropped beyond it.
    pub ecn_threshold_percent: u32,
}

impl Default for Pie {
    fn default() -> Self {
        Self {
            target_us: 15_000,
            tupdate_us: 15_000,
            alpha_hz: 0.125,
            beta_hz: 1.25,
            max_burst_us: 150_000,
            ecn_threshold_percent: 10,
        }
    }
}

/// Keys of `codel`; defaults of RFC 8289 section 4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Codel {
    /// TARGET.
    pub target_us: u64,
    /// INTERVAL.
    pub interval_us: u64,
}

impl Default for Codel {
    fn default() -> Self {
        Self { target_us: 5_000, interval_us: 100_000 }
    }
}

/// Keys of `codel_af`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodelAf {
    /// Target and interval.
    pub codel: Codel,
    /// Flows that hold no packet go first (draft-morton-tsvwg-cheap-nasty-queueing).
    pub sparse: bool,
}

/// Keys of `fq_codel`; defaults of RFC 8290 section 5.2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FqCodel {
    /// Of each flow's CoDel.
    pub codel: Codel,
    /// Queues that flows are hashed to.
    pub flows: u32,
    /// Bytes a queue may send in its turn.
    pub quantum_bytes: u32,
    /// All ECN-capable packets that waited longer are marked; `None`: CoDel alone.
    pub ce_threshold_us: Option<u64>,
    /// Only ECT(1) is held against `ce_threshold_us`.
    pub ce_threshold_l4s: bool,
}

impl Default for FqCodel {
    fn default() -> Self {
        Self {
            codel: Codel::default(),
            flows: 1_024,
            quantum_bytes: 1_514,
            ce_threshold_us: None,
            ce_threshold_l4s: false,
        }
    }
}

/// Keys of `fq`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fq {
    /// Queues that flows are hashed to.
    pub flows: u32,
    /// Bytes a queue may send in its turn.
    pub quantum_bytes: u32,
    /// Most packets of one queue.
    pub flow_limit_packets: u32,
}

impl Default for Fq {
    fn default() -> Self {
        Self { flows: 1_024, quantum_bytes: 1_514, flow_limit_packets: 100 }
    }
}

/// Keys of `cocoa`.
#[derive(Clone, Debug, PartialEq)]
pub struct Cocoa {
    /// Of the queues.
    pub fq: Fq,
    /// Guard time over the time a buffer was empty.
    pub guard_multiplier: f64,
    /// Most a buffer grows by at once.
    pub max_increase: f64,
    /// Longest guard time.
    pub max_guard_us: u64,
}

impl Default for Cocoa {
    fn default() -> Self {
        Self { fq: Fq::default(), guard_multiplier: 1.25, max_increase: 2.0, max_guard_us: 1_000_000 }
    }
}

/// Priority tins of `cake`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tins {
    /// One.
    #[default]
    BestEffort,
    /// Bulk, best effort, video and voice.
    Diffserv4,
}

/// What `cake` is fair to beside flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostFairness {
    /// Source and destination hosts, then flows.
    #[default]
    TripleIsolate,
    /// Flows alone.
    None,
}

/// Keys of `cake`, in the names of tc-cake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cake {
    /// Priority tins.
    pub tins: Tins,
    /// Host fairness.
    pub host_fairness: HostFairness,
    /// COBALT's interval; its target is a twentieth.
    pub rtt_us: u64,
}

impl Default for Cake {
    fn default() -> Self {
        Self { tins: Tins::BestEffort, host_fairness: HostFairness::TripleIsolate, rtt_us: 100_000 }
    }
}

/// Keys of `curvy_red`: the parameters of RFC 9332 figure 9.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurvyRed {
    /// k': the coupling factor as a power of 2.
    pub k_prime: u32,
    /// tshift: how much longer C has to wait than L to be served first.
    pub tshift_us: u64,
    /// g_C: the smoothing of C's delay as a power of 1/2.
    pub g_c: u32,
    /// S_C: the range of C's ramp as a power of 2 in seconds.
    pub s_c: i32,
    /// minTh: no Classic signal below this delay. The figure prints 500 ms, which no queue would reach: 500 us here.
    pub min_th_us: u64,
    /// T: the step of L.
    pub t_us: u64,
    /// U: the curviness.
    pub u: u32,
}

impl Default for CurvyRed {
    fn default() -> Self {
        Self { k_prime: 1, tshift_us: 50_000, g_c: 5, s_c: -1, min_th_us: 500, t_us: 1_000, u: 1 }
    }
}
