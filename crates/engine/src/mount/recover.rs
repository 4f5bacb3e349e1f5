//! Recovery while a volume is opened: replays the journal, in memory for readers, on the device for writers.
//!
//! Input: a device. Output: a file system that includes what its log holds. Invariants: a volume that is refused because of its
//! superblock or its log is not changed: for writing, its state after recovery is checked before anything is written. Limits: damaged
//! logs, and fast commits that are not understood or do not fit the volume, are left to the kernel and e2fsck: opening for writing is
//! refused, opening for reading adds a note.

use super::fast;
use super::journal::{self, Found};
use super::look::{Mounted, can_change, check_state, look};
use super::{OpenLog, Opened, find_superblock, mend};
use crate::delete;
use crate::disk::{Blocks, Descriptors, FoundSuperblock};
use crate::error::Error;
use crate::inode::Fs;
use crate::journal::recovery::{After, LogEnd, Overlay, bring_home, check_fits, replay};
use crate::options::{OpenOptions, Repair};
use diorite_block::device::DeviceErrorKind;
use diorite_block::{Blocking, Device, DeviceError};
use diorite_format::Superblock;
use diorite_format::journal::FastCommits;
use std::sync::Arc;

const REFUSED: &str = "opening for writing is refused";
const ELSEWHERE: &str = "mount it once with the kernel, or run e2fsck";

/// What has to be written to a volume before it can be used.
struct Due {
    /// The blocks that the log holds, and a superblock from a copy, if one is needed.
    blocks: Arc<Blocks>,
    /// The blocks that fast commits change after that.
    changed: Arc<Blocks>,
    /// The log, and where it ends. None if the log cannot be emptied.
    log: Option<(Found, LogEnd)>,
}

/// Opens the volume on a device, after recovery if that is needed, and after the repair that the options ask for. Blocks.
pub(crate) fn open(
    device: Arc<dyn Device>,
    options: &OpenOptions,
    notes: Vec<String>,
    open_log: OpenLog<'_>,
) -> Result<Opened, Error> {
    let has_counts = |repair: &Repair| !repair.groups.is_empty();
    if !options.repair_to_write().is_some_and(has_counts) {
        return open_once(device, options, notes, open_log);
    }
    let Opened { fs, mut notes } = open_once(device.clone(), options, notes, open_log)?;
    drop(fs);
    let known = device.report().fallbacks;
    notes.retain(|note| !known.contains(note));
    let mended = OpenOptions {
        repair: Some(Repair::default()),
        ..options.clone()
    };
    open_once(device, &mended, notes, open_log)
}

/// Opens the volume on a device, after recovery if that is needed; with counts to write, it only writes them.
fn open_once(
    device: Arc<dyn Device>,
    options: &OpenOptions,
    mut notes: Vec<String>,
    open_log: OpenLog<'_>,
) -> Result<Opened, Error> {
    if device.level() == u8::MAX {
        let (name, most) = (device.name(), u8::MAX);
        let what = format!("{name} stands on {most} volumes: no other one can be above them");
        return Err(DeviceError::new(DeviceErrorKind::Unsupported, what).into());
    }
    if options.write && device.geometry().read_only {
        return Err(Error::ReadOnly(format!("{} is read-only", device.name())));
    }
    let mut found = find_superblock(&Blocking::new(device.clone()))?;
    let block_size = found.sb.block_size();
    notes.extend(found.note.take());
    let below = over(&device, block_size, &found.patch);
    if !options.recover && !options.write {
        return unrecovered((&below, &device), &found, options, notes, open_log);
    }
    // A copy of the superblock never says that the log is needed.
    let expected = match found.sb.needs_recovery() || !found.patch.is_empty() {
        true => Descriptors::BeforeReplay,
        false => Descriptors::Whole,
    };
    let Assembled {
        mut fs,
        mut state,
        notes: mut looked,
    } = assemble(&below, Some(&found.sb), options, &notes, expected)?;
    let log = journal::find(&fs, &device, options, open_log)?;
    check_places(log.as_ref(), options)?;
    if !is_due(&found.sb, &found.patch, log.as_ref()) {
        if expected == Descriptors::BeforeReplay {
            // Nothing can be replayed.
            let known = Some(&found.sb);
            let whole = assemble(&below, known, options, &notes, Descriptors::Whole)?;
            (fs, state, looked) = (whole.fs, whole.state, whole.notes);
        }
        state?;
        return start(fs, log, options, looked);
    }
    if !options.recover {
        let what =
            "its journal has to be replayed before it is written, and recovery is switched off";
        return Err(Error::ReadOnly(what.to_owned()));
    }
    // Its caches hold blocks from before recovery.
    drop((fs, below));
    let due = read_log(found.patch, log, (&device, block_size), options, &mut notes)?;
    let recovered = due.over(&device, block_size);
    if !options.write {
        return reopen((&recovered, &device), options, &notes, open_log);
    }
    let after = find_superblock(&Blocking::new(recovered.clone()))?;
    check_state(&after.sb, options, &mut Vec::new())?;
    look(&recovered, None, options, Vec::new(), Descriptors::Whole)?;
    drop(recovered);
    due.finish(&device, block_size, options)?;
    reopen((&device, &device), options, &notes, open_log)
}

