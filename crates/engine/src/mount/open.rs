//! Opening: the device, the superblock, the features, the group descriptors, the state.
//!
//! Input: a locator or a device. Output: [`Mounted`], from which the volume is put together. Invariants: reads only; the
//! alignment of the device below never surprises a request later. Limits: superblock and descriptors are read once.

use super::{Zone, recover, superblock};
use crate::error::Error;
use crate::loopdev;
use crate::op::Op;
use crate::options::OpenOptions;
use crate::volume::Volume;
use diorite_block::device::DeviceErrorKind;
use diorite_block::{Blocking, Buf, Device, DeviceError, Locator};
use diorite_format::features::RoCompat;
use diorite_format::superblock::JournalPlace;
use diorite_format::{Access, GroupDesc, GroupNo, Superblock};
use std::sync::Arc;

/// What opening has read.
pub(crate) struct Mounted {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) blocking: Blocking,
    pub(crate) sb: Superblock,
    pub(crate) groups: Box<[GroupDesc]>,
    pub(crate) zone: Zone,
    pub(crate) notes: Vec<String>,
    pub(crate) data_journalled: bool,
}

/// Opens the volume at a locator; a device whose blocks are larger than the file system's is opened buffered.
pub(crate) fn open(locator: &Locator, options: &OpenOptions) -> Result<Volume, Error> {
    let direct = loopdev::open_device(locator, options, false)?;
    let (logical, report) = (direct.geometry().logical, direct.report());
    let block = superblock::find(&Blocking::new(direct.clone()))?
        .sb
        .block_size();
    if logical <= block || !report.direct {
        return recover::open(direct, options, Vec::new());
    }
    if report.block_device && options.write {
        let what = format!(
            "{locator}: the device's logical block is {logical} bytes, the file system's {block}: it cannot be \
             written with direct I/O; open it read-only, or copy it to an image file"
        );
        return Err(DeviceError::new(DeviceErrorKind::Unsupported, what).into());
    }
    // The direct device goes first: its locks on the image would keep out the buffered one.
    drop(direct);
    let note = format!(
        "opened buffered: the host's logical block is {logical} bytes, the file system's {block}"
    );
    recover::open(
        loopdev::open_device(locator, options, true)?,
        options,
        vec![note],
    )
}

/// Opens the volume on a device.
pub(crate) fn open_device(device: Arc<dyn Device>, options: &OpenOptions) -> Result<Volume, Error> {
    recover::open(device, options, Vec::new())
}

/// Reads what a volume is put together from. Its state is not judged: see [`check_state`].
pub(super) fn look(
    device: &Arc<dyn Device>,
    options: &OpenOptions,
    mut notes: Vec<String>,
) -> Result<Mounted, Error> {
    let device = device.clone();
    let blocking = Blocking::new(device.clone());
    let sb = superblock::find(&blocking)?.sb;
    let access = if options.write {
        Access::Write
    } else {
        Access::Read
    };
    sb.features()
        .check(access)
        .map_err(|e| Error::from(diorite_format::FormatError::from(e)))?;
    let geometry = device.geometry();
    sb.check_device(geometry.size)?;
    if geometry.logical > sb.block_size() {
        let (logical, block) = (geometry.logical, sb.block_size());
        let what = format!(
            "{}: logical block {logical} is larger than the file system's block {block}",
            device.name()
        );
        return Err(DeviceError::new(DeviceErrorKind::Unsupported, what).into());
    }
    notes.extend(device.report().fallbacks);
    let groups = read_groups(&blocking, &sb)?;
    let zone = Zone::of_groups(&sb, &groups)?;
    let by_default = sb.info().default_mount_opts & DATA_MODE == DATA_JOURNAL;
    let data_journalled = options.data_journal.unwrap_or(by_default);
    Ok(Mounted {
        device,
        blocking,
        sb,
        groups,
        zone,
        notes,
        data_journalled,
    })
}

/// `s_default_mount_opts`: the data mode, and its value for data=journal (man 5 ext4).
const DATA_MODE: u32 = 0x60;
const DATA_JOURNAL: u32 = 0x20;

