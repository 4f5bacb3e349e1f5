//! The Linux AIO queue: reads, writes and syncs by io_submit; other operations run on the device's threads.
//!
//! Input: bios; a list costs one system call. Output: completions from io_getevents and from the threads. Invariants: a
//! completion signals the waker's eventfd; a short or refused transfer continues, blocking, on a thread. Limits: direct I/O
//! only; the host's `fs.aio-max-nr`.

mod sys;

use super::core::{Core, position};
use super::pool::Pool;
use super::round::{Round, apply_result, fill_iovecs, plan, rest, rw_flags};
use super::slots::{Giver, HostOp, Slot, Taker};
use super::target::Target;
use crate::bio::{BioError, BioErrorKind, BioList};
use crate::device::{DeviceError, DeviceQueue, QueueOptions};
use crate::sync::{DEVICE_REAP, DEVICE_SUBMIT, Mutex};
use rustix::fd::{AsFd, AsRawFd};
use std::cell::UnsafeCell;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use sys::{Context, ControlBlock, Event};

/// The most events that one look takes.
const LOOK: usize = 128;

struct SubmitSide {
    taker: Taker,
    /// Control blocks to hand to the kernel, and slots to hand to the threads.
    batch: Vec<*mut ControlBlock>,
    blocking: Vec<u32>,
}

// SAFETY: the pointers are only valid between push and drain under the submit lock, whichever thread holds it.
unsafe impl Send for SubmitSide {}

struct ReapSide {
    giver: Giver,
    events: Vec<Event>,
}

/// A queue on an AIO context.
pub(super) struct AioQueue {
    context: Context,
    core: Arc<Core>,
    pool: Arc<Pool>,
    /// One control block per slot.
    blocks: Box<[UnsafeCell<ControlBlock>]>,
    submit: Mutex<SubmitSide>,
    reap: Mutex<ReapSide>,
}

// SAFETY: a control block belongs to the slot of its number and is written only by who owns that slot.
unsafe impl Sync for AioQueue {}
// SAFETY: a context may be used by every thread of the process.
unsafe impl Send for AioQueue {}

/// Whether this process may use Linux AIO.
pub(super) fn probe() -> io::Result<()> {
    let context = Context::new(1)?;
    // SAFETY: no control block is named. A filter may allow contexts and refuse their use.
    unsafe { context.submit(&[]) }.map(drop)
}

impl AioQueue {
    /// A context for the target.
    pub(super) fn open(
        target: Arc<Target>,
        pool: Arc<Pool>,
        options: &QueueOptions,
    ) -> Result<AioQueue, DeviceError> {
        pool.prepare();
        let context = Context::new(options.depth)
            .map_err(|e| DeviceError::host("cannot set up an AIO context (fs.aio-max-nr?)", e))?;
        options.waker.kernel_signals();
        let (core, taker, giver) = Core::new(target, options.waker.clone(), options.depth);
        let side = SubmitSide {
            taker,
            batch: Vec::with_capacity(options.depth as usize),
            blocking: Vec::new(),
        };
        let reap = ReapSide {
            giver,
            events: vec![Event::default(); LOOK.min(options.depth as usize)],
        };
        Ok(AioQueue {
            context,
            core: Arc::new(core),
            pool,
            blocks: (0..options.depth).map(|_| UnsafeCell::default()).collect(),
            submit: Mutex::new(&DEVICE_SUBMIT, side),
            reap: Mutex::new(&DEVICE_REAP, reap),
        })
    }

    /// The slot's control block, or none if the slot needs a thread.
    fn block(&self, index: u32, slot: &mut Slot) -> Option<*mut ControlBlock> {
        let target = &self.core.target;
        let offset = position(target, slot);
        let (opcode, buf, nbytes) = match slot.op {
            HostOp::Nothing | HostOp::Fallocate(_) => return None,
            HostOp::Sync => (sys::FDSYNC, 0, 0),
            HostOp::Read | HostOp::Write => self.transfer(slot)?,
        };
        let sync = slot.op == HostOp::Sync;
        let at = self.blocks[index as usize].get();
        let block = ControlBlock {
            data: u64::from(index),
            rw_flags: if sync { 0 } else { rw_flags(slot.bio()) },
            opcode,
            fd: target.raw_fd() as u32,
            buf,
            nbytes,
            offset: if sync { 0 } else { offset },
            flags: sys::FLAG_RESFD,
            resfd: self.core.waker.as_fd().as_raw_fd() as u32,
            ..ControlBlock::default()
        };
        // SAFETY: the caller owns the slot, and so its control block.
        unsafe { *at = block };
        Some(at)
    }

