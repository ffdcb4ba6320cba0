// SPDX-License-Identifier: Apache-2.0
//! Raw frames: built by hand, sent by tcpreplay, received by tcpdump.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::machine::wait_for;
use crate::rig::{Namespace, Process};

/// Classic pcap: microseconds, little endian, version 2.4, Ethernet.
const PCAP_HEADER: [u8; 24] =
    [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0];

/// Everybody.
pub const BROADCAST: [u8; 6] = [0xff; 6];

/// An Ethernet frame, padded to the 60 bytes that a wire carries at least.
pub fn ethernet(dst: [u8; 6], src: [u8; 6], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [&dst[..], &src, &ethertype.to_be_bytes(), payload].concat();
    frame.resize(frame.len().max(60), 0);
    frame
}

/// RFC 1071.
fn checksum(words: &[u8]) -> u16 {
    let sum: u32 =
        words.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u32::from)).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    u16::try_from(!(folded + (folded >> 16)) & 0xffff).unwrap_or(0)
}

/// An IPv4 packet without options.
pub fn ipv4(src: [u8; 4], dst: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
    let total = u16::try_from(20 + payload.len()).unwrap_or(u16::MAX).to_be_bytes();
    let mut header =
        [&[0x45, 0, total[0], total[1], 0, 1, 0, 0, 64, protocol, 0, 0][..], &src, &dst].concat();
    let sum = checksum(&header).to_be_bytes();
    header[10..12].copy_from_slice(&sum);
    [header, payload.to_vec()].concat()
}

/// An IPv6 packet without extension headers.
pub fn ipv6(src: [u8; 16], dst: [u8; 16], next_header: u8, hop_limit: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap_or(u16::MAX).to_be_bytes();
    let start = [0x60, 0, 0, 0, length[0], length[1], next_header, hop_limit];
    [&start[..], &src, &dst, payload].concat()
}

/// A UDP datagram over IPv4 (its checksum is 0: none).
pub fn udp(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + payload.len()).unwrap_or(u16::MAX);
    let mut datagram = Vec::new();
    for field in [source, destination, length, 0] {
        datagram.extend(field.to_be_bytes());
    }
    [datagram, payload.to_vec()].concat()
}

/// An ICMPv6 message with the checksum that RFC 4443 asks for.
pub fn icmpv6(src: [u8; 16], dst: [u8; 16], message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes();
    let pseudo = [&src[..], &dst, &length, &[0, 0, 0, 58], message].concat();
    let mut done = message.to_vec();
    done[2..4].copy_from_slice(&checksum(&pseudo).to_be_bytes());
    done
}

/// Writes frames to a capture.
pub fn write_pcap(path: &Path, frames: &[Vec<u8>]) -> Result<()> {
    let mut file = PCAP_HEADER.to_vec();
    for frame in frames {
        let length = u32::try_from(frame.len())?.to_le_bytes();
        file.extend([&[0; 8][..], &length, &length, frame].concat());
    }
    std::fs::write(path, file).with_context(|| format!("{} cannot be written", path.display()))
}

/// Reads the frames of a capture in this machine's byte order, as far as they have been written.
pub fn read_pcap(path: &Path) -> Vec<Vec<u8>> {
    let file = std::fs::read(path).unwrap_or_default();
    let mut rest = file.get(PCAP_HEADER.len()..).unwrap_or_default();
    let mut frames = Vec::new();
    while let Some((header, body)) = rest.split_first_chunk::<16>() {
        let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        let Some((frame, more)) = body.split_at_checked(length) else { break };
        frames.push(frame.to_vec());
        rest = more;
    }
    frames
}

/// Sends frames out of an interface in a namespace, in one burst.
pub fn send(namespace: &Namespace, interface: &str, frames: &[Vec<u8>], folder: &Path) -> Result<()> {
    let path = folder.join(format!("send-{interface}.pcap"));
    write_pcap(&path, frames)?;
    namespace.sh(&format!("tcpreplay -q --topspeed -i {interface} {}", path.display())).map(drop)
}

/// A capture of what comes in by an interface.
pub struct Capture {
    _tcpdump: Process,
    path: PathBuf,
}

impl Capture {
    /// Starts it, and returns once it listens.
    pub fn start(namespace: &Namespace, interface: &str, name: &str, folder: &Path) -> Result<Self> {
        let path = folder.join(format!("{name}.pcap"));
        let mut command = namespace.command("tcpdump");
        command
            .args([
                "-i",
                interface,
                "-Q",
                "in",
                "-U",
                "--immediate-mode",
                "-n",
                "-Z",
                "root",
                "-B",
                "8192",
                "-w",
            ])
            .arg(&path);
        let mut tcpdump =
            Process::start("tcpdump", &mut command, &folder.join(format!("{name}.tcpdump.log")))?;
        let listens = wait_for(Duration::from_secs(30), || {
            tcpdump.ended().is_some() || tcpdump.output().contains("listening on")
        });
        ensure!(listens && tcpdump.ended().is_none(), "tcpdump did not start: {}", tcpdump.output());
        Ok(Self { _tcpdump: tcpdump, path })
    }

    /// What came so far.
    pub fn frames(&self) -> Vec<Vec<u8>> {
        read_pcap(&self.path)
    }

    /// How often each of these frames has come, by `limit` or once each has come.
    pub fn wait_for_each(&self, frames: &[Vec<u8>], limit: Duration) -> Vec<usize> {
        let mut counts = Vec::new();
        wait_for(limit, || {
            let came = self.frames();
            counts = frames.iter().map(|frame| came.iter().filter(|&one| one == frame).count()).collect();
            counts.iter().all(|&count| count > 0)
        });
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_reads_back_as_it_was_written() {
        let path = std::env::temp_dir().join(format!("sluice-frames-{}.pcap", std::process::id()));
        let frames = vec![ethernet(BROADCAST, [2; 6], 0x0806, &[1; 28]), vec![7; 1514]];
        write_pcap(&path, &frames).unwrap();
        assert_eq!(read_pcap(&path), frames);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        assert_eq!(read_pcap(&path), frames[..1], "a frame that is not whole yet is left for later");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn checksums_are_those_of_rfc_1071() {
        let header = ipv4([192, 0, 2, 1], [192, 0, 2, 2], 17, &[0; 8]);
        assert_eq!(checksum(&header[..20]), 0, "a header with its checksum sums up to nothing");
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
    }
}
