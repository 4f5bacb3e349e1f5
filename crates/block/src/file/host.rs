//! What the host reports about a file or block device: sizes, alignments, caches. Only system calls and sysfs, never a write.
//!
//! Input: an open descriptor. Output: [`Limits`], sizes, blocks of bytes. Invariant: a value that the host does not report gets
//! a safe default (512-byte alignment, a volatile cache, no FUA). Limits: Linux.

use crate::buf::Buf;
use crate::device::AtomicWrites;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, OFlags, StatxFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// What the host requires and supports.
pub(super) struct Limits {
    /// The smallest direct transfer.
    pub(super) logical: u32,
    /// The sector that partition tables count in.
    pub(super) sector: u32,
    pub(super) physical: u32,
    pub(super) dma_align: u32,
    pub(super) discard: bool,
    pub(super) fua: bool,
    pub(super) fua_flushes: bool,
    pub(super) volatile_cache: bool,
}

/// Asks the host.
pub(super) fn limits(fd: &OwnedFd, block_device: bool) -> Limits {
    let (mem, offset, blksize) = dio_align(fd);
    if block_device {
        return block_limits(fd, mem);
    }
    let logical = offset.filter(|o| o.is_power_of_two()).unwrap_or(512);
    Limits {
        logical: logical.clamp(512, 65536),
        sector: 512,
        physical: blksize.next_power_of_two().clamp(512, 65536),
        // Without information from the host, buffers are aligned to 512.
        dma_align: mem.unwrap_or(512),
        discard: true,
        fua: false,
        fua_flushes: false,
        volatile_cache: true,
    }
}

/// The bounds of atomic writes that the host reports: statx(2), `STATX_WRITE_ATOMIC`, since Linux 6.11.
pub(super) fn atomic_writes(fd: &OwnedFd) -> Option<AtomicWrites> {
    const WRITE_ATOMIC: StatxFlags = StatxFlags::from_bits_retain(0x1_0000);
    let stat = rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, WRITE_ATOMIC).ok()?;
    let (unit_min, unit_max) = (
        stat.stx_atomic_write_unit_min,
        stat.stx_atomic_write_unit_max,
    );
    let known = stat.stx_mask & WRITE_ATOMIC.bits() != 0;
    let are_units = unit_min.is_power_of_two() && unit_max.is_power_of_two();
    (known && are_units && unit_min <= unit_max).then_some(AtomicWrites { unit_min, unit_max })
}

/// Memory and offset alignment of direct I/O if the host reports them, and the preferred block.
fn dio_align(fd: &OwnedFd) -> (Option<u32>, Option<u32>, u32) {
    let wanted = StatxFlags::DIOALIGN | StatxFlags::BASIC_STATS;
    match rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, wanted) {
        Ok(stat) => {
            let known = stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
            let some = |v: u32| (known && v.is_power_of_two()).then_some(v);
            (
                some(stat.stx_dio_mem_align),
                some(stat.stx_dio_offset_align),
                stat.stx_blksize,
            )
        }
        Err(_) => (None, None, 4096),
    }
}

fn block_limits(fd: &OwnedFd, mem: Option<u32>) -> Limits {
    let logical = rustix::fs::ioctl_blksszget(fd)
        .unwrap_or(512)
        .clamp(512, 65536);
    let physical = rustix::fs::ioctl_blkpbszget(fd).unwrap_or(logical);
    let queue = queue_dir(fd);
    let said = |name: &str| queue.as_ref().and_then(|q| read_line(&q.join(name)));
    let number = |name: &str| said(name).and_then(|s| s.parse::<u64>().ok());
    let align = number("dma_alignment").and_then(|a| u32::try_from(a + 1).ok());
    Limits {
        logical,
        sector: logical,
        physical: physical.max(logical),
        dma_align: mem
            .or(align)
            .filter(|a| a.is_power_of_two())
            .unwrap_or(logical),
        discard: number("discard_max_bytes").is_some_and(|n| n > 0),
        fua: number("fua") == Some(1),
        // For a disk with a request queue of its own (`mq`), the kernel turns a write with FUA into a write and a flush. A disk
        // made of other disks passes the write to one of them, and that flush covers only the one disk.
        fua_flushes: number("fua") == Some(0)
            && queue
                .as_ref()
                .is_some_and(|q| q.with_file_name("mq").is_dir()),
        volatile_cache: said("write_cache").is_none_or(|s| s != "write through"),
    }
}

