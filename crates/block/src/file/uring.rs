//! The io_uring queue: one ring, any thread may submit, reap and wait.
//!
//! Input: bios; a whole list costs one system call. Output: completions, read from memory without one. Invariants: a slot has
//! at most one entry in the ring at a time; the file is registered, and so are the regions of bufs as far as the memory lock
//! limit allows; a kick of the waker ends `wait` by a poll of its eventfd in the ring. A linked timeout of zero follows the
//! poll, because only a timeout wakes a waiter for more than one completion. Limits: a kick that comes while a waiter for
//! several bios falls asleep may be seen [`KICK_NAP`] late.

mod polled;
mod regs;
pub(super) mod ring;
pub(super) mod stock;

use super::core::{Core, position};
use super::pool::STACK;
use super::round::{Round, apply_result, fill_iovecs, plan, rest, rw_flags};
use super::slots::{Giver, HostOp, Slot, Taker};
use super::target::Target;
use crate::bio::{BioError, BioErrorKind, BioList};
use crate::device::{DeviceQueue, QueueOptions};
use crate::sync::{DEVICE_REAP, DEVICE_SUBMIT, Mutex, MutexGuard};
use io_uring::types::{Fixed, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{EnterFlags, opcode, squeue};
use regs::Regs;
use ring::{Users, submit_all};
use rustix::fd::{AsFd, AsRawFd};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::Builder;
use std::time::Duration;
use stock::Own;

/// The one registered file.
const FILE: Fixed = Fixed(0);
/// The poll of the waker, and the timeout linked to it.
const POLL: u64 = u64::MAX;
const WAKE: u64 = u64::MAX - 1;
/// What takes the poll back.
const DISARM: u64 = u64::MAX - 2;
/// How long a waiter sleeps when the kernel did not take all entries.
const STUCK_NAP: Duration = Duration::from_millis(1);

/// How often a ring that is to be used again is waited for, each time as long as that.
const MOST_NAPS: u32 = 1000;

/// How long a waiter for several bios sleeps at a time: the delay of a kick that came while it fell asleep.
const KICK_NAP: Duration = Duration::from_millis(2);

static NOW: Timespec = Timespec::new();

struct SubmitSide {
    taker: Taker,
    regs: Regs,
    /// Slots to submit again: short or interrupted transfers.
    again: Vec<u32>,
}

struct ReapSide {
    giver: Giver,
}

pub(super) use polled::open;

/// A queue on a ring.
pub(super) struct UringQueue {
    ring: Own,
    core: Core,
    submit: Mutex<SubmitSide>,
    reap: Mutex<ReapSide>,
    /// Threads inside `wait`.
    waiting: AtomicU32,
    /// The poll of the waker, or its timeout, is in the ring.
    armed: AtomicBool,
    /// The poll is being taken back.
    disarming: AtomicBool,
    /// The kernel did not take all entries: the next caller tries again.
    stuck: AtomicBool,
    /// Every completion makes the waker's descriptor readable; `wait` then waits on that descriptor.
    signals: AtomicBool,
    /// The ring is not enabled until its owner thread is known.
    disabled: AtomicBool,
}

impl UringQueue {
    /// A ring for the target.
    fn open(target: Arc<Target>, options: &QueueOptions) -> io::Result<UringQueue> {
        has_threads()?;
        let (ring, users) = match Own::take(options.depth, target.as_fd()) {
            Some(taken) => (taken?, Users::Restricted),
            None => {
                let (ring, users) = ring::make_for(options.depth, options.owned_by_reaper)?;
                ring.submitter().register_files(&[target.raw_fd()])?;
                (Own::new(ring), users)
            }
        };
        let (core, taker, giver) = Core::new(target, options.waker.clone(), options.depth);
        let side = SubmitSide {
            taker,
            regs: Regs::new(&ring),
            again: Vec::new(),
        };
        Ok(UringQueue {
            ring,
            core,
            submit: Mutex::new(&DEVICE_SUBMIT, side),
            reap: Mutex::new(&DEVICE_REAP, ReapSide { giver }),
            waiting: AtomicU32::new(0),
            armed: AtomicBool::new(false),
            disarming: AtomicBool::new(false),
            stuck: AtomicBool::new(false),
            signals: AtomicBool::new(false),
            disabled: AtomicBool::new(users == Users::One),
        })
    }

    /// Makes the calling thread the ring's owner.
    #[cold]
    fn enable(&self) {
        if self.disabled.swap(false, Ordering::AcqRel) {
            self.ring
                .submitter()
                .register_enable_rings()
                .expect("a ring that was made disabled can be enabled");
        }
    }

    /// Puts the bios that fit into the ring, without telling the kernel.
    fn push_new(&self, side: &mut SubmitSide, bios: &mut BioList) {
        while !bios.is_empty() && side.again.is_empty() {
            if self.is_full(side) && !self.enter(side) {
                return;
            }
            // SAFETY: the submit lock is held, so this is the only view of the submission queue.
            let mut sq = unsafe { self.ring.submission_shared() };
            while !sq.is_full() {
                let Some(index) = (!bios.is_empty())
                    .then(|| self.core.slots.take(&mut side.taker))
                    .flatten()
                else {
                    return;
                };
                // SAFETY: the slot was taken a line above.
                let slot = unsafe { self.core.slots.slot(index) };
                let bio = bios.pop_front().expect("checked a few lines above");
                let op = plan(&self.core.target, &bio);
                slot.fill(bio, op);
                let entry = self.entry(slot, &mut side.regs).user_data(u64::from(index));
                // SAFETY: what the entry names - the bio's buf, the slot's iovecs - stays in place until the slot is
                // reaped, and the queue's drop waits for that.
                unsafe { sq.push(&entry) }.expect("the submission queue is not full");
            }
        }
    }

    /// Puts slots that must be submitted again into the ring, as many as fit.
    fn push_again(&self, side: &mut SubmitSide) {
        while let Some(index) = side.again.pop() {
            if self.is_full(side) && !self.enter(side) {
                side.again.push(index);
                self.stick();
                return;
            }
            // SAFETY: the slot's number was handed over by the reaping side.
            let slot = unsafe { self.core.slots.slot(index) };
            // ASYNC: the kernel runs it in a worker thread, which may block; without it the request would fail again.
            let entry = self
                .entry(slot, &mut side.regs)
                .flags(squeue::Flags::ASYNC)
                .user_data(u64::from(index));
            // SAFETY: the submit lock is held; the entry's memory stays in place until the slot is reaped.
            unsafe { self.ring.submission_shared().push(&entry) }
                .expect("there is room, checked above");
        }
    }

    fn is_full(&self, _: &SubmitSide) -> bool {
        // SAFETY: the caller holds the submit lock, whose content it shows.
        unsafe { self.ring.submission_shared() }.is_full()
    }

    /// Submits all entries to the kernel. Returns whether it took all of them.
    fn enter(&self, _: &SubmitSide) -> bool {
        // SAFETY: the caller holds the submit lock, whose content it shows; slots hold the entries' memory.
        match unsafe { submit_all(&self.ring) } {
            Ok(true) => {
                self.stuck.store(false, Ordering::Release);
                true
            }
            Err(e) if e.raw_os_error() == Some(libc::EEXIST) => {
                panic!("a queue that is owned by its reaper was used by another thread")
            }
            // No memory, or completions must be reaped first: the entries stay in the ring.
            _ => {
                self.stick();
                false
            }
        }
    }

    /// The kernel has not taken some entries. A sleeping waiter is told once and naps from then on; a thread that polls the
    /// descriptor has no other timer and is told each time.
    #[cold]
    fn stick(&self) {
        let known = self.stuck.swap(true, Ordering::AcqRel);
        if !known || self.signals.load(Ordering::Acquire) {
            self.core.waker.kick();
        }
    }

    #[inline]
    fn entry(&self, slot: &mut Slot, regs: &mut Regs) -> squeue::Entry {
        let target = &self.core.target;
        let pos = position(target, slot) as u64;
        match slot.op {
            HostOp::Nothing => opcode::Nop::new().build(),
            HostOp::Read | HostOp::Write if slot.bio().buf.is_vectored() => {
                vectored(slot, pos, target.geometry.logical)
            }
            HostOp::Read | HostOp::Write => {
                let number = regs.look_up(&self.ring, target, &slot.bio().buf);
                contiguous(slot, pos, number)
            }
            HostOp::Sync => opcode::Fsync::new(FILE).flags(FsyncFlags::DATASYNC).build(),
            HostOp::Fallocate(mode) => opcode::Fallocate::new(FILE, slot.bio().len)
                .offset(pos)
                .mode(mode)
                .build(),
        }
    }

    /// Moves completed bios to `out`, and slots to submit again to `again`.
    fn drain(&self, side: &mut ReapSide, out: &mut BioList, again: &mut Vec<u32>) -> usize {
        let before = out.len();
        // SAFETY: the reap lock is held, so this is the only view of the completion queue.
        let cq = unsafe { self.ring.completion_shared() };
        for cqe in cq {
            match cqe.user_data() {
                POLL => {}
                WAKE => self.armed.store(false, Ordering::Release),
                DISARM => self.disarming.store(false, Ordering::Release),
                index => {
                    let index = index as u32;
                    // SAFETY: the kernel has completed this slot's only entry, so the slot is ours.
                    let slot = unsafe { self.core.slots.slot(index) };
                    match apply_result(&self.core.target, slot, i64::from(cqe.result())) {
                        Round::Ended => self.core.hand_out(&mut side.giver, index, out),
                        Round::Again => again.push(index),
                    }
                }
            }
        }
        out.len() - before
    }

    /// Submits slots again, and entries that the kernel did not take.
    #[cold]
    fn push_on(&self, again: Vec<u32>) {
        let mut side = self.submit.lock();
        side.again.extend(again);
        self.push_again(&mut side);
        self.enter(&side);
    }

    /// Makes completions visible that the kernel holds back until the next io_uring_enter.
    fn fetch_held_back(&self) -> bool {
        let side: MutexGuard<'_, SubmitSide> = self.submit.lock();
        // SAFETY: the submit lock is held, so this is the only view of the submission queue.
        let sq = unsafe { self.ring.submission_shared() };
        let held_back = sq.taskrun() || sq.cq_overflow();
        drop(sq);
        drop(side);
        held_back && self.get_events(0, 0, None)
    }

    /// Calls io_uring_enter with this many new entries, and waits for at least `min` completions or the timeout.
    fn get_events(&self, entries: u32, min: u32, timeout: Option<Duration>) -> bool {
        let flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        let time = timeout.map(Timespec::from);
        let args = SubmitArgs::new();
        let args = match &time {
            Some(time) if min > 0 => args.timespec(time),
            _ => args,
        };
        // SAFETY: the argument is the extended one that the flag announces, and lives until the call returns.
        let done = unsafe {
            self.ring
                .submitter()
                .enter(entries, min, flags.bits(), Some(&args))
        };
        let taken = *done.as_ref().unwrap_or(&0);
        if taken < entries as usize {
            // Another thread may have submitted them. If none has, and the kernel refuses again, later callers keep trying.
            self.enter(&self.submit.lock());
        }
        done.is_ok()
    }

    fn sleep(&self, entries: u32, min: u32, timeout: Option<Duration>) {
        let min = min.clamp(1, self.in_flight().max(1));
        // A poll that has just fired is one completion, and a waiter for more would not see that it was a kick.
        let nap = match (min, self.stuck.load(Ordering::Acquire)) {
            (_, true) => Some(STUCK_NAP),
            (1, false) => None,
            (_, false) => Some(KICK_NAP),
        };
        let time = nap.map_or(timeout, |n| Some(timeout.map_or(n, |t| t.min(n))));
        self.get_events(entries, min, time);
    }

    /// Puts the poll of the waker into the ring without submitting it. Returns the number of entries.
    fn arm(&self) -> u32 {
        let _side = self.submit.lock();
        if self.armed.swap(true, Ordering::AcqRel) {
            return 0;
        }
        let fd = io_uring::types::Fd(self.core.waker.as_fd().as_raw_fd());
        let poll = opcode::PollAdd::new(fd, libc::POLLIN as u32)
            .build()
            .flags(squeue::Flags::IO_LINK)
            .user_data(POLL);
        let wake = opcode::Timeout::new(&raw const NOW).build().user_data(WAKE);
        // SAFETY: the submit lock is held; the entries name a descriptor that the waker keeps open and a static.
        let pushed = unsafe { self.ring.submission_shared().push_multiple(&[poll, wake]) };
        if pushed.is_err() {
            // The kernel has not even taken the bios: waiters nap until it has.
            self.armed.store(false, Ordering::Release);
            return 0;
        }
        2
    }
}

/// What may block, a flush for one, the kernel runs in threads of this process. A request waits until the host has one for it, perhaps for
/// ever.
///
/// # Errors
/// The host has no thread.
fn has_threads() -> io::Result<()> {
    let thread = Builder::new().stack_size(STACK).spawn(|| {})?;
    // It has nothing that could fail.
    let _ = thread.join();
    Ok(())
}

fn contiguous(slot: &Slot, pos: u64, number: Option<u16>) -> squeue::Entry {
    let ((start, len), flags) = (rest(slot), rw_flags(slot.bio()));
    match (slot.op == HostOp::Read, number) {
        (true, Some(number)) => opcode::ReadFixed::new(FILE, start, len, number)
            .offset(pos)
            .rw_flags(flags)
            .build(),
        (true, None) => opcode::Read::new(FILE, start, len)
            .offset(pos)
            .rw_flags(flags)
            .build(),
        (false, Some(number)) => opcode::WriteFixed::new(FILE, start, len, number)
            .offset(pos)
            .rw_flags(flags)
            .build(),
        (false, None) => opcode::Write::new(FILE, start, len)
            .offset(pos)
            .rw_flags(flags)
            .build(),
    }
}

fn vectored(slot: &mut Slot, pos: u64, logical: u32) -> squeue::Entry {
    let Some(count) = fill_iovecs(slot, logical) else {
        slot.op = HostOp::Nothing;
        slot.verdict = Err(BioError::new(BioErrorKind::Invalid));
        return opcode::Nop::new().build();
    };
    let (iov, count, flags) = (slot.iovecs.as_ptr(), count as u32, rw_flags(slot.bio()));
    if slot.op == HostOp::Read {
        opcode::Readv::new(FILE, iov, count)
            .offset(pos)
            .rw_flags(flags)
            .build()
    } else {
        opcode::Writev::new(FILE, iov, count)
            .offset(pos)
            .rw_flags(flags)
            .build()
    }
}

impl DeviceQueue for UringQueue {
    fn below(&self) -> Option<&dyn DeviceQueue> {
        None
    }

    fn submit(&self, bios: &mut BioList) {
        if bios.is_empty() {
            return;
        }
        if self.disabled.load(Ordering::Relaxed) {
            self.enable();
        }
        let mut side = self.submit.lock();
        if !side.again.is_empty() {
            self.push_again(&mut side);
        }
        self.push_new(&mut side, bios);
        self.enter(&side);
    }

    fn submit_and_wait(&self, bios: &mut BioList) {
        let is_plain = !self.disabled.load(Ordering::Relaxed)
            && !self.signals.load(Ordering::Acquire)
            && !self.stuck.load(Ordering::Acquire);
        if bios.is_empty() || !is_plain {
            self.submit(bios);
            return self.wait(1, None);
        }
        let mut side = self.submit.lock();
        self.push_again(&mut side);
        self.push_new(&mut side, bios);
        // SAFETY: the submit lock is held, so this is the only view of the submission queue.
        let entries = unsafe { self.ring.submission_shared() }.len() as u32;
        drop(side);
        self.enter_and_wait(entries, 1, None);
    }

    fn reap(&self, out: &mut BioList) -> usize {
        let mut again = Vec::new();
        let mut count = self.drain(&mut self.reap.lock(), out, &mut again);
        if count == 0 && self.in_flight() > 0 && self.fetch_held_back() {
            count = self.drain(&mut self.reap.lock(), out, &mut again);
        }
        if !again.is_empty() || self.stuck.load(Ordering::Acquire) {
            self.push_on(again);
        }
        if self.waiting.load(Ordering::SeqCst) > 0 && !self.armed.load(Ordering::Acquire) {
            // The completions of the kick are consumed, perhaps before a waiter slept. While the kick is pending, the poll
            // produces new ones.
            let entries = self.arm();
            self.get_events(entries, 0, None);
        }
        count
    }

    fn wait(&self, min: u32, timeout: Option<Duration>) {
        let nothing = self.in_flight() == 0 && timeout.is_some_and(|t| t.is_zero());
        if nothing || self.core.waker.is_kicked() {
            return;
        }
        if self.signals.load(Ordering::Acquire) {
            if !self.stuck.load(Ordering::Acquire) {
                self.core.waker.wait(timeout);
            }
            return;
        }
        if self.disabled.load(Ordering::Relaxed) {
            self.enable();
        }
        self.enter_and_wait(0, min, timeout);
    }

    fn in_flight(&self) -> u32 {
        self.core.slots.in_flight()
    }

    fn forget_memory(&self) {
        let mut side = self.submit.lock();
        side.regs.forget(&self.ring);
    }

    fn signal_waker(&self) {
        let side = self.submit.lock();
        if self.signals.load(Ordering::Acquire) {
            return;
        }
        self.core.waker.kernel_signals();
        let fd = self.core.waker.as_fd().as_raw_fd();
        // Without memory for the registration, `wait` works as before; only a caller that polls the descriptor itself may wait
        // long.
        let registered = self.ring.submitter().register_eventfd(fd).is_ok();
        self.signals.store(registered, Ordering::Release);
        drop(side);
        // Bios that completed before the registration sent no signal.
        self.core.waker.kick();
    }
}

impl UringQueue {
    /// Submits this many entries that are in the ring, and waits for `min` completions, a kick or the end of the time.
    fn enter_and_wait(&self, entries: u32, min: u32, timeout: Option<Duration>) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let entries = if self.armed.load(Ordering::Acquire) {
            entries
        } else {
            entries + self.arm()
        };
        let mut slept = false;
        // Checks once more for a kick that a reaper saw and cleared before it could see this waiter.
        self.core.waker.asleep(|| {
            self.sleep(entries, min, timeout);
            slept = true;
        });
        if !slept {
            self.get_events(entries, 0, None);
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Takes the poll of the waker back, for a ring that another queue will use. Returns whether nothing is in the ring any more.
    fn disarm(&self) -> bool {
        if !self.armed.load(Ordering::Acquire) {
            return true;
        }
        self.disarming.store(true, Ordering::Release);
        let entry = opcode::PollRemove::new(POLL).build().user_data(DISARM);
        let side = self.submit.lock();
        // SAFETY: the submit lock is held; the entry names no memory.
        let pushed = unsafe { self.ring.submission_shared().push(&entry) };
        let mut is_in = pushed.is_ok() && self.enter(&side);
        drop(side);
        let mut none = BioList::new();
        for _ in 0..MOST_NAPS {
            self.drain(&mut self.reap.lock(), &mut none, &mut Vec::new());
            let waits =
                self.armed.load(Ordering::Acquire) || self.disarming.load(Ordering::Acquire);
            if is_in && !waits {
                return true;
            }
            is_in = is_in || self.enter(&self.submit.lock());
            self.get_events(0, 1, Some(STUCK_NAP));
        }
        false
    }
}

impl Drop for UringQueue {
    fn drop(&mut self) {
        let mut ended = BioList::new();
        while self.in_flight() > 0 {
            self.reap(&mut ended);
            ended.clear();
            if self.in_flight() > 0 {
                self.get_events(0, 1, Some(STUCK_NAP));
            }
        }
        if self.ring.is_from_stock() {
            if !self.disarm() {
                self.ring.spoil();
            }
            return;
        }
        // The kernel takes a ring down some time after its close, and would keep the file, and so its file system, busy meanwhile. Readers
        // do without: older kernels take milliseconds for it.
        if !self.core.target.geometry.read_only {
            // Best effort: nothing here waits for the file.
            let _ = self.ring.submitter().unregister_files();
        }
    }
}
