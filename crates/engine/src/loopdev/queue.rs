//! The queue of a loop device.
//!
//! Input: bios. Output: the same bios, ended, by way of requests on a queue of the volume below. Invariants: submit and reap call the
//! queue below directly; if that is full, bios stay in the submitter's list; flush is a sync of the file, FUA an O_DSYNC write, discard a
//! punched hole (rule L5); a bio without `nowait` never ends with `WouldBlock` (rule L6). Limits: none of its own.

use super::flying::{Flight, Flying};
use super::words::{self, Abilities, Wish};
use crate::error::Error;
use crate::queue::Queue;
use crate::request::{Completion, FileId, Request};
use diorite_block::sync::{DEVICE_SUBMIT, Mutex};
use diorite_block::{Bio, BioList, DeviceQueue, Geometry};
use std::collections::VecDeque;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct LoopQueue {
    queue: Queue,
    file: FileId,
    geometry: Geometry,
    able: Abilities,
    lists: Mutex<Lists>,
}

/// Lists for requests to be submitted and for reaped completions. They are kept so that no bio costs an allocation. `requests` is empty
/// whenever the lock is free.
#[derive(Debug, Default)]
struct Lists {
    requests: VecDeque<Request>,
    completions: Vec<Completion>,
    /// Bios that ended before they became requests.
    ended: Vec<Bio>,
    flying: Flying,
}

impl LoopQueue {
    pub(super) fn new(
        queue: Queue,
        file: FileId,
        geometry: Geometry,
        able: Abilities,
        level: u8,
    ) -> LoopQueue {
        let lists = Mutex::at_level(&DEVICE_SUBMIT, level + 1, Lists::default());
        LoopQueue {
            queue,
            file,
            geometry,
            able,
            lists,
        }
    }

    /// Makes a request of a bio and puts it into `requests`; or ends the bio at once, into `ended`.
    fn take(&self, lists: &mut Lists, mut bio: Bio) {
        let checked = self.geometry.check(&bio);
        let op = match checked.and_then(|()| self.able.wish(&bio)) {
            Ok(Wish::Ask(op)) => op,
            other => {
                bio.result = other.map(|_| ());
                return lists.ended.push(bio);
            }
        };
        let mut request = words::request(self.file, op, &mut bio);
        request.token = lists.flying.put(Flight {
            token: bio.token,
            flags: bio.flags,
            again: false,
            range: op.is_of_range().then(|| Box::new(bio)),
        });
        lists.requests.push_back(request);
    }
}

impl DeviceQueue for LoopQueue {
    fn submit(&self, bios: &mut BioList) {
        let mut lists = self.lists.lock();
        let room = self.queue.free().min(bios.len());
        for bio in bios.drain(..room) {
            self.take(&mut lists, bio);
        }
        self.queue.submit(&mut lists.requests);
        if !lists.ended.is_empty() {
            self.queue.kick();
        }
    }

    fn reap(&self, out: &mut BioList) -> usize {
        let mut lists = self.lists.lock();
        let before = out.len();
        let mut completions = std::mem::take(&mut lists.completions);
        self.queue.reap_below(&mut completions);
        for done in completions.drain(..) {
            let mut flight = lists.flying.take(done.token);
            if let Some(mut bio) = flight.range.take() {
                let result = done.result.as_ref();
                bio.result = result.map(|_| ()).map_err(words::bio_error);
                out.push_back(*bio);
                continue;
            }
            let told = matches!(done.result, Err(Error::WouldBlock(_)));
            if told && !flight.flags.nowait && !flight.again {
                flight.again = true;
                let durable = flight.flags.fua;
                let token = lists.flying.put(flight);
                let request = words::again(self.file, done, durable, token);
                lists.requests.push_back(request);
                continue;
            }
            out.push_back(words::ended(done, flight.token));
        }
        lists.completions = completions;
        out.extend(lists.ended.drain(..));
        if !lists.requests.is_empty() {
            self.queue.submit(&mut lists.requests);
        }
        out.len() - before
    }

    fn wait(&self, min: u32, timeout: Option<Duration>) {
        if self.lists.lock().ended.is_empty() {
            self.queue.wait(min as usize, timeout);
        }
    }

    fn in_flight(&self) -> u32 {
        let ended = self.lists.lock().ended.len();
        u32::try_from(self.queue.in_use() + ended).unwrap_or(u32::MAX)
    }

    fn signal_waker(&self) {
        self.queue.signal_waker();
    }
}
