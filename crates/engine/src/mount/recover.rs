//! Recovery on the way to a volume: what must be replayed is, in memory for readers, at home for writers.
//!
//! Input: a device. Output: a [`Volume`] that shows what its log holds. Invariants: a volume that is refused for
//! what its superblock or its log says stays as it is: for writing, its state is judged as it will be after recovery, before that is written. Limits: fast commits and damaged logs are left to the kernel and
//! e2fsck: refused for writing, a note for reading.

use super::OpenOptions;
use super::journal::{self, Found};
use super::open::{self, check_state, look};
use super::superblock;
use crate::error::Error;
use crate::journal::recovery::{Blocks, Overlay, bring_home, replay};
use crate::orphan;
use crate::volume::Volume;
use diorite_block::{Blocking, Device};
use diorite_format::{Superblock, Tid};
use std::sync::Arc;

const ELSEWHERE: &str = "mount it once with the kernel, or run e2fsck";
const FAST_COMMITS: &str = "mount it once with the kernel, or run e2fsck; 'tune2fs -O ^fast_commit' then keeps the journal without them";

/// What has to be done to a volume before it can be used.
struct Due {
    /// Blocks as they should be.
    blocks: Arc<Blocks>,
    /// The log they come from, and the sequence with which it goes on, if it can be emptied.
    log: Option<(Found, Tid)>,
}

/// Opens the volume on a device, recovering it first if it has to be.
pub(super) fn open(
    device: Arc<dyn Device>,
    options: &OpenOptions,
    mut notes: Vec<String>,
) -> Result<Volume, Error> {
    if options.write && device.geometry().read_only {
        return Err(Error::ReadOnly(format!("{} is read-only", device.name())));
    }
    let found = superblock::find(&Blocking::new(device.clone()))?;
    let block_size = found.sb.block_size();
    notes.extend(found.note);
    let below = over(&device, block_size, &found.patch);
    let Assembled {
        volume,
        state,
        notes: looked,
    } = assemble(&below, options, &notes)?;
    let log = journal::find(&volume, &device, options)?;
    check_places(log.as_ref(), options)?;
    if !is_due(&found.sb, &found.patch, log.as_ref()) {
        state?;
        return start(volume, log, options, looked);
    }
    // Its caches hold what was there before.
    drop((volume, below));
    let due = read_log(found.patch, log, options, &mut notes)?;
    let recovered = over(&device, block_size, &due.blocks);
    if !options.write {
        return reopen(&recovered, &device, options, &notes);
    }
    let after = superblock::find(&Blocking::new(recovered.clone()))?;
    check_state(&after.sb, options, &mut Vec::new())?;
    look(&recovered, options, Vec::new())?;
    drop(recovered);
    due.finish(&device, block_size)?;
    reopen(&device, &device, options, &notes)
}

/// A volume that is put together, and not in use yet.
struct Assembled {
    volume: Volume,
    /// What forbids to use it as asked, as far as its superblock knows.
    state: Result<(), Error>,
    notes: Vec<String>,
}

/// The volume on `device`.
fn assemble(
    device: &Arc<dyn Device>,
    options: &OpenOptions,
    notes: &[String],
) -> Result<Assembled, Error> {
    let mut mounted = look(device, options, notes.to_vec())?;
    let state = check_state(&mounted.sb, options, &mut mounted.notes);
    let notes = std::mem::take(&mut mounted.notes);
    Ok(Assembled {
        volume: Volume::assemble(mounted, options),
        state,
        notes,
    })
}

/// The volume after recovery. The log is looked at where it lies, not through what was replayed.
fn reopen(
    device: &Arc<dyn Device>,
    bottom: &Arc<dyn Device>,
    options: &OpenOptions,
    notes: &[String],
) -> Result<Volume, Error> {
    let Assembled {
        volume,
        state,
        notes,
    } = assemble(device, options, notes)?;
    state?;
    let log = journal::find(&volume, bottom, options)?;
    check_places(log.as_ref(), options)?;
    if options.write && is_due(volume.superblock(), &Blocks::new(), log.as_ref()) {
        let what = "the journal was replayed, and still needs recovery".to_owned();
        return Err(Error::Damaged(what));
    }
    start(volume, log, options, notes)
}

