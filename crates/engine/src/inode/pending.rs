//! The pending map of an inode: writes into space that is not written yet, from before their mapping is looked up until what they wrote
//! is published; and the order in which the size moves.
//!
//! Input: ranges of file blocks, rounded out; extending requests by their bytes. Output: who has a range now, who is parked for it, which
//! extending requests the size may move over. Invariants: entries do not overlap, so a later write of a block starts again when the
//! earlier one has ended, and mostly finds it written (rules B4, B5); the size moves in offset order over requests that have ended
//! (rule U9); an extending request takes no block that one before it in that order still needs, or each would wait for the other; no append
//! gets a place behind one that may yet be refused. Limits: overwrites never come here; an append that waits for another's block counts as
//! one that will not be refused.

use crate::alloc::Run;
use crate::locks::PENDING;
use crate::queue::Parked;
use diorite_block::sync::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;

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
    /// How many the size may move over that it has not moved over yet, and how far the last of them reaches.
    unpublished: u32,
    reached: u64,
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
    /// It may be refused for want of space, or because it does not want to wait: its place is not sure.
    unsure: bool,
    parked: Vec<Parked>,
}

/// Why an append gets no place now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// It would end past what the file's map can hold.
    TooBig,
    /// The file ends here, inside a logical block of the device.
    Inside(u64),
    /// The one before may yet be refused.
    Unsure,
}

/// Who has a part of a range.
#[derive(Clone, Copy, Debug)]
enum Holder {
    /// The entry with this first block.
    Entry(u64),
    /// The extending request with this first byte, which comes first.
    Before(u64),
}

