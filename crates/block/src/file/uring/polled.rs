//! A queue on two rings: one whose reads and writes end by polling the driver (IORING_SETUP_IOPOLL), and an ordinary one for all else.
//!
//! Input: bios; those that are marked ([`crate::BioFlags::polled`]), of one contiguous buf, go to the polled ring. Output: completions of
//! both. Invariants: nothing ends on the polled ring unless a thread polls it, so `reap` polls while anything is in flight there, and no
//! wait sleeps longer than [`MOST_NAP`] at a time meanwhile; a thread that sleeps on the ordinary ring alone is woken by the first
//! polled request. What the polled ring does not carry out is repeated on the ordinary one, whole, once: no result of it is lost or told
//! twice. Limits: each ring has the queue's depth; no polled ring is made for a process that has its rings from the stock, whose rings
//! stay restricted.

use super::ring::{make_polled, submit_all};
use super::{Regs, UringQueue, contiguous, stock};
use crate::bio::{Bio, BioList};
use crate::buf::Buf;
use crate::device::{DeviceQueue, NotPolled, PolledStats, PolledWay, QueueOptions};
use crate::file::core::{Core, drain_all, position};
use crate::file::host::has_poll_queues;
use crate::file::round::{Round, apply_result, plan};
use crate::file::slots::{Giver, HostOp, Taker};
use crate::file::target::Target;
use crate::sync::{DEVICE_REAP, DEVICE_SHARED, DEVICE_SUBMIT, Mutex};
use io_uring::{EnterFlags, IoUring};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::thread;
use std::time::{Duration, Instant};

/// How long the trial at opening may take.
const TRIAL: Duration = Duration::from_secs(1);

/// How long a wait sleeps between two polls: at first, and at most.
const FIRST_NAP: Duration = Duration::from_micros(20);
const MOST_NAP: Duration = Duration::from_millis(1);

/// Opens a queue for the target, polled if the options want that and the target can.
///
/// # Errors
/// The ordinary ring cannot be made. Without the polled one the queue is ordinary, and the reason is in the options' statistics.
pub(in crate::file) fn open(
    target: Arc<Target>,
    options: &QueueOptions,
) -> io::Result<Box<dyn DeviceQueue>> {
    let ordinary = UringQueue::open(target.clone(), options)?;
    let Some(stats) = &options.polled else {
        return Ok(Box::new(ordinary));
    };
    let found = polled_ring(&target, options.depth)
        .map(|ring| PolledRing::new(ring, target, options, stats.clone()))
        .and_then(PolledRing::tried);
    Ok(match found {
        Ok(polled) => Box::new(PolledUring::new(ordinary, polled)),
        Err(why) => {
            stats.set_way(PolledWay::Looks(why));
            Box::new(ordinary)
        }
    })
}

fn polled_ring(target: &Target, depth: u32) -> Result<IoUring, NotPolled> {
    if !target.direct {
        return Err(NotPolled::Buffered);
    }
    if stock::probe().is_some() {
        return Err(NotPolled::Sandbox);
    }
    if !has_poll_queues(&target.fd, target.block_device) {
        return Err(NotPolled::NoQueues);
    }
    let ring = make_polled(depth).and_then(|ring| {
        ring.submitter().register_files(&[target.raw_fd()])?;
        Ok(ring)
    });
    ring.map_err(|e| NotPolled::NoRing(e.raw_os_error().unwrap_or(0)))
}

struct SubmitSide {
    taker: Taker,
    regs: Regs,
}

/// The polled ring, and what is in flight on it.
struct PolledRing {
    ring: IoUring,
    core: Core,
    submit: Mutex<SubmitSide>,
    reap: Mutex<Giver>,
    /// Bios that have left their slots and are not yet in the ordinary ring.
    repeats: AtomicU32,
    /// It takes no bios any more.
    off: AtomicBool,
    /// The kernel did not take all entries: the next poll tries again.
    stuck: AtomicBool,
    /// The trial is over.
    is_tried: AtomicBool,
    stats: Arc<PolledStats>,
}

