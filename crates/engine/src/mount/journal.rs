//! Finds the journal, in an inode or on a device of its own, and reads its superblock.
//!
//! Input: a volume being opened, and the locator of its journal if that is on another device. Output: [`Found`]; the blocks of an
//! internal journal are guarded against files that point there. Invariant: reads only; a journal device is used only if it is this
//! volume's. Limits: a journal device has to be named or given, it is not searched for.

use super::{OpenLog, log_places};
use crate::disk::{Zone, blocks_in, read_bytes};
use crate::error::Error;
use crate::inode::Fs;
use crate::journal::recovery::{LogSource, Target};
use crate::journal::{Journal, Log};
use crate::mapping::MappingState;
use crate::options::OpenOptions;
use diorite_block::{Blocking, Device};
use diorite_format::features::Incompat;
use diorite_format::journal::JournalSuper;
use diorite_format::journal::write::modernise;
use diorite_format::superblock::{JournalDevice, JournalPlace, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use diorite_format::{FsBlock, Ino};
use std::sync::Arc;

/// The journal of a volume.
pub(super) struct Found {
    pub(super) journal: JournalSuper,
    pub(super) source: LogSource,
    /// Which blocks a replay may write.
    pub(super) bounds: Bounds,
    /// Why the log can be neither written nor replayed: what is wrong with the blocks in which it lies.
    pub(super) fault: Option<String>,
}

/// All blocks of the volume except the journal's own. If its size changed shortly before the crash, the log has a superblock with another
/// number of blocks, and may have blocks behind the end of the smaller one.
pub(super) struct Bounds {
    superblock: FsBlock,
    /// The end of the volume, the larger one if there are two.
    end: u64,
    of_device: u64,
    own: Zone,
}

impl Target for Bounds {
    fn superblock(&self) -> FsBlock {
        self.superblock
    }

    fn note_superblock(&mut self, copy: &[u8]) {
        self.end = self.end.max(blocks_in(copy).unwrap_or(0));
    }

    fn refuses(&self, block: FsBlock) -> Option<&'static str> {
        match block.get() >= self.of_device {
            true => Some("outside the device"),
            false => self.own.find(block, 1).map(|_| "inside the journal itself"),
        }
    }

    fn is_behind(&self, block: FsBlock) -> bool {
        block.get() >= self.end
    }
}

/// The journal of a volume that is being opened. None if the volume has no journal, or has it on a device that nobody named.
pub(super) fn find(
    fs: &Arc<Fs>,
    device: &Arc<dyn Device>,
    options: &OpenOptions,
    open_log: OpenLog<'_>,
) -> Result<Option<Found>, Error> {
    match fs.sb.journal() {
        JournalPlace::None => Ok(None),
        JournalPlace::Internal(ino) => in_file(fs, device, ino).map(Some),
        JournalPlace::External { uuid, .. } => elsewhere(fs, uuid, options, open_log),
    }
}

/// The journal on a device of its own: the caller's device, or the one that the locator names.
fn elsewhere(
    fs: &Arc<Fs>,
    uuid: [u8; 16],
    options: &OpenOptions,
    open_log: OpenLog<'_>,
) -> Result<Option<Found>, Error> {
    let block_size = fs.sb.block_size();
    let (found, name) = match (&options.journal_device, &options.journal) {
        (Some(device), _) => (on_device(fs, device.0.clone(), uuid), device.0.name()),
        (None, Some(locator)) => {
            let device = open_log(locator, block_size);
            let found = device.and_then(|device| on_device(fs, device, uuid));
            (found, locator.clone())
        }
        (None, None) => return Ok(None),
    };
    found.map(Some).map_err(|e| e.at(name))
}

/// The superblock of an internal journal, as the device has it now. None if the volume has none, or has it on another device.
pub(crate) fn superblock(fs: &Arc<Fs>) -> Result<Option<JournalSuper>, Error> {
    match fs.sb.journal() {
        JournalPlace::Internal(ino) => Ok(Some(in_file(fs, &fs.device, ino)?.journal)),
        JournalPlace::None | JournalPlace::External { .. } => Ok(None),
    }
}

/// Guards the blocks of an internal journal against files that point there.
pub(super) fn guard(fs: &Arc<Fs>, device: &Arc<dyn Device>) -> Result<(), Error> {
    match fs.sb.journal() {
        JournalPlace::Internal(ino) => in_file(fs, device, ino).map(drop),
        JournalPlace::None | JournalPlace::External { .. } => Ok(()),
    }
}

