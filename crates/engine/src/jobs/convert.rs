//! Conversion: makes what ended writes have written a part of their files.
//!
//! Input: ended writes into new space, or past the end, of any files of one volume. Output: claimed blocks mapped, unwritten extents
//! turned into written ones, sizes moved, in as few journal handles as hold them. Invariants: data is on the device before its handle
//! begins; neighbours are mapped together; the map is published before the size; a write that fails before any of it is mapped leaves no
//! block behind and does not move the size (rules G8, G9, U10); no written block is mapped behind the size. Limits: one handle takes at
//! most half of the largest transaction; if a write fails because a part of its map cannot be read, the file has what comes before that
//! part.

use super::parts::{self, Wait, add_runs, add_whole, map_one};
use super::runs::{self, Mapped, merged};
use crate::error::Error;
use crate::inode::Job;
use crate::inode::{Inode, Remap};
use crate::journal::JournalHandle;
use crate::map::edit::{self, NewRun};
use crate::map::{MapView, NotLoaded};
use crate::threads::contained;
use crate::turn::Claimed;
use diorite_format::FsBlock;
use std::ops::Range;
use std::sync::Arc;

/// Converts ended jobs. Extending jobs for which the size cannot move yet stay with their inodes, and such jobs that can go on now are
/// converted too. Returns the jobs that are converted or have failed, each with its transaction or error.
pub(super) fn convert(mut jobs: Vec<Job>) -> Vec<Job> {
    for job in &mut jobs {
        debug_assert!(job.conversion.is_some(), "only conversions come here");
        if let Err(error) = job.inode().volume.check_flushes_since(job.data.began()) {
            job.fail(&error);
        }
    }
    let (mut bad, good): (Vec<Job>, Vec<Job>) = jobs.into_iter().partition(|job| job.failed);
    let (mut rest, ended): (Vec<Job>, Vec<Job>) = good.into_iter().partition(is_in_order);
    for job in &mut bad {
        zero_tail_of_failed(job, &[&rest]);
        rest.extend(job.give_place_up().into_iter().map(Job::pass));
    }
    rest.extend(in_order(ended));
    sort(&mut rest);
    while !rest.is_empty() {
        let (mut batch, credits) = first_handleful(&mut rest, Wait::ForMap);
        if batch.iter().all(|j| j.failed) {
            // Their credits could not be computed, so all have failed.
        } else if credits > batch[0].inode().volume.most_credits() && !is_whole(&batch[0]) {
            // Then the batch is a single job: no second job is added to one that costs so much.
            batch.iter_mut().for_each(parts::convert);
        } else {
            batch = convert_batch(batch, credits);
        }
        for job in batch.iter().filter(|job| job.failed) {
            zero_tail_of_failed(job, &[&batch, &rest]);
        }
        let next: Vec<Job> = batch.iter_mut().flat_map(published).collect();
        // Sorted in behind what is left of their files.
        rest.extend(next);
        sort(&mut rest);
        bad.extend(batch);
    }
    bad
}

/// Sorts jobs so that neighbours are together; the order among files does not matter. Jobs are large, so each is moved once.
fn sort(jobs: &mut [Job]) {
    let place = |job: &Job| (job.inode().ino, job.start());
    if !jobs.is_sorted_by_key(place) {
        jobs.sort_by_cached_key(place);
    }
}

/// The held jobs that the size may move over, now that it has moved over this one.
pub(super) fn published(job: &mut Job) -> Vec<Job> {
    let free = job
        .take_place()
        .map(|pos| job.inode().pending.published(pos));
    free.into_iter().flatten().map(Job::pass).collect()
}

/// Need it not wait any more for those before it in the order of the size?
pub(super) fn is_in_order(job: &Job) -> bool {
    !job.extends() || job.has_passed()
}

/// Takes extending jobs that have ended well, and returns those over which the size may move now, file by file in its order. The others
/// stay with their inodes. Those that were held there until now are among the returned ones.
pub(super) fn in_order(mut ended: Vec<Job>) -> Vec<Job> {
    sort(&mut ended);
    let mut free = Vec::new();
    let mut ended = ended.into_iter().peekable();
    while let Some(first) = ended.next() {
        let inode = first.inode().clone();
        let placed = |job: Job| (job.place().expect("only extending jobs come here"), job);
        let mut of_file = vec![placed(first)];
        while let Some(next) = ended.next_if(|j| Arc::ptr_eq(j.inode(), &inode)) {
            of_file.push(placed(next));
        }
        let passed = inode.pending.ended(of_file, Job::tell_held);
        free.extend(passed.into_iter().map(Job::pass));
    }
    free
}