impl PolledRing {
    fn new(
        ring: IoUring,
        target: Arc<Target>,
        options: &QueueOptions,
        stats: Arc<PolledStats>,
    ) -> PolledRing {
        let (core, taker, giver) = Core::new(target, options.waker.clone(), options.depth);
        let regs = Regs::new(&ring);
        stats.set_way(PolledWay::Device);
        PolledRing {
            ring,
            core,
            submit: Mutex::new(&DEVICE_SUBMIT, SubmitSide { taker, regs }),
            reap: Mutex::new(&DEVICE_REAP, giver),
            repeats: AtomicU32::new(0),
            off: AtomicBool::new(false),
            stuck: AtomicBool::new(false),
            is_tried: AtomicBool::new(false),
            stats,
        }
    }

    /// The ring, if it carries out a read of the first block. What the read gives does not matter: a block may be bad. If the read does not
    /// end in time, the ring, its memory and the file are kept until the process ends: the device may still write there. Blocks for
    /// [`TRIAL`] at most.
    fn tried(self) -> Result<PolledRing, NotPolled> {
        let geometry = self.core.target.sized();
        if geometry.size >= u64::from(geometry.logical) && !self.try_read(geometry.logical as usize)
        {
            self.turn_off(NotPolled::Late);
            Box::leak(Box::new(self));
            return Err(NotPolled::Late);
        }
        match self.stats.waits().way {
            PolledWay::Device => Ok(self),
            PolledWay::Looks(why) => Err(why),
        }
    }

    /// Returns whether the read has ended in time.
    fn try_read(&self, len: usize) -> bool {
        let mut bio = Bio::read(0, Buf::zeroed(len), 0);
        bio.flags.polled = true;
        let mut list = BioList::from([bio]);
        self.push(&mut list);
        let (mut again, begun) = (BioList::new(), Instant::now());
        while self.core.slots.in_flight() > 0 {
            if begun.elapsed() > TRIAL {
                return false;
            }
            self.poll();
            self.drain(&mut list, &mut again);
            thread::sleep(FIRST_NAP);
        }
        // Nobody waits for it, so nothing repeats it.
        self.repeats.store(0, Ordering::SeqCst);
        true
    }

    /// From now on all bios go to the ordinary ring.
    #[cold]
    fn turn_off(&self, why: NotPolled) {
        if !self.off.swap(true, Ordering::AcqRel) {
            self.stats.set_way(PolledWay::Looks(why));
        }
    }

    /// Takes the marked bios out of the list and starts them, as far as there is room. The others stay, in their order. Returns whether
    /// there were any.
    fn push(&self, bios: &mut BioList) -> bool {
        let mut side = self.submit.lock();
        let mut pushed = false;
        for _ in 0..bios.len() {
            let bio = bios.pop_front().expect("the loop counts them");
            match self.push_one(&mut side, bio) {
                None => pushed = true,
                Some(bio) => bios.push_back(bio),
            }
        }
        self.enter(&side);
        pushed
    }

    /// Puts one bio into the ring. Some: it is none for it, or there is no room.
    fn push_one(&self, side: &mut SubmitSide, bio: Bio) -> Option<Bio> {
        if !bio.flags.polled || bio.buf.is_vectored() {
            return Some(bio);
        }
        let target = &self.core.target;
        let Ok(op @ (HostOp::Read | HostOp::Write)) = plan(target, &bio) else {
            return Some(bio);
        };
        // SAFETY: the submit lock is held, so this is the only view of the submission queue.
        if unsafe { self.ring.submission_shared() }.is_full() && !self.enter(side) {
            return Some(bio);
        }
        let Some(index) = self.core.slots.take(&mut side.taker) else {
            return Some(bio);
        };
        // SAFETY: the slot was taken a line above.
        let slot = unsafe { self.core.slots.slot(index) };
        slot.fill(bio, Ok(op));
        let number = side.regs.look_up(&self.ring, target, &slot.bio().buf);
        let entry = contiguous(slot, position(target, slot) as u64, number);
        // SAFETY: the submit lock is held; the bio's buf stays in place until the slot is reaped, and the ring's drop waits for that.
        unsafe {
            self.ring
                .submission_shared()
                .push(&entry.user_data(u64::from(index)))
        }
        .expect("there is room, checked above");
        None
    }