/// A range of file blocks that a request wants; the first byte of it if it extends the file.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) blocks: Range<u64>,
    pub(crate) extends: Option<u64>,
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
            unpublished: 0,
            reached: 0,
        };
        Pending {
            inner: Mutex::at_level(&PENDING, level, inner),
        }
    }

    /// Takes the range if nobody has a part of it. Its first block names the entry from now on.
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

    /// An extending request begins. Again for the same one changes nothing.
    pub(crate) fn extend(&self, bytes: Range<u64>) {
        let begun = Extending::begin(bytes.end);
        let mut inner = self.inner.lock();
        inner.extending.entry(bytes.start).or_insert(begun);
    }

    /// An append begins: gives it the first byte that no request before it has, at a multiple of `logical`. Its place is not sure until
    /// [`Pending::make_sure`] says so. The size is looked at under the lock, or a place could be given twice while it moves.
    pub(crate) fn append(
        &self,
        size: impl FnOnce() -> u64,
        len: u64,
        most: u64,
        logical: u64,
    ) -> Result<u64, NoPlace> {
        let mut inner = self.inner.lock();
        let last = inner.extending.values().next_back();
        if last.is_some_and(|e| e.unsure) {
            return Err(NoPlace::Unsure);
        }
        let reserved = last.map_or(0, |e| e.end).max(inner.reached);
        let at = reserved.max(size());
        if at % logical != 0 {
            return Err(NoPlace::Inside(at));
        }
        let end = at.checked_add(len).filter(|end| *end <= most);
        let mut begun = Extending::begin(end.ok_or(NoPlace::TooBig)?);
        begun.unsure = true;
        inner.extending.insert(at, begun);
        Ok(at)
    }

    /// The append at `pos` has what it needs: who waited for that starts again.
    pub(crate) fn make_sure(&self, pos: u64) {
        let mut inner = self.inner.lock();
        let append = inner.extending.get_mut(&pos).filter(|e| e.unsure);
        let parked = append.map(|e| {
            e.unsure = false;
            std::mem::take(&mut e.parked)
        });
        drop(inner);
        parked.into_iter().flatten().for_each(Parked::release);
    }

    /// Parks an append until the place of the one before is sure. False if it is.
    pub(crate) fn park_append(&self, request: impl FnOnce() -> Parked) -> bool {
        let mut inner = self.inner.lock();
        let last = inner.extending.values_mut().next_back();
        match last.filter(|e| e.unsure) {
            Some(last) => last.parked.push(request()),
            None => return false,
        }
        true
    }

    /// The extending request that begins at `pos` has ended: with `job` if its data is there. Gives the jobs that the size may move over
    /// now, in order.
    pub(crate) fn ended(&self, pos: u64, job: Option<J>) -> Vec<J> {
        let (mut free, mut released) = (Vec::new(), Vec::new());
        let mut inner = self.inner.lock();
        let is_last = inner.extending.range(pos + 1..).next().is_none();
        let request = inner.extending.get_mut(&pos).expect("who ends has begun");
        let refused = job.is_none() && request.unsure;
        request.unsure = false;
        request.state = match job {
            Some(job) => Progress::Held(job),
            None => Progress::Failed,
        };
        if refused && is_last {
            // Nobody has a place behind it: it was never there.
            let refused = inner.extending.remove(&pos);
            released.extend(refused.into_iter().flat_map(|e| e.parked));
        } else {
            released.append(&mut request.parked);
        }
        while let Some(first) = inner.extending.first_entry() {
            if matches!(first.get().state, Progress::UnderWay) {
                break;
            }
            let first = first.remove();
            released.extend(first.parked);
            if let Progress::Held(job) = first.state {
                inner.unpublished += 1;
                inner.reached = inner.reached.max(first.end);
                free.push(job);
            }
        }
        drop(inner);
        released.into_iter().for_each(Parked::release);
        free
    }

    /// The size has moved over one of the jobs that [`Pending::ended`] gave, or will not.
    pub(crate) fn published(&self) {
        let mut inner = self.inner.lock();
        inner.unpublished -= 1;
        if inner.unpublished == 0 {
            inner.reached = 0;
        }
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
        let (pos, before) = self.extending.range(..wanted.extends?).next_back()?;
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
            unsure: false,
            parked: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An append whose place is sure at once.
    fn sure(pending: &Pending<u32>, size: u64, len: u64, most: u64) -> Result<u64, NoPlace> {
        let at = pending.append(|| size, len, most, 1)?;
        pending.make_sure(at);
        Ok(at)
    }

    #[test]
    fn a_range_is_one_request_s_at_a_time() {
        let pending = Pending::<u32>::new(1);
        let register = |blocks| {
            pending.register(&Wanted {
                blocks,
                extends: None,
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
            extends: Some(pos),
            bits: 12,
        };
        assert_eq!(sure(&pending, 0, 1000, 9999), Ok(0));
        assert_eq!(sure(&pending, 0, 4000, 9999), Ok(1000));
        assert!(!pending.register(&wanted(1000, 5000)));
        assert!(pending.register(&wanted(0, 1000)));
        assert_eq!(pending.ended(0, Some(1)), [1]);
        pending.release(0);
        assert!(pending.register(&wanted(1000, 5000)));
    }

    /// Rule U9.
    #[test]
    fn the_size_moves_in_offset_order_over_what_has_ended() {
        let pending = Pending::<u32>::new(1);
        assert_eq!(sure(&pending, 100, 10, 1000), Ok(100));
        assert_eq!(sure(&pending, 100, 10, 1000), Ok(110));
        assert_eq!(sure(&pending, 100, 10, 1000), Ok(120));
        assert_eq!(sure(&pending, 100, 900, 1000), Err(NoPlace::TooBig));
        assert!(pending.ended(120, Some(3)).is_empty());
        assert!(pending.ended(110, None).is_empty());
        assert_eq!(pending.ended(100, Some(1)), [1, 3]);
        assert!(pending.is_empty());
        assert_eq!(sure(&pending, 130, 10, 1000), Ok(130));
        assert_eq!(pending.ended(130, Some(4)), [4]);
    }

    /// Rule U9: an append that is refused leaves no gap behind it.
    #[test]
    fn nobody_gets_a_place_behind_who_may_be_refused() {
        let pending = Pending::<u32>::new(1);
        assert_eq!(pending.append(|| 7, 10, 1000, 2), Err(NoPlace::Inside(7)));
        assert_eq!(sure(&pending, 100, 10, 1000), Ok(100));
        assert_eq!(pending.append(|| 100, 10, 1000, 1), Ok(110));
        assert_eq!(pending.append(|| 100, 10, 1000, 1), Err(NoPlace::Unsure));
        assert!(pending.ended(110, None).is_empty());
        assert_eq!(sure(&pending, 100, 10, 1000), Ok(110));
        assert!(pending.ended(110, Some(2)).is_empty());
        assert_eq!(pending.ended(100, Some(1)), [1, 2]);
        assert!(pending.is_empty());
    }

    /// Rule U9: between its end and the new size an append still keeps its place.
    #[test]
    fn a_place_is_taken_until_the_size_has_moved() {
        let pending = Pending::<u32>::new(1);
        assert_eq!(sure(&pending, 100, 10, 1000), Ok(100));
        assert_eq!(pending.ended(100, Some(1)), [1]);
        assert_eq!(sure(&pending, 100, 10, 1000), Ok(110));
        pending.published();
        assert_eq!(pending.ended(110, Some(2)), [2]);
        pending.published();
        // Truncated since: what was reserved is forgotten.
        assert_eq!(sure(&pending, 50, 10, 1000), Ok(50));
    }
}
