//! The pending map of an inode: writes into holes and unwritten blocks, from before their mapping is looked up until what they wrote
//! is published; and the order in which the size grows.
//!
//! Input: ranges of file blocks, rounded out to units; extending requests, by their bytes. Output: which request has a range now, which is
//! parked for it, over which extending requests the size may move. Invariants: entries do not overlap, so a later write of a block starts
//! again when the earlier one has ended, and usually finds the block written (rules B4, B5); the size moves in offset order over requests
//! that have ended (rule U9); an extending request takes no block that an earlier one in that order still needs, or each would wait for
//! the other; no append gets a place behind one that may yet be refused. Limits: overwrites are not registered here; an append that waits
//! for another request's block counts as one that will not be refused.
//!
//! # New space
//!
//! New space is space without data: either claimed (in memory only: free on disk, but not available to others) or unwritten on disk. The
//! data of a write into it goes to the device at once, and is mapped when it is there. So neither a reader nor a crash ever shows what was
//! in these blocks before.
//!
//! - The **pending map** of an inode has the block ranges of such writes, from before their mapping is looked up until it is published.
//!   With bigalloc they are ranges of whole clusters: a cluster is claimed as a whole, and only what was written is mapped. Ranges do not
//!   overlap: a request for a block in another's range is parked, and usually finds the block written afterwards. So writers of different
//!   sectors of a new block never zero each other's data, and exactly one of them writes the zeros around its sectors.
//! - Claims belong to the pending entry: those that are not mapped when it is released are given back. What is known of the bytes behind
//!   the end is forgotten when a write to that block is issued, and known again when it is published. If a write has failed, the complete
//!   worker zeroes what it left there before the size may pass (`inode/tail.rs`).
//! - A request keeps the policy under which it began; one with a pending entry, or a place in the order of the size, never asks for the
//!   turn.
//! - A conversion that is larger than a handle is made in parts in file order, and the size moves with each (`jobs/parts.rs`). Joining,
//!   dividing and counting runs is pure code (`jobs/runs.rs`).
//! - The same map has extending requests in the order of their offsets. A request whose data is there waits (counted as `held-for-size`)
//!   until all before it have ended; then size and map change together. An append gets the first byte behind all registered ones. A
//!   request never takes a block that an earlier one in this order still needs: each would wait for the other.
//! - **Conversion** (`jobs/convert.rs`) maps what was written: it sorts what a worker found by file and offset, joins neighbours, and
//!   changes bitmaps, tree and inode in as few handles as possible; then it publishes the new map, then the size.
//! - The nodes of the map that a **conversion** may need are taken from the free count before the data is issued
//!   (`inode/node_reserve.rs`), and given back as writes end: a write that was issued never fails for space. One that lacks nothing but a
//!   node gives its entry back and comes again with the turn, to write zeros instead of a split (`range/zero_out.rs`). A range operation
//!   that will split extents reserves nodes in the same way before it changes anything (`range/nodes.rs`).
//! - Inline data (`inode/inline.rs`) is written, truncated, extended or zeroed inside the inode, each in one handle, as long as it has
//!   room there and no request of the file is in flight. The first direct write moves it out: its block is written, then one handle maps
//!   the block and removes the data from the inode.
//! - A file that grows by many writes keeps a window of claimed blocks ahead. It is given back when the file is released, or before
//!   anybody would be told that the volume is full.

use crate::alloc::Run;
use crate::locks::PENDING;
use crate::turn::Parked;
use diorite_block::sync::Mutex;
use diorite_format::FsBlock;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::ops::Range;

/// Blocks that were claimed for a part of an entry's range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claimed {
    pub(crate) file_block: u32,
    pub(crate) run: Run,
}

/// The claims of an entry: usually one run.
pub(crate) type Claims = SmallVec<[Claimed; 1]>;

/// What the conversion of one write may need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodesNeeded {
    /// The largest number of nodes of the map that it makes.
    pub(crate) nodes: u32,
    /// The largest number of entries that it adds to leaves.
    pub(crate) entries: u32,
}

impl NodesNeeded {
    pub(crate) fn add(&mut self, more: NodesNeeded) {
        self.nodes += more.nodes;
        self.entries += more.entries;
    }

