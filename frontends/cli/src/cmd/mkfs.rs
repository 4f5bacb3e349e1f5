//! `diorite mkfs`: makes a file system, empty or with the files of a source, with the words of mke2fs.
//!
//! Input: an image or a device, a size, options. Output: a file system; lines as of mke2fs, or a JSON object. Invariants: an image that is
//! made is there whole or not at all; without -F, on a terminal, the user is asked before a file system is replaced. Limits: as of
//! `diorite::mkfs`.

mod bad;
mod config;
mod huge;
pub(crate) mod identity;
mod journal;
pub(crate) mod words;

pub(crate) use journal::Journal;

use crate::args::{Encoding, FormatArgs, Global, MkfsArgs};
use crate::host::new_file::{self, IfTaken, NewFile};
use crate::host::process;
use crate::images::device::{self, Opened};
use crate::images::undo_file;
use crate::output::Out;
use crate::output::report::{Reason, Report};
use crate::targets::replace;
use crate::words::names;
use config::Config;
use diorite::Undo;
use diorite::mkfs::{
    Made, MkfsOptions, journal_device_plan, mkfs_journal_device, mkfs_plan, mkfs_super_only,
};
use diorite_block::locator::{FileLocator, ImageFormat};
use diorite_block::{Blocking, Locator, MemDevice, open_storage};
use diorite_format::features::Incompat;
use diorite_image::{ImageBuilder, Plan, Rules, Size};
use huge::{Huge, Room};
use identity::Identity;
use rustix::fs::OFlags;
use serde_json::json;
use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use words::Beside;

/// As mke2fs, a file system that takes all of a device ends with a whole page, so that it can be mapped.
pub(crate) const PAGE: u64 = 4096;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &MkfsArgs) -> ExitCode {
    let mut report = Report::new("mkfs", &args.img);
    match make(global, args, &mut report) {
        Ok(made) => show(args, &made),
        Err(why) => {
            report.image(why);
            if let Some(code) = process::ended() {
                report.failed(code);
            }
        }
    }
    report.exit_code()
}

/// What was made, and under which identity.
struct Shown {
    made: Made,
    uuid: [u8; 16],
}

fn make(global: &Global, args: &MkfsArgs, report: &mut Report) -> Result<Shown, Reason> {
    let mut place = Place::find(args)?;
    let (mut options, beside) = options(&args.format, (place.bytes, place.sector), report)?;
    if args.size.is_none() {
        place.bytes -= place.bytes % PAGE.max(u64::from(options.block_size.unwrap_or(0)));
    }
    options.bytes = Some(place.bytes);
    // A test for bad blocks may write patterns.
    options.is_new = place.fresh.is_some() && args.check < 2;
    if args.keep {
        report.warn("-K is the old word for -E nodiscard");
        options.discard = false;
    }
    options.mmp_names = identity::mmp_names(&args.img);
    let uuid = options.uuid;
    let kind = Kind::of(args, &options)?;
    let journal = match &beside.journal_device {
        Some(word) => Some(Journal::open(global, word, args.force > 0)?),
        None => None,
    };
    if let Some(journal) = &journal {
        journal.tell(&mut options);
    }
    if let Some(list) = &args.bad_blocks {
        let planned = kind.plan(place.bytes, &options)?;
        options.bad_blocks = bad::listed(list, planned.blocks, report)?;
    }
    if args.dry_run {
        let made = kind.plan(place.bytes, &options)?;
        return Ok(Shown { made, uuid });
    }
    let undo = place.undo(args, report)?;
    let mut wanted = device::options(global, true);
    wanted.force |= args.force > 1;
    wanted.undo = undo.clone();
    // A file with a temporary name is removed when a signal ends this; otherwise a signal just ends the process.
    let leaves = place.fresh.as_ref().is_some_and(NewFile::has_name);
    let stop = (leaves || args.check > 0)
        .then(process::watch)
        .transpose()?;
    let locator = place.locator_to_open(undo.as_ref());
    let before = place.before()?;
    let opened = locator.and_then(|locator| device::open(&locator, &wanted).map_err(Reason::from));
    let opened = opened.inspect_err(|_| place.abandon(undo.as_ref()))?;
    if kind != Kind::SuperOnly
        && place.fresh.is_none()
        && let Err(why) = replace::ask(&args.img, &opened, args.force > 0)
    {
        opened.close().map_err(Reason::from)?;
        place.abandon(undo.as_ref());
        return Err(why);
    }
    let made = write(
        args,
        &opened,
        kind,
        options,
        (&beside, before, stop),
        report,
    );
    let closed = opened.close().map_err(Reason::from);
    let made = made.and_then(|made| closed.map(|()| made));
    let told = undo.as_ref().map_or(Ok(()), |undo| {
        undo_file::tell(undo, &args.img, made.is_ok())
    });
    // If the undo file failed, that is why nothing was made.
    let made = told.and(made);
    if made.is_err() {
        place.abandon(undo.as_ref());
    }
    let made = made?;
    place.finish()?;
    if let Some(journal) = journal {
        journal.finish(&uuid)?;
    }
    if let [first, others @ ..] = &made.bad_copies[..] {
        report.warn(format_args!(
            "block {first} is bad, and {} others, where copies of the superblock and descriptors lie, or space kept for these: do \
             not rely on those",
            others.len()
        ));
    }
    Ok(Shown { made, uuid })
}

