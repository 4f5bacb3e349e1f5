//! Locators: text that names a device, and opening the device.
//!
//! Input: `disk.img?offset=1M&part=2&sector=4096&ro`, `mem:64M`, `sim:64M,latency=230us`, `LOCATOR!/path/inside`,
//! `disk.img:/path/inside:/path/inside/that`.
//! Output: a [`Locator`], and from it a [`Device`]. Invariant: `parse` of a locator's text returns an equal locator. Limits: a
//! file whose name contains `?` or `!/`, or begins like a scheme, is used if it exists under exactly that name; `./mem:1` is
//! always a file; `:/` is a separator only after an existing file or block device, and after such a separator; at most 16 nested
//! volumes.

use crate::device::{Device, DeviceError, DeviceErrorKind};
use crate::file::{FileDevice, FileOptions, IoEngine};
use crate::mem::MemDevice;
use crate::partition::PartitionTable;
use crate::sim::{SimDevice, SimOptions};
use crate::size::Size;
use std::fmt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

pub use crate::size::parse_size;

/// The most nested volumes in one locator.
const MOST_INSIDE: usize = 16;

/// What names a device.
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
    /// `?sector=`: a larger logical block.
    pub sector: Option<u32>,
    /// `?ro`: refuse writes.
    pub ro: bool,
}

/// How to open what a locator names.
#[derive(Clone, Debug, Default)]
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
    let wanted = FileOptions {
        read_only: file.ro || options.read_only,
        buffered: options.buffered,
        force: options.force,
        engine: options.io_engine,
        grow_to: options.grow_to,
        ..file.options()
    };
    let device = FileDevice::open_named(&wanted, locator.to_string())?;
    Ok(Arc::new(device))
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
            return Ok(Locator::Inside {
                outer: Box::new(Locator::parse_inside(outer, inside + 1)?),
                path: format!("/{path}"),
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
        Locator::File(FileLocator {
            path: path.into(),
            ..FileLocator::default()
        })
    }
}

impl FileLocator {
    /// The partition table of the device; none if there is no valid one.
    ///
    /// # Errors
    /// As of [`FileDevice::open`].
    pub fn partitions(&self) -> Result<Option<PartitionTable>, DeviceError> {
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
    let one = |outer, name| Locator::Inside {
        outer: Box::new(outer),
        path: format!("/{name}"),
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
    let mut file = FileLocator {
        path: path.into(),
        ..FileLocator::default()
    };
    let mut seen = Vec::new();
    for param in params.split('&').filter(|p| !p.is_empty()) {
        let (key, value) = param
            .split_once('=')
            .map_or((param, None), |(k, v)| (k, Some(v)));
        if seen.contains(&key) {
            return Err(wrong(text, &format!("{key} is there twice")));
        }
        seen.push(key);
        set(&mut file, key, value).map_err(|e| wrong(text, &e))?;
    }
    Ok(Locator::File(file))
}

fn set(file: &mut FileLocator, key: &str, value: Option<&str>) -> Result<(), String> {
    let small = |v: &str| {
        let size = parse_size(v)?;
        u32::try_from(size).map_err(|_| format!("{key}={v} is too large"))
    };
    match (key, value) {
        ("offset", Some(v)) => file.offset = parse_size(v)?,
        ("size", Some(v)) => file.size = Some(parse_size(v)?),
        ("part", Some(v)) => match v.parse() {
            Ok(n) if n > 0 => file.part = Some(n),
            _ => return Err(format!("part={v}: partitions are numbered from 1")),
        },
        ("sector", Some(v)) => file.sector = Some(small(v)?),
        ("ro", None) => file.ro = true,
        ("ro", Some(_)) => return Err("ro takes no value".to_owned()),
        ("offset" | "size" | "part" | "sector", None) => {
            return Err(format!("{key} needs a value: {key}=..."));
        }
        _ => {
            return Err(format!(
                "unknown parameter {key:?}: offset, size, part, sector, ro"
            ));
        }
    }
    Ok(())
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
            Locator::Inside { outer, path } => write!(f, "{outer}!{path}"),
        }
    }
}

impl fmt::Display for FileLocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display().to_string();
        let params = [
            (self.offset != 0).then(|| format!("offset={}", Size(self.offset))),
            self.size.map(|s| format!("size={}", Size(s))),
            self.part.map(|p| format!("part={p}")),
            self.sector.map(|s| format!("sector={}", Size(s.into()))),
            self.ro.then(|| "ro".to_owned()),
        ];
        let params: Vec<String> = params.into_iter().flatten().collect();
        f.write_str(&path)?;
        // A name with a question mark gets another one at its end, unless a file of exactly that name exists.
        if !params.is_empty() || (path.contains('?') && !self.path.exists()) {
            write!(f, "?{}", params.join("&"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
