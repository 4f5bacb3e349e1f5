//! What most tests start from: flags, limits, an image with known files, a way to run requests to completion.
//!
//! Input: a recipe's number. Output: images, stages, completions. Invariants: none of its own. Limits: none of its own.

use super::recipe::{self, Known, RECIPES};
use super::stage::{Stage, one_worker};
use super::{Rng, scratch};
use diorite::{
    Completion, File, FileId, OpenFlags, OpenOptions, Policy, Queue, Request, RequestFlags, Volume,
};
use diorite_block::{Buf, SimOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A test without progress for this long counts as hung.
pub const LIMIT: Duration = Duration::from_secs(60);

pub const NOWAIT: RequestFlags = RequestFlags::none().nowait(true);
pub const DSYNC: RequestFlags = RequestFlags::none().dsync(true);

pub fn writable() -> OpenFlags {
    OpenFlags::writable()
}

/// For writing, and files get the last block: nothing is kept for maps.
pub fn every_block() -> OpenOptions {
    OpenOptions::writable().keep_for_maps(false)
}

/// A buffer of `len` equal bytes.
pub fn filled(byte: u8, len: usize) -> Buf {
    let mut buf = Buf::zeroed(len);
    buf.as_mut_slice().fill(byte);
    buf
}

/// Opens the volume with one worker of each class under a policy, and its `/even` for writing.
pub fn even(stage: &Stage, policy: Policy) -> (Volume, File) {
    let volume = stage.open(&one_worker(policy)).unwrap();
    let file = volume.open_path("/even", writable()).unwrap();
    (volume, file)
}

/// A queue of this depth that has the file attached.
pub fn attached(volume: &Volume, file: &File, depth: u32) -> (Queue, FileId) {
    let queue = volume.queue(depth).unwrap();
    let id = queue.attach(file).unwrap();
    (queue, id)
}

/// Waits so many milliseconds at most for the queue's descriptor to become readable. Returns whether it is.
pub fn readable(queue: &Queue, millis: i64) -> bool {
    let fd = queue.eventfd();
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let timeout = Timespec {
        tv_sec: millis / 1000,
        tv_nsec: millis % 1000 * 1_000_000,
    };
    poll(&mut fds, Some(&timeout)).unwrap() > 0
}

/// Makes the recipe's image. Returns it with the contents of its files.
pub fn made(recipe: usize) -> (tempfile::TempDir, PathBuf, Vec<Known>) {
    let mut rng = Rng::from_env(RECIPES[recipe].name);
    let dir = scratch();
    let (image, files) = recipe::make(dir.path(), &RECIPES[recipe], &mut rng);
    (dir, image, files)
}

pub fn known<'a>(files: &'a [Known], path: &str) -> &'a Known {
    files.iter().find(|k| k.path == path).unwrap()
}

/// Submits these requests and reaps them all. Returns the completions in the order of their tokens.
pub fn run_all(queue: &Queue, requests: Vec<Request>) -> Vec<Completion> {
    let (count, mut batch, mut done) = (requests.len(), VecDeque::from(requests), Vec::new());
    while done.len() < count {
        queue.submit(&mut batch);
        queue.reap(&mut done, 1, None);
    }
    done.sort_by_key(|d| d.token);
    done
}

/// Puts the image on a simulated disk with these parameters.
pub fn sim(image: &Path, params: &str) -> Stage {
    Stage::sim(image, SimOptions::parse(&format!("0,{params}")).unwrap())
}
