// SPDX-License-Identifier: Apache-2.0
//! The files a load is made of: subscribers and, beside them, the aggregates above.

use std::path::PathBuf;

use anyhow::Context;
use model::import::network::{self, Network};
use model::import::{self, Imported, Parents};
use model::{Problem, Problems};

/// Where records come from.
#[derive(clap::Args)]
pub(super) struct SourceArgs {
    /// NDJSON, a JSON array, ShapedDevices.csv, or chap-secrets
    pub(super) file: PathBuf,
    /// network.json: its sites and access points become parents, above the rows that name them
    #[arg(long, value_name = "FILE")]
    pub(super) network: Option<PathBuf>,
    /// Profile of the rows of ShapedDevices.csv and chap-secrets
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(super) profile: String,
}

/// Good files.
pub(super) struct Source {
    /// The subscribers' file, as messages name it.
    pub(super) name: String,
    pub(super) imported: Imported,
    pub(super) network: Option<Network>,
    /// What was left out, a line each.
    pub(super) notes: Vec<String>,
}

/// What the files hold.
pub(super) struct Texts {
    pub(super) subscribers: Vec<u8>,
    pub(super) network: Option<Vec<u8>>,
}

impl SourceArgs {
    pub(super) fn texts(&self) -> anyhow::Result<Texts> {
        let read = |path: &PathBuf| {
            std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))
        };
        Ok(Texts { subscribers: read(&self.file)?, network: self.network.as_ref().map(read).transpose()? })
    }

    /// Parses both; all problems of both come back together.
    pub(super) fn parse(&self, texts: &Texts) -> Result<Source, Problems> {
        let name = self.file.display().to_string();
        let options = import::Options { profile: self.profile.clone() };
        let imported = import::read(&name, &texts.subscribers, &options);
        let tree_name = self.network.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        let network = texts.network.as_ref().map(|bytes| network::read(&tree_name, bytes)).transpose();
        let (mut imported, network) = both(imported, network)?;
        if let Some(network) = &network {
            imported.settle(&name, Parents::Network(network))?;
        }
        let tree = network.iter().flat_map(|network| &network.notes);
        let notes = tree.map(|note| format!("{tree_name}: note: {note}"));
        let notes =
            notes.chain(imported.notes.drain(..).map(|note| format!("{name}: note: {note}"))).collect();
        Ok(Source { name, imported, network, notes })
    }
}

fn both<A, B>(a: Result<A, Problems>, b: Result<B, Problems>) -> Result<(A, B), Problems> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok((a, b)),
        (a, b) => {
            let all: [Vec<Problem>; 2] =
                [a.err(), b.err()].map(|problems| problems.map(|Problems(all)| all).unwrap_or_default());
            Err(Problems(all.concat()))
        }
    }
}
