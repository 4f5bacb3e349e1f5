//! Locators: text that names a device, and opening the device.
//!
//! Input: `disk.img?offset=1M&part=2&sector=4096&ro`, `disk.qcow2?part=1`, `disk?format=qcow2`, `mem:64M`, `sim:64M,latency=230us`,
//! `LOCATOR!/path/inside?part=1`, `disk.img:/path/inside?ro:/path/inside/that`.
//! Output: a [`Locator`], and from it a [`Device`]. Invariant: `parse` of a locator's text returns an equal locator. Limits: a
//! file whose name contains `?` or `!/`, or begins like a scheme, is used if it exists under exactly that name; a file whose name ends
//! with `.qcow2` is an image of that format unless `?format=raw` is said; `./mem:1` is
//! always a file; `:/` is a separator only after an existing file or block device, and after such a separator; at most 16 nested
//! volumes.
//!
//! What is inside a volume is not looked up here. So the text behind the last `?` of a path inside is parameters if it has no
//! slash, and all of it is known parameters; else it is a part of the name. A `?` at the end is an empty list of parameters:
//! `a.img!/what?ro?` is the whole file `/what?ro`.

mod format;
mod part;

use crate::device::{Device, DeviceError, DeviceErrorKind};
use crate::file::{FileDevice, FileOptions, IoEngine};
use crate::mem::MemDevice;
use crate::partition::PartitionTable;
use crate::sim::{SimDevice, SimOptions};
use crate::size::Size;
use crate::storage::open_storage;
use rustix::fs::OFlags;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

pub use crate::size::parse_size;
pub use format::{FirstBytes, FormatOpener, FormatRequest, ImageFormat, register_qcow2};
pub use part::Part;

/// The most nested volumes in one locator.
const MOST_INSIDE: usize = 16;

/// What names a device.
///
/// ```
/// use diorite_block::{Locator, OpenOptions, locator};
///
/// // Also "disk.img?part=2&ro", "/dev/sdb", "sim:1G,latency=80us"
/// let named = Locator::parse("mem:64M")?;
/// let device = locator::open(&named, &OpenOptions::default())?;
/// assert_eq!(device.geometry().size, 64 << 20);
/// # Ok::<(), diorite_block::DeviceError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Locator {
    /// A file or block device of the host.
    File(FileLocator),
    /// Memory.
    Mem {
        /// Bytes.
        size: u64,
    },
    /// Memory behind a disk model.
    Sim {
        /// Size and parameters, as `SimOptions::parse` takes them.
        params: String,
    },
    /// A file inside the volume at another locator.
    Inside {
        /// Where the volume is.
        outer: Box<Locator>,
        /// The file in it, from the root; begins with a slash.
        path: String,
        /// The part of that file.
        part: Part,
    },
}

/// A file or block device of the host, and which part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileLocator {
    /// The file.
    pub path: PathBuf,
    /// `?offset=`: where the device begins.
    pub offset: u64,
    /// `?size=`: how long it is.
    pub size: Option<u64>,
    /// `?part=`: the partition, from 1.
    pub part: Option<u32>,
    /// `?sector=`: the logical block.
    pub sector: Option<u32>,
    /// `?ro`: refuse writes.
    pub ro: bool,
    /// `?format=`: what the file is; by default what its name says.
    pub format: Option<ImageFormat>,
    /// `?backing`: files that it names may be opened.
    pub backing: bool,
    /// What its first bytes said when they were asked for `?format=auto`.
    pub first: FirstBytes,
}

/// How to open what a locator names.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Refuse writes, whatever the locator says.
    pub read_only: bool,
    /// Only this I/O engine.
    pub io_engine: Option<IoEngine>,
    /// Do not use O_DIRECT.
    pub buffered: bool,
    /// Open for writing although another process has it open.
    pub force: bool,
    /// See [`FileOptions::grow_to`].
    pub grow_to: Option<u64>,
}

crate::setters! {
    OpenOptions {
        read_only: bool,
        buffered: bool,
        force: bool,
    } option {
        io_engine: IoEngine,
        grow_to: u64,
    }
}

/// Opens the device of a locator.
///
/// # Errors
/// The errors of that kind of device. [`Locator::Inside`] is refused here: the engine opens it.
pub fn open(locator: &Locator, options: &OpenOptions) -> Result<Arc<dyn Device>, DeviceError> {
    match locator {
        Locator::File(file) => open_file(locator, file, options),
        Locator::Mem { size } => Ok(Arc::new(MemDevice::try_new(*size)?)),
        Locator::Sim { params } => Ok(Arc::new(SimDevice::new(SimOptions::parse(params)?)?)),
        Locator::Inside { .. } => Err(DeviceError::new(
            DeviceErrorKind::Unsupported,
            format!("{locator} lies inside a volume: only the engine opens those"),
        )),
    }
}