fn in_file(fs: &Arc<Fs>, device: &Arc<dyn Device>, ino: Ino) -> Result<Found, Error> {
    let file = fs.inode(ino).map_err(|e| e.at("the journal"))?;
    let volume_bytes = fs.sb.geometry().volume_bytes();
    // Checked before its map is read: a few nodes that point to themselves can map any size.
    if file.size() > volume_bytes {
        let what = format!(
            "the journal's size {} is larger than the volume ({volume_bytes} bytes); run e2fsck",
            file.size()
        );
        return Err(Error::Damaged(what));
    }
    let block_size = fs.sb.block_size();
    let blocks = file.size() / u64::from(block_size);
    let places = log_places::of_file(fs, &file, blocks).map_err(|e| e.at("the journal"))?;
    let own = || {
        let places = places.runs.iter().filter_map(|m| match m.state {
            MappingState::Written(at) | MappingState::Unwritten(at) => Some((at, m.len)),
            MappingState::Hole => None,
        });
        Zone::of("the journal", places)
    };
    fs.guard_journal(own());
    let source = LogSource::in_file(device.clone(), block_size, &places.runs);
    let found = look(fs, source, blocks, own())?;
    let fault = places.fault(u64::from(found.journal.maxlen));
    Ok(Found { fault, ..found })
}

fn on_device(fs: &Arc<Fs>, device: Arc<dyn Device>, uuid: [u8; 16]) -> Result<Found, Error> {
    let block_size = fs.sb.block_size();
    let raw = read_bytes(
        &Blocking::new(device.clone()),
        SUPERBLOCK_OFFSET,
        SUPERBLOCK_SIZE,
    )?;
    let raw: &[u8; SUPERBLOCK_SIZE] = raw[..]
        .try_into()
        .expect("as many bytes were read as asked");
    let found = JournalDevice::parse(raw)?;
    if found.uuid != uuid || found.block_size != block_size {
        return Err(Error::refused(
            "this is the journal of another volume",
            "its UUID is the one that 'dumpe2fs -h' prints as the volume's journal UUID",
        ));
    }
    let blocks = device.geometry().size / u64::from(block_size);
    let source = LogSource::on_device(device, block_size, found.journal_block);
    let log = look(fs, source, blocks, Zone::default())?;
    if log.journal.users.as_slice() != [*fs.sb.uuid()] {
        return Err(Error::refused(
            "the journal device is not this volume's alone",
            "mount it once with the kernel, or run e2fsck",
        ));
    }
    Ok(log)
}

fn look(fs: &Arc<Fs>, source: LogSource, blocks: u64, own: Zone) -> Result<Found, Error> {
    let sb = &fs.sb;
    let journal = JournalSuper::parse(&source.read_super()?, sb.block_size(), blocks)
        .map_err(|e| Error::from(e).at("the journal"))?;
    let bounds = Bounds {
        superblock: sb.super_block(),
        end: sb.geometry().blocks_count(),
        of_device: fs.device.geometry().size >> sb.geometry().block_bits(),
        own,
    };
    Ok(Found {
        journal,
        source,
        bounds,
        fault: None,
    })
}

/// Gives a volume opened for writing its journal: the log, which is empty, or rounds for a volume without a log. Writes nothing yet.
pub(super) fn start(
    fs: &Arc<Fs>,
    found: Option<Found>,
    options: &OpenOptions,
) -> Result<(), Error> {
    if !options.write {
        return Ok(());
    }
    let log = match (fs.sb.journal(), found) {
        (JournalPlace::None, _) => None,
        (_, Some(found)) => Some(found.into_log(fs)?),
        // The journal is on a device that nobody named, so no metadata can be changed.
        (_, None) => return Ok(()),
    };
    let journal = Journal::new(fs.level, log, options.commit_interval, fs.hooks());
    fs.set_journal(journal);
    Ok(())
}

impl Found {
    /// The log, empty, with its superblock in the form that a mount gives it.
    fn into_log(self, fs: &Arc<Fs>) -> Result<Log, Error> {
        let sb = &fs.sb;
        let wide = sb.features().incompat.has(Incompat::BIT64);
        let mut raw = self.source.read_super()?;
        modernise(&mut raw, wide, sb.has_metadata_csum());
        let blocks = u64::from(self.journal.maxlen);
        let journal = JournalSuper::parse(&raw, sb.block_size(), blocks)
            .map_err(|e| Error::from(e).at("the journal"))?;
        let (device, places, super_at) = self.source.into_parts();
        let elsewhere = matches!(sb.journal(), JournalPlace::External { .. });
        let external = elsewhere.then_some(device);
        Ok(Log::new(external, (places, super_at), journal, raw))
    }
}
