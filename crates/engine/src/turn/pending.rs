//! The pending map of an inode: writes into space that is not written yet, from before their mapping is looked up until what they wrote
//! is published; and the order in which the size moves.
//!
//! Input: ranges of file blocks, rounded out; extending requests by their bytes. Output: who has a range now, who is parked for it, which
//! extending requests the size may move over. Invariants: entries do not overlap, so a later write of a block starts again when the
//! earlier one has ended, and mostly finds it written (rules B4, B5); the size moves in offset order over requests that have ended
//! (rule U9); an extending request takes no block that one before it in that order still needs, or each would wait for the other; no append
//! gets a place behind one that may yet be refused. Limits: overwrites never come here; an append that waits for another's block counts as
//! one that will not be refused.
//!
//! # New space
//!
//! Space that holds no data is either reserved in memory (a *claim*: free on disk, nobody else's in memory) or unwritten on disk. A
//! write into it goes down at once; what it wrote is mapped when it is there, so neither a reader nor a crash ever sees what was in
//! those blocks before.
//!
//! - The **pending map** of an inode has the block ranges of such writes, from before their mapping is looked up until it is published,
//!   in whole clusters where space is had in these (bigalloc): then a cluster is claimed, and only what was written is mapped. Ranges
//!   do not overlap: who needs a block that another has is parked and then mostly finds it written. So writers of different sectors of
//!   one new block never zero each other, and exactly one writes the zeros around its sectors.
//! - Claims belong to the pending entry: what is not mapped when it is released goes back. What is known of the bytes behind the end is
//!   forgotten when a write goes down to that block, and learnt from its publication; the complete worker zeroes what a failed one left
//!   before the size may pass (`inode/tail.rs`).
//! - A request keeps the policy that it began under; one with a pending entry, or a place in the order of the size, never wants the
//!   turn.
//! - A conversion larger than a handle goes in parts in file order, the size moving with each (`jobs/parts.rs`). How runs are joined,
//!   divided and counted is pure (`jobs/runs.rs`).
//! - The same map keeps extending requests in the order of their offsets. A request whose data is there waits (counted `held-for-size`)
//!   until all before it have ended; then size and map move together. An append takes the first byte behind all reserved ones. A
//!   request never takes a block that one before it in this order still needs: each would wait for the other.
//! - **Conversion** (`jobs/convert.rs`) sorts what a worker found by file and offset, joins neighbours, and does all of it in as few
//!   handles as hold it: bitmaps, tree, inode; then the new map is published, then the size.
//! - What a **conversion** may need for nodes of the map is taken from the free count before the data goes down
//!   (`inode/node_reserve.rs`), and given back as writes end: a write that was issued never fails for space. A range operation that is
//!   going to split extents sets the same aside before it changes anything (`range/nodes.rs`).
//! - Data in an inode (`inode/inline.rs`) is put there whole, made shorter, longer or zero there, each in one handle, as long as it has
//!   room and no request of the file is under way. The first direct write moves it out: its block goes down, then one handle maps it
//!   and takes the data out of the inode.
//! - A file that is written on and on keeps a window of claimed blocks ahead; it is given back when the file is let go, or when anybody
//!   would be told that the volume is full.

use crate::alloc::Run;
use crate::locks::PENDING;
use crate::turn::Parked;
use diorite_block::sync::Mutex;
use diorite_format::FsBlock;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;

/// Blocks that were claimed for a part of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claimed {
    pub(crate) file_block: u32,
    pub(crate) run: Run,
}

/// What was claimed for an entry: mostly one run.
pub(crate) type Claims = SmallVec<[Claimed; 1]>;

/// What the conversion of one write may need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodesNeeded {
    /// Nodes of the map that it makes at most.
    pub(crate) nodes: u32,
    /// Entries that it adds to leaves at most.
    pub(crate) entries: u32,
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
    /// What they reach at most. The last of them need not reach farthest: a write may begin before an append and end behind it.
    reach: u64,
}

