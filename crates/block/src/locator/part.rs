//! The parameters of a locator: which part of a file or device, and in which sectors.
//!
//! Input: `offset=1M&size=3G&part=2&sector=512&ro`. Output: a [`Part`], its text, and the part of a device. Invariant: the text of a
//! part is parsed to an equal part. Limits: each parameter once; a partition is looked for in the range of offset and size.

use super::format::ImageFormat;
use crate::blocking::Blocking;
use crate::buf::Buf;
use crate::device::{Device, DeviceError, DeviceErrorKind};
use crate::partition::{self, PartitionTable};
use crate::size::{Size, parse_size};
use crate::window::{WindowDevice, WindowOptions};
use std::fmt;
use std::sync::Arc;

/// The parameters of a locator. The default is all of the device, as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// `offset=`: where it begins.
    pub offset: u64,
    /// `size=`: how long it is.
    pub size: Option<u64>,
    /// `part=`: the partition, from 1.
    pub part: Option<u32>,
    /// `sector=`: the logical block.
    pub sector: Option<u32>,
    /// `ro`: refuse writes.
    pub ro: bool,
    /// `format=`: what the file is; by default by its name.
    pub format: Option<ImageFormat>,
    /// `backing`: files that an image names may be opened.
    pub backing: bool,
}

/// Takes the parameters from the end of a path inside a volume, if there are any; else they are a part of the name.
pub(super) fn of_path(path: &mut String) -> Part {
    let Some((name, params)) = path.rsplit_once('?') else {
        return Part::default();
    };
    match Part::parse(params) {
        Ok(part) if name.len() > 1 => {
            path.truncate(name.len());
            // That is what it is there, whatever its name.
            let format = part.format.filter(|format| *format != ImageFormat::Raw);
            Part { format, ..part }
        }
        _ => Part::default(),
    }
}

impl Part {
    /// Parses what is behind the question mark; nothing is the default.
    pub(super) fn parse(params: &str) -> Result<Part, String> {
        let (mut part, mut seen) = (Part::default(), Vec::new());
        for param in params.split('&').filter(|p| !p.is_empty()) {
            let (key, value) = param
                .split_once('=')
                .map_or((param, None), |(k, v)| (k, Some(v)));
            if seen.contains(&key) {
                return Err(format!("{key} is there twice"));
            }
            part.set(key, value)?;
            seen.push(key);
        }
        Ok(part)
    }

    fn set(&mut self, key: &str, value: Option<&str>) -> Result<(), String> {
        let small = |v: &str| {
            let size = parse_size(v)?;
            u32::try_from(size).map_err(|_| format!("{key}={v} is too large"))
        };
        match (key, value) {
            ("offset", Some(v)) => self.offset = parse_size(v)?,
            ("size", Some(v)) => self.size = Some(parse_size(v)?),
            ("part", Some(v)) => match v.parse() {
                Ok(n) if n > 0 => self.part = Some(n),
                _ => return Err(format!("part={v}: partitions are numbered from 1")),
            },
            ("sector", Some(v)) => self.sector = Some(small(v)?),
            ("ro", None) => self.ro = true,
            ("backing", None) => self.backing = true,
            ("ro" | "backing", Some(_)) => return Err(format!("{key} takes no value")),
            ("format", Some(v)) => self.format = Some(ImageFormat::parse(v)?),
            ("offset" | "size" | "part" | "sector" | "format", None) => {
                return Err(format!("{key} needs a value: {key}=..."));
            }
            _ => {
                return Err(format!(
                    "unknown parameter {key:?}: offset, size, part, sector, ro, format, backing"
                ));
            }
        }
        Ok(())
    }

    /// Writes it behind a name. `is_ambiguous`: without parameters, the end of the name would be taken for some.
    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>, is_ambiguous: bool) -> fmt::Result {
        let params = [
            (self.offset != 0).then(|| format!("offset={}", Size(self.offset))),
            self.size.map(|s| format!("size={}", Size(s))),
            self.part.map(|p| format!("part={p}")),
            self.sector.map(|s| format!("sector={}", Size(s.into()))),
            self.ro.then(|| "ro".to_owned()),
            self.format.map(|f| format!("format={}", f.word())),
            self.backing.then(|| "backing".to_owned()),
        ];
        let params: Vec<String> = params.into_iter().flatten().collect();
        if !params.is_empty() || is_ambiguous {
            write!(f, "?{}", params.join("&"))?;
        }
        Ok(())
    }

    /// This part of a device, with a name for messages; the device itself if the part is all of it. Blocks, if it is a partition.
    ///
    /// # Errors
    /// It does not lie inside the device; the device has no such partition; the sector is not one.
    pub fn of_device(
        &self,
        device: Arc<dyn Device>,
        name: String,
    ) -> Result<Arc<dyn Device>, DeviceError> {
        let is_qcow2 = self.format.is_some_and(|format| {
            format.is_qcow2(|first| {
                let geometry = device.geometry();
                let len = u64::from(geometry.logical).min(geometry.size);
                let buf = Buf::zeroed(usize::try_from(len).ok()?);
                let buf = Blocking::new(device.clone()).read(0, buf).ok()?;
                first.copy_from_slice(buf.as_slice().get(..4)?);
                Some(())
            })
        });
        if is_qcow2 || self.backing {
            let what = format!(
                "{name}: a qcow2 image in another image is not opened: 'diorite get' copies it to the host"
            );
            return Err(DeviceError::new(DeviceErrorKind::Unsupported, what));
        }
        if *self == Part::default() {
            return Ok(device);
        }
        let mut options = WindowOptions {
            offset: self.offset,
            size: self.size,
            sector: self.sector,
            read_only: self.ro,
        };
        if let Some(number) = self.part {
            let range = WindowDevice::new(device.clone(), &options, name.clone())?;
            let range = Blocking::new(Arc::new(range));
            let size = range.device().geometry().size;
            let source = partition::Source::of_device(&range, 0, size);
            let sector = self.sector.unwrap_or(512);
            let read_only = self.ro || device.geometry().read_only;
            let found = partition::find(source, sector, number, (&name, read_only))?;
            let end = found.start.checked_add(found.size);
            if end.is_none_or(|end| end > size) {
                let what = format!("{name}: partition {found} ends behind the {size} bytes");
                return Err(DeviceError::new(DeviceErrorKind::Locator, what));
            }
            // The sum does not overflow: the range lies inside the device.
            options.offset += found.start;
            options.size = Some(found.size);
        }
        Ok(Arc::new(WindowDevice::new(device, &options, name)?))
    }

    /// The partition table in the range of `offset` and `size` of a device; none if there is no valid one. Blocks.
    ///
    /// # Errors
    /// The range does not lie inside the device; the sector is not one.
    pub fn partitions(
        &self,
        device: Arc<dyn Device>,
        name: String,
    ) -> Result<Option<PartitionTable>, DeviceError> {
        let options = WindowOptions {
            offset: self.offset,
            size: self.size,
            sector: self.sector,
            read_only: true,
        };
        let range = Blocking::new(Arc::new(WindowDevice::new(device, &options, name)?));
        let size = range.device().geometry().size;
        let source = partition::Source::of_device(&range, 0, size);
        Ok(partition::list(source, self.sector.unwrap_or(512)))
    }
}
