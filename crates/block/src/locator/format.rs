//! Formats of image files other than raw: who opens them.
//!
//! Input: a function of a frontend. Output: devices of such files. Invariant: what a file is follows from its locator alone, and from its
//! contents only if `auto` is said: whoever writes to a raw disk could write the header of another format there. Limits: one other
//! format; it is registered once, for the process.

use crate::device::{Device, DeviceError, DeviceErrorKind};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// How an image file is to be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageFormat {
    /// The bytes of the file are those of the disk.
    Raw,
    /// QEMU's format with clusters.
    Qcow2,
    /// What its first bytes say: only for files whose writers are trusted.
    Auto,
}

/// The first bytes of a qcow2 file.
const QCOW2_MAGIC: [u8; 4] = *b"QFI\xfb";

impl ImageFormat {
    pub(super) fn parse(word: &str) -> Result<ImageFormat, String> {
        match word {
            "raw" => Ok(ImageFormat::Raw),
            "qcow2" => Ok(ImageFormat::Qcow2),
            "auto" => Ok(ImageFormat::Auto),
            _ => Err(format!("format={word}: raw, qcow2 and auto are known")),
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            ImageFormat::Raw => "raw",
            ImageFormat::Qcow2 => "qcow2",
            ImageFormat::Auto => "auto",
        }
    }

    /// Whether it is qcow2, for what begins with the bytes that `read` reads at offset 0. Bytes that cannot be read say nothing: who opens
    /// the file says why.
    pub(super) fn is_qcow2(self, read: impl FnOnce(&mut [u8; 4]) -> Option<()>) -> bool {
        let mut first = [0; 4];
        match self {
            ImageFormat::Raw => false,
            ImageFormat::Qcow2 => true,
            ImageFormat::Auto => read(&mut first).is_some() && first == QCOW2_MAGIC,
        }
    }

    /// What the end of a name says.
    #[must_use]
    pub fn of_name(path: &Path) -> ImageFormat {
        match path.extension().is_some_and(|end| end == "qcow2") {
            true => ImageFormat::Qcow2,
            false => ImageFormat::Raw,
        }
    }
}

/// The first bytes of a file, as they were when they were asked for; clones have the same answer. No part of what a locator is.
#[derive(Clone, Debug, Default)]
pub struct FirstBytes(Arc<OnceLock<[u8; 4]>>);

impl FirstBytes {
    /// The answer that is kept, or that of `read`; bytes that cannot be read are asked for again.
    pub(super) fn get(&self, read: impl FnOnce() -> Option<[u8; 4]>) -> Option<[u8; 4]> {
        if let Some(first) = self.0.get() {
            return Some(*first);
        }
        let first = read()?;
        // Of two that ask at once, both are told what the first one read.
        Some(*self.0.get_or_init(|| first))
    }
}

impl PartialEq for FirstBytes {
    fn eq(&self, _: &FirstBytes) -> bool {
        true
    }
}

impl Eq for FirstBytes {}

/// A file that is to be opened as a disk in its format.
pub struct FormatRequest<'a> {
    /// The file.
    pub path: &'a Path,
    /// Its bytes as a device, which holds the locks on the file.
    pub below: Arc<dyn Device>,
    /// It is to be written.
    pub write: bool,
    /// Files that it names may be opened.
    pub backing: bool,
    /// Write it although another process writes a file that it names.
    pub force: bool,
    /// A name for messages.
    pub name: String,
}

/// Opens files of a format.
pub type FormatOpener = fn(FormatRequest<'_>) -> Result<Arc<dyn Device>, DeviceError>;

static QCOW2: OnceLock<FormatOpener> = OnceLock::new();

/// Makes qcow2 files known to all locators of the process. The first call counts.
pub fn register_qcow2(opener: FormatOpener) {
    // A second one changes nothing, as is said above.
    let _ = QCOW2.set(opener);
}

pub(super) fn open_qcow2(request: FormatRequest<'_>) -> Result<Arc<dyn Device>, DeviceError> {
    match QCOW2.get() {
        Some(open) => open(request),
        None => Err(DeviceError::new(
            DeviceErrorKind::Unsupported,
            format!(
                "{}: this program opens no qcow2 images; '?format=raw' takes its bytes as they are",
                request.name
            ),
        )),
    }
}
