// SPDX-License-Identifier: Apache-2.0
//! CAKE: flow queues with host fairness in tins by DSCP, each queue under COBALT (Linux sch_cake; Hoiland-Jorgensen,
//! Taht and Morton 2018, "Piece of CAKE").
//!
//! Built as in sch_cake: 8-way set-associative hashing over 1024 queues a tin; DRR++ with sparse, bulk and decaying
//! flows; triple isolation (a flow's quantum is divided by the bulk flows of the busier of its hosts); tins of
//! `diffserv4` by its map and its shares (the rate, a 16th, a half, a quarter); target, interval and quantum of a tin
//! from its share of the rate; the last packet of a queue is never dropped; an overflow drops from the head of the
//! longest queue and tells its BLUE.
//!
//! There is no shaper here, the owner has one. What sch_cake's shaped mode does with it between tins is kept: each tin
//! has a clock that runs at its share of the rate, and the last tin in order that is on schedule is served, else the
//! one due first. So a tin above its share only gets what the others leave; where shares do not fill the rate the
//! clock of a tin served early starts again from now, which favours larger shares (the tests have figures).
//!
//! Invariants: `select` names a queue whenever a packet waits, and the same until something arrives or leaves; memory is
//! taken in `new`. Departures: the longest queue is found by a pass now and then (`backlogs`), not by a heap; rounding
//! of quanta is carried over, not dithered; BLUE's dice are seeded alike everywhere; with more than 64 bulk flows under
//! host fairness the quantum is not cut to 1514 bytes, so that turns without a packet stay below 4096 a second and
//! host load at any rate; no ACK filter, no wash, no NAT lookup, no ingress mode, no autorate. A pace of 0 (no rate)
//! leaves only strict priority between tins.

use crate::backlogs::Backlogs;
use crate::recur::Dice;
use crate::single::{act, delay_within, mtu_within};
use crate::{Arrival, Arriving, Cause, Ecn, End, Leaving, Nanos, Pace, ParamError, Qdisc, Rule, Verdict};

mod hosts;
mod tin;

use tin::{QUEUES, Tin, Turn};

/// How DSCPs share the rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tins {
    /// One tin for all.
    #[default]
    BestEffort,
    /// Best effort, bulk, video and voice.
    Diffserv4,
}

impl Tins {
    /// Each tin's share of the rate as a shift, in the order that sch_cake serves them.
    const fn shifts(self) -> &'static [u32] {
        match self {
            Self::BestEffort => &[0],
            Self::Diffserv4 => &[0, 4, 1, 2],
        }
    }

    /// The tin of a DSCP (sch_cake's `diffserv4[]`).
    const fn of(self, dscp: u8) -> usize {
        if matches!(self, Self::BestEffort) {
            return 0;
        }
        match dscp {
            // LE, CS1
            1 | 8 => 1,
            // TOS4, CS2, AF2x, CS3, AF3x, AF4x
            4 | 16 | 18 | 20 | 22 | 24 | 26 | 28 | 30 | 34 | 36 | 38 => 2,
            // CS4, CS5, VA, EF, CS6, CS7
            32 | 40 | 44 | 46 | 48 | 56 => 3,
            _ => 0,
        }
    }
}

/// Parameters of CAKE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CakeConfig {
    /// Tins.
    pub tins: Tins,
    /// Triple isolation; without it flows are served alike, whosoever they are.
    pub host_fairness: bool,
    /// The RTT to expect: COBALT's interval, and twenty times its target.
    pub rtt: Nanos,
    /// Largest packet in bytes as the shaper counts it.
    pub mtu: u32,
}

impl Default for CakeConfig {
    /// sch_cake's, but for its three tins.
    fn default() -> Self {
        Self { tins: Tins::BestEffort, host_fairness: true, rtt: Nanos::from_millis(100), mtu: 1538 }
    }
}

impl CakeConfig {
    /// Whether every value lies within its limits.
    ///
    /// # Errors
    ///
    /// The first that does not, with its limits.
    pub fn validate(&self) -> Result<(), ParamError> {
        delay_within("rtt_us", self.rtt, 1)?;
        mtu_within(self.mtu)
    }
}

/// CAKE of one queue id.
#[derive(Debug)]
pub struct Cake {
    config: CakeConfig,
    tins: Box<[Tin]>,
    backlogs: Backlogs,
    dice: Dice,
    pace: Pace,
    /// The last time that was told.
    now: Nanos,
    /// Whom `select` named since anything changed.
    selected: Option<u32>,
}

