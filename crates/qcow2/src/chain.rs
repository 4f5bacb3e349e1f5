//! The files behind a qcow2 file.
//!
//! Input: a path, its header. Output: the files that the headers lead to, in order, each of them open and judged once. Invariants: no file
//! is there twice, and no more than [`MOST_BEHIND`]; only files and block devices are opened, for reading; while a chain is held, no other
//! program that respects the locks can write to them; a name is bytes, as in the header. Limits: what is no name of a file (`json:`,
//! `nbd:`) is refused.

use crate::header::{Backing, Header, LOOKED_AT, NO_QCOW2};
use crate::tables::check_first_table;
use diorite_block::file::{FileDevice, FileOptions};
use diorite_block::{Device, DeviceError, WRITER_PRESENT, held_as, open_storage};
use rustix::fs::OFlags;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files behind each other, at most.
const MOST_BEHIND: usize = 64;

/// The name leads to another file than a moment before.
const REPLACED: &str = "another file took its place while it was opened: try again";

/// A file of a chain.
pub(crate) struct Layer {
    pub(crate) path: PathBuf,
    pub(crate) file: File,
    pub(crate) len: u64,
    /// Of a raw file: None.
    pub(crate) header: Option<Header>,
}

impl Layer {
    /// A qcow2 file, and its header.
    pub(crate) fn look(path: &Path) -> Result<(Layer, Header), String> {
        let said = |e: io::Error| format!("its header cannot be read: {e}");
        let mut layer = Layer::raw(path)?;
        let looked = usize::try_from(layer.len)
            .unwrap_or(usize::MAX)
            .min(LOOKED_AT);
        let mut bytes = vec![0; looked];
        layer.file.read_exact_at(&mut bytes, 0).map_err(said)?;
        let header = Header::parse(&bytes, layer.len)?;
        layer.header = Some(header.clone());
        Ok((layer, header))
    }

    /// A file whose bytes are those of a disk; a block device has no length in its metadata.
    fn raw(path: &Path) -> Result<Layer, String> {
        let opened = || {
            let mut file = File::from(open_storage(path, OFlags::RDONLY)?);
            let len = file.seek(SeekFrom::End(0))?;
            Ok((file, len))
        };
        let (file, len) = opened().map_err(|e: io::Error| e.to_string())?;
        Ok(Layer {
            path: path.to_owned(),
            file,
            len,
            header: None,
        })
    }

    /// Whether the tables of a file that is read are in it.
    pub(crate) fn check_tables(&self, header: &Header) -> Result<(), String> {
        let mut table = vec![0; usize::try_from(header.l1.1).map_err(|e| e.to_string())?];
        let read = self.file.read_exact_at(&mut table, header.l1.0);
        read.map_err(|e| e.to_string())?;
        check_first_table(&table, header.cluster, self.len)
            .map_err(|why| format!("{why}: is it complete? 'qemu-img check' tells more"))
    }

    /// Whether it is the file that is held, and not one that took its name since then.
    pub(crate) fn check_held(&self) -> Result<(), String> {
        match held_as(&self.file).map_err(|e| e.to_string())? {
            Some(_) => Ok(()),
            None => Err(REPLACED.to_owned()),
        }
    }

    /// The same file, for a writer.
    pub(crate) fn for_writing(&self) -> Result<File, String> {
        let opened = open_storage(&self.path, OFlags::RDWR);
        let file = File::from(opened.map_err(|e| e.to_string())?);
        let meta = file.metadata().map_err(|e| e.to_string())?;
        match (meta.dev(), meta.ino()) == self.identity()? {
            true => Ok(file),
            false => Err(REPLACED.to_owned()),
        }
    }

    fn identity(&self) -> Result<(u64, u64), String> {
        let meta = self.file.metadata().map_err(|e| e.to_string())?;
        Ok((meta.dev(), meta.ino()))
    }
}

/// The files behind one.
pub(crate) struct Chain {
    pub(crate) layers: Vec<Layer>,
    /// They hold locks: who would overwrite or write one of the files sees that it is in use.
    pub(crate) devices: Vec<Arc<dyn Device>>,
    /// Files of which somebody is a writer, and who.
    pub(crate) written: Vec<String>,
}

impl Chain {
    /// Of a file that names none, or whose names are not followed.
    pub(crate) fn none() -> Chain {
        Chain {
            layers: Vec::new(),
            devices: Vec::new(),
            written: Vec::new(),
        }
    }

    /// Opens the files behind one as far as their headers lead, each once: names are not looked up again. They are held.
    ///
    /// # Errors
    /// Which file cannot be opened, or is refused, and why.
    pub(crate) fn resolve(first: &Layer) -> Result<Chain, String> {
        let mut chain = Chain::none();
        chain.follow(first, |chain, at| chain.hold(at))?;
        Ok(chain)
    }

