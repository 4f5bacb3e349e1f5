//! Calls of queues: requests, their completions, and the files that they are for.
//!
//! Input: a world and randomness. Output: queues with requests in flight. Invariant: ids that are not valid are refused. Limits: four
//! queues.

use crate::common::Rng;
use crate::files::file;
use crate::values::{self, length, number, one, rarely};
use crate::world::{Lane, World, expect};
use diorite::{FileId, Request};
use std::time::Duration;

fn lane<'a>(world: &'a mut World, rng: &mut Rng) -> Option<&'a mut Lane> {
    if world.lanes.is_empty() {
        queues(world, rng);
    }
    let at = rng.below(world.lanes.len().max(1) as u64) as usize;
    world.lanes.get_mut(at)
}

/// A file id: mostly a valid one, else a detached one, or one of another queue or volume.
fn any_id(world: &World, lane: usize, rng: &mut Rng) -> Option<FileId> {
    let mine = &world.lanes[lane];
    let of = match rng.below(12) {
        0 => &mine.stale,
        1 => &world.lanes[rng.below(world.lanes.len() as u64) as usize].ids,
        2 => &world.strangers.ids,
        _ => &mine.ids,
    };
    (!of.is_empty()).then(|| one(rng, of))
}

fn any_request(file: FileId, rng: &mut Rng) -> Request {
    let op = values::op(rng);
    let buf = values::buf(rng);
    let len = match rng.below(12) {
        0 => number(rng),
        1 => buf.len() as u64,
        2 => buf.len() as u64 + 1,
        3 => (buf.len() as u64).saturating_sub(1),
        _ if matches!(op, diorite::Op::Fallocate(_)) => length(rng),
        _ => 0,
    };
    Request {
        op,
        file,
        pos: number(rng),
        buf,
        len,
        token: rng.next(),
        flags: values::request_flags(rng),
    }
}

pub fn requests(world: &mut World, rng: &mut Rng) {
    if lane(world, rng).is_none() {
        return;
    }
    let at = rng.below(world.lanes.len() as u64) as usize;
    let mut batch: Vec<Request> = (0..1 + rng.below(12))
        .filter_map(|_| any_id(world, at, rng).map(|id| any_request(id, rng)))
        .collect();
    if rarely(rng, 20) {
        batch.push(Request::sync_volume(rng.next()));
    }
    let queue = &world.lanes[at].queue;
    match rng.below(3) {
        0 => drop(queue.submit_from(&mut batch)),
        1 => drop(queue.submit(&mut batch.into())),
        _ => {
            for request in batch {
                drop(queue.push(request));
            }
        }
    }
}

/// Requests that are submitted while the file is quiesced wait, and are still there afterwards.
pub fn requests_while_quiet(world: &mut World, rng: &mut Rng) {
    let Some(file) = file(world, rng) else { return };
    let guard = file.quiesce();
    requests(world, rng);
    drop(guard);
}

pub fn reap(world: &mut World, rng: &mut Rng) {
    let timeout = one(
        rng,
        &[
            Duration::ZERO,
            Duration::from_nanos(1),
            Duration::from_millis(2),
            Duration::from_millis(2),
        ],
    );
    let (min, one_only, forever) = (rng.below(40) as usize, rarely(rng, 3), rarely(rng, 4));
    let absurd = one(rng, &[usize::MAX, 1 << 31, 1 << 32]);
    let many = rarely(rng, 8);
    let Some(lane) = lane(world, rng) else { return };
    let timeout = if forever {
        Some(Duration::MAX)
    } else {
        Some(timeout)
    };
    if one_only {
        expect(
            lane.queue
                .reap_one(timeout)
                .map_or(Ok(0), |done| done.result),
        );
        return;
    }
    let mut out = Vec::new();
    lane.queue
        .reap(&mut out, if many { absurd } else { min }, timeout);
    for done in out {
        expect(done.result);
    }
    if lane.queue.in_use() > 0 {
        lane.queue.wait(min, Some(Duration::from_millis(1)));
    }
}

pub fn attach(world: &mut World, rng: &mut Rng) {
    let (file, foreign) = (file(world, rng), world.stranger.clone());
    let wrong = rarely(rng, 10);
    let Some(lane) = lane(world, rng) else { return };
    if wrong {
        assert!(
            lane.queue.attach(&foreign).is_err(),
            "a file of another volume"
        );
    } else if let Some(id) = file.and_then(|file| expect(lane.queue.attach(&file))) {
        lane.ids.push(id);
    }
}

pub fn detach(world: &mut World, rng: &mut Rng) {
    let foreign = one(rng, &world.strangers.ids);
    let wrong = rarely(rng, 4);
    let at = rng.next() as usize;
    let Some(lane) = lane(world, rng) else { return };
    if wrong || lane.ids.is_empty() {
        lane.queue.detach(foreign);
        return;
    }
    let id = lane.ids.swap_remove(at % lane.ids.len());
    lane.queue.detach(id);
    lane.stale.push(id);
    // A second detach does nothing.
    lane.queue.detach(id);
}

pub fn queues(world: &mut World, rng: &mut Rng) {
    if world.lanes.len() > 3 {
        // Drops a queue with requests in flight.
        world.lanes.swap_remove(rng.below(4) as usize);
        return;
    }
    let depth = match rarely(rng, 30) {
        true => one(rng, &[0, 32_767, 32_768, 32_769, u32::MAX]),
        false => 1 + rng.below(40) as u32,
    };
    if let Some(queue) = expect(world.volume.queue(depth)) {
        let (ids, stale) = (Vec::new(), Vec::new());
        assert_eq!(queue.depth(), queue.free());
        if rarely(rng, 4) {
            let _watched = queue.eventfd();
        }
        world.lanes.push(Lane { queue, ids, stale });
    }
}