    /// Gives all entries to the kernel. Returns whether it took them.
    fn enter(&self, _: &SubmitSide) -> bool {
        // SAFETY: the caller holds the submit lock, whose content it shows; slots hold the entries' memory.
        let all = matches!(unsafe { submit_all(&self.ring) }, Ok(true));
        self.stuck.store(!all, Ordering::Release);
        all
    }

    /// Has the kernel poll the driver once. Never sleeps: it waits for no completion.
    fn poll(&self) {
        if self.stuck.load(Ordering::Acquire) {
            self.enter(&self.submit.lock());
        }
        // What is wrong with the ring shows in its requests.
        let wants = EnterFlags::GETEVENTS.bits();
        // SAFETY: no argument is passed, and no entry is submitted.
        let _ = unsafe {
            self.ring
                .submitter()
                .enter::<libc::sigset_t>(0, 0, wants, None)
        };
    }

    /// Whether something has ended.
    fn is_ready(&self) -> bool {
        let _giver = self.reap.lock();
        // SAFETY: the reap lock is held, so this is the only view of the completion queue.
        !unsafe { self.ring.completion_shared() }.is_empty()
    }

    /// Moves completed bios to `out`, and those that the ordinary ring has to repeat to `again`. Returns the number of the first.
    fn drain(&self, out: &mut BioList, again: &mut BioList) -> usize {
        let (ended, repeated) = (out.len(), again.len());
        let is_tried = self.is_tried.load(Ordering::Acquire);
        let mut giver = self.reap.lock();
        // SAFETY: the reap lock is held, so this is the only view of the completion queue.
        for cqe in unsafe { self.ring.completion_shared() } {
            let index = cqe.user_data() as u32;
            // SAFETY: the kernel has completed this slot's only entry, so the slot is ours.
            let slot = unsafe { self.core.slots.slot(index) };
            let is_refused = match -cqe.result() {
                // Of a driver or a file system that cannot be polled; of one that may have to wait if the request may not.
                e @ libc::EOPNOTSUPP => {
                    if !slot.bio().flags.nowait {
                        self.turn_off(NotPolled::Refused(e));
                    }
                    true
                }
                // Perhaps of the flags or the alignment of this request alone: the ordinary ring will tell. The trial has neither.
                e @ libc::EINVAL => {
                    if !is_tried {
                        self.turn_off(NotPolled::Refused(e));
                    }
                    true
                }
                _ => false,
            };
            let round = match is_refused {
                true => Round::Again,
                false => apply_result(&self.core.target, slot, i64::from(cqe.result())),
            };
            match round {
                Round::Ended => self.core.hand_out(&mut giver, index, out),
                // A short or interrupted transfer, or a refusal.
                Round::Again => {
                    self.repeats.fetch_add(1, Ordering::SeqCst);
                    self.core.hand_out(&mut giver, index, again);
                }
            }
        }
        drop(giver);
        let (ended, repeated) = (out.len() - ended, again.len() - repeated);
        if is_tried && ended + repeated > 0 {
            self.stats.note_requests(ended as u64, repeated as u64);
        }
        ended
    }

    /// Bios on the ring, and those on their way to the ordinary one.
    fn in_flight(&self) -> u32 {
        // In the order in which bios move: one that moves in between is counted twice rather than never.
        let on_ring = self.core.slots.in_flight();
        on_ring + self.repeats.load(Ordering::SeqCst)
    }
}

impl Drop for PolledRing {
    fn drop(&mut self) {
        // The queue has waited for its bios. Without a queue there is at most the trial.
        debug_assert_eq!(self.core.slots.in_flight(), 0);
        if !self.core.target.geometry.read_only {
            // Best effort: nothing here waits for the file.
            let _ = self.ring.submitter().unregister_files();
        }
    }
}

/// See the module.
struct PolledUring {
    ordinary: UringQueue,
    polled: PolledRing,
    /// Bios to repeat, for which the ordinary ring had no room.
    kept: Mutex<BioList>,
    /// Threads that sleep on the ordinary ring, or are about to, as nothing was in flight on the polled one.
    asleep: AtomicU32,
    /// The caller polls the waker's descriptor.
    signals: AtomicBool,
}

