//! Volumes: opened, synced, grown, closed.
//!
//! Input: locators, devices of the host program. Output: handles of volumes, their sizes. Invariants: a closed volume takes no request.
//! Limits: what is in a volume is for `names`, `attributes`, `file`, `queue`.

use crate::args::{handle, out, sized, text};
use crate::device;
use crate::error::{Fault, border};
use crate::handle::{Held, Table};
use crate::options::Options;
use crate::sink::{self, Level};
use diorite::device::Device;
use std::ffi::{c_char, c_int};
use std::sync::{Arc, Once};

/// A volume: an open file system. 0 is none.
pub type VolumeHandle = u64;

static VOLUMES: Table<diorite::Volume> = Table::new(1, "volume");

/// Volumes that are in use by a call.
pub(crate) fn hold(volume: VolumeHandle) -> Result<Held<diorite::Volume>, Fault> {
    VOLUMES.hold(volume)
}

/// Gives a volume a handle.
pub(crate) fn give(volume: diorite::Volume, place: &mut VolumeHandle) -> Result<(), Fault> {
    tell_notes(&volume);
    *place = VOLUMES.insert(volume)?;
    Ok(())
}

/// Tells the log how a volume was opened.
pub(crate) fn tell_notes(volume: &diorite::Volume) {
    for note in volume.notes() {
        sink::write(Level::Info, &format!("{}: {note}", volume.device().name()));
    }
}

/// Makes qcow2 images known to locators.
pub(crate) fn know_qcow2() {
    static KNOWN: Once = Once::new();
    KNOWN.call_once(|| diorite_block::locator::register_qcow2(diorite_qcow2::open));
}

/// Sizes and counts of a volume, as in statvfs(3). Blocks are of @block_size bytes.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct StatVolume {
    /// Bytes of a block.
    pub block_size: u32,
    /// The longest name, in bytes.
    pub name_max: u32,
    /// Blocks of the volume, without its own structures.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks without those reserved for privileged users.
    pub blocks_available: u64,
    /// Inodes, and free ones.
    pub inodes: u64,
    pub inodes_free: u64,
    /// Made from the UUID.
    pub fsid: u64,
    /// Bytes of the file system on its device.
    pub bytes: u64,
    /// What positions and lengths of direct I/O are multiples of, in bytes.
    pub direct_align: u32,
    /// What addresses of buffers of direct I/O are multiples of, in bytes.
    pub memory_align: u32,
    /// The smallest and the largest write with DIORITE_REQUEST_ATOMIC, in bytes; 0: there are none.
    pub atomic_min: u32,
    pub atomic_max: u32,
    pub uuid: [u8; 16],
    /// NUL-terminated.
    pub label: [c_char; 64],
    /// Zero.
    pub reserved: [u8; 32],
}

/// Opens the volume that a locator names: "disk.img", "/dev/sdx1", "disk.img?part=2", "outer.img!/inner.img", "disk.qcow2".
///
/// @options may be NULL: for reading. @volume gets the handle; it is 0 after an error. Blocks.
///
/// Errors: ENOENT, EACCES, EBUSY (another process has it open), EUCLEAN (damaged), EOPNOTSUPP (a feature that is not supported, or a state
/// that forbids writing), EINVAL (the locator, an option), and those of the host.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_volume_open(
    locator: *const c_char,
    options: *const Options,
    volume: *mut VolumeHandle,
) -> c_int {
    border(|| {
        // SAFETY: the caller's promises.
        let (volume, locator, options) = unsafe {
            let volume = handle(volume, "volume")?;
            let options = sized(options, "diorite_open_options")?.of_engine()?;
            (volume, text(locator, "the locator")?, options)
        };
        know_qcow2();
        give(diorite::Volume::open(locator, &options)?, volume)?;
        Ok(0)
    })
}

/// Opens the volume on a device of the host program: see diorite_device_create. The volume keeps the device until it is closed and its
/// files and queues are. Otherwise as diorite_volume_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_volume_open_device(
    device: device::DeviceHandle,
    options: *const Options,
    volume: *mut VolumeHandle,
) -> c_int {
    border(|| {
        // SAFETY: the caller's promises.
        let (volume, options) = unsafe {
            let volume = handle(volume, "volume")?;
            (volume, sized(options, "diorite_open_options")?.of_engine()?)
        };
        let device: Arc<dyn Device> = device::hold(device)?.clone();
        give(diorite::Volume::open_device(device, &options)?, volume)?;
        Ok(0)
    })
}

