//! The pending map of an inode: writes into space that is not written yet, from before their mapping is looked up until what they wrote
//! is published; and the order in which the size moves.
//!
//! Input: ranges of file blocks, rounded out; extending requests by their bytes. Output: who has a range now, who is parked for it, which
//! extending requests the size may move over. Invariants: entries do not overlap, so a later write of a block starts again when the
//! earlier one has ended, and mostly finds it written (rules B4, B5); the size moves in offset order over requests that have ended
//! (rule U9); an extending request takes no block that one before it in that order still needs, or each would wait for the other. Limits: overwrites never come here.

use crate::alloc::Run;
use crate::locks::PENDING;
use crate::queue::Parked;
use diorite_block::sync::Mutex;
use std::collections::BTreeMap;
use std::ops::{Bound, Range};

/// Blocks that were claimed for a part of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claimed {
    pub(crate) file_block: u32,
    pub(crate) run: Run,
}

/// See the module. `J`: what waits for the size to move over it.
#[derive(Debug)]
pub(crate) struct Pending<J> {
    inner: Mutex<Inner<J>>,
}

#[derive(Debug)]
struct Inner<J> {
    /// By first block.
    entries: BTreeMap<u64, Entry>,
    /// Extending requests that the size has not moved over, by first byte.
    extending: BTreeMap<u64, Extending<J>>,
}

#[derive(Debug)]
struct Entry {
    end: u64,
    claims: Vec<Claimed>,
    parked: Vec<Parked>,
}

#[derive(Debug)]
struct Extending<J> {
    end: u64,
    state: Progress<J>,
    parked: Vec<Parked>,
}

/// Who has a part of a range.
#[derive(Clone, Copy, Debug)]
enum Holder {
    /// The entry with this first block.
    Entry(u64),
    /// The extending request with this first byte, which comes first.
    Before(u64),
}

/// A range of file blocks that a request wants; its bytes if it extends the file.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) blocks: Range<u64>,
    pub(crate) extends: Option<Range<u64>>,
    /// It has its place in the order in which the size moves already, as an append has.
    pub(crate) placed: bool,
    /// log2 of the block size.
    pub(crate) bits: u32,
}

#[derive(Debug)]
enum Progress<J> {
    UnderWay,
    /// It ended well and waits for those before it.
    Held(J),
    /// It ended with nothing written.
    Failed,
}

impl<J> Pending<J> {
    pub(crate) fn new(level: u8) -> Pending<J> {
        let inner = Inner {
            entries: BTreeMap::new(),
            extending: BTreeMap::new(),
        };
        Pending {
            inner: Mutex::at_level(&PENDING, level, inner),
        }
    }

    /// Takes the range if nobody has a part of it, and for who extends the file the place in the order, in one step: an append that got its
    /// place between the two would come first, and wait for the range. Its first block names the entry from now on.
    pub(crate) fn register(&self, wanted: &Wanted) -> bool {
        let mut inner = self.inner.lock();
        let free = inner.holder(wanted).is_none();
        if free {
            let entry = Entry {
                end: wanted.blocks.end,
                claims: Vec::new(),
                parked: Vec::new(),
            };
            inner.entries.insert(wanted.blocks.start, entry);
            if let Some(bytes) = wanted.extends.clone().filter(|_| !wanted.placed) {
                let begun = Extending::begin(bytes.end);
                inner.extending.insert(bytes.start, begun);
            }
        }
        free
    }

    /// Parks a request until who has a part of the range lets go of it. False if nobody has.
    pub(crate) fn park(&self, wanted: &Wanted, request: impl FnOnce() -> Parked) -> bool {
        let mut inner = self.inner.lock();
        let list = match inner.holder(wanted) {
            None => return false,
            Some(Holder::Entry(at)) => inner.entries.get_mut(&at).map(|e| &mut e.parked),
            Some(Holder::Before(at)) => inner.extending.get_mut(&at).map(|e| &mut e.parked),
        };
        list.expect("a holder was found a line above")
            .push(request());
        true
    }

    /// Blocks were claimed for a part of the entry.
    pub(crate) fn add_claim(&self, entry: u64, claim: Claimed) {
        let mut inner = self.inner.lock();
        let entry = inner.entries.get_mut(&entry);
        entry.expect("who claims has registered").claims.push(claim);
    }

    /// What was claimed for the entry.
    pub(crate) fn claims(&self, entry: u64) -> Vec<Claimed> {
        let inner = self.inner.lock();
        let entry = inner.entries.get(&entry);
        entry.map(|e| e.claims.clone()).unwrap_or_default()
    }

    /// Lets go of an entry: who is parked for it starts again.
    pub(crate) fn release(&self, entry: u64) {
        let entry = self.inner.lock().entries.remove(&entry);
        let parked = entry.expect("an entry is released once").parked;
        parked.into_iter().for_each(Parked::release);
    }

    /// An append begins: gives it the first byte that no request before it has.
    pub(crate) fn append(&self, size: u64, len: u64, most: u64) -> Option<u64> {
        let mut inner = self.inner.lock();
        let reserved = inner.extending.values().next_back().map_or(0, |e| e.end);
        let at = reserved.max(size);
        let end = at.checked_add(len).filter(|end| *end <= most)?;
        inner.extending.insert(at, Extending::begin(end));
        Some(at)
    }