/// Opens a volume without what its log holds, for reading. Damage of its journal is a note, as nothing of it is used; so is damage of
/// descriptors: files of their groups cannot be read.
fn unrecovered(
    (device, bottom): (&Arc<dyn Device>, &Arc<dyn Device>),
    found: &FoundSuperblock,
    options: &OpenOptions,
    mut notes: Vec<String>,
    open_log: OpenLog<'_>,
) -> Result<Opened, Error> {
    let known = Some(&found.sb);
    let whole = assemble(device, known, options, &notes, Descriptors::Whole);
    let assembled = match whole {
        Err(damage) if damage.is_corrupt() => {
            notes.push(format!("{damage}; some files cannot be read"));
            assemble(device, known, options, &notes, Descriptors::BeforeReplay)?
        }
        whole => whole?,
    };
    let Assembled {
        fs,
        state,
        mut notes,
    } = assembled;
    state?;
    let is_due = match journal::find(&fs, bottom, options, open_log) {
        Ok(log) => is_due(&fs.sb, &found.patch, log.as_ref()),
        Err(damage) => {
            notes.push(format!("{damage}; the journal is not used"));
            true
        }
    };
    if is_due {
        notes.push("the journal was not replayed: what it holds is missing".to_owned());
    }
    start(fs, None, options, notes)
}

/// A volume that is assembled from what was read, and not in use yet.
struct Assembled {
    fs: Arc<Fs>,
    /// The reason, by its superblock, why it may not be opened as asked.
    state: Result<(), Error>,
    notes: Vec<String>,
}

/// Assembles the volume on `device`, whose superblock may be known.
fn assemble(
    device: &Arc<dyn Device>,
    known: Option<&Superblock>,
    options: &OpenOptions,
    notes: &[String],
    expected: Descriptors,
) -> Result<Assembled, Error> {
    let Mounted {
        parts,
        mut notes,
        data_journalled,
    } = look(device, known, options, notes.to_vec(), expected)?;
    let state = check_state(&parts.sb, options, &mut notes);
    Ok(Assembled {
        fs: Fs::new(parts, options, data_journalled),
        state,
        notes,
    })
}

/// Opens the volume after recovery. The log is read from `bottom`, not through the overlay of replayed blocks.
fn reopen(
    (device, bottom): (&Arc<dyn Device>, &Arc<dyn Device>),
    options: &OpenOptions,
    notes: &[String],
    open_log: OpenLog<'_>,
) -> Result<Opened, Error> {
    let Assembled { fs, state, notes } =
        assemble(device, None, options, notes, Descriptors::Whole)?;
    state?;
    let log = journal::find(&fs, bottom, options, open_log)?;
    check_places(log.as_ref(), options)?;
    if options.write && is_due(&fs.sb, &Blocks::new(), log.as_ref()) {
        let what = "the journal was replayed, and still needs recovery".to_owned();
        return Err(Error::Damaged(what));
    }
    start(fs, log, options, notes)
}

/// Gives a volume opened for writing its journal, and recovers its orphan list or writes the counts of a repair.
fn start(
    fs: Arc<Fs>,
    log: Option<Found>,
    options: &OpenOptions,
    mut notes: Vec<String>,
) -> Result<Opened, Error> {
    journal::start(&fs, log, options)?;
    let repair = options.repair_to_write();
    if repair.is_some_and(|repair| repair.orphan_file) {
        mend::superblock(&fs)?;
    }
    if let Some(repair) = repair.filter(|repair| !repair.groups.is_empty()) {
        mend::counts(&fs, repair)?;
    } else if can_change(&fs.sb, options) {
        notes.extend(delete::recover(&fs)?);
    }
    Ok(Opened { fs, notes })
}

/// Rule D10: refuses to write a log that has holes, or lies over other structures.
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

