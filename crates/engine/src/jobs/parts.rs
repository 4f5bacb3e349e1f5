//! The conversion of a write that needs more than one journal handle: part by part, in the order of the file.
//!
//! Input: an ended write into space that consists of many runs, or lies in many block groups. Output: as of any conversion. Invariants:
//! credits count the runs that the write really has (rule D5); after each part the file is consistent: mapped blocks are written, and the
//! size, if it moves, moves to the part's end. Limits: after a power cut, or if a part fails, the earlier parts are done.

use super::runs::{self, Mapped, first_part, merged};
use crate::error::Error;
use crate::inode::{Inode, Job, Remap};
use crate::map::edit::NewRun;
use crate::map::{MapView, NotLoaded};
use crate::mapping::MappingState;
use crate::threads::contained;
use crate::turn::Claimed;

/// May counting a job's runs load its map from the device?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    No,
    ForMap,
}

/// How many blocks of metadata the conversion of a job changes, counted run by run. None if it has few blocks in one run, for which an
/// estimate is enough; None also if its map is not in memory and may not be loaded: then it is not converted at once.
pub(super) fn credits_of_runs(job: &Job, wait: Wait) -> Result<Option<u32>, Error> {
    let inode = job.inode();
    let view = match wait {
        Wait::No => inode.map.load(),
        Wait::ForMap => inode.load_map(job.blocks())?,
    };
    let mut runs = Vec::new();
    if add_runs(job, &view, &mut runs).is_err() {
        return Ok(None);
    }
    let runs = merged(runs);
    Ok(runs::are_many(&runs).then(|| credits(inode, &runs)))
}

/// As [`credits_of_runs`], for an atomic write, whose runs replace what the range is mapped to.
pub(super) fn credits_of_whole(job: &Job, wait: Wait) -> Result<Option<u32>, Error> {
    let (inode, blocks) = (job.inode(), job.blocks());
    let view = match wait {
        Wait::No => inode.map.load(),
        Wait::ForMap => inode.load_map(blocks.clone())?,
    };
    let (mut runs, mut old) = (Vec::new(), Vec::new());
    if add_whole(job, &view, &mut runs).is_err() {
        return Ok(None);
    }
    for mapping in view.walk(blocks.start, blocks.end) {
        match mapping {
            Ok(mapping) => old.push(mapping),
            Err(NotLoaded { .. }) => return Ok(None),
        }
    }
    let new: Vec<NewRun> = runs.iter().map(|m| m.run).collect();
    Ok(Some(inode.credits_to_swap(&new, &old)))
}

fn credits(inode: &Inode, runs: &[Mapped]) -> u32 {
    let new: Vec<NewRun> = runs.iter().map(|m| m.run).collect();
    inode.credits_to_convert(&new, runs::fill_one_hole(runs))
}

/// Converts the job; notes its error, or its last transaction, in it.
pub(super) fn convert(job: &mut Job) {
    let converted = contained(|| convert_all(job));
    if let Err(error) = converted {
        job.fail(&error);
    }
}

fn convert_all(job: &mut Job) -> Result<(), Error> {
    let inode = job.inode().clone();
    let view = inode.load_map(job.blocks())?;
    let mut runs = Vec::new();
    add_runs(job, &view, &mut runs).expect("its blocks were loaded two lines above");
    let mut rest = merged(runs);
    let most = inode.volume.most_credits();
    let ratio = inode.volume.sb.geometry().cluster_ratio();
    while !rest.is_empty() {
        let part = first_part(&mut rest, most, ratio, |runs| credits(&inode, runs));
        convert_part(job, &inode, &part, rest.is_empty())?;
    }
    if job.conversion.as_ref().is_some_and(|c| c.extends) {
        inode.learn_tail(inode.before_zeros());
    }
    Ok(())
}

/// Converts one part in one handle. Blocks that were mapped are no claims any more, even if the rest of the part fails.
fn convert_part(job: &mut Job, inode: &Inode, part: &[Mapped], is_last: bool) -> Result<(), Error> {
    let handle = inode.volume.begin(credits(inode, part))?;
    handle.with(|handle| {
        handle.relies_on(job.data.began())?;
        let mut remap = inode.remap(handle)?;
        let (mut end, mut done) = (0, Ok(()));
        for mapped in part {
            done = map_one(&mut remap, mapped);
            if done.is_err() {
                break;
            }
            end = mapped.blocks().end;
        }
        let bytes = job.conversion.as_ref().map_or(0, |c| c.bytes.end);
        let size = runs::size_behind(
            end,
            inode.volume.block_size(),
            bytes,
            (is_last, done.is_ok()),
        );
        remap.disk.size = remap.disk.size.max(size);
        let published = remap.publish();
        if let Some(entry) = job.conversion.as_ref().and_then(|c| c.entry) {
            inode.pending.forget_claims_before(entry, end);
        }
        job.tid = Some(handle.tid());
        published.and(done)
    })
}

/// Maps one run.
pub(super) fn map_one(remap: &mut Remap<'_>, mapped: &Mapped) -> Result<(), Error> {
    let run = mapped.run;
    match mapped.claimed {
        true => remap.map_claimed(&[run]),
        false => remap.replace(run.file_block..run.file_block + run.len, &[run]),
    }
}

/// As [`add_runs`], for an atomic write: some of its claims replace unwritten blocks, too, in a cluster that has written ones.
pub(super) fn add_whole(
    job: &Job,
    view: &MapView,
    runs: &mut Vec<Mapped>,
) -> Result<(), NotLoaded> {
    let mut all = Vec::new();
    add_runs(job, view, &mut all)?;
    let (claimed, kept): (Vec<Mapped>, Vec<Mapped>) = all.into_iter().partition(|m| m.claimed);
    let is_claimed = |block: u64| claimed.iter().any(|m| m.blocks().contains(&block));
    let kept = kept
        .iter()
        .flat_map(|m| (0..m.run.len).map(|skip| m.block(skip)));
    let kept: Vec<Mapped> = kept.filter(|m| !is_claimed(m.blocks().start)).collect();
    runs.extend(merged(claimed.into_iter().chain(kept).collect()));
    Ok(())
}

/// Adds the runs that a job has to map: its claims, and the unwritten blocks in its range.
pub(super) fn add_runs(job: &Job, view: &MapView, runs: &mut Vec<Mapped>) -> Result<(), NotLoaded> {
    let inode = job.inode();
    let entry = job.conversion.as_ref().and_then(|c| c.entry);
    let claims = entry.map(|e| inode.pending.claims(e)).unwrap_or_default();
    runs.extend(claims.iter().map(|c: &Claimed| Mapped {
        run: NewRun {
            file_block: c.file_block,
            len: c.run.len,
            start: c.run.start,
            unwritten: false,
        },
        claimed: true,
    }));
    let blocks = job.blocks();
    if claims.iter().map(|c| u64::from(c.run.len)).sum::<u64>() == blocks.end - blocks.start {
        // The whole range was a hole, so there are no unwritten blocks.
        return Ok(());
    }
    for mapping in view.walk(blocks.start, blocks.end) {
        let mapping = mapping?;
        if let MappingState::Unwritten(start) = mapping.state {
            runs.push(Mapped {
                run: NewRun {
                    file_block: u32::try_from(mapping.start).expect("a mapped block has 32 bits"),
                    len: u32::try_from(mapping.len).expect("a mapped run has 32 bits"),
                    start,
                    unwritten: false,
                },
                claimed: false,
            });
        }
    }
    Ok(())
}