/// Gives a volume that is to be written its journal, and deals with the orphans that are left in it.
fn start(
    volume: Volume,
    log: Option<Found>,
    options: &OpenOptions,
    mut notes: Vec<String>,
) -> Result<Volume, Error> {
    journal::start(&volume, log, options)?;
    if open::can_change(volume.superblock(), options) {
        notes.extend(orphan::recover(volume.inner())?);
    }
    volume.inner().set_notes(notes);
    Ok(volume)
}

/// Rule D10: a log is not written where something else lies, or nowhere.
fn check_places(log: Option<&Found>, options: &OpenOptions) -> Result<(), Error> {
    match log.and_then(|l| l.fault.as_ref()) {
        Some(fault) if options.write => {
            let what = format!("opening for writing is refused: the journal is damaged: {fault}");
            Err(Error::refused(what, "run e2fsck"))
        }
        _ => Ok(()),
    }
}

fn is_due(sb: &Superblock, patch: &Blocks, log: Option<&Found>) -> bool {
    let in_log = |l: &Found| !l.journal.is_empty() || l.journal.errno != 0 || sb.needs_recovery();
    !patch.is_empty() || log.is_some_and(in_log)
}

fn over(device: &Arc<dyn Device>, block_size: u32, blocks: &Arc<Blocks>) -> Arc<dyn Device> {
    if blocks.is_empty() {
        device.clone()
    } else {
        Arc::new(Overlay::new(device.clone(), block_size, blocks.clone()))
    }
}

/// Replays the log into `blocks`.
fn read_log(
    mut blocks: Arc<Blocks>,
    log: Option<Found>,
    options: &OpenOptions,
    notes: &mut Vec<String>,
) -> Result<Due, Error> {
    let Some(mut log) = log else {
        return Ok(Due { blocks, log: None });
    };
    if log.journal.errno != 0 {
        let errno = log.journal.errno;
        notes.push(format!(
            "the journal was aborted by error {errno}; run e2fsck"
        ));
    }
    if log.journal.is_empty() {
        let next = log.journal.sequence;
        return Ok(Due {
            blocks,
            log: Some((log, next)),
        });
    }
    if let Some(fault) = &log.fault {
        notes.push(format!(
            "the journal is damaged and not replayed: {fault}; what is read may be out of date"
        ));
        return Ok(Due { blocks, log: None });
    }
    let replay = match replay(&log.journal, &mut log.source, &log.bounds) {
        Ok(replay) => replay,
        Err(e) if options.write => return Err(e.at("opening for writing is refused")),
        Err(e) => {
            notes.push(format!(
                "the journal cannot be replayed: {e}; what is read may be out of date"
            ));
            return Ok(Due { blocks, log: None });
        }
    };
    let rest = [
        replay
            .damaged
            .map(|tid| format!("journal transaction {tid} is damaged")),
        replay
            .fast_commits
            .then(|| "the journal ends in fast commits (fast_commit)".to_owned()),
    ];
    let help = match replay.fast_commits {
        true => FAST_COMMITS,
        false => ELSEWHERE,
    };
    for what in rest.into_iter().flatten() {
        if options.write {
            let what = format!("opening for writing is refused: {what}");
            return Err(Error::refused(what, help));
        }
        notes.push(format!(
            "{what}, and was replayed up to there; what is read may be out of date"
        ));
    }
    let memory = if options.write { "" } else { " in memory" };
    notes.push(format!(
        "the journal was replayed{memory}: {} blocks of {} transactions",
        replay.blocks.len(),
        replay.transactions
    ));
    Arc::make_mut(&mut blocks).extend(replay.blocks);
    let log = Some((log, replay.next));
    Ok(Due { blocks, log })
}

impl Due {
    /// Does it, on the device itself.
    fn finish(self, device: &Arc<dyn Device>, block_size: u32) -> Result<(), Error> {
        let Due { blocks, mut log } = self;
        let errno = log.as_ref().map_or(0, |(log, _)| log.journal.errno);
        let emptied = log.as_mut().map(|(log, next)| (&mut log.source, *next));
        let blocking = Blocking::new(device.clone());
        bring_home(&blocking, block_size, &blocks, emptied, errno)
    }
}
