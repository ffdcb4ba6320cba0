// SPDX-License-Identifier: Apache-2.0
//! EAL: starting it, running on its lcores, ending it.
//!
//! EAL starts once in a process, in a thread of its own ("eal-main") that becomes the main lcore; the calling thread
//! keeps its CPU affinity, and the main lcore runs what is launched on it like any other. Invariant: EAL is cleaned
//! up only when the [`Eal`] and everything made with it is gone; where packet buffers are still out it is left to
//! the end of the process.
//!
//! Before EAL runs, all that an operator can get wrong is checked (module `check`), because `rte_eal_init` prints,
//! returns a misleading errno ("Success"), or aborts; its log is captured for what is left.

mod capture;
mod check;
mod host;
mod lcore;
mod lock;
mod log;
mod options;

use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dpdk_sys as sys;

use crate::error::EalError;
use host::Host;
use lcore::{Job, MainLcore};

pub(crate) use check::{argument, name_of, pci_address};
pub use lcore::{LcoreHandle, LcorePanic, RegisteredThread, current_lcore};
pub use log::{LogTo, log_tail};
pub(crate) use log::{mark, since};
pub use options::{EalOptions, Lcore, Memory};

/// Whether this process has started EAL.
static STARTED: AtomicBool = AtomicBool::new(false);

/// A running EAL.
#[derive(Debug)]
pub struct Eal {
    shared: Arc<Shared>,
}

/// What everything made with EAL holds.
#[derive(Debug)]
pub(crate) struct Shared {
    lcores: Vec<Lcore>,
    main: MainLcore,
    /// One launch at a time: EAL's own bookkeeping expects a single caller.
    launching: Mutex<()>,
    /// Set when buffers are still out, so that their memory must stay.
    pub(crate) keep_memory: Arc<AtomicBool>,
}

impl Eal {
    /// Starts EAL.
    ///
    /// # Errors
    ///
    /// One sentence for whatever an operator can get wrong.
    pub fn init(options: &EalOptions) -> Result<Self, EalError> {
        let host = Host::real();
        check::check(options, &host)?;
        let lock = lock::Lock::take(&lock::folder(&host), options.prefix())?;
        if STARTED.swap(true, Ordering::AcqRel) {
            return Err(EalError::Again);
        }
        let keep_memory = Arc::new(AtomicBool::new(false));
        let main = MainLcore::start(
            options.main,
            {
                let options = options.clone();
                move || start(&options)
            },
            {
                let keep_memory = Arc::clone(&keep_memory);
                move || {
                    clean_up(&keep_memory);
                    drop(lock);
                }
            },
        )?;
        let lcores = options.lcores.clone();
        Ok(Self { shared: Arc::new(Shared { lcores, main, launching: Mutex::new(()), keep_memory }) })
    }

    /// Runs `job` on an lcore and returns at once; the lcore must be idle. The main lcore is as good as any.
    /// A panic in it ends the job, not the process; threads started by it inherit the lcore's CPU.
    ///
    /// # Errors
    ///
    /// When the lcore is not EAL's or is busy.
    pub fn launch<T, F>(&self, lcore: u32, job: F) -> Result<LcoreHandle<T>, EalError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        if !self.shared.lcores.iter().any(|l| l.id == lcore) {
            return Err(EalError::NoSuchLcore { lcore });
        }
        // The job holds EAL, so that it cannot end under a running lcore.
        let (job, handle) = lcore::package(lcore, job, self.shared());
        let _one_at_a_time = self.shared.launching.lock().unwrap_or_else(PoisonError::into_inner);
        if lcore == self.main_lcore() {
            self.shared.main.run(job)?;
        } else {
            remote_launch(lcore, job)?;
        }
        Ok(handle)
    }

    /// Gives the calling thread an lcore number, and so a cache of its own in every pool, until the guard is dropped.
    ///
    /// # Errors
    ///
    /// When no number is left or the thread has one.
    pub fn register_thread(&self) -> Result<RegisteredThread, EalError> {
        RegisteredThread::new(self.shared())
    }

    /// The main lcore's number.
    pub fn main_lcore(&self) -> u32 {
        self.shared.main.id()
    }

    /// The lcores and their CPUs, as given.
    pub fn lcores(&self) -> &[Lcore] {
        &self.shared.lcores
    }

    /// NUMA node of an lcore.
    pub fn socket_of(&self, lcore: u32) -> Option<u32> {
        self.shared.lcores.iter().find(|l| l.id == lcore)?;
        // SAFETY: reads EAL's configuration, which lives as long as self; the lcore is one of EAL's.
        Some(unsafe { sys::rte_lcore_to_socket_id(lcore) })
    }

    /// Ticks per second of the TSC, as EAL measured it at start.
    pub fn tsc_hz(&self) -> u64 {
        // SAFETY: reads a variable that EAL set at start.
        unsafe { sys::rte_get_tsc_hz() }
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// The errno of the last DPDK call of this thread.
    pub(crate) fn errno() -> i32 {
        // SAFETY: reads a thread-local variable.
        unsafe { sys::shim_errno() }
    }
}