/// What is to be made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A file system.
    Files,
    /// Its superblocks and descriptors alone.
    SuperOnly,
    /// A journal for another device.
    JournalDevice,
}

impl Kind {
    fn of(args: &MkfsArgs, options: &MkfsOptions) -> Result<Kind, Reason> {
        let is_journal = options.features.incompat.has(Incompat::JOURNAL_DEV);
        if is_journal && (args.super_only || args.check > 0 || args.bad_blocks.is_some()) {
            return Err(Reason::new(
                "a journal device has no files: -S, -c and -l are of no use for it",
            ));
        }
        if is_journal && args.source.is_some() {
            return Err(Reason::new(
                "a journal device has no files: -d is of no use for it",
            ));
        }
        Ok(match (is_journal, args.super_only) {
            (true, _) => Kind::JournalDevice,
            (false, true) => Kind::SuperOnly,
            (false, false) => Kind::Files,
        })
    }

    /// What would be made on so many bytes.
    fn plan(self, bytes: u64, options: &MkfsOptions) -> Result<Made, Reason> {
        let planned = match self {
            Kind::JournalDevice => journal_device_plan(bytes, options),
            Kind::Files | Kind::SuperOnly => mkfs_plan(bytes, options),
        };
        planned.map_err(Reason::from)
    }
}

fn write(
    args: &MkfsArgs,
    opened: &Opened,
    kind: Kind,
    mut options: MkfsOptions,
    (beside, before, stop): (&Beside, u64, Option<Arc<AtomicBool>>),
    report: &mut Report,
) -> Result<Made, Reason> {
    if let Some(stop) = stop.as_ref().filter(|_| args.check > 0) {
        let planned = kind.plan(options.bytes.unwrap_or(0), &options)?;
        let extent = (planned.block_size, planned.blocks);
        let blocking = Blocking::new(opened.device.clone());
        options.bad_blocks = bad::tested(&blocking, extent, args.check > 1, stop)?;
    }
    match kind {
        Kind::JournalDevice => mkfs_journal_device(&opened.device, &options).map_err(Reason::from),
        Kind::SuperOnly => {
            let look = args.force == 0;
            mkfs_super_only(&opened.device, &options, look).map_err(Reason::from)
        }
        Kind::Files => {
            let plan = plan(args, options, (beside, before), report)?;
            let goes_on = || {
                stop.as_ref()
                    .is_none_or(|stop| !stop.load(Ordering::Relaxed))
            };
            let made = plan.write(&opened.device, &|_| goes_on());
            made.map_err(|e| Reason::new(e.to_string()))
        }
    }
}

