// SPDX-License-Identifier: Apache-2.0
//! Profiles as the packet path needs them: operator units turned into internal ones, once.
//!
//! A profile is named by its index (`u16`), which stays the same for the life of a [`Profiles`] and in those that
//! [`Profiles::with`] makes of it: there a profile that has changed gets another index, and what the old one says stays
//! true for whoever has it still.

use std::collections::BTreeMap;

use aqm::{
    Backlog, BitsPerSec, DualPi2Config, DualPi2Params, Nanos, Pace, ParamError, PiParams, QueueProtection,
    QueueProtectionConfig,
};
use model::profile::{Aqm, Compat, DualPi2, Native, Overhead, Overload};

use crate::discipline::Discipline;
use crate::recipe::Recipe;

/// A queue limit is never below this many full packets, or slow subscribers could not hold two.
const LIMIT_PACKETS: u64 = 8;
/// The PI target is at least the time of this many full packets at the served rate.
const TARGET_PACKETS: u64 = 3;

/// Why profiles cannot be turned into parameters.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// More than an index can name.
    #[error("{0} profiles are more than 65,535")]
    TooMany(usize),
    /// An AQM refuses its parameters.
    #[error("profile {name:?}: {source}")]
    Aqm {
        /// The profile.
        name: String,
        /// What is wrong.
        source: ParamError,
    },
    /// A PI interval for which there is no bank.
    #[error("profile {name:?}: no profile had tupdate_us = {tupdate_us} at start")]
    Interval {
        /// The profile.
        name: String,
        /// Its interval.
        tupdate_us: u64,
    },
    /// More changes than there is room for.
    #[error("profiles have changed {} times since the start", aqm::MORE_PROFILES)]
    Spent,
}

/// All profiles of a configuration.
#[derive(Debug)]
pub struct Profiles {
    by_name: BTreeMap<String, u16>,
    /// The name of each index.
    names: Vec<String>,
    /// What was read, by name.
    sources: BTreeMap<String, model::Profile>,
    /// How many there were at first.
    first: usize,
    list: Vec<ProfileParams>,
    banks: Vec<BankPlan>,
}

/// The profiles that share a Tupdate.
#[derive(Clone, Debug)]
pub(crate) struct BankPlan {
    pub(crate) tupdate: Nanos,
    pub(crate) profiles: Vec<PiParams>,
}

/// A profile's place in a PI bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BankPlace {
    /// Which bank.
    pub(crate) bank: usize,
    /// Which of the bank's profiles.
    pub(crate) profile: u16,
}

/// One profile on the packet path.
#[derive(Clone, Debug)]
pub(crate) struct ProfileParams {
    /// What a packet costs beyond its IP length.
    pub(crate) overhead: Overhead,
    /// A full packet on the line.
    pub(crate) mtu: u32,
    /// Most packets of L and C together.
    pub(crate) limit_packets: u32,
    /// Which AQM.
    pub(crate) discipline: Discipline,
    /// Queue protection of L.
    pub(crate) protection: Option<QueueProtectionConfig>,
    /// Where its p' lives.
    pub(crate) place: Option<BankPlace>,
    limit: Nanos,
    /// The kernel's arithmetic: PI runs whatever the backlog.
    linux: bool,
}

impl ProfileParams {
    /// Whether the PI controller should see the heads of these queues: from the backlog on at which p' is used,
    /// so that conforming traffic touches no line of the bank; the kernel's controller always sees them.
    #[inline]
    pub(crate) fn watches(&self, l: Backlog, c: Backlog) -> bool {
        self.place.is_some() && (self.linux && l.packets + c.packets > 0 || self.discipline.needs_p(0, l, c))
    }

    /// The limit on the bytes of L and C together at a rate.
    pub(crate) fn limit_bytes(&self, rate: BitsPerSec) -> u32 {
        let bytes = u128::from(rate.0) * u128::from(self.limit.0) / 8_000_000_000;
        let bytes = bytes.max(u128::from(LIMIT_PACKETS * u64::from(self.mtu)));
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// The PI target at a served rate.
    pub(crate) fn target(&self, served: Pace) -> Nanos {
        let least = served.time(TARGET_PACKETS * u64::from(self.mtu));
        self.discipline.pi().map_or(Nanos::ZERO, |pi| pi.target().max(least))
    }
}

impl Profiles {
    /// From validated profiles; indices follow the order of names.
    ///
    /// # Errors
    /// When there are too many, or an AQM refuses its parameters.
    pub fn new(profiles: &BTreeMap<String, model::Profile>) -> Result<Self, ProfileError> {
        let mut all = Self {
            by_name: BTreeMap::new(),
            names: Vec::new(),
            sources: BTreeMap::new(),
            first: profiles.len(),
            list: Vec::with_capacity(profiles.len()),
            banks: Vec::new(),
        };
        for (name, profile) in profiles {
            all.add(name, profile)?;
        }
        Ok(all)
    }

