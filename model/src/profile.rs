// SPDX-License-Identifier: Apache-2.0
//! Profiles: which AQM, with which parameters, which limits and which overhead.

/// A validated profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The AQM and its own keys.
    pub aqm: Aqm,
    /// Whether ECT(1) identifies L4S (RFC 9331 5.1).
    pub l4s: bool,
    /// Queue limit as time at the rate.
    pub limit_us: u64,
    /// Queue limit in packets; `None`: only the time limit.
    pub limit_packets: Option<u32>,
    /// What a packet costs beyond its IP length.
    pub overhead: Overhead,
    /// Whether an ECN-capable packet is marked rather than dropped.
    pub ecn: bool,
    /// Bytes of a full packet on the wire, for floors and thresholds.
    pub mtu: u32,
}

/// The AQMs of this version.
#[derive(Clone, Debug, PartialEq)]
pub enum Aqm {
    /// DualQ Coupled PI2 (RFC 9332 A).
    DualPi2(DualPi2),
    /// PI2 on a single queue: DualPI2's C queue alone.
    Pi2(DualPi2),
    /// Tail drop only.
    Fifo,
}

/// Keys of `dualpi2` and `pi2`, in the names of tc-dualpi2.
#[derive(Clone, Debug, PartialEq)]
pub struct DualPi2 {
    /// PI target delay.
    pub target_us: u64,
    /// PI update interval.
    pub tupdate_us: u64,
    /// Integral gain, per second.
    pub alpha_hz: f64,
    /// Proportional gain, per second.
    pub beta_hz: f64,
    /// k: p_CL = k * p'.
    pub coupling: u32,
    /// Native L marking.
    pub native: Native,
    /// Ramp floor in packets of `mtu` at the served rate; 0: none.
    pub floor_packets: u32,
    /// WRR weight of C in percent, 0 to 100.
    pub classic_protection_percent: u32,
    /// What happens past p_CL = 1.
    pub overload: Overload,
    /// ECT(0) goes to L too.
    pub any_ect: bool,
    /// Queue protection (RFC 9957).
    pub queue_protection: bool,
    /// Whose arithmetic.
    pub compat: Compat,
}

/// The native AQM of L.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Native {
    /// Marks with 0 at `min_us` rising to 1 at `min_us + range_us` of backlog time.
    Ramp {
        /// Where it begins.
        min_us: u64,
        /// How wide it is.
        range_us: u64,
    },
    /// Marks all beyond this.
    Step {
        /// The threshold.
        threshold_us: u64,
    },
}

/// RFC 9332 4.2.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overload {
    /// L and C drop with p_C.
    Drop,
    /// p' is capped at 1/k; the queue limit does the rest.
    Overflow,
}

/// Which arithmetic `dualpi2` uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compat {
    /// RFC 9332 with its recommendations: ramp, recur(), backlog time.
    Rfc,
    /// The kernel's integers, step, random rolls and sojourn.
    Linux,
}

/// Bytes on the line beyond the IP packet, as tc-cake counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overhead {
    /// Added to the length of the IP packet, -64 to 256.
    pub bytes: i16,
    /// Least size after `bytes` are added.
    pub mpu: u16,
    /// Cell framing.
    pub cells: Cells,
}

/// Cell framing of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cells {
    /// Frames.
    None,
    /// ATM: 48 bytes of payload in 53.
    Atm,
    /// PTM: 64 bytes in 65.
    Ptm,
}