/// Is the job mapped as a whole or not at all?
fn is_whole(job: &Job) -> bool {
    job.conversion.as_ref().is_some_and(|c| c.whole)
}

/// Zeroes what a failed job may have left behind the file's end, before the size may move over it. `mine` are jobs of this thread over
/// which the size has not moved yet.
fn zero_tail_of_failed(job: &Job, mine: &[&[Job]]) {
    let Some(block) = job.conversion.as_ref().and_then(|c| c.tail) else {
        return;
    };
    let of_file = |other: &&Job| Arc::ptr_eq(other.inode(), job.inode());
    let places = mine.iter().copied().flatten().filter(of_file);
    let places: Vec<u64> = places.filter_map(Job::place).collect();
    // If the zeros cannot be written, the bytes stay unknown, as they do if the device fails.
    let _best_effort = contained(|| {
        job.inode().zero_touched_tail(block, &places);
        Ok(())
    });
}

/// Takes as many jobs from the front as one handle holds, at least one, and returns them with their credits. A job whose credits cannot be
/// computed fails and needs none. A job that may leave bytes behind the end is the last of its file in a handle: the size may move
/// over others only when it is known whether that job has failed.
fn first_handleful(jobs: &mut Vec<Job>, wait: Wait) -> (Vec<Job>, u32) {
    let most = jobs[0].inode().volume.most_credits();
    let needed = |job: &mut Job| match contained(|| credits(job, wait)) {
        Ok(credits) => credits,
        Err(error) => {
            job.fail(&error);
            0
        }
    };
    let alone = jobs.windows(2).position(|two| {
        let leaves_bytes = two[0].conversion.as_ref().is_some_and(|c| c.tail.is_some());
        leaves_bytes && Arc::ptr_eq(two[0].inode(), two[1].inode())
    });
    let eligible = alone.map_or(jobs.len(), |at| at + 1);
    let (count, sum) = runs::how_many(jobs[..eligible].iter_mut().map(needed), most);
    if count == jobs.len() {
        return (std::mem::take(jobs), sum);
    }
    let rest = jobs.split_off(count);
    (std::mem::replace(jobs, rest), sum)
}

fn convert_batch(mut jobs: Vec<Job>, credits: u32) -> Vec<Job> {
    let volume = jobs[0].inode().volume.clone();
    let converted = contained(|| {
        volume.begin(credits)?.with(|handle| {
            for of_inode in jobs.chunk_by_mut(|a, b| Arc::ptr_eq(a.inode(), b.inode())) {
                convert_file(handle, of_inode);
            }
        });
        Ok(())
    });
    if let Err(error) = converted {
        jobs.iter_mut().for_each(|job| job.fail(&error));
    }
    jobs
}

/// Converts those of the jobs that need not wait for anybody and fit into one handle; over those that extend their files the size may
/// move. Returns the jobs that are done, each with its error or transaction, and those that were not begun.
pub(super) fn convert_at_once(mut jobs: Vec<Job>) -> (Vec<Job>, Vec<Job>) {
    let Some(volume) = jobs.first().map(|j| j.inode().volume.clone()) else {
        return (Vec::new(), Vec::new());
    };
    sort(&mut jobs);
    let is_lost = |job: &Job| volume.check_flushes_since(job.data.began()).is_err();
    if jobs.iter().any(is_lost) {
        return (Vec::new(), jobs);
    }
    let (mut batch, credits) = first_handleful(&mut jobs, Wait::No);
    if credits > volume.most_credits() {
        batch.append(&mut jobs);
        return (Vec::new(), batch);
    }
    let converted = contained(|| {
        let Some(handle) = volume.begin_at_once(credits) else {
            return Ok(());
        };
        handle.with(|handle| {
            for of_inode in batch.chunk_by_mut(|a, b| Arc::ptr_eq(a.inode(), b.inode())) {
                convert_file_at_once(handle, of_inode);
            }
        });
        Ok(())
    });
    if let Err(panicked) = converted {
        batch.iter_mut().for_each(|job| job.fail(&panicked));
    }
    let is_done = |job: &Job| job.failed || job.tid.is_some();
    if batch.iter().all(is_done) {
        return (batch, jobs);
    }
    let (done, not_begun): (Vec<Job>, Vec<Job>) = batch.into_iter().partition(is_done);
    jobs.extend(not_begun);
    (done, jobs)
}