    /// What is needed beyond `part`.
    pub(crate) fn without(self, part: NodesNeeded) -> NodesNeeded {
        NodesNeeded {
            nodes: self.nodes.saturating_sub(part.nodes),
            entries: self.entries.saturating_sub(part.entries),
        }
    }
}

/// See the module. `J` is a job that waits for the size to move over it.
#[derive(Debug)]
pub(crate) struct Pending<J> {
    inner: Mutex<Inner<J>>,
}

#[derive(Debug)]
struct Inner<J> {
    /// Writes into new space, by the first block of their range.
    entries: BTreeMap<u64, Entry>,
    /// Extending requests that the size has not moved over yet, by their first byte.
    extending: BTreeMap<u64, Extending<J>>,
    /// The farthest end of these. It need not be the end of the last one: a write may begin before an append and end behind it.
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
    /// The request may yet be refused, for lack of space or because of `nowait`: appends cannot be placed behind it.
    unsure: bool,
    state: Progress<J>,
    parked: Vec<Parked>,
}

impl<J> Extending<J> {
    /// Notes that it will not be refused any more; `waited` takes those that waited for this. Returns whether that was not known.
    fn make_sure(&mut self, waited: &mut Vec<Parked>) -> bool {
        let was_unsure = std::mem::take(&mut self.unsure);
        if was_unsure {
            waited.append(&mut self.parked);
        }
        was_unsure
    }
}

/// Why an append cannot be placed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// It would end past what the file's map can hold.
    TooBig,
    /// The file ends at this byte, which is not at the start of a logical block of the device.
    Inside(u64),
    /// The append before it may yet be refused.
    Unsure,
}

/// What a request has to wait for.
#[derive(Clone, Copy, Debug)]
enum Holder {
    /// The entry with this first block: it has a part of the range.
    Entry(u64),
    /// The extending request with this first byte: it comes earlier in the order of the size.
    Before(u64),
}

/// What a request wants: a range of file blocks, rounded out to units, which are blocks, or clusters with bigalloc; and its bytes, if it
/// extends the file.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) units: Range<u64>,
    pub(crate) extends: Option<Range<u64>>,
    /// The request is registered as extending already.
    pub(crate) counted: bool,
    /// log2 of the number of bytes in a unit.
    pub(crate) bits: u32,
}

#[derive(Debug)]
enum Progress<J> {
    UnderWay,
    /// It ended well and waits for those before it. In a box, as the entries behind one that is removed move up.
    Held(Box<J>),
    /// It is being published: no append may be placed as if it were over, and nothing behind it is published before it.
    Moving,
    /// It is over: it wrote nothing, or it has been published.
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

    /// Registers an entry for the range, named by its first block from now on, unless another request has a part of the range. If the
    /// request extends the file, registers that as well.
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

    /// Parks a request until whoever has a part of the range releases it. Returns false if nobody has one.
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

    /// Notes blocks that were claimed for a part of the entry.
    pub(crate) fn add_claim(&self, entry: u64, claim: Claimed) {
        let mut inner = self.inner.lock();
        let entry = inner.entries.get_mut(&entry);
        entry.expect("who claims has registered").claims.push(claim);
    }

    /// The blocks claimed for the entry.
    pub(crate) fn claims(&self, entry: u64) -> Claims {
        let inner = self.inner.lock();
        let entry = inner.entries.get(&entry);
        entry.map(|e| e.claims.clone()).unwrap_or_default()
    }

    /// Were blocks claimed for the entry?
    pub(crate) fn has_claims(&self, entry: u64) -> bool {
        let inner = self.inner.lock();
        let entry = inner.entries.get(&entry);
        entry.is_some_and(|e| !e.claims.is_empty())
    }

    /// Takes away the blocks claimed for the entry, which are given back then.
    pub(crate) fn take_claims(&self, entry: u64) -> Claims {
        let mut inner = self.inner.lock();
        let entry = inner.entries.get_mut(&entry);
        entry
            .map(|e| std::mem::take(&mut e.claims))
            .unwrap_or_default()
    }

    /// Notes what was reserved for the entry's conversion.
    pub(crate) fn note_share(&self, entry: u64, share: NodesNeeded) {
        let mut inner = self.inner.lock();
        let entry = inner.entries.get_mut(&entry);
        entry.expect("who sets aside has registered").share = share;
    }