#[derive(Debug)]
struct Entry {
    end: u64,
    claims: Claims,
    share: NodesNeeded,
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

/// A range of file blocks that a request wants, rounded out to units: blocks, or clusters where space is had in these; its bytes if it
/// extends the file.
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
            reach: 0,
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
            claims: Claims::new(),
            share: NodesNeeded::default(),
            parked: Vec::new(),
        };
        inner.entries.insert(wanted.units.start, entry);
        if let Some(bytes) = wanted.extends.as_ref().filter(|_| !wanted.counted) {
            inner.begin(bytes, false);
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
    pub(crate) fn claims(&self, entry: u64) -> Claims {
        let inner = self.inner.lock();
        let entry = inner.entries.get(&entry);
        entry.map(|e| e.claims.clone()).unwrap_or_default()
    }

    /// What its conversion may need was set aside.
    pub(crate) fn note_share(&self, entry: u64, share: NodesNeeded) {
        let mut inner = self.inner.lock();
        let entry = inner.entries.get_mut(&entry);
        entry.expect("who sets aside has registered").share = share;
    }

    /// What was set aside for the entry.
    pub(crate) fn share(&self, entry: u64) -> NodesNeeded {
        let inner = self.inner.lock();
        inner
            .entries
            .get(&entry)
            .map_or(NodesNeeded::default(), |e| e.share)
    }

    /// What was claimed for the entry before this file block is not its any more.
    pub(crate) fn forget_claims_before(&self, entry: u64, block: u64) {
        let mut inner = self.inner.lock();
        let entry = inner.entries.get_mut(&entry);
        let claims = &mut entry.expect("who claims has registered").claims;
        claims.retain(|c| c.blocks().end > block);
        for claim in claims.iter_mut() {
            let skip = block.saturating_sub(u64::from(claim.file_block));
            let skip = u32::try_from(skip).expect("it ends behind that block");
            claim.file_block += skip;
            claim.run.start = FsBlock::new(claim.run.start.get() + u64::from(skip));
            claim.run.len -= skip;
        }
    }

    /// These claims are not the entry's any more.
    pub(crate) fn forget_claims(&self, entry: u64, which: impl Fn(&Claimed) -> bool) {
        let mut inner = self.inner.lock();
        let entry = inner.entries.get_mut(&entry);
        let claims = &mut entry.expect("who claims has registered").claims;
        claims.retain(|c| !which(c));
    }

    /// Lets go of an entry: `claimed` gets what it still has, then who is parked for it starts again. Says what was set aside for it.
    pub(crate) fn release(&self, entry: u64, claimed: impl FnOnce(&[Claimed])) -> NodesNeeded {
        let entry = self.inner.lock().entries.remove(&entry);
        let Entry {
            parked,
            share,
            claims,
            ..
        } = entry.expect("an entry is released once");
        claimed(&claims);
        parked.into_iter().for_each(Parked::release);
        share
    }

    /// An append begins: gives it the first byte that no request before it has, at a multiple of `logical`. Its place is not sure until
    /// [`Pending::make_sure`] says so. `size` is asked for behind the lock: what is no longer counted has been published, or two appends
    /// would get the same place.
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
        let at = inner.reach.max(size());
        if !at.is_multiple_of(logical) {
            return Err(NoPlace::Inside(at));
        }
        let end = at.checked_add(len).filter(|end| *end <= most);
        inner.begin(&(at..end.ok_or(NoPlace::TooBig)?), true);
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
    /// order; each is followed by [`Pending::published`]. If this one has to wait for others, `held` is told before anybody can publish it.
    pub(crate) fn ended(&self, pos: u64, job: Option<J>, held: impl FnOnce(&J)) -> Vec<J> {
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
            inner.reach = inner.extending.values().map(|e| e.end).max().unwrap_or(0);
        }
        let (free, released) = inner.pass();
        if let Some(Progress::Held(job)) = inner.extending.get(&pos).map(|e| &e.state) {
            held(job);
        }
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

    /// Ranges, and places in the order of sizes, that somebody has.
    pub(crate) fn count(&self) -> usize {
        let inner = self.inner.lock();
        inner.entries.len() + inner.extending.len()
    }

    /// Is the size about to move over an extending request, other than those that begin at these bytes?
    pub(crate) fn moves_besides(&self, places: &[u64]) -> bool {
        let inner = self.inner.lock();
        let mut others = inner
            .extending
            .iter()
            .filter(|(pos, _)| !places.contains(pos));
        others.any(|(_, e)| matches!(e.state, Progress::Moving))
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
    fn begin(&mut self, bytes: &Range<u64>, unsure: bool) {
        let begun = Extending {
            end: bytes.end,
            unsure,
            state: Progress::UnderWay,
            parked: Vec::new(),
        };
        let other = self.extending.insert(bytes.start, begun);
        debug_assert!(other.is_none(), "one that begins there would be a holder");
        self.reach = self.reach.max(bytes.end);
    }

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
        if self.extending.is_empty() {
            self.reach = 0;
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
        // The last one before, if an earlier one does not reach farther: that one is a write, and its entry was found above.
        let reaches = before.end.div_ceil(1 << wanted.bits) > units.start;
        reaches.then_some(Holder::Before(*pos))
    }
}

#[cfg(all(test, not(any(feature = "loom", feature = "shuttle"))))]
#[path = "pending/tests.rs"]
mod tests;
