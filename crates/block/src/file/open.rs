//! Opens the host's file or block device: with direct I/O if possible, locked against other writers, and measured.
//!
//! Input: a path and [`FileOptions`]. Output: a [`Target`]. Invariants: probing never writes; every fallback is a line in the
//! notes. Limits: regular files and block devices only.

use super::FileOptions;
use super::host::{self, Limits};
use super::target::{Reach, Target};
use crate::device::{DeviceError, DeviceErrorKind, Geometry};
use crate::hold::{self, Hold, Use};
use crate::partition::{self, PartitionTable};
use crate::storage;
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

/// What is known about the opened file.
struct Opened {
    fd: OwnedFd,
    hold: Hold,
    direct: bool,
    block_device: bool,
    size: u64,
    limits: Limits,
    notes: Vec<String>,
}

/// The part of the file that is the device.
struct Extent {
    base: u64,
    size: u64,
}

/// Opens the target that the options describe.
pub(super) fn open(options: &FileOptions, name: String) -> Result<Target, DeviceError> {
    let mut opened = open_host(options)?;
    let sector = sector(options, &opened)?;
    let extent = extent(options, &opened)?;
    let odd = extent.base % u64::from(sector) != 0 || extent.size % u64::from(sector) != 0;
    if odd && opened.direct && extent_is_cut(options) {
        go_buffered_for(options, &mut opened, &extent, sector)?;
    }
    let logical = if opened.direct {
        sector
    } else {
        options.sector.unwrap_or(512)
    };
    let reach = reach(options, &opened, &extent);
    let geometry = geometry(options, &opened, &extent, logical);
    let kind = (opened.direct, opened.block_device);
    Ok(Target::new(
        opened.fd,
        (extent.base, reach),
        geometry,
        name,
        kind,
        (opened.hold, opened.notes),
    ))
}

/// The partition table of what the options describe.
pub(super) fn partitions(options: &FileOptions) -> Result<Option<PartitionTable>, DeviceError> {
    let options = FileOptions {
        read_only: true,
        buffered: true,
        ..options.clone()
    };
    let opened = open_host(&options)?;
    let extent = extent(&options, &opened)?;
    let sector = options.sector.unwrap_or(opened.limits.sector);
    Ok(partition::list(source(&opened, &extent), sector))
}

/// The source for the partition table in `extent`.
fn source<'a>(opened: &'a Opened, extent: &Extent) -> partition::Source<'a> {
    partition::Source::new(&opened.fd, extent.base, extent.size, opened.limits.logical)
}

fn extent_is_cut(options: &FileOptions) -> bool {
    options.offset != 0 || options.size.is_some() || options.part.is_some()
}

fn open_host(options: &FileOptions) -> Result<Opened, DeviceError> {
    let path = &options.path;
    let shown = path.display();
    let stat = rustix::fs::stat(path)
        .map_err(|e| DeviceError::host(format!("cannot open {shown}"), e.into()))?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    storage::check_kind(kind)
        .map_err(|e| DeviceError::new(DeviceErrorKind::Unsupported, format!("{shown} is {e}")))?;
    let block_device = kind == FileType::BlockDevice;
    let mut notes = Vec::new();
    if options.buffered {
        notes.push("buffered: asked for".to_owned());
    }
    let usage = Use {
        path,
        block_device,
        read_only: options.read_only,
        force: options.force,
        keep: options.keep,
    };
    if !options.read_only && block_device && host::is_write_protected(stat.st_rdev) {
        // The kernel would open it for writing and refuse the first write.
        return Err(hold::refused(&usage, Errno::ROFS.into()));
    }
    let hold = Hold::take(&usage, &mut notes)?;
    let (fd, direct) = open_direct(options, &usage, &mut notes)?;
    if !hold.is_same(&fd) {
        let what = format!("{shown} was replaced while it was opened");
        return Err(DeviceError::new(DeviceErrorKind::Io, what));
    }
    let limits = host::limits(&fd, block_device);
    let size = host::size(&fd, block_device)
        .map_err(|e| DeviceError::host(format!("cannot find out the size of {shown}"), e.into()))?;
    let mut opened = Opened {
        fd,
        hold,
        direct,
        block_device,
        size,
        limits,
        notes,
    };
    if opened.direct && size > 0 {
        try_direct(&mut opened)?;
    }
    Ok(opened)
}

fn open_direct(
    options: &FileOptions,
    usage: &Use<'_>,
    notes: &mut Vec<String>,
) -> Result<(OwnedFd, bool), DeviceError> {
    let way = if options.read_only {
        OFlags::RDONLY
    } else {
        OFlags::RDWR
    };
    let open = |flags| storage::open_storage(&options.path, flags);
    if !options.buffered {
        match open(way | OFlags::DIRECT) {
            Ok(fd) => return Ok((fd, true)),
            Err(e) if Errno::from_io_error(&e) == Some(Errno::INVAL) => notes.push(
                "buffered: the file system does not open files for direct I/O (EINVAL)".to_owned(),
            ),
            Err(e) => return Err(hold::refused(usage, e)),
        }
    }
    match open(way) {
        Ok(fd) => Ok((fd, false)),
        Err(e) => Err(hold::refused(usage, e)),
    }
}

