// SPDX-License-Identifier: Apache-2.0
//! Profiles as the packet path needs them: operator units turned into internal ones, once.
//!
//! A profile is named by its index (`u16`), which stays the same for the life of a [`Profiles`].

use std::collections::BTreeMap;

use model::profile::Overhead;

/// Why profiles cannot be turned into parameters.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// More than an index can name.
    #[error("{0} profiles are more than 65,535")]
    TooMany(usize),
}

/// All profiles of a configuration.
#[derive(Debug)]
pub struct Profiles {
    by_name: BTreeMap<String, u16>,
    list: Vec<ProfileParams>,
}

/// One profile on the packet path.
#[derive(Debug)]
pub(crate) struct ProfileParams {
    /// What a packet costs beyond its IP length.
    pub(crate) overhead: Overhead,
}

impl Profiles {
    /// From validated profiles; indices follow the order of names.
    ///
    /// # Errors
    /// When there are too many, or an AQM refuses its parameters.
    pub fn new(profiles: &BTreeMap<String, model::Profile>) -> Result<Self, ProfileError> {
        let mut by_name = BTreeMap::new();
        let mut list = Vec::with_capacity(profiles.len());
        for (name, profile) in profiles {
            let index = u16::try_from(list.len()).map_err(|_| ProfileError::TooMany(profiles.len()))?;
            by_name.insert(name.clone(), index);
            list.push(ProfileParams { overhead: profile.overhead });
        }
        Ok(Self { by_name, list })
    }

    /// The index of a profile.
    pub fn index(&self, name: &str) -> Option<u16> {
        self.by_name.get(name).copied()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}
