//! Random overwrites through the loop device of which one in a hundred is a discard instead, beside overwrites alone.
//!
//! Input: a working set. Output: `loop-discard`, without a target. Invariant: every run has a new file of written blocks, so that no run
//! begins with the holes of another. Limits: direct-async; a discarded block is allocated again by the next overwrite of it.

use super::super::super::args::Options;
use super::super::super::drive::{Run, drive};
use super::super::super::failure::Failure;
use super::super::super::job::{Job, Rw};
use super::super::super::lane::{Ended, Io, Lane, Target};
use super::super::super::report::Report;
use super::super::super::rounds::{Arm, interleave};
use super::nest::{self, BLOCK};
use super::set::Set;
use diorite::PageCache;
use diorite::policy::LoopMode;
use diorite_block::{Bio, BioList, BioOp, Buf, Device, DeviceQueue, QueueOptions, Waker};
use std::sync::Arc;

/// One request in so many is a discard.
const ONE_IN: u64 = 100;
const FILE: &str = "/discards";

pub(super) fn run(options: &Options, set: &Set, report: &mut Report) -> Result<(), Failure> {
    report.heading("overwrites through the loop device, 1 % of them discards")?;
    let job = options.job(Rw::Randwrite, BLOCK as u32, 64);
    let arm = |name, one_in| Arm::new(name, job.clone(), move |job| one(set, job, one_in));
    let arms = [
        arm("overwrites", None),
        arm("with 1 % discards", Some(ONE_IN)),
    ];
    let rounds = interleave(&arms, options.short_plan())?;
    report.rows(&rounds, set.label())?;
    let ratio = rounds.ratio(1, 0);
    report.ratio("loop-discard", &ratio, set.label(), set.counts)
}

fn one(set: &Set, job: &Job, one_in: Option<u64>) -> Result<Run, Failure> {
    let outer = set.outer(LoopMode::DirectAsync, &PageCache::new(set.bytes / 8))?;
    let file = nest::zeros(&outer, FILE, set.bytes)?;
    let target = Discards {
        device: nest::looped(&file),
        len: set.bytes,
        one_in,
    };
    let run = drive(&target, job)?;
    drop((target, file));
    outer.unlink(FILE)?;
    outer.close()?;
    Ok(run)
}

/// A device on which some writes become discards.
struct Discards {
    device: Arc<dyn Device>,
    len: u64,
    one_in: Option<u64>,
}

impl Target for Discards {
    type Lane = DiscardLane;

    fn lane(&self, job: &Job) -> Result<DiscardLane, Failure> {
        let options = QueueOptions::new(job.iodepth)?;
        let waker = options.waker.clone();
        Ok(DiscardLane {
            queue: self.device.open_queue(options)?,
            waker,
            one_in: self.one_in,
            count: 0,
            discards: 0,
            bufs: (0..job.iodepth).map(|_| Buf::default()).collect(),
            batch: BioList::with_capacity(job.iodepth as usize),
            reaped: BioList::with_capacity(job.iodepth as usize),
        })
    }

    fn len(&self) -> u64 {
        self.len
    }
}

struct DiscardLane {
    queue: Box<dyn DeviceQueue>,
    waker: Arc<Waker>,
    one_in: Option<u64>,
    count: u64,
    discards: u64,
    /// The bufs of the slots whose request has none.
    bufs: Vec<Buf>,
    batch: BioList,
    reaped: BioList,
}

impl Lane for DiscardLane {
    fn push(&mut self, io: Io, buf: Buf) {
        self.count += 1;
        let token = u64::from(io.slot);
        let discards = self.one_in.is_some_and(|n| self.count.is_multiple_of(n));
        self.batch.push_back(if discards {
            self.discards += 1;
            let len = buf.len() as u64;
            self.bufs[io.slot as usize] = buf;
            Bio::range(BioOp::Discard, io.pos, len, token)
        } else {
            Bio::write(io.pos, buf, token)
        });
    }

    fn submit(&mut self) {
        self.queue.submit(&mut self.batch);
    }

    fn reap(&mut self, min: usize, ended: &mut Vec<Ended>) {
        loop {
            self.queue.reap(&mut self.reaped);
            let missing = min.saturating_sub(self.reaped.len());
            if missing == 0 || self.queue.in_flight() == 0 {
                break;
            }
            let missing = u32::try_from(missing).unwrap_or(u32::MAX);
            self.queue.wait(missing, None);
            self.waker.clear();
        }
        for bio in self.reaped.drain(..) {
            let slot = u32::try_from(bio.token).expect("the token is the slot that push was given");
            let kept = std::mem::take(&mut self.bufs[slot as usize]);
            ended.push(Ended {
                slot,
                buf: if bio.op == BioOp::Write {
                    bio.buf
                } else {
                    kept
                },
                error: bio.result.err().map(|e| e.to_string()),
            });
        }
    }

    fn counters(&self) -> Vec<(String, u64)> {
        vec![("discards".to_owned(), self.discards)]
    }
}
