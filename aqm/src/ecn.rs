// SPDX-License-Identifier: Apache-2.0
//! The ECN field (RFC 3168 section 5) and the two queues of a DualQ (RFC 9332).

/// The two-bit ECN field of the IP header, by its value on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// 00: the transport does not speak ECN; never marked.
    #[default]
    NotEct = 0,
    /// 01: ECT(1), the identifier of L4S (RFC 9331).
    Ect1 = 1,
    /// 10: ECT(0), Classic ECN.
    Ect0 = 2,
    /// 11: congestion experienced.
    Ce = 3,
}

impl Ecn {
    /// All four, in the order of their value.
    pub const ALL: [Self; 4] = [Self::NotEct, Self::Ect1, Self::Ect0, Self::Ce];

    /// From the low two bits of the TOS or Traffic Class octet.
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// Whether the transport is ECN-capable (anything but Not-ECT).
    pub const fn is_ect(self) -> bool {
        !matches!(self, Self::NotEct)
    }
}

/// The queue of a DualQ. A discipline without an L queue puts all in `Classic`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Queue {
    /// The low-latency queue, L.
    L4s = 0,
    /// The Classic queue, C.
    #[default]
    Classic = 1,
}

impl Queue {
    /// Both, L first.
    pub const BOTH: [Self; 2] = [Self::L4s, Self::Classic];

    /// The other queue.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::L4s => Self::Classic,
            Self::Classic => Self::L4s,
        }
    }
}

/// What a rule on the packet's DSCP says before the ECN field is looked at (RFC 9331 5.4.1.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Rule {
    /// No rule matched: the ECN field decides.
    #[default]
    None = 0,
    /// `l4s_dscp`: into L.
    ForceL4s = 1,
    /// `classic_dscp`: into C; ECT(1) is marked with p_CL there.
    ForceClassic = 2,
    /// `exclude_dscp`: kept out of L; ECT(1) is handled as Not-ECT.
    Exclude = 3,
    /// `nqb_dscp`: into L, never CE-marked unless ECT(1) or CE.
    Nqb = 4,
}

impl Rule {
    /// All of them, in the order of their value.
    pub const ALL: [Self; 5] = [Self::None, Self::ForceL4s, Self::ForceClassic, Self::Exclude, Self::Nqb];

    /// From the value that `as u8` gave; anything else is `None`.
    pub const fn from_bits(bits: u8) -> Self {
        match bits {
            1 => Self::ForceL4s,
            2 => Self::ForceClassic,
            3 => Self::Exclude,
            4 => Self::Nqb,
            _ => Self::None,
        }
    }
}
