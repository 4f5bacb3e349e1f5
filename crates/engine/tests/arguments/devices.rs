//! Bios of every kind on a loop device.
//!
//! Input: a file and randomness. Output: bios that have ended. Invariant: each of them ends. Limits: twenty at a time.

use crate::common::Rng;
use crate::files::file;
use crate::values::{self, length, number, one, rarely};
use crate::world::World;
use diorite::device::{Bio, BioFlags, BioList, BioOp, Device, QueueOptions};
use diorite::{Buf, LoopDevice};
use std::time::Duration;

fn any_bio(rng: &mut Rng) -> Bio {
    let op = one(
        rng,
        &[
            BioOp::Read,
            BioOp::Write,
            BioOp::Write,
            BioOp::Flush,
            BioOp::Discard,
            BioOp::WriteZeroes,
            BioOp::WriteZeroesUnmap,
        ],
    );
    let data = matches!(op, BioOp::Read | BioOp::Write) || rarely(rng, 8);
    let buf = if data { values::buf(rng) } else { Buf::empty() };
    let len = match rarely(rng, 8) {
        false if data => buf.len() as u64,
        _ => length(rng),
    };
    Bio {
        op,
        pos: number(rng),
        buf,
        len,
        token: rng.next(),
        flags: BioFlags::default()
            .fua(rarely(rng, 4))
            .nowait(rarely(rng, 5)),
        result: Ok(()),
    }
}

/// Bios of every kind on a loop device.
pub fn loop_device(world: &mut World, rng: &mut Rng) {
    let Some(file) = file(world, rng) else { return };
    let device = LoopDevice::new(file, "any file".into());
    let geometry = device.geometry();
    assert!(geometry.size.is_multiple_of(u64::from(geometry.logical)));
    let depth = one(rng, &[0, 1, 2, 16, u32::MAX]);
    let options = QueueOptions::new(1).unwrap().depth(depth);
    let Ok(queue) = device.open_queue(options) else {
        return;
    };
    let mut bios: BioList = (0..1 + rng.below(20)).map(|_| any_bio(rng)).collect();
    let (mut ended, asked) = (BioList::new(), bios.len());
    loop {
        queue.submit(&mut bios);
        queue.reap(&mut ended);
        if bios.is_empty() && ended.len() == asked {
            break;
        }
        queue.wait(1, Some(Duration::from_millis(1)));
    }
    assert_eq!(queue.in_flight(), 0);
}