/// DPDK's version, as in "DPDK 22.11.11".
pub fn version() -> String {
    // SAFETY: gives a static string.
    let version = unsafe { sys::rte_version() };
    // SAFETY: a static string that ends in 0.
    unsafe { CStr::from_ptr(version) }.to_string_lossy().into_owned()
}

/// MB of huge pages that are free now, to decide whether to use them.
pub fn free_huge_mb() -> u64 {
    Host::real().huge_pages().free_mb
}

/// Starts EAL in the calling thread, which becomes the main lcore.
fn start(options: &EalOptions) -> Result<(), EalError> {
    log::open(options.log);
    let arguments: Vec<CString> =
        options.arguments().into_iter().filter_map(|argument| CString::new(argument).ok()).collect();
    let mut argv: Vec<*mut core::ffi::c_char> = arguments.into_iter().map(CString::into_raw).collect();
    let count = i32::try_from(argv.len()).unwrap_or(i32::MAX);
    argv.push(core::ptr::null_mut());
    // EAL keeps pointers into its arguments: they are never freed.
    let argv = argv.leak();
    let mut init = || {
        // SAFETY: argv is an array of `count` strings and a null, all leaked; EAL starts once (STARTED).
        unsafe { sys::rte_eal_init(count, argv.as_mut_ptr()) }
    };
    // EAL prints its usage text when it does not like an argument, and only the user's can be wrong.
    let (result, printed) =
        if options.extra.is_empty() { (init(), String::new()) } else { capture::output(init) };
    if result >= 0 {
        return Ok(());
    }
    let _ = std::fs::remove_dir(runtime_folder());
    Err(check::explain(options, Eal::errno(), &log_tail(), &printed))
}

fn remote_launch(lcore: u32, job: Job) -> Result<(), EalError> {
    let argument = Box::into_raw(Box::new(job));
    // SAFETY: the trampoline takes exactly such a box and takes it over; the lcore is one of EAL's workers.
    let result = unsafe { sys::rte_eal_remote_launch(Some(lcore::trampoline), argument.cast(), lcore) };
    if result == 0 {
        return Ok(());
    }
    // SAFETY: EAL refused the job, so the box is still ours.
    drop(unsafe { Box::from_raw(argument) });
    Err(EalError::LcoreBusy { lcore })
}

/// Ends EAL, unless packet buffers are out.
fn clean_up(keep_memory: &AtomicBool) {
    if keep_memory.load(Ordering::Relaxed) {
        return;
    }
    let folder = runtime_folder();
    // SAFETY: everything made with EAL holds `Shared` and is gone; runs in the thread that started EAL.
    let _ = unsafe { sys::rte_eal_cleanup() };
    // EAL leaves the folder of its prefix behind; one that holds something stays.
    let _ = std::fs::remove_dir(folder);
}

/// EAL's folder for its prefix; empty if it has not chosen one.
fn runtime_folder() -> String {
    // SAFETY: gives a static buffer.
    let folder = unsafe { sys::rte_eal_get_runtime_dir() };
    // SAFETY: a string in that buffer, which ends in 0.
    unsafe { CStr::from_ptr(folder) }.to_string_lossy().into_owned()
}

/// How long a caller sleeps between looks at an lcore that is about to end.
const NAP: Duration = Duration::from_micros(50);
