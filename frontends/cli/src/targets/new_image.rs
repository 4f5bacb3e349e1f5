//! A new image: a file of the host that is there whole or not at all, open as a device meanwhile, or packed from a device.
//!
//! Input: a path, a size or a device. Output: a device of zeros; the file under its name. Invariant: a file that another process uses as an
//! image is not replaced. Limits: those of [`NewFile`].

use crate::args::Encoding;
use crate::encoding::{self, Holes, Hooks, Level};
use crate::host::new_file::{self, IfTaken, NewFile};
use crate::images::device::{self, Opened};
use crate::images::location::{Location, held_below};
use crate::output::report::{Reason, without_number};
use diorite::OpenOptions;
use diorite_block::Locator;
use diorite_block::locator::{FileLocator, ImageFormat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Bytes of the smallest file that can be in use as an image.
const LEAST_IMAGE: u64 = 4096;

/// See the module.
pub(crate) struct NewImage {
    pub(crate) opened: Opened,
    new_file: NewFile,
    format: ImageFormat,
}

/// Refuses a place that this process reads from: an open source is on it, or a file behind that source. The sources are open.
pub(crate) fn check_apart(place: &Location) -> Result<(), Reason> {
    match held_below(place)? {
        None => Ok(()),
        Some(path) => Err(Reason::new(format!(
            "it is, or is stored on or under, {}, which a source is on; nothing was changed",
            path.display()
        ))),
    }
}

/// Refuses a file that a source is on, or that somebody uses as an image: opening it for writing looks.
pub(crate) fn check_unused(path: &Path, options: &OpenOptions) -> Result<(), Reason> {
    check_apart(&Location::of(Locator::file(path)))?;
    if path.metadata().is_ok_and(|meta| meta.len() >= LEAST_IMAGE) {
        // Its bytes as they are, whatever they mean.
        let old = Encoding::applied(Some(Encoding::Raw), Locator::file(path));
        let old = device::open(&old, options);
        old.map_err(Reason::from)?.close().map_err(Reason::from)?;
    }
    Ok(())
}

/// Refuses parameters that a file to be created cannot have: all but its format are about parts of what is there.
///
/// # Errors
/// The text for the user.
pub(crate) fn check_parameters(file: &FileLocator) -> Result<(), &'static str> {
    let whole = FileLocator {
        path: file.path.clone(),
        format: file.format,
        ..FileLocator::default()
    };
    match *file == whole {
        true => Ok(()),
        false => Err("a file to be created has no parameters but ?format="),
    }
}

/// The refusal of standard output as a place of an image.
pub(crate) fn no_stdout() -> Reason {
    Reason::new("standard output is no place for an image; './-' is a file of that name")
}

/// The refusal of a block map of a file that is not the image's bytes.
pub(crate) fn no_map() -> Reason {
    Reason::new("a block map is of the bytes of an image: of a qcow2 file there is none")
}

/// Refuses a place for a block map that is one of these files, or in use as an image, or cannot be written.
pub(crate) fn check_map(
    map: &Path,
    files: impl Iterator<Item = PathBuf>,
    options: &OpenOptions,
) -> Result<(), Reason> {
    let failed = |why: String| Reason::new(format!("{}: {why}", map.display()));
    if map == Path::new("-") {
        let why = "standard output is no place for a block map; './-' is a file of that name";
        return Err(Reason::new(why));
    }
    let at = new_file::target(map).map_err(failed)?;
    let identity = |path: &Path| path.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
    for file in files {
        let same = identity(&at).is_some_and(|id| identity(&file) == Some(id));
        if same || new_file::target(&file).is_ok_and(|file| file == at) {
            return Err(failed(
                "the block map would take the place of an image; nothing was changed".to_owned(),
            ));
        }
    }
    check_unused(&at, options).map_err(|why| failed(why.to_string()))?;
    let dir = at.parent().filter(|dir| !dir.as_os_str().is_empty());
    match dir.is_none_or(Path::is_dir) {
        true => Ok(()),
        false => Err(failed("there is no such directory".to_owned())),
    }
}

/// A file without a name that is to be at `path`.
fn unnamed(path: &Path) -> Result<NewFile, Reason> {
    NewFile::make(path).map_err(|errno| Reason::host("it cannot be made", errno))
}