    /// These and what is new or different in `profiles`; one that is not there any more stays as it is.
    ///
    /// # Errors
    /// As [`new`](Self::new); and where a bank would be missing or has no room.
    pub fn with(&self, profiles: &BTreeMap<String, model::Profile>) -> Result<Self, ProfileError> {
        let mut all = Self {
            by_name: self.by_name.clone(),
            names: self.names.clone(),
            sources: self.sources.clone(),
            first: self.first,
            list: self.list.clone(),
            banks: self.banks.clone(),
        };
        for (name, profile) in profiles {
            if all.sources.get(name) == Some(profile) {
                continue;
            }
            all.add(name, profile)?;
            if all.banks.len() > self.banks.len() {
                let tupdate_us = all.banks.last().map_or(0, |plan| plan.tupdate.0 / 1_000);
                return Err(ProfileError::Interval { name: name.clone(), tupdate_us });
            }
        }
        if all.list.len() > all.first + aqm::MORE_PROFILES {
            return Err(ProfileError::Spent);
        }
        Ok(all)
    }

    fn add(&mut self, name: &str, profile: &model::Profile) -> Result<(), ProfileError> {
        let index = u16::try_from(self.list.len()).map_err(|_| ProfileError::TooMany(self.list.len() + 1))?;
        let refused = |source| ProfileError::Aqm { name: name.to_owned(), source };
        let discipline = discipline(profile).map_err(refused)?;
        let place = discipline.pi().map(|pi| self.place(pi));
        self.by_name.insert(name.to_owned(), index);
        self.names.push(name.to_owned());
        self.sources.insert(name.to_owned(), profile.clone());
        self.list.push(ProfileParams {
            overhead: profile.overhead,
            mtu: profile.mtu,
            limit_packets: profile.limit_packets.unwrap_or(u32::MAX),
            discipline,
            protection: protection(profile).map_err(refused)?,
            place,
            limit: Nanos::from_micros(profile.limit_us),
            linux: is_linux(&profile.aqm),
        });
        Ok(())
    }

    /// The index that the profile of an index has now.
    pub fn current(&self, index: u16) -> u16 {
        self.names.get(usize::from(index)).and_then(|name| self.index(name)).unwrap_or(index)
    }

    /// A place in the bank of this Tupdate.
    fn place(&mut self, pi: PiParams) -> BankPlace {
        let known = self.banks.iter().position(|plan| plan.tupdate == pi.tupdate());
        let bank = known.unwrap_or_else(|| {
            self.banks.push(BankPlan { tupdate: pi.tupdate(), profiles: Vec::new() });
            self.banks.len() - 1
        });
        let profiles = &mut self.banks[bank].profiles;
        profiles.push(pi);
        // there are no more than profiles with an index
        BankPlace { bank, profile: u16::try_from(profiles.len() - 1).unwrap_or(u16::MAX) }
    }

    /// The index of a profile.
    pub fn index(&self, name: &str) -> Option<u16> {
        self.by_name.get(name).copied()
    }