/// Whether the kernel has marked this block device as write-protected.
pub(super) fn is_write_protected(device: u64) -> bool {
    read_line(&dir_of(device).join("ro")).is_some_and(|said| said == "1")
}

/// The sysfs folder of a block device.
fn dir_of(device: u64) -> PathBuf {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

/// Whether the block device has queues that can be polled. For a file: the device that its file system is on; a file system on several
/// has a number that is none of them.
pub(super) fn has_poll_queues(fd: &OwnedFd, block_device: bool) -> bool {
    let device = rustix::fs::fstat(fd).map(|stat| match block_device {
        true => stat.st_rdev,
        false => stat.st_dev,
    });
    let queue = device.ok().and_then(queue_of);
    let said = queue.and_then(|queue| read_line(&queue.join("io_poll")));
    said.is_some_and(|said| said == "1")
}

/// The sysfs folder of the disk that the descriptor is, or is a partition of.
fn queue_dir(fd: &OwnedFd) -> Option<PathBuf> {
    queue_of(rustix::fs::fstat(fd).ok()?.st_rdev)
}

fn queue_of(device: u64) -> Option<PathBuf> {
    let dir = dir_of(device);
    [dir.join("queue"), dir.join("../queue")]
        .into_iter()
        .find(|d| d.is_dir())
}

fn read_line(path: &Path) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

/// Whether the file lies in a file system that has its contents in memory.
pub(super) fn is_memory(fd: &OwnedFd) -> bool {
    const TMPFS: rustix::fs::FsWord = 0x0102_1994;
    const RAMFS: rustix::fs::FsWord = 0x8584_58f6;
    rustix::fs::fstatfs(fd).is_ok_and(|fs| [TMPFS, RAMFS].contains(&fs.f_type))
}

/// The size in bytes.
pub(super) fn size(fd: &OwnedFd, block_device: bool) -> Result<u64, Errno> {
    if !block_device {
        return Ok(u64::try_from(rustix::fs::fstat(fd)?.st_size).unwrap_or(0));
    }
    let mut size = 0u64;
    // BLKGETSIZE64, _IOR(0x12, 114, size_t)
    const BLKGETSIZE64: u32 = 0x8008_1272;
    // SAFETY: BLKGETSIZE64 writes one u64 to the address that it is given.
    let res = unsafe { libc::ioctl(fd.as_raw_fd(), BLKGETSIZE64 as _, &raw mut size) };
    if res == 0 {
        Ok(size)
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    }
}

/// Turns direct I/O off for an open descriptor.
pub(super) fn clear_direct(fd: &OwnedFd) -> Result<(), Errno> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    rustix::fs::fcntl_setfl(fd, flags.difference(OFlags::DIRECT))
}

/// Reads up to `len` bytes at `pos` into aligned memory. Returns the buf and the number of bytes read.
pub(crate) fn read_at(fd: &OwnedFd, pos: u64, len: usize) -> Result<(Buf, usize), Errno> {
    let mut buf = Buf::zeroed(len);
    let mut got = 0;
    while got < len {
        match rustix::io::pread(fd, &mut buf.as_mut_slice()[got..], pos + got as u64) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(Errno::INTR) => {}
            // After a partial last block the next direct read is misaligned: end of file.
            Err(Errno::INVAL) if got > 0 => break,
            Err(e) => return Err(e),
        }
    }
    Ok((buf, got))
}
