//! The direct-I/O module: from a request in a slot to bios on their way down.
//!
//! Input: a request, new or restarted. Output: bios in the queue's list; or the request finished, parked, or handed to a worker.
//! Invariants: the order is check, admit (lock, gate), size, map, plan, issue; an attempt blocks on nothing but the inode lock, and
//! reports what the request would have to wait for; a refused request has changed nothing. Limits: runs under the queue's lock.

mod admit;
mod check;
mod fast;
mod issue;
mod map;
mod pages;
mod space;
mod untorn;

use crate::complete;
use crate::error::{Error, Wait};
use crate::inode::Durable;
use crate::jobs::{JournalledJob, LoadJob, Need, PrepareJob, RangeJob, Work, WriteBackJob};
use crate::map::MapView;
use crate::op::Op;
use crate::policy::Policy;
use crate::reason::Reason;
use crate::request::{FileId, Request};
use crate::slots::{QueueShared, QueueState, SlotState};
use crate::turn::Wanted;
use crate::turn::gate::Admission;
use crate::turn::{Hold, Parked};
use diorite_block::Buf;
use std::ops::Range;
use std::sync::Arc;

/// The result of one attempt to start a request.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// Its bios are in the queue's list; the request ends with the last of them.
    Issued,
    /// It needs no I/O, and has ended.
    Done,
    /// It needs this hold on its inode first, and the gate does not give that now.
    Wants(Hold),
    /// It needs this range of file blocks exclusively, and another request has a part of it now.
    WantsRange(Wanted),
    /// It is an append, and whether the append before it keeps its place is not known yet.
    WantsPlace,
    /// Dirty pages of these file blocks have to be written back first.
    NeedsPages(Range<u64>),
    /// These file blocks of the map have to be loaded first.
    NeedsMap(Range<u64>),
    /// Blocks have to be claimed, or zeros written behind the old end, for these file blocks and this entry of the pending map.
    NeedsSpace(u64, Range<u64>),
    /// Its file's data goes through the journal, so it is no direct I/O.
    Buffered,
    /// Something has to be done to its file before the first write: rights to clear, inline data to move out, a truncation to finish.
    NeedsFirstWrite,
    /// It needs no bio, but a commit or a flush before it ends.
    Owes(Reason),
    /// It is a range operation, and has the exclusive turn.
    Operates,
    /// It is a sync of the volume.
    SyncsVolume,
    /// It fails with this error.
    Refused(Box<Error>),
}

impl Attempt {
    #[cold]
    fn refused(error: Error) -> Attempt {
        Attempt::Refused(Box::new(error))
    }
}

/// Takes requests in and starts them. A function of its own, so that what its loop needs stays in registers.
#[inline(never)]
pub(crate) fn accept(queue: &Arc<QueueShared>, state: &mut QueueState, requests: &mut [Request]) {
    for request in requests {
        match fast::place(state, request) {
            Some(at) => fast::send(state, request, at),
            None => {
                accept_any(queue, state, request);
                queue.tell_ready(state);
            }
        }
    }
}

/// With so many bios of writes into new space in the list they go down before the whole batch was taken in: each of these writes takes
/// long to prepare, and the device need not wait for that.
const EARLY: usize = 16;
/// The same where neighbours go down together: a list that is too short has few of them.
const EARLY_JOINED: usize = 128;

/// Takes in a request that the fast attempt does not take.
#[inline(never)]
fn accept_any(queue: &Arc<QueueShared>, state: &mut QueueState, request: &mut Request) {
    let measured = check::measure(request);
    let len = measured.as_ref().map_or(0, |len| *len);
    let index = state.slots.put(request, len, state.policy);
    if let Err(error) = measured {
        return complete::rejected(state, index, error);
    }
    match state.attached_mut(request.file) {
        Some(attached) => {
            attached.requests += 1;
            if attached.of_cache {
                // A policy is for the callers' requests.
                state.slots[index].policy = Policy::DIORITE;
            }
        }
        None if request.op == Op::SyncVolume => {
            state.slots[index].file = FileId::NONE.index;
            return complete::sync_volume(queue, state, index);
        }
        None => return complete::rejected(state, index, Error::NotAttached),
    }
    start(queue, state, index, None);
    let early = match state.joined {
        None => EARLY,
        Some(_) => EARLY_JOINED,
    };
    if state.slots[index].entry.is_some() && state.bios.len() >= early {
        complete::push_down(queue, state);
    }
}

