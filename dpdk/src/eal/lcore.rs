// SPDX-License-Identifier: Apache-2.0
//! Running closures on lcores.
//!
//! Invariant: a job is a boxed closure that never unwinds into C: a panic in it is caught and handed to whoever
//! joins. What a job's end leaves behind is in its handle before the lcore counts as idle.

use core::ffi::{c_int, c_void};
use core::marker::PhantomData;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle, ThreadId};

use dpdk_sys as sys;

use super::{NAP, Shared};
use crate::error::EalError;

/// What an lcore runs.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// The job ended in a panic.
#[derive(Debug, thiserror::Error)]
#[error("lcore {lcore} panicked: {message}")]
pub struct LcorePanic {
    /// Where.
    pub lcore: u32,
    /// What it said.
    pub message: String,
}

#[derive(Debug)]
struct Outcome<T> {
    result: Mutex<Option<Result<T, LcorePanic>>>,
    done: Condvar,
}

/// Waits for a job. Dropping it lets the job run on.
#[derive(Debug)]
pub struct LcoreHandle<T> {
    lcore: u32,
    outcome: Arc<Outcome<T>>,
    /// The lcore is a worker of EAL, which takes a moment to be idle after its job has ended.
    worker: Option<Arc<Shared>>,
}

impl<T> LcoreHandle<T> {
    /// The lcore it runs on.
    pub fn lcore(&self) -> u32 {
        self.lcore
    }

    /// Whether the job has ended.
    pub fn is_finished(&self) -> bool {
        self.outcome.result.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Waits for the end of the job; after that the lcore is idle.
    ///
    /// # Errors
    ///
    /// When the job panicked.
    pub fn join(self) -> Result<T, LcorePanic> {
        let mut result = self.outcome.result.lock().unwrap_or_else(PoisonError::into_inner);
        let mut value = result.take();
        while value.is_none() {
            result = self.outcome.done.wait(result).unwrap_or_else(PoisonError::into_inner);
            value = result.take();
        }
        drop(result);
        if let Some(shared) = self.worker {
            shared.wait_idle(self.lcore);
        }
        value.unwrap_or_else(|| Err(LcorePanic { lcore: self.lcore, message: "no result".to_owned() }))
    }
}

/// A job that runs `work` and leaves what it gives in the handle.
pub(crate) fn package<T, F>(lcore: u32, work: F, shared: Arc<Shared>) -> (Job, LcoreHandle<T>)
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let outcome = Arc::new(Outcome { result: Mutex::new(None), done: Condvar::new() });
    let handle = LcoreHandle { lcore, outcome: Arc::clone(&outcome), worker: Some(Arc::clone(&shared)) };
    let job = move || {
        let result = catch_unwind(AssertUnwindSafe(work))
            .map_err(|payload| LcorePanic { lcore, message: message(payload.as_ref()) });
        *outcome.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        outcome.done.notify_all();
        drop(shared);
    };
    (Box::new(job), handle)
}

fn message(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        return (*text).to_owned();
    }
    payload.downcast_ref::<String>().cloned().unwrap_or_else(|| "no message".to_owned())
}

/// What EAL calls on a worker.
///
/// # Safety
///
/// `argument` comes from `Box::into_raw` of a boxed [`Job`], and is passed once.
pub(crate) unsafe extern "C" fn trampoline(argument: *mut c_void) -> c_int {
    // SAFETY: as the function demands (test: `a_worker_runs_what_is_launched_on_it`).
    let job = unsafe { Box::from_raw(argument.cast::<Job>()) };
    job();
    0
}

impl Shared {
    /// Waits until a lcore whose job has ended can take another.
    fn wait_idle(&self, lcore: u32) {
        while self.is_busy(lcore) {
            #[expect(
                clippy::disallowed_methods,
                reason = "EAL has no way to wait for this but polling, a few microseconds"
            )]
            thread::sleep(NAP);
        }
    }

    fn is_busy(&self, lcore: u32) -> bool {
        if lcore == self.main.id() {
            return self.main.busy.load(Ordering::Acquire);
        }
        // SAFETY: reads the state of one of EAL's lcores; EAL runs as long as self.
        let state = unsafe { sys::rte_eal_get_lcore_state(lcore) };
        state != sys::K_LCORE_WAIT
    }
}