fn open_file(
    locator: &Locator,
    file: &FileLocator,
    options: &OpenOptions,
) -> Result<Arc<dyn Device>, DeviceError> {
    if file.is_qcow2() {
        return open_qcow2(locator, file, options);
    }
    if file.backing {
        let why = format!("{locator}: only a qcow2 image has a backing file (format=qcow2)");
        return Err(DeviceError::new(DeviceErrorKind::Locator, why));
    }
    let wanted = FileOptions {
        read_only: file.ro || options.read_only,
        buffered: options.buffered,
        force: options.force,
        engine: options.io_engine,
        grow_to: options.grow_to,
        ..file.options()
    };
    let device = Arc::new(FileDevice::open_named(&wanted, locator.to_string())?);
    let smaller = file.sector.filter(|s| *s < device.geometry().logical);
    match smaller {
        None => Ok(device),
        // Direct I/O of the host knows larger blocks only: those are rewritten.
        Some(sector) => {
            let sectors = Part {
                sector: Some(sector),
                ..Part::default()
            };
            sectors.of_device(device, locator.to_string())
        }
    }
}

/// The disk in a qcow2 file, or a part of it. The file is also open as it is, for its locks.
fn open_qcow2(
    locator: &Locator,
    file: &FileLocator,
    options: &OpenOptions,
) -> Result<Arc<dyn Device>, DeviceError> {
    let read_only = file.ro || options.read_only;
    let wanted = FileOptions {
        path: file.path.clone(),
        read_only,
        force: options.force,
        engine: options.io_engine,
        ..FileOptions::default()
    };
    let disk = format::open_qcow2(FormatRequest {
        path: &file.path,
        below: Arc::new(FileDevice::open_named(&wanted, locator.to_string())?),
        write: !read_only,
        backing: file.backing,
        force: options.force,
        name: locator.to_string(),
    })?;
    file.of_disk().of_device(disk, locator.to_string())
}

impl Locator {
    /// Parses a locator.
    ///
    /// # Errors
    /// [`DeviceErrorKind::Locator`] with what is wrong; [`DeviceErrorKind::Unsupported`] for reserved schemes.
    pub fn parse(text: &str) -> Result<Locator, DeviceError> {
        Locator::parse_inside(text, 0)
    }

    /// As [`Locator::parse`], after `inside` nested files.
    fn parse_inside(text: &str, inside: usize) -> Result<Locator, DeviceError> {
        let exists = |path: &str| !path.is_empty() && Path::new(path).symlink_metadata().is_ok();
        if exists(text) {
            return Ok(Locator::file(text));
        }
        let is_file = |(path, params): (&str, &str)| exists(path) && !params.contains('/');
        if text.rsplit_once('?').is_some_and(is_file) {
            return parse_file(text);
        }
        if let Some((outer, path)) = text.rsplit_once("!/") {
            if inside == MOST_INSIDE {
                return Err(too_many());
            }
            let mut path = format!("/{path}");
            return Ok(Locator::Inside {
                outer: Box::new(Locator::parse_inside(outer, inside + 1)?),
                part: part::of_path(&mut path),
                path,
            });
        }
        if let Some(size) = text.strip_prefix("mem:") {
            return Ok(Locator::Mem {
                size: parse_size(size).map_err(|e| wrong(text, &e))?,
            });
        }
        if let Some(params) = text.strip_prefix("sim:") {
            SimOptions::parse(params)?;
            return Ok(Locator::Sim {
                params: params.to_owned(),
            });
        }
        for scheme in ["nbd://", "nbd+unix://", "rbd:"] {
            if text.starts_with(scheme) {
                return Err(DeviceError::new(
                    DeviceErrorKind::Unsupported,
                    format!("{text}: {scheme} devices are not supported yet"),
                ));
            }
        }
        match holder(text) {
            Some((outer, inner)) => below(outer, inner, inside),
            None => parse_file(text),
        }
    }

    /// The file of that path, all of it.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>) -> Locator {
        Locator::File(FileLocator::new(path.into(), Part::default()))
    }
}

impl FileLocator {
    fn new(path: PathBuf, part: Part) -> FileLocator {
        FileLocator {
            path,
            offset: part.offset,
            size: part.size,
            part: part.part,
            sector: part.sector,
            ro: part.ro,
            format: part.format,
            backing: part.backing,
            first: FirstBytes::default(),
        }
    }

    /// The format of a file that is to be made: what is said, or else what its name says, also with `auto`: it has no bytes yet.
    #[must_use]
    pub fn format_of_new(&self) -> ImageFormat {
        let said = self.format.filter(|format| *format != ImageFormat::Auto);
        said.unwrap_or_else(|| ImageFormat::of_name(&self.path))
    }

