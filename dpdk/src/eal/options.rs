// SPDX-License-Identifier: Apache-2.0
//! What EAL is started with.

use super::log::LogTo;

/// An lcore and the CPU it runs on; several lcores may share a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lcore {
    /// DPDK's number.
    pub id: u32,
    /// Linux's number of the CPU.
    pub cpu: u32,
}

/// Where EAL takes its memory from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Reserved huge pages, without files (`--in-memory`): `mb` at start (0: none), more on demand.
    Huge {
        /// MB to take at start.
        mb: u32,
    },
    /// Plain pages (`--no-huge`): exactly `mb`, slower.
    NoHuge {
        /// MB in all.
        mb: u32,
    },
}

/// What EAL is started with.
#[derive(Clone, Debug)]
pub struct EalOptions {
    /// The lcores.
    pub lcores: Vec<Lcore>,
    /// Number of the main lcore, which must be among them.
    pub main: u32,
    /// Tells instances on one machine apart.
    pub file_prefix: String,
    /// Memory.
    pub memory: Memory,
    /// vdevs with their arguments, as in "net_af_packet0,iface=core0".
    pub vdevs: Vec<String>,
    /// PCI addresses, with arguments after a comma if any; no other PCI device is touched.
    pub allow: Vec<String>,
    /// The operator's own arguments, passed as they are.
    pub extra: Vec<String>,
    /// Whether EAL opens its telemetry socket.
    pub telemetry: bool,
    /// Where EAL's log goes beside the tail that is kept.
    pub log: LogTo,
}

impl EalOptions {
    /// Options without devices: `lcores` of which the first is main, no telemetry, a quiet log.
    pub fn new(file_prefix: &str, lcores: Vec<Lcore>, memory: Memory) -> Self {
        Self {
            main: lcores.first().map_or(0, |l| l.id),
            lcores,
            file_prefix: file_prefix.to_owned(),
            memory,
            vdevs: Vec::new(),
            allow: Vec::new(),
            extra: Vec::new(),
            telemetry: false,
            log: LogTo::Tail,
        }
    }

    /// The prefix in force: the operator's own argument wins.
    pub(crate) fn prefix(&self) -> &str {
        let mut prefix = self.file_prefix.as_str();
        let mut arguments = self.extra.iter();
        while let Some(argument) = arguments.next() {
            if let Some(value) = argument.strip_prefix("--file-prefix=") {
                prefix = value;
            } else if argument == "--file-prefix" {
                prefix = arguments.next().map_or(prefix, String::as_str);
            }
        }
        prefix
    }

    /// EAL's command line.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let lcores: Vec<String> = self.lcores.iter().map(|l| format!("{}@{}", l.id, l.cpu)).collect();
        let mut arguments = vec!["sluice".to_owned(), format!("--lcores={}", lcores.join(","))];
        arguments.push(format!("--main-lcore={}", self.main));
        arguments.push(format!("--file-prefix={}", self.file_prefix));
        match self.memory {
            // EAL refuses --in-memory together with --no-huge.
            Memory::Huge { mb } => {
                arguments.push("--in-memory".to_owned());
                if mb > 0 {
                    arguments.extend(["-m".to_owned(), mb.to_string()]);
                }
            }
            // Nor would a second process share such memory, so no files of 3 MB are left behind for one.
            Memory::NoHuge { mb } => {
                let mb = mb.to_string();
                arguments.extend(["--no-huge", "--no-shconf", "-m", &mb].map(str::to_owned));
            }
        }
        if self.allow.is_empty() {
            // Else EAL probes whatever NIC it finds.
            arguments.push("--no-pci".to_owned());
        }
        arguments.extend(self.allow.iter().map(|address| format!("--allow={address}")));
        arguments.extend(self.vdevs.iter().map(|vdev| format!("--vdev={vdev}")));
        if !self.telemetry {
            arguments.push("--no-telemetry".to_owned());
        }
        arguments.extend(self.extra.iter().cloned());
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(memory: Memory) -> EalOptions {
        EalOptions::new("sluice", vec![Lcore { id: 3, cpu: 0 }, Lcore { id: 1, cpu: 1 }], memory)
    }

    #[test]
    fn huge_pages_and_no_huge_never_meet() {
        let huge = options(Memory::Huge { mb: 256 }).arguments().join(" ");
        assert_eq!(
            huge,
            "sluice --lcores=3@0,1@1 --main-lcore=3 --file-prefix=sluice --in-memory -m 256 --no-pci --no-telemetry"
        );
        let plain = options(Memory::NoHuge { mb: 64 }).arguments().join(" ");
        assert!(plain.contains("--no-huge --no-shconf -m 64") && !plain.contains("--in-memory"), "{plain}");
    }

    #[test]
    fn pci_is_probed_only_for_the_devices_named() {
        let mut with = options(Memory::Huge { mb: 0 });
        with.allow.push("0000:03:00.0".to_owned());
        let line = with.arguments().join(" ");
        assert!(line.contains("--allow=0000:03:00.0") && !line.contains("--no-pci"), "{line}");
    }

    #[test]
    fn the_operators_prefix_wins() {
        let mut with = options(Memory::Huge { mb: 0 });
        assert_eq!(with.prefix(), "sluice");
        with.extra = vec!["--file-prefix".to_owned(), "a".to_owned()];
        assert_eq!(with.prefix(), "a");
        with.extra = vec!["--file-prefix=b".to_owned()];
        assert_eq!(with.prefix(), "b");
    }
}