/// Takes in a request after the volume was closed: it fails.
#[cold]
pub(crate) fn shut_down(state: &mut QueueState, mut request: Request) {
    let index = state.slots.put(&mut request, 0, state.policy);
    complete::rejected(state, index, Error::ShutDown);
}

/// Starts a request again that was parked. It has what it waited for.
pub(crate) fn restart(queue: &Arc<QueueShared>, state: &mut QueueState, index: u32) {
    state.parked -= 1;
    let slot = &mut state.slots[index];
    slot.state = SlotState::Active;
    slot.hold = slot.wanted;
    if let Err(error) = check::check_again(state, index) {
        return refuse(queue, state, index, error);
    }
    start(queue, state, index, None);
}

/// Goes on with a request for which a worker has loaded the map, or claimed space and read metadata. `view` has its part of the map.
pub(crate) fn mapped(
    queue: &Arc<QueueShared>,
    state: &mut QueueState,
    index: u32,
    view: &Arc<MapView>,
) {
    state.slots[index].state = SlotState::Active;
    start(queue, state, index, Some(view));
}

/// Goes on with a write that can be prepared only with the exclusive turn. Who has a range or a place never waits for that (rule D6), so a
/// thread that may block gives back what it has; then it starts again.
#[cold]
pub(crate) fn begin_alone(queue: &Arc<QueueShared>, state: &mut QueueState, index: u32) {
    let slot = &mut state.slots[index];
    (slot.alone, slot.begins_again) = (true, true);
    complete::defer(queue, state, index, Reason::Failed);
}

/// Starts a write again that has nothing of its inode any more. What is dirty is written back first: it counts on room in the map, too, and
/// cannot go while the write has the turn.
#[cold]
pub(crate) fn start_again(queue: &Arc<QueueShared>, state: &mut QueueState, index: u32) {
    let slot = &mut state.slots[index];
    slot.state = SlotState::Active;
    (slot.began, slot.past_end, slot.tail) = (None, false, None);
    if let Err(error) = check::check_again(state, index) {
        return refuse(queue, state, index, error);
    }
    if state.file_of(index).inode.pages.has_unwritten() {
        return write_back(queue, state, index, 0..u64::MAX);
    }
    state.slots[index].begins_again = false;
    start(queue, state, index, None);
}

/// Ends a request that has not reached the device. If it is in the pending map, a thread that may block gives back what it has there.
#[cold]
pub(crate) fn refuse(
    queue: &Arc<QueueShared>,
    state: &mut QueueState,
    index: u32,
    error: Box<Error>,
) {
    let slot = &mut state.slots[index];
    slot.done = 0;
    slot.moved = 0;
    slot.fail(error);
    if slot.entry.is_some() || slot.extends {
        complete::defer(queue, state, index, Reason::Failed);
    } else {
        complete::inline(state, index);
    }
}

/// Repeats the attempt until the request is on its way, has ended, or waits for somebody who will bring it back.
#[inline]
fn start(
    queue: &Arc<QueueShared>,
    state: &mut QueueState,
    index: u32,
    mut view: Option<&Arc<MapView>>,
) {
    loop {
        match admit::attempt(state, index, view) {
            Attempt::Issued => return,
            Attempt::Done => return complete::inline(state, index),
            Attempt::Refused(error) => return refuse(queue, state, index, error),
            Attempt::Owes(reason) => return complete::defer(queue, state, index, reason),
            Attempt::Operates => return operate(queue, state, index),
            Attempt::SyncsVolume => return complete::sync_volume(queue, state, index),
            Attempt::Buffered => return serve_buffered(queue, state, index),
            Attempt::NeedsSpace(entry, blocks) => {
                let slot = &state.slots[index];
                let need = Need::Space {
                    entry,
                    blocks,
                    extends: slot.extends,
                    alone: slot.hold == Hold::Exclusive,
                    anew: slot.op == Op::WriteAtomic,
                };
                return prepare(queue, state, index, need);
            }
            Attempt::NeedsFirstWrite => {
                let inside = state.file_of(index).inode.is_inside();
                state.counters.fallback_buffered += u64::from(inside);
                let alone = state.slots[index].hold == Hold::Exclusive;
                return prepare(queue, state, index, Need::FirstWrite { alone });
            }
            wants @ (Attempt::WantsRange(_) | Attempt::WantsPlace) => {
                match park_for_range(queue, state, index, &wants) {
                    Ok(true) => return,
                    Ok(false) => {}
                    Err(error) => return refuse(queue, state, index, error.into()),
                }
            }
            Attempt::NeedsPages(blocks) => return write_back(queue, state, index, blocks),
            Attempt::NeedsMap(blocks) => return load(queue, state, index, blocks),
            Attempt::Wants(hold) => match park(queue, state, index, hold) {
                Ok(Admission::Parked) => return,
                // Rule U7: it was not counted in flight for a moment, so others may have had the turn meanwhile and changed the map.
                Ok(Admission::Now) => view = None,
                Err(error) => return refuse(queue, state, index, error.into()),
            },
        }
    }
}