    /// The extending request that begins at `pos` has ended: with `job` if its data is there. Gives the jobs that the size may move over
    /// now, in order.
    pub(crate) fn ended(&self, pos: u64, job: Option<J>) -> Vec<J> {
        let (mut free, mut released) = (Vec::new(), Vec::new());
        let mut inner = self.inner.lock();
        let request = inner.extending.get_mut(&pos);
        request.expect("who ends has begun").state = match job {
            Some(job) => Progress::Held(job),
            None => Progress::Failed,
        };
        while let Some(first) = inner.extending.first_entry() {
            if matches!(first.get().state, Progress::UnderWay) {
                break;
            }
            let first = first.remove();
            released.extend(first.parked);
            if let Progress::Held(job) = first.state {
                free.push(job);
            }
        }
        drop(inner);
        released.into_iter().for_each(Parked::release);
        free
    }

    /// Is an extending request under way that begins before `pos`?
    pub(crate) fn has_before(&self, pos: u64) -> bool {
        self.inner.lock().extending.range(..pos).next().is_some()
    }

    /// Nothing is pending.
    pub(crate) fn is_empty(&self) -> bool {
        let inner = self.inner.lock();
        inner.entries.is_empty() && inner.extending.is_empty()
    }
}

impl Claimed {
    /// The file blocks that they are for.
    pub(crate) fn blocks(&self) -> Range<u64> {
        let start = u64::from(self.file_block);
        start..start + u64::from(self.run.len)
    }
}

impl<J> Inner<J> {
    /// Who has a part of the range, or comes before who wants it.
    fn holder(&self, wanted: &Wanted) -> Option<Holder> {
        let blocks = &wanted.blocks;
        let entry = self.entries.range(..blocks.end).next_back();
        if let Some((start, _)) = entry.filter(|(_, e)| e.end > blocks.start) {
            return Some(Holder::Entry(*start));
        }
        let start = wanted.extends.as_ref()?.start;
        let until = if wanted.placed {
            Bound::Excluded(start)
        } else {
            Bound::Included(start)
        };
        let before = self.extending.range((Bound::Unbounded, until));
        let (pos, before) = before.clone().next_back()?;
        // They do not overlap one another, so the last one before is the one that reaches farthest.
        let reaches = before.end.div_ceil(1 << wanted.bits) > blocks.start;
        reaches.then_some(Holder::Before(*pos))
    }
}

impl<J> Extending<J> {
    fn begin(end: u64) -> Extending<J> {
        Extending {
            end,
            state: Progress::UnderWay,
            parked: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_one_request_s_at_a_time() {
        let pending = Pending::<u32>::new(1);
        let register = |blocks| {
            pending.register(&Wanted {
                blocks,
                extends: None,
                placed: false,
                bits: 12,
            })
        };
        assert!(register(4..6));
        for taken in [0..5, 4..6, 5..9, 3..8] {
            assert!(!register(taken));
        }
        assert!(register(6..7) && register(0..4));
        pending.release(4);
        assert!(register(5..6));
    }

    /// An append that shares a block with the one before it does not take that block first: it would then wait for the size to move over
    /// that one, which waits for the block.
    #[test]
    fn who_comes_first_in_the_file_gets_a_shared_block_first() {
        let pending = Pending::<u32>::new(1);
        let wanted = |pos: u64, end: u64| Wanted {
            blocks: pos >> 12..end.div_ceil(4096),
            extends: Some(pos..end),
            placed: true,
            bits: 12,
        };
        assert_eq!(pending.append(0, 1000, 9999), Some(0));
        assert_eq!(pending.append(0, 4000, 9999), Some(1000));
        assert!(!pending.register(&wanted(1000, 5000)));
        assert!(pending.register(&wanted(0, 1000)));
        assert_eq!(pending.ended(0, Some(1)), [1]);
        pending.release(0);
        assert!(pending.register(&wanted(1000, 5000)));
    }

    /// A write past the end has its range and its place in one step, so an append comes behind it and not before a range that it then
    /// waits for; and it is not taken for an append that has its place where the write begins.
    #[test]
    fn a_range_past_the_end_comes_with_its_place() {
        let pending = Pending::<u32>::new(1);
        let wanted = |bytes: Range<u64>| Wanted {
            blocks: bytes.start >> 12..bytes.end.div_ceil(4096),
            extends: Some(bytes),
            placed: false,
            bits: 12,
        };
        assert!(pending.register(&wanted(8192..9000)));
        assert_eq!(pending.append(100, 10_000, 99_999), Some(9000));
        assert!(!pending.register(&wanted(9000..9100)));
        assert_eq!(pending.ended(8192, Some(1)), [1]);
        pending.release(2);
        assert!(!pending.register(&wanted(9000..9100)));
        assert_eq!(pending.ended(9000, Some(2)), [2]);
        assert!(pending.register(&wanted(9000..9100)));
    }

    /// Rule U9.
    #[test]
    fn the_size_moves_in_offset_order_over_what_has_ended() {
        let pending = Pending::<u32>::new(1);
        assert_eq!(pending.append(100, 10, 1000), Some(100));
        assert_eq!(pending.append(100, 10, 1000), Some(110));
        assert_eq!(pending.append(100, 10, 1000), Some(120));
        assert_eq!(pending.append(100, 900, 1000), None);
        assert!(pending.ended(120, Some(3)).is_empty());
        assert!(pending.ended(110, None).is_empty());
        assert_eq!(pending.ended(100, Some(1)), [1, 3]);
        assert!(pending.is_empty());
        assert_eq!(pending.append(130, 10, 1000), Some(130));
        assert_eq!(pending.ended(130, Some(4)), [4]);
    }
}