/// The file system with what it is filled with.
fn plan(
    args: &MkfsArgs,
    mut options: MkfsOptions,
    (beside, before): (&Beside, u64),
    report: &mut Report,
) -> Result<Plan, Reason> {
    let said = |error: diorite_image::Error| Reason::new(error.to_string());
    let size = Size::Bytes(options.bytes.unwrap_or(0));
    let newest = options.time;
    let huge = beside.huge.as_ref();
    let room = huge.map(|_| {
        Huge::make_way(&mut options);
        Room::new(&options, before)
    });
    let room = room.transpose().map_err(Reason::from)?;
    let mut builder = ImageBuilder::new(options);
    let mut rules = Rules::default()
        .no_attributes(beside.no_xattrs)
        .newest(identity::is_fixed().then_some(newest));
    if let Some(text) = beside.labels() {
        rules.read_labels(&text).map_err(said)?;
    }
    if let Some((huge, room)) = huge.zip(room) {
        for said in huge.unread() {
            report.warn(format_args!("{said}: no size, taken as 0"));
        }
        let missing = huge.add(&mut builder, &room).map_err(said)?;
        if missing > 0 {
            report.warn(format_args!(
                "{missing} huge files are left out: there is no room for them"
            ));
        }
    }
    builder.set_rules(rules);
    if let Some(source) = &args.source {
        builder.add(source.parse().map_err(said)?).map_err(said)?;
    }
    builder.plan(size).map_err(said)
}

/// The options for a file system of so many bytes on a device with sectors of so many (0: a file), and those that are no part of it.
pub(crate) fn options(
    args: &FormatArgs,
    (bytes, sector): (u64, u32),
    report: &mut Report,
) -> Result<(MkfsOptions, Beside), Reason> {
    let config = configuration(args).map_err(Reason::new)?;
    let (types, unknown) = words::types(args, &config, bytes);
    for name in unknown {
        report.warn(format_args!("no type {name} is known: it changes nothing"));
    }
    let identity = Identity::new(args.seed.as_deref()).map_err(Reason::new)?;
    let mut options = MkfsOptions::new(identity.uuid, identity.hash_seed, identity.time);
    if let Some(word) = &args.uuid {
        options.uuid = identity::uuid(word).map_err(Reason::new)?;
    }
    if let Some(said) = words::too_long(args.label.as_deref(), "label", words::LABEL) {
        report.warn(said);
    }
    let sector = sector.max(args.stand_in.as_ref().map_or(0, |_| sector_said()));
    words::options(args, &config, &types, sector, options).map_err(Reason::new)
}

