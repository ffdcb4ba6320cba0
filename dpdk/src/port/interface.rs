// SPDX-License-Identifier: Apache-2.0
//! The kernel's view of the network interface below an af_packet port.
//!
//! DPDK 22.11's driver reports its link as up whatever happens, 24.11's follows a second late, so the state comes from
//! the kernel. Neither counts the frames for which there was no room in its receive ring, which is how frames are lost
//! on such a port: the kernel counts them on the driver's own sockets (`PACKET_STATISTICS`), which are found among this
//! process's descriptors. Reading clears them, so a driver that began to read them would take its share. The socket of
//! ours fixes the network namespace: that of the process when the port was opened.

use core::mem::zeroed;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// linux/sockios.h.
const SIOCETHTOOL: libc::Ioctl = 0x8946;
/// linux/ethtool.h: "get link status".
const ETHTOOL_GLINK: u32 = 0x0a;

/// `struct ethtool_value` of linux/ethtool.h.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// An interface by name.
#[derive(Debug)]
pub(super) struct Interface {
    name: String,
    socket: UdpSocket,
    /// The driver's sockets, open as long as the port is.
    rings: Vec<RawFd>,
    missed: AtomicU64,
}

impl Interface {
    /// `None` where the name is too long or there is no socket to ask by.
    pub(super) fn open(name: &str) -> Option<Self> {
        if name.len() >= libc::IFNAMSIZ {
            return None;
        }
        let socket = UdpSocket::bind("127.0.0.1:0").or_else(|_| UdpSocket::bind("0.0.0.0:0")).ok()?;
        let mut interface =
            Self { name: name.to_owned(), socket, rings: Vec::new(), missed: AtomicU64::new(0) };
        interface.rings = interface.index().map(packet_sockets).unwrap_or_default();
        Some(interface)
    }

    /// Whether it is up and has a carrier; an interface that is gone is not.
    pub(super) fn is_running(&self) -> bool {
        let Some(answer) = self.ask(libc::SIOCGIFFLAGS) else { return false };
        // SAFETY: the kernel has written this member of the union.
        let flags = i32::from(unsafe { answer.ifr_ifru.ifru_flags });
        let up = flags & libc::IFF_UP != 0;
        // The flag RUNNING follows the carrier up to a second later: the carrier itself is asked where it can be.
        up && self.carrier().unwrap_or(flags & libc::IFF_RUNNING != 0)
    }

    /// The carrier, where the driver of the interface tells it.
    fn carrier(&self) -> Option<bool> {
        let mut value = EthtoolValue { command: ETHTOOL_GLINK, data: 0 };
        let mut request = self.request();
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: this question reads the command and writes the data of `value`, which lives through the call
        // (test: `the_link_of_an_af_packet_port_is_its_interfaces`).
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
        (result == 0).then_some(value.data != 0)
    }

    /// Frames that found no room in the driver's receive rings, since the port was opened.
    pub(super) fn missed(&self) -> u64 {
        let new: u64 = self.rings.iter().map(|fd| drops(*fd)).sum();
        self.missed.fetch_add(new, Ordering::Relaxed) + new
    }

    fn index(&self) -> Option<i32> {
        let answer = self.ask(libc::SIOCGIFINDEX)?;
        // SAFETY: the kernel has written this member of the union.
        Some(unsafe { answer.ifr_ifru.ifru_ifindex })
    }

    /// A question about this interface.
    fn request(&self) -> libc::ifreq {
        // SAFETY: zeroes are a valid value of this plain C structure.
        let mut request: libc::ifreq = unsafe { zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(self.name.bytes()) {
            *to = from.cast_signed();
        }
        request
    }

    fn ask(&self, question: libc::Ioctl) -> Option<libc::ifreq> {
        let mut request = self.request();
        // SAFETY: both questions in use read the name and write the rest of the structure, which lives through the
        // call (test: `the_link_of_an_af_packet_port_is_its_interfaces`).
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), question, &raw mut request) };
        (result == 0).then_some(request)
    }
}

/// This process's packet sockets that are bound to an interface.
fn packet_sockets(index: i32) -> Vec<RawFd> {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|fd| bound_to(*fd) == Some(index)).collect()
}

/// The interface a descriptor is bound to, if it is a packet socket.
fn bound_to(fd: RawFd) -> Option<i32> {
    // SAFETY: zeroes are a valid value of this plain C structure.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    let mut length = length_of(&address);
    // SAFETY: writes at most `length` bytes of the structure; any descriptor may be asked.
    let result = unsafe { libc::getsockname(fd, (&raw mut address).cast(), &raw mut length) };
    let packet = result == 0 && i32::from(address.sll_family) == libc::AF_PACKET;
    packet.then_some(address.sll_ifindex)
}

/// Frames a packet socket has dropped since it was last asked.
fn drops(fd: RawFd) -> u64 {
    // SAFETY: zeroes are a valid value of this plain C structure.
    let mut counts: libc::tpacket_stats = unsafe { zeroed() };
    let mut length = length_of(&counts);
    // SAFETY: writes at most `length` bytes of the structure; the descriptor is the driver's, open as long as the port
    // that holds us (test: `frames_that_find_no_room_in_an_af_packet_ring_are_counted`).
    let result = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut counts).cast(),
            &raw mut length,
        )
    };
    if result == 0 { u64::from(counts.tp_drops) } else { 0 }
}

fn length_of<T>(value: &T) -> libc::socklen_t {
    libc::socklen_t::try_from(size_of_val(value)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_is_not_there_does_not_run() {
        let none = Interface::open("sluice-none").unwrap();
        assert!(!none.is_running());
        assert_eq!((none.index(), none.missed()), (None, 0));
        assert!(Interface::open("a-name-that-is-too-long").is_none());
    }

    #[test]
    fn the_loopback_interface_is_there() {
        let lo = Interface::open("lo").unwrap();
        assert_eq!(lo.index(), Some(1));
    }
}
