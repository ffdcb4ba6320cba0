// SPDX-License-Identifier: Apache-2.0
//! Memory on the NUMA node of the lcore that will use it.
//!
//! A page lies where the thread that first touches it runs, and tables are made and touched by the thread that starts
//! the lcores. So that thread prefers the user's node while it makes them: [`on_node`]. Invariant: its own policy is
//! back when that returns, or unwinds. A node without free memory, and a kernel without nodes, fail nothing.

use core::mem::size_of_val;
use core::ptr::null_mut;

use libc::{c_int, c_long, c_ulong};

/// Most nodes a kernel knows (`CONFIG_NODES_SHIFT` is at most 10).
const NODES: usize = 1 << 10;
const WORD: usize = c_ulong::BITS as usize;

/// Where a thread's new pages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Policy {
    mode: c_int,
    nodes: [c_ulong; NODES / WORD],
}

impl Policy {
    /// This thread's; `None` where the kernel knows no nodes.
    fn current() -> Option<Self> {
        let mut policy = Self { mode: 0, nodes: [0; NODES / WORD] };
        let none = null_mut::<libc::c_void>();
        // SAFETY: the kernel writes one int and NODES bits, which is what both places hold; without an address and
        // flags it reads nothing (test: `pages_made_on_a_node_lie_there`).
        let result = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut policy.mode,
                policy.nodes.as_mut_ptr(),
                NODES,
                none,
                0,
            )
        };
        (result == 0).then_some(policy)
    }

    /// That node as long as it has memory.
    fn preferring(node: usize) -> Option<Self> {
        // the kernel looks at one bit less than it is told
        if node >= NODES - 1 {
            return None;
        }
        let mut policy = Self { mode: libc::MPOL_PREFERRED, nodes: [0; NODES / WORD] };
        *policy.nodes.get_mut(node / WORD)? |= 1 << (node % WORD);
        Some(policy)
    }

    /// Makes it this thread's; whether the kernel agreed.
    fn set(&self) -> bool {
        debug_assert_eq!(size_of_val(&self.nodes) * 8, NODES, "all of them are read");
        // SAFETY: the kernel reads NODES bits, which is what the place holds, and changes nothing but where pages
        // of this thread come from (test: `a_policy_is_put_back_even_by_a_panic`).
        let result: c_long =
            unsafe { libc::syscall(libc::SYS_set_mempolicy, self.mode, self.nodes.as_ptr(), NODES) };
        result == 0
    }
}

/// Puts a policy back.
struct Back(Policy);

impl Drop for Back {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// Runs `make` with its new pages on NUMA node `node` where that has any free; `None`: wherever they come.
pub fn on_node<T>(node: Option<u32>, make: impl FnOnce() -> T) -> T {
    let wanted = node.and_then(|node| Policy::preferring(usize::try_from(node).ok()?));
    let _back = wanted.zip(Policy::current()).filter(|(wanted, _)| wanted.set()).map(|(_, own)| Back(own));
    make()
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::HugeSlice;

    // linux/mempolicy.h
    const MPOL_F_NODE: c_ulong = 1;
    const MPOL_F_ADDR: c_ulong = 2;

    /// The node that a page lies on.
    fn node_of<T>(place: &T) -> c_int {
        let mut node: c_int = -1;
        let nowhere = null_mut::<c_ulong>();
        // SAFETY: the kernel writes one int, and looks only for which page holds the address.
        let result = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut node,
                nowhere,
                0,
                core::ptr::from_ref(place),
                MPOL_F_NODE | MPOL_F_ADDR,
            )
        };
        assert_eq!(result, 0, "a page that is there lies on a node");
        node
    }

    /// Nodes with memory.
    fn nodes() -> Vec<u32> {
        let has = |node: &u32| std::path::Path::new(&format!("/sys/devices/system/node/node{node}")).exists();
        (0..64).filter(has).collect()
    }

    #[test]
    fn pages_made_on_a_node_lie_there() {
        let Some(own) = Policy::current() else {
            eprintln!("skipped: the kernel knows no NUMA nodes");
            return;
        };
        for node in nodes() {
            let (inside, slice) = on_node(Some(node), || {
                let slice = HugeSlice::<u64>::zeroed(1 << 19).unwrap();
                (Policy::current(), slice)
            });
            assert_eq!(inside, Policy::preferring(node as usize), "the policy in force");
            assert_eq!(Policy::current(), Some(own), "and after it");
            for place in slice.iter().step_by(1 << 9) {
                assert_eq!(node_of(place), c_int::try_from(node).unwrap());
            }
        }
    }

    #[test]
    fn a_policy_is_put_back_even_by_a_panic() {
        let own = Policy::current();
        let outcome = catch_unwind(AssertUnwindSafe(|| on_node(Some(0), || panic!("as it must"))));
        assert!(outcome.is_err());
        assert_eq!(Policy::current(), own);
    }

    #[test]
    fn a_node_that_is_not_there_fails_nothing() {
        let own = Policy::current();
        for node in [Some(1_023), Some(u32::MAX), None] {
            assert_eq!(on_node(node, || 7), 7);
            assert_eq!(on_node(node, Policy::current), own);
        }
    }
}
