//! The image that a command works on: opening it, and finding files in it.
//!
//! Input: the locator, the global options, paths. Output: a [`Volume`], inode numbers, files. Invariant: a command that reads
//! opens nothing for writing. Limits: paths are bytes, from the root of the image, with or without a leading slash.

use crate::args::Global;
use crate::host::memory;
use crate::images::other_formats;
use crate::output;
use crate::output::report::{Reason, Report};
use diorite::{Error, File, OpenFlags, OpenOptions, Volume, probe};
use diorite_block::{Device, Locator, MARKED_CORRUPT, WRITER_PRESENT, locator};
use diorite_format::{Corrupt, FileType, FormatError, Ino, Inode};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// The end of those notes of a volume that are printed even without -v: they say that the contents may be doubtful.
const OUT_OF_DATE: &str = "may be out of date";

/// The permissions of files that commands create.
pub(crate) const NEW_FILE: u16 = 0o644;

/// The options to open an image for reading, from the global options.
pub(crate) fn options(global: &Global) -> OpenOptions {
    memory::fitting(
        OpenOptions::default()
            .io_engine(global.io_engine)
            .policy(global.policy)
            .journal(global.journal.clone())
            .undo(global.undo.clone()),
    )
}

/// Opens the image for reading; warns if its contents are doubtful: another program writes to it, or they may be out of date.
pub(crate) fn open(img: &str, global: &Global, report: &mut Report) -> Option<Volume> {
    opened(img, Volume::open(img, &options(global)), report)
}

/// What was opened, with its doubts told, or why not.
fn opened(img: &str, opened: Result<Volume, Error>, report: &mut Report) -> Option<Volume> {
    match opened {
        Ok(volume) => {
            warn_of_doubts(img, &volume, report);
            Some(volume)
        }
        Err(error) => {
            refused(img, report, &error);
            None
        }
    }
}

/// Has somebody else opened this image for writing, which is open for reading?
pub(crate) fn is_being_written(volume: &Volume) -> bool {
    let mut notes = volume.notes().iter();
    notes.any(|note| note.starts_with(WRITER_PRESENT))
}

/// Warns if the contents of an open image are doubtful.
pub(crate) fn warn_of_doubts(img: &str, volume: &Volume, report: &Report) {
    for note in volume.notes() {
        warn_if_doubtful(img, note, report);
    }
}

/// Warns if a note of an image says that its contents are doubtful.
pub(crate) fn warn_if_doubtful(img: &str, note: &str, report: &Report) {
    let starts = [WRITER_PRESENT, MARKED_CORRUPT];
    if starts.iter().any(|start| note.starts_with(start)) || note.ends_with(OUT_OF_DATE) {
        report.warn(format_args!("{img}: {note}"));
    }
}

/// Warns if one of the notes of an image says that somebody writes it.
pub(crate) fn warn_of_writers(img: &str, notes: &[String], report: &Report) {
    for note in notes.iter().filter(|note| note.starts_with(WRITER_PRESENT)) {
        report.warn(format_args!("{img}: {note}"));
    }
}

/// Opens the file of the host that holds an image or a journal, and keeps it registered as in use until the returned device is
/// dropped. For commands that close the image before they print, so that their output is not written into it. None if it cannot
/// be opened; the caller's own attempt to read it reports that.
pub(crate) fn keep(locator: &str) -> Option<Arc<dyn Device>> {
    let mut below = Locator::parse(locator).ok()?;
    while let Locator::Inside { outer, .. } = below {
        below = *outer;
    }
    match below {
        Locator::File(_) => locator::open(&below, &other_formats::read_only()).ok(),
        _ => None,
    }
}

/// Reports why an image cannot be opened.
pub(crate) fn refused(img: &str, report: &mut Report, error: &Error) {
    report.image(why_refused(img, error));
}

/// Why an image cannot be opened. If it has no superblock, the text says what it is instead.
pub(crate) fn why_refused(img: &str, error: &Error) -> Reason {
    let no_superblock = match error.root() {
        Error::Format(format) => {
            matches!(**format, FormatError::Corrupt(Corrupt::SuperMagic { .. }))
        }
        // The device is too small for a superblock.
        Error::Invalid(_) => true,
        _ => false,
    };
    match no_superblock.then(|| other_formats::told(img)).flatten() {
        Some(what) => Reason::new(what),
        None if matches!(error.root(), Error::NotFound { .. }) => Reason::from(error),
        None => two_words(img, error).unwrap_or_else(|| Reason::from(error)),
    }
}

