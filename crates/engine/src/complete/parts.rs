//! The conversion of one write that is more than a handle holds: part by part, in the order of the file.
//!
//! Input: an ended write into space that lies in many pieces, or in many groups. Output: as of any conversion. Invariants: credits count
//! the runs that it really has (rule D5); each part is a sound file: what is mapped is written, and the size, if it moves, moves to the
//! part's end. Limits: a power cut, or a part that fails, leaves those before it done.

use super::convert::{Mapped, add_runs, map_one, merged};
use super::deferred::Job;
use crate::error::Error;
use crate::inode::Inode;
use crate::map::edit::NewRun;
use crate::workers::contained;
use diorite_format::FsBlock;

/// May the look at a job's runs read its map?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    No,
    ForMap,
}

/// Blocks up to which one run is in one group, or two, and its nodes as well: no need to look.
const FEW: u32 = 64;

/// Blocks of metadata that the conversion of a job changes, if it has more than a few blocks or several runs. None if what it has cannot
/// be told: then it will not be converted, or not at once.
pub(super) fn credits_of_runs(job: &Job, wait: Wait) -> Option<u32> {
    let inode = job.inode();
    let view = match wait {
        Wait::No => inode.map.load(),
        Wait::ForMap => inode.load_map(job.blocks()).ok()?,
    };
    let mut runs = Vec::new();
    add_runs(job, &view, &mut runs).ok()?;
    let runs = merged(runs);
    match &runs[..] {
        [] => None,
        [one] if one.run.len <= FEW => None,
        _ => Some(credits(inode, &runs)),
    }
}

fn credits(inode: &Inode, runs: &[Mapped]) -> u32 {
    let next = |w: &[Mapped]| w[0].run.file_block + w[0].run.len == w[1].run.file_block;
    let in_hole = runs.iter().all(|m| m.claimed) && runs.windows(2).all(next);
    let runs: Vec<NewRun> = runs.iter().map(|m| m.run).collect();
    inode.credits_to_convert(&runs, in_hole)
}

/// Converts the job; its error or transaction is noted in it.
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
    while !rest.is_empty() {
        let part = first_part(&inode, &mut rest);
        convert_part(job, &inode, &part, rest.is_empty())?;
    }
    if job.conversion.as_ref().is_some_and(|c| c.extends) {
        inode.learn_tail();
    }
    Ok(())
}

/// The runs from the front that one handle holds; a run that is too long alone is cut.
fn first_part(inode: &Inode, rest: &mut Vec<Mapped>) -> Vec<Mapped> {
    let most = inode.volume.most_credits();
    let mut count = rest.len();
    while count > 1 && credits(inode, &rest[..count]) > most {
        count /= 2;
    }
    let behind = rest.split_off(count);
    let mut part = std::mem::replace(rest, behind);
    if let [long] = &mut part[..] {
        while credits(inode, &[*long]) > most {
            match cut_in_half(inode, long) {
                Some(behind) if rest.first().is_some_and(|r| follows(&behind, r)) => {
                    rest[0].run = NewRun {
                        len: behind.run.len + rest[0].run.len,
                        ..behind.run
                    };
                }
                Some(behind) => rest.insert(0, behind),
                None => break,
            }
        }
    }
    part
}

/// The second is what was cut off behind the first.
fn follows(first: &Mapped, second: &Mapped) -> bool {
    let (a, b) = (first.run, second.run);
    first.claimed == second.claimed
        && a.file_block + a.len == b.file_block
        && a.start.get() + u64::from(a.len) == b.start.get()
}

/// Cuts a run between clusters; gives what is behind.
fn cut_in_half(inode: &Inode, long: &mut Mapped) -> Option<Mapped> {
    let ratio = inode.volume.sb.geometry().cluster_ratio();
    let run = long.run;
    let at = (run.file_block + run.len / 2) / ratio * ratio;
    let len = at.checked_sub(run.file_block).filter(|len| *len > 0)?;
    long.run.len = len;
    let run = NewRun {
        file_block: at,
        len: run.len - len,
        start: FsBlock::new(run.start.get() + u64::from(len)),
        ..run
    };
    Some(Mapped { run, ..*long })
}

/// One handle of it. What of the part could be mapped is mapped, and not claimed any more.
fn convert_part(job: &mut Job, inode: &Inode, part: &[Mapped], is_last: bool) -> Result<(), Error> {
    let handle = inode.volume.begin(credits(inode, part))?;
    let mut remap = inode.remap(&handle)?;
    let (mut end, mut done) = (0, Ok(()));
    for mapped in part {
        done = map_one(&mut remap, mapped);
        if done.is_err() {
            break;
        }
        end = u64::from(mapped.run.file_block) + u64::from(mapped.run.len);
    }
    let bytes = job.conversion.as_ref().map_or(0, |c| c.bytes.end);
    let size = match is_last && done.is_ok() {
        true => bytes,
        false => bytes.min(end * u64::from(inode.volume.block_size())),
    };
    remap.disk.size = remap.disk.size.max(size);
    let published = remap.publish();
    if let Some(entry) = job.conversion.as_ref().and_then(|c| c.entry) {
        inode.pending.forget_claims_before(entry, end);
    }
    job.tid = Some(handle.tid());
    published.and(done)
}