/// Reads any range of the device, rounded out to its logical blocks.
pub(crate) fn read_bytes(blocking: &Blocking, at: u64, len: usize) -> Result<Vec<u8>, Error> {
    let geometry = blocking.device().geometry();
    let logical = u64::from(geometry.logical);
    let start = at - at % logical;
    let end = (at + len as u64).next_multiple_of(logical);
    if end > geometry.size {
        let what = format!(
            "{}: too small for a file system: {} bytes",
            blocking.device().name(),
            geometry.size
        );
        return Err(Error::Invalid(what));
    }
    let whole = (end - start) as usize;
    let device_error = |error| Error::Device {
        op: Op::Read,
        pos: start,
        len: u32::try_from(whole).unwrap_or(u32::MAX),
        error,
    };
    let buf = blocking
        .read(start, Buf::zeroed(whole))
        .map_err(device_error)?;
    let skip = (at - start) as usize;
    Ok(buf.as_slice()[skip..skip + len].to_vec())
}

/// Every group's descriptor, checked. Runs of descriptor blocks are read together.
fn read_groups(blocking: &Blocking, sb: &Superblock) -> Result<Box<[GroupDesc]>, Error> {
    const MOST_BLOCKS: u32 = 64;
    let (geometry, block) = (sb.geometry(), sb.block_size() as usize);
    let size = geometry.desc_size() as usize;
    let mut groups = Vec::with_capacity(geometry.group_count() as usize);
    let mut index = 0;
    while index < geometry.gdt_blocks() {
        let first = sb.gdt_location(index)?;
        let mut run = 1;
        while run < MOST_BLOCKS
            && index + run < geometry.gdt_blocks()
            && sb.gdt_location(index + run)?.get() == first.get() + u64::from(run)
        {
            run += 1;
        }
        let raw = read_bytes(blocking, sb.byte_of(first).get(), run as usize * block)?;
        for desc in raw.chunks(block).flat_map(|b| b.chunks_exact(size)) {
            let number = u32::try_from(groups.len()).unwrap_or(u32::MAX);
            if number < geometry.group_count() {
                groups.push(GroupDesc::parse(sb, GroupNo::new(number), desc)?);
            }
        }
        index += run;
    }
    Ok(groups.into())
}

/// Can metadata be changed? Not with a log on a device that nobody named.
pub(super) fn can_change(sb: &Superblock, options: &OpenOptions) -> bool {
    let apart = matches!(sb.journal(), JournalPlace::External { .. });
    options.write && (!apart || options.names_journal())
}

/// Recorded errors, orphans and a log that cannot be reached keep writers out, and readers are told; so does a cluster that is not whole, as
/// blocks of one cluster of a file would come into two.
pub(super) fn check_state(
    sb: &Superblock,
    options: &OpenOptions,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    let in_file = sb.features().ro_compat.has(RoCompat::ORPHAN_PRESENT);
    let orphans = in_file || !sb.last_orphan().is_none();
    let (blocks, ratio) = (sb.geometry().blocks_count(), sb.geometry().cluster_ratio());
    if options.write && blocks % u64::from(ratio) != 0 {
        return Err(Error::refused(
            format!(
                "opening for writing is refused: the last cluster is short ({blocks} blocks, clusters of {ratio})"
            ),
            "resize it with resize2fs",
        ));
    }
    let unnamed = match sb.journal() {
        JournalPlace::Internal(_) => false,
        JournalPlace::None => true,
        JournalPlace::External { .. } => !options.names_journal(),
    };
    let findings = [
        (
            sb.needs_recovery() && unnamed,
            "the journal needs recovery, and is not in the volume",
            "name its device (--journal)",
        ),
        (
            sb.has_error_state() || sb.recorded_errors().is_some(),
            "errors are recorded in the superblock",
            "run e2fsck",
        ),
        (
            orphans && !can_change(sb, options),
            "there are orphaned inodes",
            "name the journal's device (--journal)",
        ),
    ];
    for (found, what, help) in findings {
        if found && options.write {
            return Err(Error::refused(
                format!("opening for writing is refused: {what}"),
                help,
            ));
        }
        if found {
            notes.push(format!("{what}; what is read may be out of date"));
        }
    }
    Ok(())
}