impl Cake {
    /// Empty tins; takes all the memory it will ever hold.
    ///
    /// # Errors
    ///
    /// A value outside its limits.
    pub fn new(config: CakeConfig) -> Result<Self, ParamError> {
        config.validate()?;
        let shifts = config.tins.shifts();
        let mut bases = 0..;
        let tins: Box<[Tin]> = shifts
            .iter()
            .map(|&shift| Tin::new(shift, bases.next().unwrap_or(0) * QUEUES, config.host_fairness))
            .collect();
        let queues = bases.start * QUEUES;
        let mut cake = Self {
            config,
            tins,
            backlogs: Backlogs::new(queues),
            dice: Dice::new(0),
            pace: Pace::default(),
            now: Nanos::ZERO,
            selected: None,
        };
        cake.set_pace(cake.pace);
        Ok(cake)
    }

    /// Packets that put their flow in a queue in use by another (`way_collisions`).
    pub fn collisions(&self) -> u64 {
        self.tins.iter().map(Tin::collisions).sum()
    }

    fn set_pace(&mut self, pace: Pace) {
        self.pace = pace;
        for tin in &mut self.tins {
            tin.set_pace(pace, self.config.rtt, self.config.mtu);
        }
    }

    fn tin(&mut self, queue: u32) -> &mut Tin {
        &mut self.tins[(queue / QUEUES) as usize]
    }

    /// The tin to serve: the last on schedule, else the one due first.
    fn choose(&self, now: Nanos) -> Option<usize> {
        let mut best = None;
        for (at, tin) in self.tins.iter().enumerate().filter(|(_, tin)| tin.is_active()) {
            let wait = tin.due().signed_since(now);
            if wait <= 0 || best.is_none_or(|(_, least)| wait <= least) {
                best = Some((at, wait));
            }
        }
        best.map(|(at, _)| at)
    }

    /// A packet left a queue.
    fn left(&mut self, queue: u32, bytes: u32) {
        self.selected = None;
        self.backlogs.take(queue, bytes);
        self.tin(queue).waiting -= 1;
    }
}

impl Qdisc for Cake {
    fn queues(&self) -> u32 {
        self.backlogs.queues()
    }

    fn arrive(&mut self, packet: &Arriving) -> Arrival {
        self.now = packet.now;
        self.selected = None;
        if packet.pace != self.pace {
            self.set_pace(packet.pace);
        }
        let tin = &mut self.tins[self.config.tins.of(packet.key.dscp)];
        let queue = tin.arrive(packet.now, &packet.key);
        self.backlogs.add(queue, packet.bytes);
        Arrival::Queue(queue)
    }

    fn shed(&mut self, over_limit: bool) -> Option<(u32, End)> {
        if !over_limit {
            return None;
        }
        let (queue, now) = (self.backlogs.fat()?, self.now);
        self.tin(queue).overflow(queue, now);
        Some((queue, End::Head))
    }

    fn select(&mut self, now: Nanos) -> Option<u32> {
        if self.selected.is_some() || self.backlogs.waiting() == 0 {
            return self.selected;
        }
        let mut probe = true;
        while let Some(at) = self.choose(now) {
            if let Turn::Serve(queue) = self.tins[at].turn(&self.backlogs, now, &mut probe) {
                self.selected = Some(queue);
                break;
            }
        }
        self.selected
    }

    fn decide(&mut self, packet: &Leaving) -> Verdict {
        self.now = packet.now;
        self.left(packet.queue, packet.bytes);
        let can_mark = match packet.ecn {
            Ecn::NotEct => false,
            Ecn::Ect1 => packet.rule != Rule::Exclude,
            Ecn::Ect0 | Ecn::Ce => true,
        };
        let tin = &mut self.tins[(packet.queue / QUEUES) as usize];
        let wanted = tin.decide(packet, can_mark, &mut self.dice);
        // the last packet of a queue may be marked but not dropped
        let may_drop = self.backlogs.packets(packet.queue) > 0;
        if may_drop && wanted.blue {
            Verdict::Drop(Cause::Law)
        } else if wanted.signal && (may_drop || can_mark) {
            act(packet.ecn, packet.rule)
        } else {
            Verdict::Pass
        }
    }

    fn sent(&mut self, queue: u32, bytes: u32) {
        self.selected = None;
        let now = self.now;
        self.tin(queue).sent(queue, bytes, now);
    }

    fn removed(&mut self, queue: u32, bytes: u32) {
        self.left(queue, bytes);
    }

    fn memory(&self) -> usize {
        let tins: usize = self.tins.iter().map(Tin::memory).sum();
        size_of::<Self>() + size_of_val(&*self.tins) + tins + self.backlogs.memory()
    }
}

#[cfg(test)]
mod tests;