    /// What was reserved for the entry's conversion.
    pub(crate) fn share(&self, entry: u64) -> NodesNeeded {
        let inner = self.inner.lock();
        inner
            .entries
            .get(&entry)
            .map_or(NodesNeeded::default(), |e| e.share)
    }

    /// Removes the entry's claims before this file block: they are mapped, and are not given back when the entry is released.
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

    /// Removes these claims from the entry: they are mapped, and are not given back when the entry is released.
    pub(crate) fn forget_claims(&self, entry: u64, which: impl Fn(&Claimed) -> bool) {
        let mut inner = self.inner.lock();
        let entry = inner.entries.get_mut(&entry);
        let claims = &mut entry.expect("who claims has registered").claims;
        claims.retain(|c| !which(c));
    }

    /// Releases an entry: calls `claimed` with the claims that it still has, then starts the parked requests again. Returns what was
    /// reserved for its conversion.
    pub(crate) fn release(&self, entry: u64, claimed: impl FnOnce(&[Claimed])) -> NodesNeeded {
        let mut inner = self.inner.lock();
        let entry = inner.entries.remove(&entry);
        give_back_if_empty(&mut inner.entries);
        drop(inner);
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

    /// Places an append: at the first byte that no earlier request has, which must be a multiple of `logical`. It may yet be refused until
    /// [`Pending::make_sure`] is called. `size` is called under the lock: a request that is not registered any more is published, so the
    /// size includes it. Otherwise two appends could get the same place.
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

    /// Calls `extend`, which moves the visible end, for an append through the page cache at `pos`, unless a direct request extends the file
    /// behind that.
    pub(crate) fn extend_behind(&self, pos: u64, extend: impl FnOnce()) -> bool {
        let inner = self.inner.lock();
        let is_free = inner.reach <= pos;
        if is_free {
            extend();
        }
        is_free
    }

    /// Notes that the append at `pos` will not be refused any more, and starts the requests again that waited for this.
    pub(crate) fn make_sure(&self, pos: u64) {
        let mut inner = self.inner.lock();
        let mut waited = Vec::new();
        if let Some(append) = inner.extending.get_mut(&pos) {
            append.make_sure(&mut waited);
        }
        drop(inner);
        waited.into_iter().for_each(Parked::release);
    }

    /// Parks an append while the one before it may yet be refused. Returns false if it may not.
    pub(crate) fn park_append(&self, request: impl FnOnce() -> Parked) -> bool {
        let mut inner = self.inner.lock();
        let last = inner.extending.values_mut().next_back();
        match last.filter(|e| e.unsure) {
            Some(last) => last.parked.push(request()),
            None => return false,
        }
        true
    }

    /// Notes that these extending requests have ended and that their data is there: each by its first byte, with its job. Returns the jobs
    /// that may be published now, in order; call [`Pending::published`] after each. `held` is called for each of the given jobs that has to
    /// wait for others, before anybody can publish it.
    pub(crate) fn ended(&self, mut jobs: Vec<(u64, J)>, held: impl Fn(&J)) -> Vec<J> {
        jobs.sort_unstable_by_key(|(pos, _)| *pos);
        let mut waited = Vec::new();
        let mut inner = self.inner.lock();
        for (pos, _) in &jobs {
            inner.of(*pos).make_sure(&mut waited);
        }
        let mut jobs = jobs.into_iter().peekable();
        let free = inner.pass(&mut jobs, &mut waited);
        for (pos, job) in jobs {
            held(&job);
            inner.of(pos).state = Progress::Held(Box::new(job));
        }
        drop(inner);
        waited.into_iter().for_each(Parked::release);
        free
    }

    /// Notes that the extending request at `pos` is over and has written nothing. Returns the jobs that may be published now, as
    /// [`Pending::ended`] does.
    pub(crate) fn failed(&self, pos: u64) -> Vec<J> {
        let mut waited = Vec::new();
        let mut inner = self.inner.lock();
        let is_last = inner.extending.range(pos + 1..).next().is_none();
        let request = inner.of(pos);
        let refused = request.make_sure(&mut waited);
        request.state = Progress::Failed;
        if refused && is_last {
            // Nobody has a place behind it, so its place can be given out again.
            inner.extending.remove(&pos);
            inner.reach = inner.extending.values().map(|e| e.end).max().unwrap_or(0);
        }
        let free = inner.pass(&mut nobody(), &mut waited);
        drop(inner);
        waited.into_iter().for_each(Parked::release);
        free
    }

    /// Notes that the request at `pos` was published, or could not be. Returns the jobs that may be published next.
    pub(crate) fn published(&self, pos: u64) -> Vec<J> {
        let mut inner = self.inner.lock();
        inner.of(pos).state = Progress::Failed;
        let mut waited = Vec::new();
        let free = inner.pass(&mut nobody(), &mut waited);
        drop(inner);
        waited.into_iter().for_each(Parked::release);
        free
    }

    /// The number of entries and extending requests.
    pub(crate) fn count(&self) -> usize {
        let inner = self.inner.lock();
        inner.entries.len() + inner.extending.len()
    }

    /// Is an extending request being published, other than those at these positions?
    pub(crate) fn moves_besides(&self, places: &[u64]) -> bool {
        let inner = self.inner.lock();
        let mut others = inner
            .extending
            .iter()
            .filter(|(pos, _)| !places.contains(pos));
        others.any(|(_, e)| matches!(e.state, Progress::Moving))
    }

    /// Is nothing registered?
    pub(crate) fn is_empty(&self) -> bool {
        let inner = self.inner.lock();
        inner.entries.is_empty() && inner.extending.is_empty()
    }
}

impl Claimed {
    /// The file blocks that the blocks were claimed for.
    pub(crate) fn blocks(&self) -> Range<u64> {
        let start = u64::from(self.file_block);
        start..start + u64::from(self.run.len)
    }
}

/// Extending requests that have just ended well, in their order, with their jobs.
type Ended<J> = Peekable<std::vec::IntoIter<(u64, J)>>;

fn nobody<J>() -> Ended<J> {
    Vec::new().into_iter().peekable()
}

/// An empty map of std keeps a node. Here that would be kilobytes of each file in memory that was written once.
fn give_back_if_empty<V>(map: &mut BTreeMap<u64, V>) {
    if map.is_empty() {
        *map = BTreeMap::new();
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

    /// Removes requests that are over from the front of the order. Then marks the following ones that have ended as being published,
    /// unless one is being published already. Those that have just ended are in `ended`, in order; it keeps those that have to wait.
    /// Returns the jobs that may be published; `released` takes the requests that were parked for removed ones.
    fn pass(&mut self, ended: &mut Ended<J>, released: &mut Vec<Parked>) -> Vec<J> {
        let mut free = Vec::new();
        while let Some(first) = self.extending.first_entry() {
            if !matches!(first.get().state, Progress::Failed) {
                break;
            }
            released.extend(first.remove().parked);
        }
        if self.extending.is_empty() {
            self.reach = 0;
            give_back_if_empty(&mut self.extending);
        }
        for (pos, request) in &mut self.extending {
            if let Some((_, job)) = ended.next_if(|(at, _)| at == pos) {
                request.state = Progress::Moving;
                free.push(job);
                continue;
            }
            match std::mem::replace(&mut request.state, Progress::Moving) {
                Progress::Held(job) => free.push(*job),
                Progress::Failed => request.state = Progress::Failed,
                stays => {
                    request.state = stays;
                    break;
                }
            }
        }
        free
    }

    /// What the request has to wait for: an entry with a part of its range, or an earlier request in the order of the size.
    fn holder(&self, wanted: &Wanted) -> Option<Holder> {
        let units = &wanted.units;
        let entry = self.entries.range(..units.end).next_back();
        if let Some((start, _)) = entry.filter(|(_, e)| e.end > units.start) {
            return Some(Holder::Entry(*start));
        }
        let from = wanted.extends.as_ref()?.start;
        // An append may have been given the same first byte as this write.
        let others = if wanted.counted { from } else { from + 1 };
        let (pos, before) = self.extending.range(..others).next_back()?;
        // Looking at the last one before is enough: an earlier one that reaches farther is a write, and its entry was found above.
        let reaches = before.end.div_ceil(1 << wanted.bits) > units.start;
        reaches.then_some(Holder::Before(*pos))
    }
}

#[cfg(all(test, not(any(feature = "_loom", feature = "_shuttle"))))]
#[path = "pending/tests.rs"]
mod tests;