fn convert_file(handle: &JournalHandle<'_>, jobs: &mut [Job]) {
    let inode = jobs[0].inode().clone();
    let converted = try_convert_file(handle, &inode, jobs);
    converted_with(handle, jobs, converted);
}

/// As [`convert_file`], if the map is not locked and has all of the range in memory; else the jobs are left as they are.
fn convert_file_at_once(handle: &JournalHandle<'_>, jobs: &mut [Job]) {
    let inode = jobs[0].inode().clone();
    let (view, mut runs) = (inode.map.load(), ToMap::of(jobs.len()));
    for (at, job) in jobs.iter().enumerate().filter(|(_, j)| !j.failed) {
        if runs.add(at, job, &view).is_err() {
            return;
        }
    }
    if let Some(remap) = inode.remap_at_once(handle) {
        let converted = rely_on(handle, jobs).and_then(|()| map_all(remap, runs, jobs));
        converted_with(handle, jobs, converted);
    }
}

fn converted_with(handle: &JournalHandle<'_>, jobs: &mut [Job], converted: Result<(), Error>) {
    if let Err(error) = converted {
        for job in jobs.iter_mut().filter(|j| !j.failed) {
            job.fail(&error);
        }
    }
    jobs.iter_mut().for_each(|job| job.tid = Some(handle.tid()));
}

fn try_convert_file(
    handle: &JournalHandle<'_>,
    inode: &Arc<Inode>,
    jobs: &mut [Job],
) -> Result<(), Error> {
    // Before the map lock, as loading takes it too. Until the pending entries go nobody else changes the mapping of these ranges.
    let mut runs = ToMap::of(jobs.len());
    for (at, job) in jobs.iter().enumerate().filter(|(_, j)| !j.failed) {
        let view = inode.load_map(job.blocks())?;
        runs.add(at, job, &view)
            .expect("its blocks were loaded a line above");
    }
    rely_on(handle, jobs)?;
    map_all(inode.remap(handle)?, runs, jobs)
}

/// Makes the handle depend on the data of the jobs: once it is mapped it is visible, so no failed flush may have lost it.
fn rely_on(handle: &JournalHandle<'_>, jobs: &[Job]) -> Result<(), Error> {
    let good = jobs.iter().filter(|job| !job.failed);
    good.map(|job| job.data.began())
        .try_for_each(|began| handle.relies_on(began))
}

/// What the jobs of one file have to map.
struct ToMap {
    /// Runs that may be mapped one by one.
    runs: Vec<Mapped>,
    /// Those of a job that is mapped as a whole, and which one it is.
    whole: Vec<(usize, Vec<Mapped>)>,
}

impl ToMap {
    /// For so many jobs: most of them have one run.
    fn of(jobs: usize) -> ToMap {
        ToMap {
            runs: Vec::with_capacity(jobs),
            whole: Vec::new(),
        }
    }

    fn add(&mut self, at: usize, job: &Job, view: &MapView) -> Result<(), NotLoaded> {
        if !is_whole(job) {
            return add_runs(job, view, &mut self.runs);
        }
        let mut runs = Vec::new();
        add_whole(job, view, &mut runs)?;
        self.whole.push((at, runs));
        Ok(())
    }
}

/// Maps all runs of an atomic write by one edit.
fn swap(remap: &mut Remap<'_>, job: &Job, runs: &[Mapped]) -> Result<(), Error> {
    let short = |block: u64| u32::try_from(block).expect("a mapped block has 32 bits");
    let blocks = job.blocks();
    let new: Vec<_> = runs.iter().map(|m| (m.run, m.claimed)).collect();
    let count: u64 = runs.iter().map(|m| u64::from(m.run.len)).sum();
    if count != blocks.end - blocks.start {
        let what = format!("an atomic write has {count} blocks for {blocks:?}");
        return Err(Error::Damaged(what));
    }
    remap.swap(short(blocks.start)..short(blocks.end), &new)
}