impl PolledUring {
    fn new(ordinary: UringQueue, polled: PolledRing) -> PolledUring {
        polled.is_tried.store(true, Ordering::Release);
        PolledUring {
            ordinary,
            polled,
            kept: Mutex::new(&DEVICE_SHARED, BioList::new()),
            asleep: AtomicU32::new(0),
            signals: AtomicBool::new(false),
        }
    }

    fn kick(&self) {
        self.polled.core.waker.kick();
    }

    /// Hands what the polled ring did not carry out to the ordinary one.
    #[cold]
    fn repeat(&self, mut again: BioList) {
        again.append(&mut self.kept.lock());
        for bio in &mut again {
            bio.flags.polled = false;
        }
        let before = again.len();
        self.ordinary.submit(&mut again);
        let passed_on = (before - again.len()) as u32;
        self.kept.lock().append(&mut again);
        self.polled.repeats.fetch_sub(passed_on, Ordering::SeqCst);
    }

    /// Polls the driver, and sleeps between two polls ever longer, until something has ended, the waker was kicked, or the time is over.
    fn wait_polling(&self, timeout: Option<Duration>) {
        let begun = Instant::now();
        let mut nap = FIRST_NAP;
        while self.polled.in_flight() > 0 {
            self.polled.poll();
            let left = timeout.map(|timeout| timeout.saturating_sub(begun.elapsed()));
            let is_over = left.is_some_and(|left| left.is_zero());
            if is_over || self.polled.is_ready() || self.polled.core.waker.is_kicked() {
                return;
            }
            let slept = Instant::now();
            let this_nap = left.map_or(nap, |left| left.min(nap));
            self.ordinary.wait(1, Some(this_nap));
            // The ordinary ring has a completion, or the reaper something to repeat.
            let repeats = self.polled.repeats.load(Ordering::SeqCst) > 0;
            if repeats || slept.elapsed() < this_nap {
                return;
            }
            nap = (2 * nap).min(MOST_NAP);
        }
    }
}

impl DeviceQueue for PolledUring {
    fn below(&self) -> Option<&dyn DeviceQueue> {
        None
    }

    fn submit(&self, bios: &mut BioList) {
        let is_on = !self.polled.off.load(Ordering::Acquire);
        if is_on && bios.iter().any(|bio| bio.flags.polled) && self.polled.push(bios) {
            // Either this thread sees the one that goes to sleep, or that one sees the bios.
            fence(Ordering::SeqCst);
            if self.asleep.load(Ordering::SeqCst) > 0 || self.signals.load(Ordering::SeqCst) {
                self.kick();
            }
        }
        self.ordinary.submit(bios);
    }

    fn reap(&self, out: &mut BioList) -> usize {
        let mut count = 0;
        if self.polled.in_flight() > 0 {
            let mut again = BioList::new();
            self.polled.poll();
            count = self.polled.drain(out, &mut again);
            if self.polled.repeats.load(Ordering::SeqCst) > 0 {
                self.repeat(again);
            }
            // Nothing but the next reap brings them on.
            if self.signals.load(Ordering::SeqCst) && self.polled.in_flight() > 0 {
                self.kick();
            }
        }
        count + self.ordinary.reap(out)
    }

    fn wait(&self, min: u32, timeout: Option<Duration>) {
        if self.polled.in_flight() > 0 {
            return self.wait_polling(timeout);
        }
        self.asleep.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.polled.in_flight() == 0 {
            self.ordinary.wait(min, timeout);
        }
        self.asleep.fetch_sub(1, Ordering::SeqCst);
    }

    fn in_flight(&self) -> u32 {
        let polled = self.polled.in_flight();
        polled + self.ordinary.in_flight()
    }

    fn signal_waker(&self) {
        self.polled.turn_off(NotPolled::Descriptor);
        self.signals.store(true, Ordering::SeqCst);
        self.ordinary.signal_waker();
        self.kick();
    }

    fn forget_memory(&self) {
        self.polled.submit.lock().regs.forget(&self.polled.ring);
        self.ordinary.forget_memory();
    }
}

impl Drop for PolledUring {
    fn drop(&mut self) {
        if self.polled.in_flight() > 0 {
            drain_all(self);
        }
    }
}

#[cfg(test)]
mod tests;