/// Closes a volume: no request is taken any more, those in flight end, everything is made durable. The handle is invalid afterwards, after
/// an error, too. Open files, queues and directory streams stay valid handles that are to be closed; calls with them fail with ESHUTDOWN.
/// Completions that were not reaped can still be reaped. Blocks.
///
/// Errors: EBADF; those of the device: then something that was not synced before may be lost.
#[unsafe(no_mangle)]
pub extern "C" fn diorite_volume_close(volume: VolumeHandle) -> c_int {
    border(|| {
        let closed = (*VOLUMES.close(volume)?).clone();
        match closed.close() {
            // Another handle of it was closed, or its transaction abandoned.
            Ok(()) | Err(diorite::Error::ShutDown) => Ok(0),
            Err(error) => Err(error.into()),
        }
    })
}

/// Makes everything durable that was acknowledged before this call, of all files and names (syncfs). Blocks.
///
/// Errors: EBADF, EROFS, ESHUTDOWN; those of the device: each failed flush and write-back is reported once.
#[unsafe(no_mangle)]
pub extern "C" fn diorite_volume_sync(volume: VolumeHandle) -> c_int {
    border(|| {
        hold(volume)?.sync()?;
        Ok(0)
    })
}

/// Size and free space of a volume. Does not block on I/O.
///
/// Errors: EBADF.
///
/// @stat points to a structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_volume_stat(volume: VolumeHandle, stat: *mut StatVolume) -> c_int {
    border(|| {
        let volume = hold(volume)?;
        // SAFETY: the caller's promise.
        let stat = unsafe { out(stat, "stat") }?;
        let (space, device) = (volume.space(), volume.device().geometry());
        let info = volume.superblock().info();
        let limits = volume.atomic_limits();
        let mut label = [0; 64];
        for (to, from) in label.iter_mut().take(63).zip(info.label.bytes()) {
            *to = c_char::from_ne_bytes([from]);
        }
        *stat = StatVolume {
            block_size: space.block_size,
            name_max: space.most_name,
            blocks: space.blocks,
            blocks_free: space.free,
            blocks_available: space.available,
            inodes: space.inodes,
            inodes_free: space.free_inodes,
            fsid: space.id,
            bytes: volume.superblock().geometry().volume_bytes(),
            direct_align: device.logical,
            memory_align: device.dma_align,
            atomic_min: limits.map_or(0, |l| l.unit_min),
            atomic_max: limits.map_or(0, |l| l.unit_max),
            uuid: *volume.superblock().uuid(),
            label,
            reserved: [0; 32],
        };
        Ok(0)
    })
}

/// Makes the file system larger while it is in use, to at most @bytes; 0: as large as its device is. An image file has to be made that long
/// before (truncate). @grown gets the bytes that it has afterwards; it may be NULL. Blocks; requests of others do not.
///
/// Errors: EBADF, EROFS; EINVAL: fewer bytes than it has, or more than the device or the format has; EOPNOTSUPP: the group descriptors
/// cannot grow so far; those of the device.
///
/// @grown is NULL or points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_volume_grow(
    volume: VolumeHandle,
    bytes: u64,
    grown: *mut u64,
) -> c_int {
    border(|| {
        let volume = hold(volume)?;
        // SAFETY: the caller's promise.
        unsafe { grow(&volume, bytes, grown) }
    })
}

/// Grows a volume, and tells the size that it has then.
///
/// # Safety
/// `grown` is NULL or can be written.
pub(crate) unsafe fn grow(
    volume: &diorite::Volume,
    bytes: u64,
    grown: *mut u64,
) -> Result<c_int, Fault> {
    volume.device().refresh()?;
    let size = volume.device().geometry().size;
    if bytes > size {
        return Err(Fault::invalid(format!(
            "the device has {size} bytes: it is made larger before the file system"
        )));
    }
    let now = volume.grow(if bytes == 0 { size } else { bytes })?;
    // SAFETY: the caller's promise.
    if let Some(grown) = unsafe { grown.as_mut() } {
        *grown = now;
    }
    Ok(0)
}

/// Discards free blocks on the device, in runs of at least @least bytes (FITRIM). @discarded gets the bytes; it may be NULL. Blocks.
///
/// Errors: EBADF, EROFS; EOPNOTSUPP: the device cannot discard; those of the device.
///
/// @discarded is NULL or points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_volume_trim(
    volume: VolumeHandle,
    least: u64,
    discarded: *mut u64,
) -> c_int {
    border(|| {
        let count = hold(volume)?.trim(0..u64::MAX, least)?;
        // SAFETY: the caller's promise.
        if let Some(discarded) = unsafe { discarded.as_mut() } {
            *discarded = count;
        }
        Ok(0)
    })
}