/// The bytes of a sector that mke2fs is told of by the environment.
fn sector_said() -> u32 {
    let said = std::env::var("MKE2FS_DEVICE_SECTSIZE").ok();
    said.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn configuration(args: &FormatArgs) -> Result<Config, String> {
    let of_host = args.stand_in.as_ref().and_then(|_| Config::path_of_host());
    match args.config.clone().or(of_host) {
        Some(path) => Config::read(&path),
        None => Ok(Config::today()),
    }
}

/// Where the file system is to be.
struct Place {
    locator: Locator,
    bytes: u64,
    /// Bytes of a sector of a block device; 0: it is none.
    sector: u32,
    /// A file of the host that is not there yet.
    fresh: Option<NewFile>,
    /// A file of the host that is shorter than it has to be: the length that it gets, and its own.
    grow_to: Option<(u64, u64)>,
    /// The new file is a qcow2 image.
    is_qcow2: bool,
    dry_run: bool,
}

impl Place {
    fn find(args: &MkfsArgs) -> Result<Place, Reason> {
        let mut locator = Locator::parse(&args.img).map_err(|e| Reason::new(e.to_string()))?;
        let offset = words::offset(&args.format).map_err(Reason::new)?;
        let size = args
            .size
            .as_deref()
            .map(|text| words::size(text, args.format.block_size));
        let size = size.transpose().map_err(Reason::new)?;
        let mut place = Place {
            bytes: 0,
            sector: 0,
            fresh: None,
            grow_to: None,
            is_qcow2: false,
            dry_run: args.dry_run,
            locator: locator.clone(),
        };
        if let Locator::File(file) = &mut locator {
            file.offset += offset;
            place.find_file(file, size)?;
        } else {
            if offset != 0 {
                let why = "an offset in a file of a volume is part of its name: outer.img:/inner.img?offset=1M";
                return Err(Reason::new(why));
            }
            let device =
                diorite::open_device(&locator, &Default::default()).map_err(Reason::from)?;
            place.bytes = size.unwrap_or(device.geometry().size);
        }
        place.locator = locator;
        Ok(place)
    }

    /// Bytes of its disk that lie before the partition in which it is; 0 if it is in none.
    fn before(&self) -> Result<u64, Reason> {
        let Locator::File(file) = &self.locator else {
            return Ok(0);
        };
        if let Some(number) = file.part {
            let disk = FileLocator {
                part: None,
                ..file.clone()
            };
            let table = disk.partitions().map_err(|e| Reason::new(e.to_string()))?;
            let parts = table.map_or_else(Vec::new, |table| table.parts);
            let found = parts.iter().find(|part| part.number == number);
            return Ok(found.map_or(0, |part| part.start));
        }
        let Ok(meta) = std::fs::metadata(&file.path) else {
            return Ok(0);
        };
        if !meta.file_type().is_block_device() {
            return Ok(0);
        }
        let (major, minor) = (
            rustix::fs::major(meta.rdev()),
            rustix::fs::minor(meta.rdev()),
        );
        // In sectors of 512 bytes, whatever the device's are. A whole disk has no such file.
        let start = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/start"));
        let sectors = start.ok().and_then(|text| text.trim().parse::<u64>().ok());
        Ok(sectors.unwrap_or(0).saturating_mul(512))
    }

    fn find_file(&mut self, file: &FileLocator, size: Option<u64>) -> Result<(), Reason> {
        let found = std::fs::metadata(&file.path);
        let missing = found
            .as_ref()
            .is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound);
        let end = |bytes: u64| {
            let end = file.offset.checked_add(bytes);
            end.ok_or_else(|| Reason::new("the size is out of range"))
        };
        match (found, size) {
            (Err(_), Some(bytes)) if missing => {
                if file.part.is_some() || file.size.is_some() {
                    return Err(Reason::new("a new image has no partitions yet"));
                }
                if !self.dry_run {
                    let failed = |errno| Reason::host("it cannot be made", errno);
                    let at = new_file::target(&file.path).map_err(Reason::new)?;
                    let fresh = NewFile::make(&at).map_err(failed)?;
                    match Encoding::of(None, &Locator::File(file.clone())) {
                        Encoding::Qcow2 => {
                            let made = diorite_qcow2::create(fresh.path(), end(bytes)?);
                            made.map_err(|e| Reason::new(format!("it cannot be made: {e}")))?;
                            self.is_qcow2 = true;
                        }
                        _ => fresh.set_len(end(bytes)?).map_err(failed)?,
                    }
                    self.fresh = Some(fresh);
                }
                self.bytes = bytes;
            }
            (Err(_), None) if missing => {
                new_file::target(&file.path).map_err(Reason::new)?;
                let why = "there is no such file; with a size behind its name it is made";
                return Err(Reason::new(why));
            }
            (Err(e), _) => return Err(Reason::new(e.to_string())),
            (Ok(meta), Some(bytes))
                if meta.is_file()
                    && file.part.is_none()
                    && file.size.is_none()
                    && !file.is_qcow2() =>
            {
                let end = end(bytes)?;
                self.grow_to = (end > meta.len()).then_some((end, meta.len()));
                self.bytes = bytes;
            }
            (Ok(meta), size) => {
                if !meta.is_file() && !meta.file_type().is_block_device() {
                    return Err(Reason::new(
                        "it is neither a regular file nor a block device",
                    ));
                }
                let only_look = diorite::OpenOptions::default();
                let device = diorite::open_device(&Locator::File(file.clone()), &only_look);
                let geometry = device.map_err(Reason::from)?.geometry();
                self.bytes = size.unwrap_or(geometry.size);
                if meta.file_type().is_block_device() {
                    self.sector = geometry.logical;
                }
            }
        }
        Ok(())
    }

    /// The undo file that is asked for. A new image has nothing to be kept.
    fn undo(&self, args: &MkfsArgs, report: &Report) -> Result<Option<Undo>, Reason> {
        let Some(file) = &args.undo.file else {
            return Ok(None);
        };
        if self.fresh.is_some() {
            report.warn("the image is new: no undo file is written");
            return Ok(None);
        }
        let undo = undo_file::of(file, "mke2fs", &args.img, self.locator.clone());
        let undo = undo.map_err(Reason::new)?;
        if let (Locator::File(file), Some((_, before))) = (&self.locator, self.grow_to) {
            undo.had(before.saturating_sub(file.offset));
        }
        Ok(Some(undo))
    }

    /// The locator to be opened for writing, with a file there that is long enough.
    fn locator_to_open(&self, undo: Option<&Undo>) -> Result<Locator, Reason> {
        let mut locator = self.locator.clone();
        if let Locator::File(file) = &mut locator {
            if let Some(fresh) = &self.fresh {
                file.path = fresh.path().to_owned();
                if self.is_qcow2 {
                    file.format = Some(ImageFormat::Qcow2);
                }
            }
            if let Some((len, _)) = self.grow_to {
                if let Some(undo) = undo {
                    self.announce(undo, len.saturating_sub(file.offset))?;
                }
                set_len(&file.path, len)
                    .map_err(|e| Reason::new(format!("it cannot be made larger: {e}")))?;
            }
        }
        Ok(locator)
    }

    /// Says in the undo file that the image's file becomes longer, before it does.
    fn announce(&self, undo: &Undo, bytes: u64) -> Result<(), Reason> {
        let only_look = diorite::OpenOptions::default();
        let is_there = matches!((&self.locator, self.grow_to),
            (Locator::File(file), Some((_, before))) if before > file.offset);
        let device = match is_there {
            true => diorite::open_device(&self.locator, &only_look)?,
            // The file ends before the image begins.
            false => Arc::new(MemDevice::new(0)),
        };
        Ok(undo.before_opened_with(&device, bytes)?)
    }

    /// Gives a file that was made longer its length again.
    fn abandon(&self, undo: Option<&Undo>) {
        if let (Locator::File(file), Some((_, before))) = (&self.locator, self.grow_to) {
            // Best effort: the message says that nothing was made.
            let _ = set_len(&file.path, before);
            if let Some(undo) = undo {
                undo.take_back();
            }
        }
    }

    fn finish(&mut self) -> Result<(), Reason> {
        match self.fresh.take() {
            Some(fresh) => {
                let named = fresh.finish(IfTaken::Keep);
                named.map_err(|why| Reason::new(why.to_string()))
            }
            None => Ok(()),
        }
    }
}

