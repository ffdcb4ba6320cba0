// SPDX-License-Identifier: Apache-2.0
//! /proc and /sys below a root that tests replace.

use std::path::{Path, PathBuf};

/// A machine.
pub(super) struct Machine(PathBuf);

impl Machine {
    pub(super) fn real() -> Self {
        Self(PathBuf::from("/"))
    }

    #[cfg(test)]
    pub(super) fn below(root: &Path) -> Self {
        Self(root.to_owned())
    }

    /// A file's text without the white space around it.
    pub(super) fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.0.join(path)).ok().map(|text| text.trim().to_owned())
    }

    pub(super) fn number(&self, path: &str) -> Option<u64> {
        self.read(path)?.parse().ok()
    }

    pub(super) fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.0.join(path).exists()
    }

    /// Last part of what a link leads to.
    pub(super) fn link(&self, path: &str) -> Option<String> {
        let target = std::fs::read_link(self.0.join(path)).ok()?;
        target.file_name().map(|name| name.to_string_lossy().into_owned())
    }

    /// Names in a folder, sorted; none where it is not.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.join(path)).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// A line of a file of `KEY: value` lines.
    pub(super) fn field(&self, path: &str, key: &str) -> Option<String> {
        let text = self.read(path)?;
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix(':'))?;
        Some(line.trim().to_owned())
    }

    /// CPUs of a kernel list in a file.
    pub(super) fn cpus(&self, path: &str) -> Vec<u32> {
        self.read(path).map(|list| cpu_list(&list)).unwrap_or_default()
    }

    /// Free MB on huge pages of all sizes, and how many pages of 2 MB there are.
    pub(super) fn huge_pages(&self) -> (u64, u64) {
        const FOLDER: &str = "sys/kernel/mm/hugepages";
        let sizes = self.names(FOLDER);
        let free = sizes.iter().filter_map(|name| {
            let kb: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            let count = |file: &str| self.number(&format!("{FOLDER}/{name}/{file}")).unwrap_or(0);
            Some(count("free_hugepages").saturating_sub(count("resv_hugepages")) * kb / 1024)
        });
        (free.sum(), self.number(&format!("{FOLDER}/hugepages-2048kB/nr_hugepages")).unwrap_or(0))
    }
}

/// The numbers of a list such as "0-3,8"; what is none ("(null)") is left out.
pub(super) fn cpu_list(list: &str) -> Vec<u32> {
    let part = |part: &str| -> Option<std::ops::RangeInclusive<u32>> {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.trim().parse().ok()?..=to.trim().parse().ok()?)
    };
    list.split(',').filter_map(part).flatten().collect()
}