    fn transfer(&self, slot: &mut Slot) -> Option<(u16, u64, u64)> {
        let read = slot.op == HostOp::Read;
        if slot.bio().buf.is_vectored() {
            let Some(count) = fill_iovecs(slot, self.core.target.geometry.logical) else {
                slot.op = HostOp::Nothing;
                slot.verdict = Err(BioError::new(BioErrorKind::Invalid));
                return None;
            };
            let opcode = if read { sys::PREADV } else { sys::PWRITEV };
            return Some((opcode, slot.iovecs.as_ptr() as u64, count as u64));
        }
        let (start, len) = rest(slot);
        let opcode = if read { sys::PREAD } else { sys::PWRITE };
        Some((opcode, start as u64, u64::from(len)))
    }

    fn take(&self, side: &mut SubmitSide, bios: &mut BioList) {
        while !bios.is_empty() {
            let Some(index) = self.core.slots.take(&mut side.taker) else {
                return;
            };
            // SAFETY: the slot was taken a line above.
            let slot = unsafe { self.core.slots.slot(index) };
            let bio = bios.pop_front().expect("checked a few lines above");
            let op = plan(&self.core.target, &bio);
            slot.fill(bio, op);
            match self.block(index, slot) {
                Some(block) => side.batch.push(block),
                None if slot.op == HostOp::Nothing => {
                    slot.bio_mut().result = slot.verdict;
                    self.core.push_ended(index);
                }
                None => side.blocking.push(index),
            }
        }
    }

    /// Submits the batch to the kernel; a request that the kernel refuses ends, or goes to a thread.
    fn send(&self, side: &mut SubmitSide) {
        let mut sent = 0;
        while sent < side.batch.len() {
            // SAFETY: the blocks lie in `blocks`, and what they name in their slots, until their events are seen.
            match unsafe { self.context.submit(&side.batch[sent..]) } {
                Ok(n) if n > 0 => sent += n,
                Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
                refused => {
                    let errno = refused.err().and_then(|e| e.raw_os_error());
                    // SAFETY: the kernel did not take this block, so its slot is still ours.
                    let index = unsafe { (*side.batch[sent]).data } as u32;
                    self.refused(side, index, errno.unwrap_or(libc::EAGAIN));
                    sent += 1;
                }
            }
        }
        side.batch.clear();
        if !side.blocking.is_empty() {
            self.pool.run(&self.core, side.blocking.drain(..));
        }
    }

    fn refused(&self, side: &mut SubmitSide, index: u32, errno: i32) {
        // SAFETY: the caller owns the slot.
        let slot = unsafe { self.core.slots.slot(index) };
        let by_thread = match slot.op {
            // An old kernel without asynchronous sync.
            HostOp::Sync => true,
            // A full context refuses with EAGAIN, whatever the request's flags.
            _ => errno == libc::EAGAIN && !slot.bio().flags.nowait,
        };
        if by_thread || apply_result(&self.core.target, slot, -i64::from(errno)) == Round::Again {
            side.blocking.push(index);
        } else {
            self.core.push_ended(index);
        }
    }

    fn look(&self, side: &mut ReapSide, out: &mut BioList) -> usize {
        let ReapSide { giver, events } = side;
        let mut count = 0;
        loop {
            let seen = self.context.events(events);
            for event in &events[..seen] {
                let index = event.data as u32;
                // SAFETY: the kernel has ended this slot's only control block, so the slot is ours.
                let slot = unsafe { self.core.slots.slot(index) };
                if apply_result(&self.core.target, slot, event.res) == Round::Ended {
                    self.core.hand_out(giver, index, out);
                    count += 1;
                } else {
                    self.pool.run(&self.core, [index]);
                }
            }
            if seen < events.len() {
                return count;
            }
        }
    }
}

impl DeviceQueue for AioQueue {
    fn below(&self) -> Option<&dyn DeviceQueue> {
        None
    }

    fn submit(&self, bios: &mut BioList) {
        let mut side = self.submit.lock();
        self.take(&mut side, bios);
        self.send(&mut side);
    }

    fn reap(&self, out: &mut BioList) -> usize {
        if self.in_flight() == 0 {
            return 0;
        }
        let mut side = self.reap.lock();
        let count = self.look(&mut side, out);
        count + self.core.reap_ended(&mut side.giver, out)
    }

    fn wait(&self, min: u32, timeout: Option<Duration>) {
        self.core.wait(min, timeout);
    }

    fn in_flight(&self) -> u32 {
        self.core.slots.in_flight()
    }
}

impl Drop for AioQueue {
    fn drop(&mut self) {
        super::core::drain_all(self);
    }
}