fn map_all(mut remap: Remap<'_>, to_map: ToMap, jobs: &mut [Job]) -> Result<(), Error> {
    let mut used = Vec::with_capacity(jobs.len());
    remap.expect_edits(jobs.len());
    for (at, runs) in to_map.whole {
        match swap(&mut remap, &jobs[at], &runs) {
            Ok(()) => used.extend(runs.iter().map(Mapped::blocks)),
            Err(error) => jobs[at].fail(&error),
        }
    }
    for mapped in merged(to_map.runs) {
        // If a part of an extending job cannot be mapped, nothing of the job behind that part is: it would be behind the size.
        let blocked = jobs
            .iter()
            .find(|j| j.failed && j.extends() && j.overlaps(&mapped.blocks()));
        let done = match blocked.and_then(|j| j.error.clone()) {
            Some(error) => Err(error),
            None => map_one(&mut remap, &mapped),
        };
        match done {
            Ok(()) => used.push(mapped.blocks()),
            Err(error) => fail_overlapping(jobs, &mapped.blocks(), &error),
        }
    }
    let block_size = jobs[0].inode().volume.block_size();
    let ends = jobs
        .iter()
        .filter_map(|j| end_of_mapped(j, &used, block_size));
    remap.disk.size = remap.disk.size.max(ends.max().unwrap_or(0));
    let file = jobs[0].file.clone();
    let published = remap.retire_to(&file.retired).publish();
    // Blocks that were mapped for a failed job must not be given back. Done here, after the map lock was released.
    let without = |j: &&Job| j.failed || published.is_err();
    jobs.iter()
        .filter(without)
        .for_each(|j| note_mapped(j, &used));
    published?;
    if let Some(job) = jobs.iter().find(|j| !j.failed && j.extends()) {
        // The bytes behind the new end were zeros before this write, or are in a block that it has padded with zeros.
        job.inode().learn_tail(job.inode().before_zeros());
    }
    Ok(())
}

/// Takes the mapped blocks out of the claims of the job's pending entry, since claims that are left there are given back when it ends.
fn note_mapped(job: &Job, used: &[Range<u64>]) {
    if let Some(entry) = job.conversion.as_ref().and_then(|c| c.entry) {
        let is_used = |c: &Claimed| used.iter().any(|u| u.contains(&u64::from(c.file_block)));
        job.inode().pending.forget_claims(entry, is_used);
    }
}

fn fail_overlapping(jobs: &mut [Job], range: &Range<u64>, error: &Error) {
    for job in jobs.iter_mut() {
        if job.overlaps(range) {
            job.fail(error);
        }
    }
}

/// The size that the file may have for this job, if these blocks are mapped: the end of its bytes; for a failed job that extends the file,
/// the end of what is mapped of it.
fn end_of_mapped(job: &Job, used: &[Range<u64>], block_size: u32) -> Option<u64> {
    let conversion = job.conversion.as_ref()?;
    if !job.failed {
        return Some(conversion.bytes.end);
    }
    if !conversion.extends {
        return None;
    }
    let mine = used.iter().filter(|run| job.overlaps(run));
    let last = mine.map(|run| run.end.min(conversion.blocks.end)).max()?;
    Some(runs::size_behind(
        last,
        block_size,
        conversion.bytes.end,
        (false, false),
    ))
}

/// How many blocks of metadata the conversion of a job changes at most.
fn credits(job: &Job, wait: Wait) -> Result<u32, Error> {
    let inode = job.inode();
    let blocks = job.blocks();
    let len = u32::try_from(blocks.end - blocks.start).unwrap_or(u32::MAX);
    if is_whole(job) {
        // What is not in memory and may not be loaded is too much for a handle that begins at once.
        return Ok(parts::credits_of_whole(job, wait)?.unwrap_or(u32::MAX));
    }
    if len > 1
        && let Some(credits) = parts::credits_of_runs(job, wait)?
    {
        return Ok(credits);
    }
    let new = NewRun {
        file_block: u32::try_from(blocks.start).unwrap_or(u32::MAX),
        len,
        start: FsBlock::new(0),
        unwritten: false,
    };
    // 6 for the inode, and for a bitmap and a descriptor each of its data and of new nodes.
    Ok(edit::credits(&inode.volume, &inode.disk(), 2, &[new]) + 6)
}