    /// Adds the files behind one, of which `each` is told before they are opened. After an error those are there that came before.
    fn follow(
        &mut self,
        first: &Layer,
        each: impl Fn(&mut Chain, &Path) -> Result<(), DeviceError>,
    ) -> Result<(), String> {
        let mut seen = HashSet::from([first.identity()?]);
        let mut at = first.path.clone();
        let mut backing = first
            .header
            .as_ref()
            .and_then(|header| header.backing.clone());
        while let Some(named) = backing.take() {
            let name = file_name(&named)?;
            at = at.parent().unwrap_or(Path::new("")).join(name);
            let of = |why: String| format!("its backing file \"{}\": {why}", at.display());
            let meta = looked_at(&at).map_err(of)?;
            if !seen.insert((meta.dev(), meta.ino())) {
                return Err(of(
                    "the names of backing files lead in a circle, as 'qemu-img rebase -u' can make one"
                        .to_owned(),
                ));
            }
            if self.layers.len() == MOST_BEHIND {
                return Err(of(format!(
                    "backing files are more than {MOST_BEHIND} deep: 'qemu-img convert' makes one image of all"
                )));
            }
            each(self, &at).map_err(|e| of(e.to_string()))?;
            let layer = match named.format.as_deref() {
                Some("qcow2") => {
                    Layer::look(&at)
                        .map_err(|why| of(wrong_format(why, &named)))?
                        .0
                }
                Some("raw" | "file") => Layer::raw(&at).map_err(of)?,
                Some(format) => {
                    return Err(of(format!(
                        "its format is said to be {format}: raw and qcow2 are read"
                    )));
                }
                None => return Err(unknown_format(&named)),
            };
            if (meta.dev(), meta.ino()) != layer.identity().map_err(of)? {
                return Err(of(REPLACED.to_owned()));
            }
            if let Some(header) = &layer.header {
                layer.check_tables(header).map_err(of)?;
                backing.clone_from(&header.backing);
            }
            self.layers.push(layer);
        }
        Ok(())
    }

    /// Lets nobody in who writes a file.
    fn hold(&mut self, at: &Path) -> Result<(), DeviceError> {
        let options = FileOptions::new(at.to_owned()).read_only(true).keep(true);
        let device = FileDevice::open(&options)?;
        let notes = device.report().fallbacks.into_iter();
        let writers = notes.filter(|note| note.starts_with(WRITER_PRESENT));
        self.written
            .extend(writers.map(|note| format!("{note} (backing file \"{}\")", at.display())));
        self.devices.push(Arc::new(device));
        Ok(())
    }
}

/// The files behind a qcow2 file, open to be read and not held, by the judgement of [`open`](crate::open) with `?backing`: for a sandbox
/// that is to permit them. Where the chain is refused those are there that come before; who opens the image is told why.
#[must_use]
pub fn files_behind(path: &Path) -> Vec<(PathBuf, File)> {
    let first = looked_at(path).and_then(|_| Layer::look(path));
    let Ok((first, _)) = first else {
        return Vec::new();
    };
    let mut chain = Chain::none();
    // Refused by who opens it.
    let _ = chain.follow(&first, |_, _| Ok(()));
    let layers = chain.layers.into_iter();
    layers.map(|layer| (layer.path, layer.file)).collect()
}

/// What is at a path, if it may be opened.
fn looked_at(path: &Path) -> Result<Metadata, String> {
    let meta = path.metadata().map_err(|e| e.to_string())?;
    match meta.is_file() || meta.file_type().is_block_device() {
        true => Ok(meta),
        false => Err("it is neither a file nor a block device".to_owned()),
    }
}

/// Why a file cannot be read that is said to be qcow2.
fn wrong_format(why: String, named: &Backing) -> String {
    match why == NO_QCOW2 {
        true => format!(
            "{why}, and the image that names it says that it is: if it is raw, 'qemu-img rebase -u -F raw -b {}' says so",
            named.shown()
        ),
        false => why,
    }
}

/// What is wrong with a name of unknown format.
pub(crate) fn unknown_format(named: &Backing) -> String {
    let name = named.shown();
    format!(
        "it does not say the format of its backing file \"{name}\": 'qemu-img rebase -u -F FORMAT -b {name}' does"
    )
}

/// The name of a file. QEMU takes what is before a colon in the first part of a path as the name of a protocol.
fn file_name(named: &Backing) -> Result<&OsStr, String> {
    let name = named.name.strip_prefix(b"file:").unwrap_or(&named.name);
    let protocol = name.iter().position(|byte| [b':', b'/'].contains(byte));
    let protocol = protocol.filter(|at| name[*at] == b':' && name.len() == named.name.len());
    if let Some(at) = protocol {
        return Err(format!(
            "its backing file is \"{}\", in the form \"{}\": only names of files are followed, and 'qemu-img rebase -u -F FORMAT \
             -b ./FILE' gives it one",
            named.shown(),
            String::from_utf8_lossy(&name[..=at]).escape_debug()
        ));
    }
    match name.is_empty() || name.contains(&0) {
        true => Err(format!(
            "its backing file \"{}\" is no name of a file",
            named.shown()
        )),
        false => Ok(OsStr::from_bytes(name)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The defect: a FIFO that had taken the place of a backing file since it was looked at was waited for, for ever.
    #[test]
    fn a_pipe_in_place_of_a_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let error = Layer::look(&path).err().unwrap();
        assert!(error.ends_with("it is a pipe"), "{error}");
    }

    #[test]
    fn names_of_files() {
        let named = |name: &[u8]| {
            let backing = Backing {
                name: name.to_owned(),
                format: None,
            };
            file_name(&backing).map(|name| name.as_bytes().to_owned())
        };
        for (name, file) in [
            (&b"base"[..], &b"base"[..]),
            (b"/a/b:c", b"/a/b:c"),
            (b"./nbd:c", b"./nbd:c"),
            (b"file:a:b", b"a:b"),
            (b"file:/a", b"/a"),
            (b"\xff'\"\\", b"\xff'\"\\"),
        ] {
            assert_eq!(named(name).as_deref(), Ok(file));
        }
        for (name, form) in [
            (&b"json:{\"driver\":\"raw\"}"[..], "\"json:\""),
            (b"nbd:host:10809", "\"nbd:\""),
            (b"nbd://host/x", "\"nbd:\""),
            (b"host_device:/dev/x", "\"host_device:\""),
            (b"", "no name"),
            (b"a\0b", "no name"),
        ] {
            let why = named(name).expect_err("it is no file");
            assert!(why.contains(form), "{why}");
        }
    }
}