/// Hands the request to a worker that writes dirty pages back. It holds nothing of its inode meanwhile: write-back has to pass the gate.
#[cold]
fn write_back(queue: &Arc<QueueShared>, state: &mut QueueState, index: u32, blocks: Range<u64>) {
    let file = state.file_of(index).handle();
    let slot = &mut state.slots[index];
    match std::mem::replace(&mut slot.hold, Hold::None) {
        Hold::InFlight => file.inode.gate.leave(&file.shard),
        Hold::Exclusive => file.inode.gate.end_turn(),
        Hold::None => {}
    }
    let is_sync = matches!(slot.op, Op::Sync | Op::DataSync);
    if slot.flags.nowait && !is_sync {
        return refuse(queue, state, index, Error::WouldBlock(Wait::Pages).into());
    }
    slot.state = SlotState::Worker;
    state.counters.written_back += 1;
    queue.hand_off(
        state,
        Work::WriteBack(WriteBackJob {
            queue: queue.clone(),
            slot: index,
            file,
            blocks,
            is_sync,
        }),
    );
}

/// Starts a request again after the write-back of pages in its way.
pub(crate) fn written_back(
    queue: &Arc<QueueShared>,
    state: &mut QueueState,
    index: u32,
    error: Option<Error>,
) {
    let slot = &mut state.slots[index];
    (slot.state, slot.pages_done) = (SlotState::Active, true);
    // Then these pages are not in its way, and their failure is told to others.
    let of_others = std::mem::take(&mut slot.begins_again);
    match error.filter(|_| !of_others) {
        Some(error) => refuse(queue, state, index, error.into()),
        None => start(queue, state, index, None),
    }
}

/// Hands the request to a worker that loads the missing part of the map; it stays counted in flight meanwhile.
#[cold]
fn load(queue: &Arc<QueueShared>, state: &mut QueueState, index: u32, blocks: Range<u64>) {
    if state.slots[index].flags.nowait {
        return refuse(queue, state, index, Error::WouldBlock(Wait::Map).into());
    }
    state.slots[index].state = SlotState::Worker;
    state.counters.map_loads += 1;
    let file = state.file_of(index).handle();
    queue.hand_off(
        state,
        Work::Load(LoadJob {
            queue: queue.clone(),
            slot: index,
            file,
            blocks,
        }),
    );
}

/// Hands the request to a worker that may change metadata and commit; it stays counted in flight meanwhile.
#[cold]
fn prepare(queue: &Arc<QueueShared>, state: &mut QueueState, index: u32, need: Need) {
    let slot = &mut state.slots[index];
    if slot.flags.nowait {
        let wait = match need {
            Need::Space { .. } => Wait::Space,
            Need::FirstWrite { .. } => Wait::Inode,
        };
        return refuse(queue, state, index, Error::WouldBlock(wait).into());
    }
    slot.state = SlotState::Worker;
    state.counters.prepared += 1;
    let file = state.file_of(index).handle();
    queue.hand_off(
        state,
        Work::Prepare(PrepareJob {
            queue: queue.clone(),
            slot: index,
            file,
            need,
        }),
    );
}

/// Hands the request, with its buffer, to a worker that serves it through the metadata cache.
#[cold]
fn serve_buffered(queue: &Arc<QueueShared>, state: &mut QueueState, index: u32) {
    if state.slots[index].flags.nowait {
        let wait = Error::WouldBlock(Wait::Metadata);
        return refuse(queue, state, index, wait.into());
    }
    state.counters.fallback_buffered += 1;
    let file = state.file_of(index).handle();
    let slot = &mut state.slots[index];
    slot.state = SlotState::Worker;
    let job = JournalledJob {
        file,
        queue: queue.clone(),
        slot: index,
        op: slot.op,
        pos: slot.pos,
        len: slot.done,
        buf: std::mem::take(&mut slot.buf),
    };
    queue.hand_off(state, Work::Journalled(job));
}