impl NewImage {
    /// One of `size` bytes that is to be at `path`.
    pub(crate) fn make(
        path: &Path,
        format: ImageFormat,
        size: u64,
        options: &OpenOptions,
    ) -> Result<NewImage, Reason> {
        check_unused(path, options)?;
        let new_file = unnamed(path)?;
        let format = match format {
            // A new file has no bytes that could say what it is.
            ImageFormat::Auto => ImageFormat::of_name(path),
            said => said,
        };
        match format == ImageFormat::Qcow2 {
            false => NewImage::of(new_file, size, options),
            true => Ok(NewImage {
                opened: qcow2(&new_file, size, options)?,
                new_file,
                format,
            }),
        }
    }

    /// One of `size` bytes that is only used in making what is to be at `path`.
    pub(crate) fn scratch(
        path: &Path,
        size: u64,
        options: &OpenOptions,
    ) -> Result<NewImage, Reason> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".raw");
        NewImage::of(unnamed(&path.with_file_name(name))?, size, options)
    }

    fn of(new_file: NewFile, size: u64, options: &OpenOptions) -> Result<NewImage, Reason> {
        new_file.set_len(size).map_err(at_length)?;
        let mut opened =
            device::open(&Locator::file(new_file.path()), options).map_err(Reason::from)?;
        opened.size = size;
        Ok(NewImage {
            opened,
            new_file,
            format: ImageFormat::Raw,
        })
    }

    /// Makes it durable, and gives it its name.
    pub(crate) fn finish(self) -> Result<(), Reason> {
        let NewImage {
            opened,
            new_file,
            format,
        } = self;
        let size = opened.size;
        opened.close().map_err(Reason::from)?;
        if format == ImageFormat::Raw {
            new_file.set_len(size).map_err(at_length)?;
        }
        name(new_file)
    }
}

/// Makes a new file a qcow2 image of `size` bytes, and opens the disk in it.
pub(crate) fn qcow2(
    new_file: &NewFile,
    size: u64,
    options: &OpenOptions,
) -> Result<Opened, Reason> {
    let unmade = |e: io::Error| Reason::new(format!("it cannot be made: {e}"));
    diorite_qcow2::create(new_file.path(), size).map_err(unmade)?;
    let disk = Encoding::applied(Some(Encoding::Qcow2), Locator::file(new_file.path()));
    device::open(&disk, options).map_err(Reason::from)
}

/// A file that is whole but for its name.
pub(crate) struct Packed {
    pub(crate) new_file: NewFile,
    /// The text of its block map, if one was asked for.
    pub(crate) map: Option<String>,
}

impl Packed {
    /// Makes it durable, and gives it its name.
    pub(crate) fn finish(self) -> Result<(), Reason> {
        name(self.new_file)
    }
}

/// Writes a device into a file that is to be at `path`.
pub(crate) fn pack(
    source: &Opened,
    path: &Path,
    encoding: (Encoding, Level),
    with_map: Option<Holes>,
    hooks: &Hooks<'_>,
) -> Result<Packed, Reason> {
    let new_file = unnamed(path)?;
    let packed =
        open(&new_file).and_then(|to| encoding::pack(source, to, encoding, with_map, hooks));
    let shorter = source.shortened();
    let map = packed.map_err(|e| {
        let more = shorter.as_ref().map(|why| format!("; {why}"));
        let text = without_number(&e.to_string());
        Reason::new(format!("{text}{}", more.unwrap_or_default()))
    })?;
    // The end of the copy would be zeros that nobody wrote.
    if let Some(why) = shorter {
        return Err(Reason::new(why));
    }
    Ok(Packed { new_file, map })
}

/// Opens the file for writing and reading.
pub(crate) fn open(new_file: &NewFile) -> io::Result<File> {
    File::options().read(true).write(true).open(new_file.path())
}

/// Writes the block map of an image that has its name already, into a file that is there whole or not at all.
pub(crate) fn map(path: &Path, text: &str) -> Result<(), Reason> {
    let left = "the image is complete, but without a block map";
    let failed = |why: String| Reason::new(format!("{}: {why} ({left})", path.display()));
    let at = new_file::target(path).map_err(failed)?;
    let new = unnamed(&at).map_err(|why| failed(why.to_string()))?;
    let written = open(&new).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|e| failed(without_number(&e.to_string())))?;
    name(new).map_err(|why| failed(why.to_string()))
}

/// Makes a file durable, and gives it its name.
pub(crate) fn name(new_file: NewFile) -> Result<(), Reason> {
    let named = new_file.finish(IfTaken::Replace);
    named.map_err(|why| Reason::new(why.to_string()))
}

fn at_length(errno: Errno) -> Reason {
    Reason::host("it cannot be made so large", errno)
}