/// The device with these blocks in place of its own.
pub(super) fn over(
    device: &Arc<dyn Device>,
    block_size: u32,
    blocks: &Arc<Blocks>,
) -> Arc<dyn Device> {
    if blocks.is_empty() {
        device.clone()
    } else {
        Arc::new(Overlay::new(device.clone(), block_size, blocks.clone()))
    }
}

/// Replays the log, and the fast commits behind it, in memory; `blocks` is the superblock from a copy, if one is needed.
fn read_log(
    blocks: Arc<Blocks>,
    log: Option<Found>,
    (device, block_size): (&Arc<dyn Device>, u32),
    options: &OpenOptions,
    notes: &mut Vec<String>,
) -> Result<Due, Error> {
    let mut due = Due {
        blocks,
        changed: Arc::default(),
        log: None,
    };
    let Some(mut log) = log else {
        return Ok(due);
    };
    if log.journal.errno != 0 {
        let errno = log.journal.errno;
        notes.push(format!(
            "the journal was aborted by error {errno}; run e2fsck"
        ));
    }
    if log.journal.is_empty() {
        let end = LogEnd::of_empty(&log.journal);
        due.log = Some((log, end));
        return Ok(due);
    }
    if let Some(fault) = &log.fault {
        notes.push(format!(
            "the journal is damaged and not replayed: {fault}; what is read may be out of date"
        ));
        return Ok(due);
    }
    let replay = match replay(&log.journal, &mut log.source, &mut log.bounds) {
        Ok(replay) => replay,
        Err(e) if options.write => return Err(e.at(REFUSED)),
        Err(e) => {
            notes.push(format!(
                "the journal cannot be replayed: {e}; what is read may be out of date"
            ));
            return Ok(due);
        }
    };
    if let Some(tid) = replay.damaged {
        let what = format!("journal transaction {tid} is damaged");
        if options.write {
            return Err(Error::refused(format!("{REFUSED}: {what}"), ELSEWHERE));
        }
        notes.push(format!(
            "{what}, and was replayed up to there; what is read may be out of date"
        ));
    }
    let memory = if options.write { "" } else { " in memory" };
    let (count, transactions) = (replay.blocks.len(), replay.transactions);
    Arc::make_mut(&mut due.blocks).extend(replay.blocks);
    let mut said =
        format!("the journal was replayed{memory}: {count} blocks of {transactions} transactions");
    match due.replay_fast(replay.fast, &log, (device, block_size), options) {
        Ok(0) => {}
        Ok(1) => said.push_str(", and 1 fast commit"),
        Ok(more) => said.push_str(&format!(", and {more} fast commits")),
        Err(e) if options.write => return Err(e.at(REFUSED)),
        Err(e) => notes.push(format!(
            "the journal's fast commits cannot be replayed: {e}; what is read may be out of date"
        )),
    }
    notes.push(said);
    due.log = Some((log, replay.end));
    Ok(due)
}

impl Due {
    /// Replays fast commits over the log's blocks; returns how many there are.
    fn replay_fast(
        &mut self,
        fast: Result<FastCommits, Error>,
        log: &Found,
        (device, block_size): (&Arc<dyn Device>, u32),
        options: &OpenOptions,
    ) -> Result<usize, Error> {
        let fast = fast?;
        if !fast.commits.is_empty() {
            let recovered = over(device, block_size, &self.blocks);
            let changed = fast::replay(&recovered, block_size, options, &fast)?;
            if options.write {
                check_fits(&log.journal, &changed)?;
            }
            self.changed = Arc::new(changed);
        }
        Ok(fast.commits.len())
    }

    /// The device as it will be after recovery.
    fn over(&self, device: &Arc<dyn Device>, block_size: u32) -> Arc<dyn Device> {
        let replayed = over(device, block_size, &self.blocks);
        over(&replayed, block_size, &self.changed)
    }

    /// Writes the recovered blocks to the device, and empties the log.
    fn finish(
        self,
        device: &Arc<dyn Device>,
        block_size: u32,
        options: &OpenOptions,
    ) -> Result<(), Error> {
        let Due {
            blocks,
            changed,
            mut log,
        } = self;
        let after = log.as_mut().map(|(log, end)| {
            let fast = (!changed.is_empty()).then(|| (&*changed, *end, (options.clock)()));
            After {
                journal: &log.journal,
                log: &mut log.source,
                next: end.next(u32::from(fast.is_some())),
                fast,
            }
        });
        let blocking = Blocking::new(device.clone());
        bring_home(&blocking, block_size, &blocks, after)
    }
}