/// Goes on with a request of journalled data that a worker has served.
#[cold]
pub(crate) fn served(
    queue: &Arc<QueueShared>,
    state: &mut QueueState,
    index: u32,
    (buf, error): (Buf, Option<Error>),
) {
    let slot = &mut state.slots[index];
    slot.state = SlotState::Active;
    slot.buf = buf;
    match error {
        Some(error) => refuse(queue, state, index, error.into()),
        None if slot.op != Op::Read && slot.flags.dsync => {
            slot.owes_commit = true;
            complete::defer(queue, state, index, Reason::Commit);
        }
        None => complete::inline(state, index),
    }
}

/// Hands a range operation, with its turn, to a worker that may change the file's map.
#[cold]
fn operate(queue: &Arc<QueueShared>, state: &mut QueueState, index: u32) {
    state.counters.deferred[Reason::Range as usize] += 1;
    let file = state.file_of(index).handle();
    let slot = &mut state.slots[index];
    slot.state = SlotState::Worker;
    let (dsync, sync) = file.makes_durable();
    let durable = if slot.flags.sync || sync {
        Durable::All
    } else if slot.flags.dsync || dsync {
        Durable::Map
    } else {
        Durable::No
    };
    let job = RangeJob {
        file,
        queue: queue.clone(),
        slot: index,
        hold: std::mem::replace(&mut slot.hold, Hold::None),
        op: slot.op,
        pos: slot.pos,
        len: slot.range_len,
        durable,
        claim: slot.claim.take(),
    };
    queue.hand_off(state, Work::Range(job));
}

/// Parks the request until the holder of a part of its range lets go of it, or until the place of the append before is sure. It stays
/// counted in flight. False if there is nothing to wait for any more.
#[cold]
fn park_for_range(
    queue: &Arc<QueueShared>,
    state: &mut QueueState,
    index: u32,
    wants: &Attempt,
) -> Result<bool, Error> {
    let inode = state.file_of(index).inode.clone();
    if state.slots[index].flags.nowait {
        return Err(Error::WouldBlock(Wait::Range));
    }
    let hold = state.slots[index].hold;
    let request = || parked(queue, state, index, hold);
    let waits = match wants {
        Attempt::WantsRange(wanted) => inode.pending.park(wanted, request),
        _ => inode.pending.park_append(request),
    };
    if waits {
        state.counters.parked_for_range += 1;
    }
    Ok(waits)
}

/// Takes `hold` if the gate gives it now; else parks the request on the gate's list. With `nowait` it fails instead of parking.
#[cold]
fn park(
    queue: &Arc<QueueShared>,
    state: &mut QueueState,
    index: u32,
    hold: Hold,
) -> Result<Admission, Error> {
    let file = state.file_of(index).handle();
    let slot = &mut state.slots[index];
    if std::mem::replace(&mut slot.hold, Hold::None) == Hold::InFlight {
        file.inode.gate.leave(&file.shard);
    }
    let gate = &file.inode.gate;
    let admission = match (hold, slot.flags.nowait) {
        (Hold::Exclusive, true) if gate.try_turn() => Admission::Now,
        (Hold::Exclusive, true) => return Err(Error::WouldBlock(Wait::Exclusive)),
        (_, true) => return Err(Error::WouldBlock(Wait::Gate)),
        (Hold::Exclusive, false) => gate.take_turn(|| parked(queue, state, index, hold)),
        (_, false) => gate.enter_or_park(&file.shard, || parked(queue, state, index, hold)),
    };
    if admission == Admission::Now {
        state.slots[index].hold = hold;
    }
    Ok(admission)
}

fn parked(queue: &Arc<QueueShared>, state: &mut QueueState, index: u32, wanted: Hold) -> Parked {
    let slot = &mut state.slots[index];
    slot.state = SlotState::Parked;
    slot.wanted = wanted;
    state.parked += 1;
    state.counters.parked += 1;
    Parked {
        queue: queue.clone(),
        slot: index,
    }
}