    /// The name of a profile.
    pub fn name(&self, index: u16) -> Option<&str> {
        self.names.get(usize::from(index)).map(String::as_str)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Parameters by index.
    #[inline]
    pub(crate) fn get(&self, index: u16) -> Option<&ProfileParams> {
        self.list.get(usize::from(index))
    }

    #[cfg(test)]
    fn place_of(&self, name: &str) -> Option<BankPlace> {
        self.get(self.index(name)?)?.place
    }

    /// One bank for each Tupdate in use.
    pub(crate) fn banks(&self) -> &[BankPlan] {
        &self.banks
    }
}

/// Whether an AQM is to use the kernel's arithmetic.
const fn is_linux(aqm: &Aqm) -> bool {
    match aqm {
        Aqm::DualPi2(keys) | Aqm::Pi2(keys) => matches!(keys.compat, Compat::Linux),
        _ => false,
    }
}

/// The AQM of a profile.
fn discipline(profile: &model::Profile) -> Result<Discipline, ParamError> {
    if let Some(recipe) = Recipe::new(profile)? {
        return Ok(Discipline::Managed(recipe));
    }
    Ok(match &profile.aqm {
        Aqm::DualPi2(keys) => Discipline::DualPi2(DualPi2Params::new(&config(profile, keys))?),
        Aqm::Pi2(keys) => Discipline::Pi2(DualPi2Params::new(&config(profile, keys))?),
        _ => Discipline::Fifo,
    })
}

/// Queue protection of a profile, if it has any: sanctions begin where the ramp ends (RFC 9957: CRITICALqL is MAXTH).
fn protection(profile: &model::Profile) -> Result<Option<QueueProtectionConfig>, ParamError> {
    let Aqm::DualPi2(keys) = &profile.aqm else { return Ok(None) };
    if !keys.queue_protection {
        return Ok(None);
    }
    let critical_us = match keys.native {
        Native::Ramp { min_us, range_us } => min_us.saturating_add(range_us),
        Native::Step { threshold_us } => threshold_us.max(1),
    };
    let critical_delay = Nanos::from_micros(critical_us);
    let config = QueueProtectionConfig { critical_delay, ..QueueProtectionConfig::default() };
    QueueProtection::new(config)?;
    Ok(Some(config))
}

/// Keys of a profile in the AQM's own terms.
fn config(profile: &model::Profile, keys: &DualPi2) -> DualPi2Config {
    DualPi2Config {
        target: Nanos::from_micros(keys.target_us),
        tupdate: Nanos::from_micros(keys.tupdate_us),
        alpha_hz: keys.alpha_hz,
        beta_hz: keys.beta_hz,
        coupling: keys.coupling,
        native: match keys.native {
            Native::Ramp { min_us, range_us } => {
                aqm::Native::Ramp { min: Nanos::from_micros(min_us), range: Nanos::from_micros(range_us) }
            }
            Native::Step { threshold_us } => {
                aqm::Native::Step { threshold: Nanos::from_micros(threshold_us) }
            }
        },
        floor_packets: keys.floor_packets,
        mtu: profile.mtu,
        classic_protection_percent: keys.classic_protection_percent,
        overload: match keys.overload {
            Overload::Drop => aqm::Overload::Drop,
            Overload::Overflow => aqm::Overload::Overflow,
        },
        any_ect: keys.any_ect,
        queue_protection: keys.queue_protection,
        l4s: profile.l4s,
        ecn: profile.ecn,
        compat: match keys.compat {
            Compat::Rfc => aqm::Compat::Rfc,
            Compat::Linux => aqm::Compat::Linux,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_gets_another_index_and_what_was_there_stays() {
        let profile = |limit_us| model::Profile { limit_us, ..model::Profile::default() };
        let named = |all: &[(&str, u64)]| -> BTreeMap<_, _> {
            all.iter().map(|(name, limit_us)| ((*name).to_owned(), profile(*limit_us))).collect()
        };
        let first = Profiles::new(&named(&[("a", 100_000), ("b", 100_000)])).expect("profiles");
        let next = first.with(&named(&[("b", 200_000), ("c", 100_000)])).expect("profiles");
        let index = |name| next.index(name).expect("a profile");
        assert_eq!((index("a"), index("b"), index("c"), next.len()), (0, 2, 3, 4));
        assert_eq!([0, 1, 2, 3].map(|old| next.current(old)), [0, 2, 2, 3]);
        let limit =
            |all: &Profiles, index| all.get(index).map(|params| params.limit_bytes(BitsPerSec(8_000_000)));
        assert_eq!((limit(&next, 1), limit(&next, 2)), (limit(&first, 1), Some(200_000)));
        assert_eq!(next.with(&named(&[("b", 200_000)])).expect("profiles").len(), 4, "the same is no change");
        assert!(next.place_of("b") != next.place_of("a") && next.banks().len() == 1);
        let banks = crate::PiBanks::new(&first, 0, 1, 64);
        assert!(banks.extend(&next) && banks.extend(&next));
    }

    #[test]
    fn another_interval_and_endless_changes_are_refused() {
        let first =
            Profiles::new(&BTreeMap::from([("a".to_owned(), model::Profile::default())])).expect("a profile");
        let other = model::profile::DualPi2 { tupdate_us: 32_000, ..model::profile::DualPi2::default() };
        let slow = model::Profile { aqm: Aqm::DualPi2(other), ..model::Profile::default() };
        let refused = first.with(&BTreeMap::from([("b".to_owned(), slow)])).expect_err("an interval");
        assert!(refused.to_string().contains("no profile had tupdate_us = 32000"), "{refused}");
        let changed = |all: Profiles, turn| {
            let profile = model::Profile { limit_us: 100_000 + turn, ..model::Profile::default() };
            all.with(&BTreeMap::from([("a".to_owned(), profile)]))
        };
        let end = (0..300_u64).try_fold(first, changed).expect_err("no room for ever");
        assert!(matches!(end, ProfileError::Spent), "{end}");
    }

    #[test]
    fn buffer_sizes_are_those_of_docsis_where_the_limit_is_100_ms() {
        let profile = model::Profile { limit_us: 100_000, mtu: 2_000, ..model::Profile::default() };
        let all = Profiles::new(&BTreeMap::from([("c".to_owned(), profile)])).expect("a profile");
        let params = all.get(0).expect("the one");
        // docsis-ns3: AMSR 50 Mb/s, peak 40, 16 for a single flow
        for (mbps, bytes) in [(50, 625_000), (40, 500_000), (16, 200_000)] {
            assert_eq!(params.limit_bytes(BitsPerSec(mbps * 1_000_000)), bytes, "{mbps} Mb/s");
        }
        assert_eq!(params.limit_bytes(BitsPerSec(64_000)), 16_000, "never below 8 full packets");
    }
}
