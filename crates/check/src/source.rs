//! The checked volume: its superblock and group descriptors, over a device that shows the volume after the replay of its
//! journal.
//!
//! Input: a device. Output: a [`Source`], or findings that say why there is none. Invariants: nothing is written; the journal
//! is replayed in memory, as when opening for reading; an invalid descriptor is replaced by a copy, whose places are valid and
//! whose counts may be old. Limits: a volume that the engine refuses to read is an error, not damage.

use crate::report::{Collector, Kind};
use diorite::Error;
use diorite::OpenOptions;
use diorite::Volume;
use diorite::probe::{find_superblock, read_bytes};
use diorite_block::{Blocking, Device, WRITER_PRESENT};
use diorite_format::features::{Incompat, RoCompat};
use diorite_format::mmp::Mmp;
use diorite_format::superblock::{JournalPlace, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use diorite_format::{
    Access, Corrupt, FormatError, FsBlock, GroupDesc, GroupNo, Superblock, group,
};
use std::sync::Arc;

/// See the module.
pub(super) struct Source {
    pub(super) blocking: Blocking,
    pub(super) sb: Superblock,
    pub(super) groups: Box<[GroupDesc]>,
    /// Groups whose descriptor is from a copy.
    pub(super) from_copy: Box<[bool]>,
    /// Groups whose inodes are marked as never written, on a volume that cannot have that.
    pub(super) oddly_unwritten: Vec<GroupNo>,
    /// The superblock said, before any replay, that its last user had stopped properly.
    pub(super) unmounted: bool,
}

/// How the notes of opening begin that report a damaged journal.
const BAD_JOURNAL: [&str; 3] = [
    "the journal was aborted",
    "the journal cannot be replayed",
    "journal transaction",
];

/// Opens the volume on `device`; none if too little of it is valid.
pub(super) fn look(
    device: &Arc<dyn Device>,
    options: &OpenOptions,
    found: &Collector,
) -> Result<Option<Source>, Error> {
    let raw = match find_superblock(&Blocking::new(device.clone())) {
        Ok(raw) => raw,
        Err(e) if is_no_volume(&e) || !e.is_corrupt() => return Err(e),
        Err(e) => {
            found.add(Kind::Superblock, e.root());
            return Ok(None);
        }
    };
    if let Some(note) = &raw.note {
        found.add(Kind::Superblock, note);
        found.stale(|stale| stale.superblock = true);
    }
    raw.sb
        .features()
        .check(Access::Read)
        .map_err(|e| Error::from(FormatError::from(e)))?;
    if let Err(e) = raw.sb.check_device(device.geometry().size) {
        found.add(Kind::Superblock, e);
        return Ok(None);
    }
    if let JournalPlace::External { uuid, device } = raw.sb.journal() {
        if options.journal.is_none() && raw.sb.needs_recovery() {
            without_journal(&uuid, device, found);
            return Ok(None);
        }
        if options.journal.is_none() {
            found.note(
                "the journal is on a device that was not named (--journal), and was not looked at",
            );
        }
    }
    if raw.sb.needs_recovery() || raw.sb.features().ro_compat.has(RoCompat::ORPHAN_PRESENT) {
        found.stale(|stale| stale.recovery = true);
    }
    let unmounted = raw.sb.is_clean() && !raw.sb.needs_recovery();
    let device = recovered(device, options, found)?;
    let blocking = Blocking::new(device);
    let sb = find_superblock(&blocking)?.sb;
    note_states(&sb, found);
    oddities(&blocking, &sb, found)?;
    Ok(descriptors(&blocking, &sb, found)?.map(|read| Source {
        groups: read.groups,
        from_copy: read.from_copy,
        oddly_unwritten: read.oddly_unwritten,
        unmounted,
        sb,
        blocking,
    }))
}

/// The contents of a log on a missing device are not known, so nothing on the volume can be judged.
fn without_journal(uuid: &[u8; 16], device: u32, found: &Collector) {
    let hex: String = uuid.iter().map(|b| format!("{b:02x}")).collect();
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    let uuid = parts.join("-");
    let what = format_args!(
        "the journal has to be replayed, and is on a device that was not named: its UUID is {uuid}, its device number was {device:#06x}; \
         name it (--journal). Nothing else was checked"
    );
    found.add(Kind::Journal, what);
    found.unfinished();
}

/// There is no volume that could be damaged.
fn is_no_volume(error: &Error) -> bool {
    let Error::Format(format) = error.root() else {
        return false;
    };
    matches!(**format, FormatError::Corrupt(Corrupt::SuperMagic { .. }))
}

/// The device as shown by opening the volume. What prevents opening is a finding; the passes report more about it.
fn recovered(
    device: &Arc<dyn Device>,
    options: &OpenOptions,
    found: &Collector,
) -> Result<Arc<dyn Device>, Error> {
    match Volume::open_device(device.clone(), options) {
        Ok(volume) => {
            // Notes about how the device was opened are dropped, except the one about another writer.
            let mut about_device = volume.device().report().fallbacks;
            about_device.retain(|note| !note.starts_with(WRITER_PRESENT));
            for note in volume.notes().iter().filter(|n| !about_device.contains(n)) {
                if BAD_JOURNAL.iter().any(|b| note.starts_with(b)) {
                    found.add(Kind::Journal, note);
                } else if !note.ends_with("may be out of date") {
                    found.note(note);
                }
            }
            let shown = volume.device().clone();
            volume.close()?;
            Ok(shown)
        }
        Err(e) if is_damage(&e) => {
            found.add(Kind::Journal, format_args!("opening the volume: {e}"));
            Ok(device.clone())
        }
        Err(e) => Err(e),
    }
}

fn is_damage(error: &Error) -> bool {
    error.is_corrupt()
        || matches!(
            error.root(),
            Error::Damaged(_) | Error::NotInUse { .. } | Error::Invalid(_) | Error::Format(_)
        )
}

/// Reports oddities that no reader minds.
fn oddities(blocking: &Blocking, sb: &Superblock, found: &Collector) -> Result<(), Error> {
    let raw = read_bytes(blocking, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE)?;
    let raw: &[u8; SUPERBLOCK_SIZE] = raw[..]
        .try_into()
        .expect("as many bytes were read as asked");
    if sb.names_no_orphan_file(raw) {
        found.stale(|stale| stale.orphan_file = true);
    }
    for what in sb.oddities(raw) {
        found.add(Kind::Superblock, format_args!("superblock: {what}"));
    }
    mount_protection(blocking, sb, found)
}

/// Checks the block of multiple-mount protection. Opening the volume decides about other hosts.
fn mount_protection(blocking: &Blocking, sb: &Superblock, found: &Collector) -> Result<(), Error> {
    let at = sb.mmp_block();
    if !sb.features().incompat.has(Incompat::MMP) {
        return Ok(());
    }
    if at <= sb.super_block() || !sb.holds(at, 1) {
        let what =
            format_args!("superblock: multiple-mount protection is said to be in block {at}");
        found.add(Kind::Superblock, what);
    } else if let Err(e) = Mmp::parse(sb, &read_block(blocking, sb, at)?) {
        found.block(Kind::Superblock, at, e);
    }
    Ok(())
}

/// Adds notes about the state in the superblock, and about what this check omits because of features.
fn note_states(sb: &Superblock, found: &Collector) {
    let incompat = sb.features().incompat;
    if !sb.is_clean() || sb.recorded_errors().is_some() {
        found.stale(|stale| stale.state = true);
    }
    if sb.has_error_state() || sb.recorded_errors().is_some() {
        found.note("errors were recorded in the superblock before this check");
    }
    for (feature, names) in [
        (Incompat::CASEFOLD, "names that fold case"),
        (Incompat::ENCRYPT, "encrypted names"),
    ] {
        if incompat.has(feature) {
            found.partial();
            found.note(format_args!(
                "{names} are not compared with their place in the hash tree"
            ));
        }
    }
}

/// All group descriptors, each with whether it is from a copy.
struct Descriptors {
    groups: Box<[GroupDesc]>,
    from_copy: Box<[bool]>,
    oddly_unwritten: Vec<GroupNo>,
}

/// Reads all group descriptors.
fn descriptors(
    blocking: &Blocking,
    sb: &Superblock,
    found: &Collector,
) -> Result<Option<Descriptors>, Error> {
    let count = sb.group_count() as usize;
    let mut oddly_unwritten = Vec::new();
    let (mut groups, mut from_copy) = (Vec::with_capacity(count), Vec::with_capacity(count));
    let (per_block, size) = (sb.geometry().descs_per_block(), sb.geometry().desc_size());
    for index in 0..sb.geometry().gdt_blocks() {
        let raw = read_block(blocking, sb, sb.gdt_location(index)?)?;
        let here = (0..per_block).map(|n| index * per_block + n);
        for (number, desc) in here.zip(raw.chunks_exact(size as usize)) {
            let Some(group) = sb.geometry().group(number) else {
                break;
            };
            if group::is_oddly_unwritten(sb, desc) {
                oddly_unwritten.push(group);
            }
            let parsed = GroupDesc::parse(sb, group, desc);
            from_copy.push(parsed.is_err());
            match parsed.or_else(|e| {
                found.add(Kind::Descriptor, &e);
                copied(blocking, sb, index, group)?.ok_or(Error::from(e))
            }) {
                Ok(desc) => groups.push(desc),
                Err(e) if e.is_corrupt() => {
                    let what =
                        "no copy of its descriptor makes sense either; nothing else was checked";
                    found.add(Kind::NotChecked, format_args!("group {group}: {what}"));
                    return Ok(None);
                }
                Err(e) => return Err(e),
            }
        }
    }
    Ok(Some(Descriptors {
        groups: groups.into(),
        from_copy: from_copy.into(),
        oddly_unwritten,
    }))
}

/// The descriptor of a group from the first copy with a valid one.
fn copied(
    blocking: &Blocking,
    sb: &Superblock,
    index: u32,
    group: GroupNo,
) -> Result<Option<GroupDesc>, Error> {
    let (_, offset) = sb.desc_place(group)?;
    for copy in sb.gdt_copies(index) {
        let raw = read_block(blocking, sb, copy)?;
        if let Ok(desc) = GroupDesc::parse(sb, group, &raw[offset as usize..]) {
            return Ok(Some(desc));
        }
    }
    Ok(None)
}

fn read_block(blocking: &Blocking, sb: &Superblock, block: FsBlock) -> Result<Vec<u8>, Error> {
    read_bytes(blocking, sb.byte_of(block).get(), sb.block_size() as usize)
}