/// `IMG:/path` is a locator of an image in an image, but who writes it mostly means a file in it, as with cp.
fn two_words(img: &str, error: &Error) -> Option<Reason> {
    let (image, path) = as_two_words(img)?;
    let why = Reason::from(error);
    Some(Reason::new(format!(
        "{img}: {why}; a file in an image is two words, '{image} {path}'"
    )))
}

/// The image and the path of `IMG:/path`, if there is a file IMG.
pub(crate) fn as_two_words(word: &str) -> Option<(&str, &str)> {
    let at = word.rfind(":/")?;
    let (image, path) = (&word[..at], &word[at + 1..]);
    (Path::new(image).is_file() && !Path::new(word).exists()).then_some((image, path))
}

/// The options to open an image for writing, from the global options. From now on a failure to print does not end the process, which has
/// to close the image.
pub(crate) fn writable(global: &Global) -> OpenOptions {
    output::outlive_failures();
    options(global)
        .write(true)
        .force(global.ignore_lock)
        // Who fills an image wants the last block, too.
        .keep_for_maps(false)
}

/// Opens the image for writing; this replays its journal first if necessary.
pub(crate) fn open_for_writing(img: &str, global: &Global, report: &mut Report) -> Option<Volume> {
    Volume::open(img, &writable(global))
        .map_err(|error| refused(img, report, &error))
        .ok()
}

/// Opens the image for changes that stay in memory; it is read only.
pub(crate) fn open_for_trial(img: &str, global: &Global, report: &mut Report) -> Option<Volume> {
    let read = options(global);
    if read.journal.is_some() {
        report.image(Reason::new(
            "a journal on another device would be written: nothing can be tried with it",
        ));
        return None;
    }
    let opened = Locator::parse(img)
        .map_err(Error::from)
        .and_then(|locator| probe::open(&locator, &read))
        .and_then(|device| {
            let write = read.write(true);
            Volume::open_device(probe::scratch(device), &write)
        });
    self::opened(img, opened, report)
}

/// Opens the image for writing, changes it and closes it; returns the command's exit code.
pub(crate) fn change(
    command: &'static str,
    img: &str,
    global: &Global,
    change: impl FnOnce(&Volume, &mut Report),
) -> ExitCode {
    let mut report = Report::new(command, img);
    if let Some(volume) = open_for_writing(img, global, &mut report) {
        change(&volume, &mut report);
        close(volume, &mut report);
    }
    report.exit_code()
}

/// Closes a volume that was written to, which makes its changes durable; reports a failure.
pub(crate) fn close(volume: Volume, report: &mut Report) {
    if let Err(error) = volume.close() {
        report.image(error);
    }
}

/// A path of the command line as bytes.
pub(crate) fn bytes(path: &OsStr) -> &[u8] {
    path.as_bytes()
}

/// Opens a file by its path; with `follow`, a symbolic link at the end of the path is followed.
pub(crate) fn find(volume: &Volume, path: &[u8], follow: bool) -> Result<File, Error> {
    let ino = volume.resolve(path, follow)?;
    volume.open_ino(ino, OpenFlags::default())
}

/// Like [`find`], but opens the file for writing and follows links.
pub(crate) fn find_for_writing(volume: &Volume, path: &[u8]) -> Result<File, Error> {
    let flags = OpenFlags::writable();
    volume.open_ino(volume.resolve(path, true)?, flags)
}

/// Like [`find_for_writing`]. A missing file is created if `create` is set; otherwise the result is none.
pub(crate) fn find_or_create(
    volume: &Volume,
    path: &[u8],
    create: bool,
) -> Result<Option<File>, Error> {
    match find_for_writing(volume, path) {
        Err(Error::NotFound { .. }) if !create => Ok(None),
        Err(Error::NotFound { .. }) => Ok(Some(volume.create(path, NEW_FILE)?)),
        found => Ok(Some(found?)),
    }
}

/// Opens a file by its inode number.
pub(crate) fn file(volume: &Volume, ino: Ino) -> Result<File, Error> {
    volume.open_ino(ino, OpenFlags::default())
}

/// The target of a symbolic link; none for anything else.
pub(crate) fn target(volume: &Volume, inode: &Inode) -> Option<Result<Vec<u8>, Error>> {
    (inode.file_type == Some(FileType::Symlink)).then(|| volume.read_link(inode.ino))
}
