//! Volumes, files, queues and streams that are dropped, in every order: no drop waits for ever, and the last one releases the device.
//!
//! Input: a volume on each device. Output: none. Invariants: where the order is random, everything runs under a watchdog. Limits: one
//! file.

use crate::common::Rng;
use crate::common::fixture::{LIMIT, attached, even, made, writable};
use crate::common::stage::{Below, Stage};
use crate::common::watch::{Watchdog, within};
use crate::who_reaps::{leave, maybe_elsewhere, policies};
use diorite::{AccessTimes, Ino, OpenOptions, Policy, Queue};
use diorite_block::Buf;
use std::sync::Arc;
use std::time::Duration;

/// A queue with unreaped requests is dropped, by its thread and by another, before the volume or after it.
#[test]
fn a_queue_is_dropped_with_requests_in_flight() {
    let (_dir, image, _) = made(0);
    for below in Below::ALL {
        for policy in policies() {
            for elsewhere in [false, true] {
                let _watchdog = Watchdog::new(LIMIT, format!("{below:?}, {policy}, {elsewhere}"));
                let Some(stage) = Stage::new(&image, below) else {
                    continue;
                };
                let (volume, file) = even(&stage, policy);
                let queues: Vec<Queue> = (0..3).map(|_| volume.queue(64).unwrap()).collect();
                for queue in &queues {
                    let id = queue.attach(&file).unwrap();
                    leave(queue, id, 64);
                }
                drop(file);
                let outlives = elsewhere.then(|| volume.clone());
                drop(volume);
                for queue in queues {
                    maybe_elsewhere(elsewhere, || drop(queue));
                }
                drop(outlives);
                is_released(stage, &format!("{below:?}, {policy}"));
            }
        }
    }
}

/// Nothing holds the device any more, so that the image can be opened again at once.
fn is_released(stage: Stage, what: &str) {
    let device = Arc::downgrade(&stage.device);
    drop(stage);
    assert_eq!(device.strong_count(), 0, "{what}: the device is held");
}

/// The device is released with the last file or queue that outlives the volume. The defect: the times of a write behind the volume's end
/// kept it held until the next periodic commit.
#[test]
fn who_outlives_the_volume_releases_the_device() {
    let (_dir, image, _) = made(0);
    for below in Below::ALL {
        for by_queue in [false, true] {
            let Some(stage) = Stage::new(&image, below) else {
                continue;
            };
            let (volume, file) = even(&stage, Policy::DIORITE);
            let (queue, id) = attached(&volume, &file, 8);
            drop(volume);
            if by_queue {
                drop(file);
                leave(&queue, id, 8);
                drop(queue);
            } else {
                drop(queue);
                file.write_buf(0, Buf::zeroed(4096)).1.unwrap();
                drop(file);
            }
            is_released(stage, &format!("{below:?}, by a queue: {by_queue}"));
        }
    }
}

/// A listing that goes on behind the volume's end does not hold the device longer than it lasts: that the directory is read is not noted
/// any more. The defect: the noted time kept the device until the next periodic commit.
#[test]
fn a_listing_that_outlives_the_volume_releases_the_device() {
    let (_dir, image, _) = made(0);
    let stage = Stage::mem(&image);
    let options = OpenOptions::writable().access_times(AccessTimes::Relative);
    let volume = stage.open(&options).unwrap();
    // Makes the root's times such that the next read moves its atime.
    volume.mkdir("/new", 0o755).unwrap();
    let listing = volume.read_dir(Ino::ROOT).unwrap();
    drop(volume);
    assert!(listing.map(Result::unwrap).any(|e| e.name == b"new"));
    is_released(stage, "a listing");
}

/// Volumes, files and queues are dropped in every order, with requests in flight, by several threads at once.
#[test]
fn dropping_in_any_order() {
    let mut rng = Rng::from_env("drop-order");
    let (_dir, image, _) = made(0);
    for round in 0..60 {
        within(&format!("round {round}"), || {
            let below = Below::ALL[round % 5];
            let Some(stage) = Stage::new(&image, below) else {
                return;
            };
            let policy = policies()[round % 5];
            let options = OpenOptions::writable()
                .policy(policy)
                .workers(1)
                // If a file outlives the last handle of its volume, uncommitted times keep the volume and its device until the next
                // commit.
                .commit_interval(Duration::from_millis(20));
            let volume = stage.open(&options).unwrap();
            let file = volume.open_path("/pieces", writable()).unwrap();
            let mut things: Vec<Box<dyn Send>> = Vec::new();
            for _ in 0..2 {
                let (queue, id) = attached(&volume, &file, 64);
                leave(&queue, id, 64);
                things.push(Box::new(queue));
            }
            things.push(Box::new(file.clone()));
            things.push(Box::new(file));
            things.push(Box::new(volume.clone()));
            things.push(Box::new(volume));
            things.push(Box::new(stage));
            for n in (1..things.len()).rev() {
                things.swap(n, rng.below(n as u64 + 1) as usize);
            }
            std::thread::scope(|s| {
                for thing in things {
                    s.spawn(move || drop(thing));
                }
            });
        });
    }
}