/// Reads one block: some file systems accept O_DIRECT at open and refuse it at the first read.
fn try_direct(opened: &mut Opened) -> Result<(), DeviceError> {
    let block = opened.limits.logical as usize;
    match host::read_at(&opened.fd, 0, block) {
        Err(Errno::INVAL | Errno::OPNOTSUPP) => {
            host::clear_direct(&opened.fd)
                .map_err(|e| DeviceError::host("cannot turn direct I/O off", e.into()))?;
            opened.direct = false;
            let why = "buffered: the file system refuses direct reads (EINVAL)";
            opened.notes.push(why.to_owned());
            Ok(())
        }
        // A bad first block is for the reader to report.
        _ => Ok(()),
    }
}

/// The logical block for direct I/O: the host's, or a larger one that was requested.
fn sector(options: &FileOptions, opened: &Opened) -> Result<u32, DeviceError> {
    let own = opened.limits.logical;
    let Some(asked) = options.sector else {
        return Ok(own);
    };
    if !asked.is_power_of_two() || !(512..=65536).contains(&asked) {
        return Err(DeviceError::new(
            DeviceErrorKind::Locator,
            format!("sector={asked}: must be a power of two from 512 to 65536"),
        ));
    }
    Ok(match opened.direct {
        true => asked.max(own),
        false => asked,
    })
}

fn extent(options: &FileOptions, opened: &Opened) -> Result<Extent, DeviceError> {
    let mut extent = Extent {
        base: 0,
        size: opened.size,
    };
    if options.offset != 0 || options.size.is_some() {
        extent = cut(options, &extent, options.offset, options.size)?;
    }
    if let Some(number) = options.part {
        let sector = options.sector.unwrap_or(opened.limits.sector);
        let name = options.path.display().to_string();
        let part = partition::find(
            source(opened, &extent),
            sector,
            number,
            (&name, options.read_only),
        )?;
        extent = cut(options, &extent, part.start, Some(part.size))?;
    }
    Ok(extent)
}

fn cut(
    options: &FileOptions,
    outer: &Extent,
    offset: u64,
    size: Option<u64>,
) -> Result<Extent, DeviceError> {
    let end = size.map_or(Some(outer.size), |s| offset.checked_add(s));
    match end {
        Some(end) if offset <= end && end <= outer.size => Ok(Extent {
            base: outer.base + offset,
            size: end - offset,
        }),
        _ => Err(DeviceError::new(
            DeviceErrorKind::Locator,
            format!(
                "{}: the range from {offset}{} does not lie inside its {} bytes",
                options.path.display(),
                size.map_or(String::new(), |s| format!(" of {s} bytes")),
                outer.size
            ),
        )),
    }
}

/// The offset or the size does not fit direct I/O: image files become buffered; block devices only for reading.
fn go_buffered_for(
    options: &FileOptions,
    opened: &mut Opened,
    extent: &Extent,
    sector: u32,
) -> Result<(), DeviceError> {
    let odd = format!(
        "offset {} and size {} are not both multiples of the logical block of {sector} bytes",
        extent.base, extent.size
    );
    if opened.block_device && !options.read_only {
        return Err(DeviceError::new(
            DeviceErrorKind::Unsupported,
            format!(
                "{}: {odd}; it can be read with ?ro, buffered",
                options.path.display()
            ),
        ));
    }
    host::clear_direct(&opened.fd)
        .map_err(|e| DeviceError::host("cannot turn direct I/O off", e.into()))?;
    opened.direct = false;
    opened.notes.push(format!("buffered: {odd}"));
    Ok(())
}

/// How far the device reaches if the file changes its size.
fn reach(options: &FileOptions, opened: &Opened, extent: &Extent) -> Reach {
    if !extent_is_cut(options) && !opened.block_device {
        let grow_to = options.grow_to.unwrap_or(0);
        return Reach::WholeFile { grow_to };
    }
    let is_limited = options.size.is_some() || options.part.is_some();
    Reach::Part {
        limit: is_limited.then_some(extent.size),
    }
}

fn geometry(options: &FileOptions, opened: &Opened, extent: &Extent, logical: u32) -> Geometry {
    let limits = &opened.limits;
    let size = reach(options, opened, extent).of(extent.size, logical);
    let writable = !options.read_only;
    Geometry {
        size,
        logical,
        physical: limits.physical.max(logical),
        dma_align: if opened.direct { limits.dma_align } else { 1 },
        max_transfer: 1 << 30,
        discard: writable && limits.discard,
        write_zeroes: writable,
        // Otherwise the host writes from its page cache and flushes, and reports an error of earlier writes in that flush, only
        // once.
        fua: limits.fua && opened.direct,
        fua_flushes: limits.fua_flushes && opened.direct,
        volatile_cache: limits.volatile_cache || !opened.direct,
        read_only: options.read_only,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by it")]

    use super::*;

    /// Rule D1: a write with FUA through the page cache flushes that cache, and the host reports a failure of that only once.
    /// The account of flushes would not know of it.
    #[test]
    fn what_goes_through_pages_has_no_fua() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let options = FileOptions {
            path: file.path().to_owned(),
            read_only: true,
            ..FileOptions::default()
        };
        let mut opened = open_host(&options).unwrap();
        (opened.limits.fua, opened.limits.fua_flushes) = (true, true);
        let extent = extent(&options, &opened).unwrap();
        for direct in [true, false] {
            opened.direct = direct;
            let seen = geometry(&options, &opened, &extent, 512);
            assert_eq!((seen.fua, seen.fua_flushes), (direct, direct));
        }
    }
}