/// Gives a file of the host another length.
fn set_len(path: &Path, len: u64) -> std::io::Result<()> {
    File::from(open_storage(path, OFlags::WRONLY)?).set_len(len)
}

fn show(args: &MkfsArgs, shown: &Shown) {
    let Shown { made, uuid } = shown;
    let mut out = Out::new();
    if args.json.on {
        out.json(&json!({
            "image": args.img,
            "block_size": made.block_size,
            "blocks": made.blocks,
            "free_blocks": made.free_blocks,
            "reserved_blocks": made.reserved_blocks,
            "inodes": made.inodes,
            "groups": made.groups,
            "journal_blocks": made.journal_blocks,
            "uuid": names::uuid(uuid),
            "features": made.features.names(),
            "backups": made.backups,
            "bad_copies": made.bad_copies,
        }));
    } else if !args.quiet {
        let size = match made.block_size % 1024 {
            0 => format!("{}k", made.block_size / 1024),
            _ => made.block_size.to_string(),
        };
        out.line(format_args!(
            "Creating filesystem with {} {size} blocks and {} inodes",
            made.blocks, made.inodes
        ));
        let text = names::uuid(uuid).unwrap_or_else(|| "<none>".to_owned());
        out.line(format_args!("Filesystem UUID: {text}"));
        if !made.backups.is_empty() {
            let list: Vec<String> = made.backups.iter().map(u64::to_string).collect();
            out.line("Superblock backups stored on blocks: ");
            for line in list.chunks(8) {
                out.line(format_args!("\t{}", line.join(", ")));
            }
        }
        if made.journal_blocks > 0 {
            out.line(format_args!("Journal: {} blocks", made.journal_blocks));
        }
    }
    out.finish();
}
