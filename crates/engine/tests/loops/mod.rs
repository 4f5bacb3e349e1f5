//! Loop devices and windows as whole devices: beside a model, under faults, in stacks, as parts of images inside images.
//!
//! | file | what it tests |
//! |---|---|
//! | `model` | a device beside an array of bytes: overlapping requests, both modes, switches, resizes, windows |
//! | `faults` | errors below: whose they are, and what they leave |
//! | `inside` | parameters of files inside images; who has a file; how bytes are stored |
//! | `memory` | one small budget for the pages of a whole stack |
//! | `cuts` | D1, D2: what a flush or FUA promises, after a power cut, in both modes |
//!
//! Input: images, seeds. Output: none. Invariant: e2fsck judges what is left. Limits: no test measures time.

mod cuts;
mod faults;
mod inside;
mod memory;
mod model;

use diorite::{LoopMode, Policy};
use diorite_block::{Bio, BioList, Buf, Device, DeviceQueue, QueueOptions, Waker};
use std::sync::Arc;

/// The default policy with loop devices in this mode.
fn mode(loop_mode: LoopMode) -> Policy {
    Policy {
        loop_mode,
        ..Policy::DIORITE
    }
}

const MODES: [LoopMode; 2] = [LoopMode::DirectAsync, LoopMode::BufferedSync];

fn open(device: &dyn Device, depth: u32) -> (Box<dyn DeviceQueue>, Arc<Waker>) {
    let options = QueueOptions::new(depth).unwrap();
    let waker = options.waker.clone();
    (device.open_queue(options).unwrap(), waker)
}

/// Runs bios to their ends and returns them in the order of their tokens.
fn run_bios(device: &dyn Device, bios: Vec<Bio>) -> Vec<Bio> {
    let (queue, waker) = open(device, 16);
    let (all, mut todo, mut out) = (bios.len(), BioList::from(bios), BioList::new());
    while out.len() < all {
        queue.submit(&mut todo);
        if queue.reap(&mut out) == 0 {
            queue.wait(1, None);
            waker.clear();
        }
    }
    assert_eq!(queue.in_flight(), 0);
    let mut out: Vec<Bio> = out.into();
    out.sort_by_key(|bio| bio.token);
    out
}

fn bytes_of(device: &dyn Device, pos: u64, len: usize) -> Vec<u8> {
    let bio = run_bios(device, vec![Bio::read(pos, Buf::zeroed(len), 0)]).remove(0);
    assert_eq!(bio.result, Ok(()));
    bio.buf.as_slice().to_vec()
}
