// SPDX-License-Identifier: Apache-2.0
//! UDP sockets that set and read the ECN field, one datagram a call out, and a wait with nanosecond time-outs.
//!
//! `quinn-udp` does the control messages. Its segmentation offload is never used on the way out; what the kernel
//! coalesced on the way in (equal ECN fields only) is split again here.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::num::NonZeroU64;

use cc::{Codepoint, Nanos};
use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use rustix::event::{PollFd, PollFlags, Timespec};

/// Largest receive: what the kernel may coalesce into one buffer.
const RECEIVE_BYTES: usize = 65_536;
/// Socket buffers asked for; the kernel gives what its limits allow.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// A datagram as it arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datagram<'a> {
    pub(super) from: SocketAddr,
    /// The local address it was sent to.
    pub(super) to: Option<IpAddr>,
    pub(super) ecn: Codepoint,
    pub(super) bytes: &'a [u8],
}

/// Where a datagram goes and from which local address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    pub(super) from: Option<IpAddr>,
}

/// A non-blocking socket.
#[derive(Debug)]
pub(super) struct Socket {
    socket: UdpSocket,
    state: UdpSocketState,
}

/// Memory to receive into, shared by all sockets of a process.
#[derive(Debug)]
pub(super) struct Buffers {
    memory: Vec<u8>,
    metas: [RecvMeta; BATCH_SIZE],
}

impl Buffers {
    pub(super) fn new() -> Self {
        Self { memory: vec![0; RECEIVE_BYTES * BATCH_SIZE], metas: [RecvMeta::default(); BATCH_SIZE] }
    }
}

impl Socket {
    pub(super) fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        // More is better and less is no error: the kernel caps it by its own limits.
        let _ = state.set_recv_buffer_size(UdpSockRef::from(&socket), SOCKET_BUFFER_BYTES);
        Ok(Self { socket, state })
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Sends one datagram.
    pub(super) fn send(&self, peer: Peer, ecn: Codepoint, contents: &[u8]) -> io::Result<()> {
        let ecn = EcnCodepoint::from_bits(ecn as u8);
        let transmit =
            Transmit { destination: peer.address, ecn, contents, segment_size: None, src_ip: peer.from };
        self.state.try_send(UdpSockRef::from(&self.socket), &transmit)
    }

    /// Receives what is there, at most one batch; returns whether there was anything.
    pub(super) fn receive(
        &self,
        buffers: &mut Buffers,
        mut each: impl FnMut(Datagram<'_>),
    ) -> io::Result<bool> {
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] = {
            let mut chunks = buffers.memory.chunks_exact_mut(RECEIVE_BYTES);
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()))
        };
        let got = match self.state.recv(UdpSockRef::from(&self.socket), &mut slices, &mut buffers.metas) {
            Ok(got) => got,
            // ICMP errors of earlier sends surface here; they are not about what arrives.
            Err(error) if is_transient(&error) => return Ok(false),
            Err(error) => return Err(error),
        };
        for (meta, slice) in buffers.metas.iter().zip(&slices).take(got) {
            let ecn = meta.ecn.map_or(Codepoint::NotEct, |ecn| Codepoint::from_bits(ecn as u8));
            let received = slice.get(..meta.len).unwrap_or_default();
            for bytes in received.chunks(meta.stride.max(1)) {
                each(Datagram { from: meta.addr, to: meta.dst_ip, ecn, bytes });
            }
        }
        Ok(got > 0)
    }
}

fn is_transient(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, Interrupted, NetworkUnreachable, WouldBlock};
    matches!(
        error.kind(),
        WouldBlock | Interrupted | ConnectionRefused | HostUnreachable | NetworkUnreachable
    )
}

/// Asks the kernel to wake this thread at the time asked for, not up to 50 us later.
pub(super) fn wake_precisely() {
    // A kernel that refuses wakes us a little late, no more.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

/// Waits until one of the sockets can be read (or written, where `true` stands beside it), or the time-out.
pub(super) fn wait<'a>(sockets: impl Iterator<Item = (&'a Socket, bool)>, timeout: Nanos) -> io::Result<()> {
    let mut fds: Vec<PollFd<'_>> = sockets
        .map(|(socket, writable)| {
            let flags = if writable { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            PollFd::new(&socket.socket, flags)
        })
        .collect();
    let timeout = Timespec {
        tv_sec: i64::try_from(timeout.0 / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(timeout.0 % 1_000_000_000).unwrap_or(0),
    };
    match rustix::event::poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
