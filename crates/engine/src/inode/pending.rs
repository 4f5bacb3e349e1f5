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
    /// It may be refused for want of space, or because it does not want to wait: its place is not sure.
    unsure: bool,
    state: Progress<J>,
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

/// A range of file blocks that a request wants, rounded out to units: blocks, or clusters where space is had in these; its bytes if it extends
/// the file.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) units: Range<u64>,
    pub(crate) extends: Option<Range<u64>>,
    /// It is among the extending requests already.
    pub(crate) counted: bool,
    /// log2 of the bytes of a unit.
    pub(crate) bits: u32,
}

#[derive(Debug)]
enum Progress<J> {
    UnderWay,
    /// It ended well and waits for those before it.
    Held(J),
    /// It is being published: no append goes over it, and nothing behind it is published before it.
    Moving,
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

    /// Takes the range if nobody has a part of it, and counts the request as extending if it is. Its first block names the entry from
    /// now on.
    pub(crate) fn register(&self, wanted: &Wanted) -> bool {
        let mut inner = self.inner.lock();
        if inner.holder(wanted).is_some() {
            return false;
        }
        let entry = Entry {
            end: wanted.units.end,
            claims: Vec::new(),
            parked: Vec::new(),
        };
        inner.entries.insert(wanted.units.start, entry);
        if let Some(bytes) = wanted.extends.as_ref().filter(|_| !wanted.counted) {
            let begun = Extending::begin(bytes.end);
            let other = inner.extending.insert(bytes.start, begun);
            debug_assert!(other.is_none(), "one that begins there would be a holder");
        }
        true
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

    /// An append begins: gives it the first byte that no request before it has, at a multiple of `logical`. Its place is not sure until
    /// [`Pending::make_sure`] says so. `size` is asked for behind the lock: what is no longer counted has been published, or two appends would
    /// get the same place.
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
        let at = last.map_or(0, |e| e.end).max(size());
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

    /// The extending request that begins at `pos` has ended: with `job` if its data is there. Gives the jobs that may be published now, in
    /// order; each is followed by [`Pending::published`].
    pub(crate) fn ended(&self, pos: u64, job: Option<J>) -> Vec<J> {
        let mut inner = self.inner.lock();
        let is_last = inner.extending.range(pos + 1..).next().is_none();
        let request = inner.of(pos);
        let was_unsure = std::mem::take(&mut request.unsure);
        let mut waited = if was_unsure {
            std::mem::take(&mut request.parked)
        } else {
            Vec::new()
        };
        let refused = was_unsure && job.is_none();
        request.state = job.map_or(Progress::Failed, Progress::Held);
        if refused && is_last {
            // Nobody has a place behind it: it was never there.
            inner.extending.remove(&pos);
        }
        let (free, released) = inner.pass();
        drop(inner);
        waited.extend(released);
        waited.into_iter().for_each(Parked::release);
        free
    }

    /// What began at `pos` can be seen, or failed in being published. Gives the jobs that may be published next.
    pub(crate) fn published(&self, pos: u64) -> Vec<J> {
        let mut inner = self.inner.lock();
        inner.of(pos).state = Progress::Failed;
        let (free, released) = inner.pass();
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
    fn of(&mut self, pos: u64) -> &mut Extending<J> {
        let request = self.extending.get_mut(&pos);
        request.expect("who ends has begun, and ends once")
    }

    /// Forgets what is over, up to the first that is not; if nothing is being published, what has ended is from now on. Who was parked
    /// for what is forgotten comes out too.
    fn pass(&mut self) -> (Vec<J>, Vec<Parked>) {
        let (mut free, mut released) = (Vec::new(), Vec::new());
        while let Some(first) = self.extending.first_entry() {
            if !matches!(first.get().state, Progress::Failed) {
                break;
            }
            released.extend(first.remove().parked);
        }
        for request in self.extending.values_mut() {
            match std::mem::replace(&mut request.state, Progress::Moving) {
                Progress::Held(job) => free.push(job),
                Progress::Failed => request.state = Progress::Failed,
                stays => {
                    request.state = stays;
                    break;
                }
            }
        }
        (free, released)
    }

    /// Who has a part of the range, or comes before who wants it.
    fn holder(&self, wanted: &Wanted) -> Option<Holder> {
        let units = &wanted.units;
        let entry = self.entries.range(..units.end).next_back();
        if let Some((start, _)) = entry.filter(|(_, e)| e.end > units.start) {
            return Some(Holder::Entry(*start));
        }
        let from = wanted.extends.as_ref()?.start;
        // An append may have been given the very byte that a write begins at.
        let others = if wanted.counted { from } else { from + 1 };
        let (pos, before) = self.extending.range(..others).next_back()?;
        // They do not overlap one another, so the last one before is the one that reaches farthest.
        let reaches = before.end.div_ceil(1 << wanted.bits) > units.start;
        reaches.then_some(Holder::Before(*pos))
    }
}

impl<J> Extending<J> {
    fn begin(end: u64) -> Extending<J> {
        Extending {
            end,
            unsure: false,
            state: Progress::UnderWay,
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
                units: blocks,
                extends: None,
                counted: false,
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
            units: pos >> 12..end.div_ceil(4096),
            extends: Some(pos..end),
            counted: true,
            bits: 12,
        };
        assert_eq!(sure(&pending, 0, 1000, 9999), Ok(0));
        assert_eq!(sure(&pending, 0, 4000, 9999), Ok(1000));
        assert!(!pending.register(&wanted(1000, 5000)));
        assert!(pending.register(&wanted(0, 1000)));
        assert_eq!(pending.ended(0, Some(1)), [1]);
        assert!(pending.published(0).is_empty());
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
        assert!(pending.published(100).is_empty() && pending.published(120).is_empty());
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
    }

    /// An append that began while the one before it was being published got the same place, for that was no longer counted and the size
    /// not moved yet; and one that ended then could be published first, by another worker.
    #[test]
    fn what_is_being_published_counts() {
        let pending = Pending::<u32>::new(1);
        assert_eq!(sure(&pending, 100, 10, 1000), Ok(100));
        assert_eq!(pending.ended(100, Some(1)), [1]);
        assert_eq!(sure(&pending, 100, 10, 1000), Ok(110));
        assert!(pending.ended(110, Some(2)).is_empty());
        assert_eq!(pending.published(100), [2]);
        assert_eq!(sure(&pending, 110, 10, 1000), Ok(120));
        assert!(pending.published(110).is_empty());
        assert_eq!(pending.ended(120, Some(3)), [3]);
        assert!(pending.published(120).is_empty() && pending.is_empty());
        // Truncated since: what was reserved is forgotten.
        assert_eq!(sure(&pending, 50, 10, 1000), Ok(50));
    }

    /// The write took the append's entry for its own, and whoever ended second found none.
    #[test]
    fn a_write_where_an_append_begins_waits_for_it() {
        let pending = Pending::<u32>::new(1);
        let wanted = |counted| Wanted {
            units: 0..1,
            extends: Some(0..512),
            counted,
            bits: 12,
        };
        assert_eq!(sure(&pending, 0, 512, 9999), Ok(0));
        assert!(!pending.register(&wanted(false)));
        assert!(pending.register(&wanted(true)));
        assert_eq!(pending.ended(0, Some(1)), [1]);
        assert!(pending.published(0).is_empty());
        pending.release(0);
        assert!(pending.register(&wanted(false)));
        assert_eq!(pending.ended(0, Some(2)), [2]);
    }
}