    /// Whether it is a qcow2 file: a block device is one only if that is said. The first bytes of a file are asked once for this locator
    /// and its clones, so that all who ask are told the same while somebody writes the file.
    #[must_use]
    pub fn is_qcow2(&self) -> bool {
        let by_name = || {
            let is_file = self.path.metadata().is_ok_and(|meta| meta.is_file());
            match is_file {
                true => ImageFormat::of_name(&self.path),
                false => ImageFormat::Raw,
            }
        };
        self.format.unwrap_or_else(by_name).is_qcow2(|first| {
            *first = self.first.get(|| {
                let file = File::from(open_storage(&self.path, OFlags::RDONLY).ok()?);
                let mut first = [0; 4];
                file.read_exact_at(&mut first, 0).ok()?;
                Some(first)
            })?;
            Some(())
        })
    }

    /// Which part of the disk in the file.
    fn of_disk(&self) -> Part {
        Part {
            format: None,
            backing: false,
            ..self.of_file()
        }
    }

    /// Which part of the file.
    fn of_file(&self) -> Part {
        Part {
            offset: self.offset,
            size: self.size,
            part: self.part,
            sector: self.sector,
            ro: self.ro,
            format: self.format,
            backing: self.backing,
        }
    }

    /// The partition table of the device; none if there is no valid one.
    ///
    /// # Errors
    /// As of [`FileDevice::open`].
    pub fn partitions(&self) -> Result<Option<PartitionTable>, DeviceError> {
        if self.is_qcow2() {
            let part = self.of_disk();
            let whole = Locator::File(FileLocator {
                path: self.path.clone(),
                format: Some(ImageFormat::Qcow2),
                backing: self.backing,
                ..FileLocator::default()
            });
            let options = OpenOptions {
                read_only: true,
                ..OpenOptions::default()
            };
            return part.partitions(open(&whole, &options)?, whole.to_string());
        }
        FileDevice::partitions(&self.options())
    }

    fn options(&self) -> FileOptions {
        FileOptions {
            path: self.path.clone(),
            offset: self.offset,
            size: self.size,
            part: self.part,
            sector: self.sector,
            read_only: self.ro,
            ..FileOptions::default()
        }
    }
}

/// The text before a `:/`, if it is an existing file or block device, and the text behind it: other names may contain a colon.
fn holder(text: &str) -> Option<(Locator, &str)> {
    text.match_indices(":/")
        .take(MOST_INSIDE)
        .find_map(|(at, colon)| {
            let Ok(Locator::File(file)) = parse_file(&text[..at]) else {
                return None;
            };
            let kind = file.path.metadata().ok()?.file_type();
            let is_there = kind.is_file() || kind.is_block_device();
            is_there.then_some((Locator::File(file), &text[at + colon.len()..]))
        })
}

/// Nested files, the outermost first, separated by `:/`. `inside` files were named already.
fn below(outer: Locator, inner: &str, inside: usize) -> Result<Locator, DeviceError> {
    let mut names = inner.split(":/");
    let most = MOST_INSIDE.saturating_sub(inside);
    let one = |outer, name| {
        let mut path = format!("/{name}");
        Locator::Inside {
            outer: Box::new(outer),
            part: part::of_path(&mut path),
            path,
        }
    };
    let named = names.by_ref().take(most).fold(outer, one);
    match names.next() {
        Some(_) => Err(too_many()),
        None => Ok(named),
    }
}

fn too_many() -> DeviceError {
    let what = format!(
        "cannot understand the locator: it names more than {MOST_INSIDE} volumes inside each other"
    );
    DeviceError::new(DeviceErrorKind::Locator, what)
}

fn parse_file(text: &str) -> Result<Locator, DeviceError> {
    let (path, params) = text.rsplit_once('?').unwrap_or((text, ""));
    if path.is_empty() {
        return Err(wrong(text, "it names no file"));
    }
    let part = Part::parse(params).map_err(|e| wrong(text, &e))?;
    Ok(Locator::File(FileLocator::new(path.into(), part)))
}

fn wrong(text: &str, why: &str) -> DeviceError {
    DeviceError::new(
        DeviceErrorKind::Locator,
        format!("cannot understand the locator {text:?}: {why}"),
    )
}

impl FromStr for Locator {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Locator, DeviceError> {
        Locator::parse(text)
    }
}

impl fmt::Display for Locator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Locator::File(file) => file.fmt(f),
            Locator::Mem { size } => write!(f, "mem:{}", Size(*size)),
            Locator::Sim { params } => write!(f, "sim:{params}"),
            Locator::Inside { outer, path, part } => {
                write!(f, "{outer}!{path}")?;
                part.write(f, path.contains('?'))
            }
        }
    }
}

impl fmt::Display for FileLocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display().to_string();
        f.write_str(&path)?;
        // A name with a question mark gets another one at its end, unless a file of exactly that name exists.
        let is_ambiguous = path.contains('?') && !self.path.exists();
        self.of_file().write(f, is_ambiguous)
    }
}

#[cfg(test)]
mod tests;