/// The thread that started EAL, waiting for jobs.
#[derive(Debug)]
pub(crate) struct MainLcore {
    id: u32,
    thread: ThreadId,
    jobs: Option<mpsc::Sender<Job>>,
    busy: Arc<AtomicBool>,
    handle: Option<JoinHandle<()>>,
}

impl MainLcore {
    /// Starts the thread, runs `init` in it, and `end` when this is dropped.
    pub(crate) fn start(
        id: u32,
        init: impl FnOnce() -> Result<(), EalError> + Send + 'static,
        end: impl FnOnce() + Send + 'static,
    ) -> Result<Self, EalError> {
        let (jobs, inbox) = mpsc::channel::<Job>();
        let (started, outcome) = mpsc::channel();
        let busy = Arc::new(AtomicBool::new(false));
        let body = {
            let busy = Arc::clone(&busy);
            move || {
                let result = init();
                let good = result.is_ok();
                // The other end waits in `start`, below.
                let _ = started.send(result);
                if good {
                    for job in inbox {
                        job();
                        busy.store(false, Ordering::Release);
                    }
                    end();
                }
            }
        };
        let handle =
            thread::Builder::new().name("eal-main".to_owned()).spawn(body).map_err(EalError::Thread)?;
        let died = || EalError::Refused { reason: "the thread of its main lcore died".to_owned() };
        if let Err(error) = outcome.recv().map_err(|_| died()).flatten() {
            // What `end` holds is let go of with the thread.
            let _ = handle.join();
            return Err(error);
        }
        Ok(Self { id, thread: handle.thread().id(), jobs: Some(jobs), busy, handle: Some(handle) })
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    pub(crate) fn run(&self, job: Job) -> Result<(), EalError> {
        if self.busy.swap(true, Ordering::AcqRel) {
            return Err(EalError::LcoreBusy { lcore: self.id });
        }
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        if sent { Ok(()) } else { Err(EalError::NoSuchLcore { lcore: self.id }) }
    }
}

impl Drop for MainLcore {
    fn drop(&mut self) {
        self.jobs = None;
        // The last thing made with EAL may be dropped by a job on the main lcore itself: it then ends on its own.
        if let Some(handle) = self.handle.take().filter(|_| thread::current().id() != self.thread) {
            let _ = handle.join();
        }
    }
}

/// A thread of its own kind with an lcore number.
#[derive(Debug)]
pub struct RegisteredThread {
    lcore: u32,
    shared: Option<Arc<Shared>>,
    /// Must be dropped by the thread that made it.
    _here: PhantomData<*const ()>,
}

impl RegisteredThread {
    pub(super) fn new(shared: Arc<Shared>) -> Result<Self, EalError> {
        let refused = || EalError::Register { most: sys::K_MAX_LCORE };
        if current_lcore().is_some() {
            return Err(refused());
        }
        // SAFETY: EAL runs (we hold it) and the thread has no number yet.
        if unsafe { sys::rte_thread_register() } != 0 {
            return Err(refused());
        }
        let lcore = current_lcore().ok_or_else(refused)?;
        Ok(Self { lcore, shared: Some(shared), _here: PhantomData })
    }

    /// The number.
    pub fn lcore(&self) -> u32 {
        self.lcore
    }
}

impl Drop for RegisteredThread {
    fn drop(&mut self) {
        // SAFETY: the same thread registered (the guard cannot be sent), and EAL still runs.
        unsafe { sys::rte_thread_unregister() };
        self.shared = None;
    }
}

/// The calling thread's lcore number, if it has one.
pub fn current_lcore() -> Option<u32> {
    // SAFETY: reads a thread-local variable.
    let lcore = unsafe { sys::shim_lcore_id() };
    (lcore != sys::K_LCORE_ID_ANY).then_some(lcore)
}
