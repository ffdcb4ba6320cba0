// SPDX-License-Identifier: Apache-2.0
//! How many packet buffers there are, where they may wait, and what memory that takes.
//!
//! Invariant: what descriptors, rings and caches can hold is taken off before the shards get their share, so the
//! pool never runs dry while the shards keep to theirs.

use model::Config;
use model::config::Lcores;

/// Room of a buffer: 2048 bytes of frame behind DPDK's headroom; longer frames come in several buffers.
pub(crate) const DATA_ROOM: u16 = 2048 + 128;
/// Buffers each lcore keeps to itself.
pub(crate) const CACHE: u32 = 256;
/// Packets a ring between an RX lcore and a shard holds (one place of an rte_ring stays empty).
pub(crate) const RING: u32 = 4_095;
/// Descriptors of an rx queue.
pub(crate) const RX_DESCRIPTORS: u16 = 1_024;
/// A port whose speed nobody knows yet is planned for as one of 10 Gb/s.
const ASSUMED_BPS: u64 = 10_000_000_000;
/// Traffic that may wait for each port: its rate for this long, in packets of `PLANNED_BYTES`. The PI target is
/// 15 ms; full limits of all subscribers at once are what the dynamic threshold is for.
const WAIT_US: u64 = 50_000;
const PLANNED_BYTES: u64 = 1_000;
/// Bounds of what is planned.
const FEWEST: u64 = 16_384;
const MOST: u64 = 4_194_304;
/// Memory of a buffer with all that DPDK puts around it.
const BUFFER_BYTES: u64 = DATA_ROOM as u64 + 256;
/// The same without huge pages: no buffer crosses a page of 4 KiB, so each takes one (measured with testpmd: 65,536
/// buffers fit 330 MB, not 260).
const PLAIN_BUFFER_BYTES: u64 = 4_096;
/// What EAL, rings and drivers need beside the buffers.
const OVERHEAD_MB: u64 = 64;

/// Packet buffers of a NUMA node, planned before the EAL starts.
pub(crate) fn buffers(config: &Config) -> u32 {
    let rates = config.ports.iter().map(|port| port.rate_bps.unwrap_or(ASSUMED_BPS));
    let wanted: u64 = rates.map(|bps| bps / 8 * WAIT_US / 1_000_000 / PLANNED_BYTES).sum();
    let sized = (wanted.clamp(FEWEST, MOST) + fixed(config, rx_queues(config), 1)).next_multiple_of(1024);
    config.dataplane.buffers.unwrap_or_else(|| u32::try_from(sized).unwrap_or(u32::MAX))
}

/// Memory for that many buffers and the EAL, with huge pages or without.
pub(crate) fn mb(buffers: u32, huge: bool) -> u32 {
    let each = if huge { BUFFER_BYTES } else { PLAIN_BUFFER_BYTES };
    let mb = (u64::from(buffers) * each).div_ceil(1 << 20) + OVERHEAD_MB;
    u32::try_from(mb).unwrap_or(u32::MAX)
}

/// RX and TX lcores of a configuration.
pub(crate) fn workers(config: &Config) -> (u32, u32) {
    match &config.dataplane.lcores {
        Lcores::Compact(_) => (1, 1),
        Lcores::Split { rx, tx, .. } => {
            (u32::try_from(rx.len()).unwrap_or(1), u32::try_from(tx.len()).unwrap_or(1))
        }
    }
}

/// Rx queues of all ports, if each has one for every RX lcore.
pub(crate) fn rx_queues(config: &Config) -> u64 {
    config.ports.len() as u64 * u64::from(workers(config).0)
}

/// Buffers that can be somewhere else than in a shard, with so many rx queues and `tx_descriptors` in a tx queue.
fn fixed(config: &Config, rx_queues: u64, tx_descriptors: u16) -> u64 {
    let (rx, tx) = workers(config);
    let ports = config.ports.len() as u64;
    let (rx, tx) = (u64::from(rx), u64::from(tx));
    let descriptors = rx_queues * u64::from(RX_DESCRIPTORS) + ports * tx * u64::from(tx_descriptors);
    let caches = (rx + tx + 1) * u64::from(CACHE) * 3 / 2;
    descriptors + rx * tx * u64::from(RING) + caches + ports * tx * 64
}

/// Buffers each shard may hold; an error names how many there must be at least.
pub(crate) fn shard_share(
    config: &Config,
    buffers: u32,
    rx_queues: u64,
    tx_descriptors: u16,
) -> Result<u32, u32> {
    let fixed = fixed(config, rx_queues, tx_descriptors);
    let (_, shards) = workers(config);
    let least = fixed + u64::from(shards) * 1_024;
    if u64::from(buffers) < least {
        return Err(u32::try_from(least).unwrap_or(u32::MAX));
    }
    Ok(u32::try_from((u64::from(buffers) - fixed) / u64::from(shards)).unwrap_or(u32::MAX))
}

/// Fewest and most descriptors of a tx queue; below the fewest, drivers refuse.
const TX_DESCRIPTORS: (u64, u64) = (32, 1024);

/// Descriptors of a tx queue: at most 100 us of full packets at the port's rate, but never fewer than drivers take.
pub(crate) fn tx_descriptors(rate_bps: Option<u64>) -> u16 {
    let packets = rate_bps.unwrap_or(ASSUMED_BPS) / 8 / 1538 / 10_000;
    let (fewest, most) = TX_DESCRIPTORS;
    // drivers want a power of two
    let rounded = 1 << packets.max(1).ilog2();
    u16::try_from(rounded.clamp(fewest, most)).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tx_ring_holds_no_more_than_100_us_of_full_packets_where_drivers_can() {
        for bps in [10_000_000_000_u64, 25_000_000_000, 40_000_000_000, 100_000_000_000, 400_000_000_000] {
            let held_ns = u64::from(tx_descriptors(Some(bps))) * 1538 * 8 * 1_000_000_000 / bps;
            assert!(held_ns <= 100_000, "{bps}: {held_ns} ns");
        }
        for bps in [1_000_000, 1_000_000_000] {
            assert_eq!(tx_descriptors(Some(bps)), 32, "{bps}");
        }
        assert_eq!(tx_descriptors(None), 64, "as one of 10 Gb/s");
    }

    #[test]
    fn without_huge_pages_each_buffer_takes_a_page() {
        assert!(mb(65_536, false) >= 256 + 64);
        assert!(mb(65_536, true) < 256);
    }
}
