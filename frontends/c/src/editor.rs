//! Editors: an image that exists is changed, file by file or by whole sources, with transactions.
//!
//! Input: locators, paths of the image, bytes, sources. Output: the changed image. Invariants: a file has its name only when all of it is
//! there; a transaction is in the image as a whole, or not at all. Limits: blocks; threads that share an editor wait for each other.

use crate::args::{bytes, check_flags, handle, lock, memory, memory_mut, out, sized, text};
use crate::error::{Fault, border};
use crate::file::permissions;
use crate::handle::{Held, Table};
use crate::image::Progress;
use crate::options::Options;
use crate::volume::{self, VolumeHandle};
use diorite::{Atomic, OpenOptions, RenameFlags, Volume};
use diorite_image::{Editor, Rules, Source};
use std::ffi::{c_char, c_int, c_void};
use std::sync::Mutex;

/// An editor of an image. 0 is none.
pub type EditorHandle = u64;

/// The changes of a transaction stay.
pub const DIORITE_END_COMMIT: u32 = 0;
/// None of them does.
pub const DIORITE_END_ABANDON: u32 = 1;

struct OpenEditor {
    options: OpenOptions,
    state: Mutex<State>,
}

struct State {
    /// First: an open transaction is abandoned before the volume goes.
    transaction: Option<Atomic>,
    editor: Editor,
}

static EDITORS: Table<OpenEditor> = Table::new(7, "editor");

fn hold(editor: EditorHandle) -> Result<Held<OpenEditor>, Fault> {
    EDITORS.hold(editor)
}

impl OpenEditor {
    /// The volume as it is now; it is another one after a transaction was abandoned.
    fn volume(&self) -> Volume {
        lock(&self.state).editor.volume().clone()
    }
}

/// Opens an image for changes. Of @options, which may be NULL, all apply; DIORITE_OPEN_WRITE is implied. @editor gets the handle; it is 0
/// after an error. Blocks.
///
/// Errors: those of diorite_volume_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_editor_open(
    locator: *const c_char,
    options: *const Options,
    editor: *mut EditorHandle,
) -> c_int {
    border(|| {
        // SAFETY: the caller's promises.
        let (editor, locator, options) = unsafe {
            let editor = handle(editor, "editor")?;
            let options = sized(options, "diorite_open_options")?.of_engine()?;
            (editor, text(locator, "the locator")?, options)
        };
        // Who fills an image wants the last block, too.
        let options = options.write(true).keep_for_maps(false);
        volume::know_qcow2();
        let volume = Volume::open(locator, &options)?;
        volume::tell_notes(&volume);
        *editor = EDITORS.insert(OpenEditor {
            options,
            state: Mutex::new(State {
                transaction: None,
                editor: Editor::of(volume),
            }),
        })?;
        Ok(0)
    })
}

/// Gives a handle of the editor's volume, for all that editors have no call for; its changes belong to the open transaction. It is to be
/// closed by diorite_volume_close, after which the editor fails with ESHUTDOWN. After a transaction was abandoned it is of no use
/// (ESHUTDOWN).
///
/// Errors: EBADF, EFAULT, EMFILE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_editor_volume(
    editor: EditorHandle,
    volume: *mut VolumeHandle,
) -> c_int {
    border(|| {
        let editor = hold(editor)?;
        // SAFETY: the caller's promise.
        let place = unsafe { handle(volume, "volume") }?;
        volume::give(editor.volume(), place)?;
        Ok(0)
    })
}

/// Begins a transaction: what anybody changes in the volume from now on is durable with diorite_editor_end, as a whole, or not at all.
/// Meanwhile nothing can be synced, and a change fails for which the journal has no room. Blocks: what was changed before is made
/// durable.
///
/// Errors: EBADF, EBUSY (one is open already), EAGAIN, EROFS, ESHUTDOWN; those of the device.
#[unsafe(no_mangle)]
pub extern "C" fn diorite_editor_begin(editor: EditorHandle) -> c_int {
    border(|| {
        let editor = hold(editor)?;
        let mut state = lock(&editor.state);
        if state.transaction.is_some() {
            return Err(Fault::new(libc::EBUSY, "a transaction is open already"));
        }
        state.transaction = Some(state.editor.volume().atomic()?);
        Ok(0)
    })
}

/// Ends the transaction. @how is DIORITE_END_COMMIT or DIORITE_END_ABANDON: then the image is as it was at its beginning, and the volume
/// is opened anew; files and handles of the old one fail with ESHUTDOWN. Blocks.
///
/// Errors: EBADF; EINVAL: none is open; those of the device, after which the volume cannot be changed any more.
#[unsafe(no_mangle)]
pub extern "C" fn diorite_editor_end(editor: EditorHandle, how: u32) -> c_int {
    border(|| {
        let editor = hold(editor)?;
        check_flags(how, DIORITE_END_ABANDON, "diorite_editor_end")?;
        let mut state = lock(&editor.state);
        let none = || Fault::invalid("no transaction is open");
        let transaction = state.transaction.take().ok_or_else(none)?;
        if how == DIORITE_END_COMMIT {
            transaction.commit()?;
            return Ok(0);
        }
        transaction.abandon()?;
        // The one that was abandoned writes nothing any more, so both may be there for a moment.
        let device = state.editor.volume().device().clone();
        state.editor = Editor::of(Volume::open_device(device, &editor.options)?);
        Ok(0)
    })
}

/// Makes a file of @size bytes at @path, in place of one that is there. Blocks.
///
/// Errors: those of diorite_openat; ENOSPC: then the name is what it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_editor_write_file(
    editor: EditorHandle,
    path: *const c_char,
    mode: u32,
    contents: *const c_void,
    size: usize,
) -> c_int {
    border(|| {
        let editor = hold(editor)?;
        // SAFETY: the caller's promises.
        let (path, mut contents) =
            unsafe { (bytes(path, "the path")?, memory(contents.cast(), size)?) };
        let state = lock(&editor.state);
        state
            .editor
            .write_file(path, permissions(mode)?, &mut contents)?;
        Ok(0)
    })
}

/// Copies the bytes of a file to @contents, at most @size. Returns the length of the whole file. Blocks.
///
/// Errors: those of diorite_openat; those of the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_editor_read_file(
    editor: EditorHandle,
    path: *const c_char,
    contents: *mut c_void,
    size: usize,
) -> i64 {
    border(|| {
        let editor = hold(editor)?;
        // SAFETY: the caller's promises.
        let (path, place) =
            unsafe { (bytes(path, "the path")?, memory_mut(contents.cast(), size)?) };
        let volume = editor.volume();
        let file = volume.open_path(path, diorite::OpenFlags::default())?;
        file.read_bytes(0, place)?;
        Ok(crate::file::bytes(file.size()))
    })
}

/// Makes a directory, and those on the way to it that are not there; that it is there is no error. @ino gets its inode; it may be NULL.
/// Blocks.
///
/// Errors: those of diorite_mkdirat, but EEXIST; EINVAL: something else has one of the names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_editor_make_dir(
    editor: EditorHandle,
    path: *const c_char,
    mode: u32,
    ino: *mut u64,
) -> c_int {
    border(|| {
        let editor = hold(editor)?;
        // SAFETY: the caller's promise.
        let path = unsafe { bytes(path, "the path") }?;
        let made = lock(&editor.state)
            .editor
            .make_dir(path, permissions(mode)?)?;
        // SAFETY: the caller's promise.
        if let Some(ino) = unsafe { ino.as_mut() } {
            *ino = u64::from(made.get());
        }
        Ok(0)
    })
}

/// Removes a name, with everything below it if it is a directory. Blocks.
///
/// Errors: those of diorite_unlinkat; EINVAL: the last part of @path is no name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_editor_remove(editor: EditorHandle, path: *const c_char) -> c_int {
    border(|| {
        let editor = hold(editor)?;
        // SAFETY: the caller's promise.
        let path = unsafe { bytes(path, "the path") }?;
        lock(&editor.state).editor.remove(path)?;
        Ok(0)
    })
}

/// Moves a name; what has the new one is replaced. Blocks.
///
/// Errors: those of diorite_renameat.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_editor_rename(
    editor: EditorHandle,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    border(|| {
        let editor = hold(editor)?;
        // SAFETY: the caller's promises.
        let (from, to) = unsafe { (bytes(from, "the old path")?, bytes(to, "the new path")?) };
        let volume = editor.volume();
        volume.rename(from, to, RenameFlags::default())?;
        Ok(0)
    })
}

/// Puts all files of a source (as of diorite_import) into the directory @dir. @progress is told the bytes that are written, and ends it
/// by anything but 0; it may be NULL, is called by any thread, and must not call the library. @files gets the number of files; it may be
/// NULL. Blocks.
///
/// Errors: ECANCELED: @progress has ended it; EINVAL: the source; ENOENT, ENOSPC and others. What is there by then stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_editor_put(
    editor: EditorHandle,
    source: *const c_char,
    dir: *const c_char,
    progress: Option<unsafe extern "C" fn(context: *mut c_void, done: u64, total: u64) -> c_int>,
    context: *mut c_void,
    files: *mut u64,
) -> c_int {
    border(|| {
        let editor = hold(editor)?;
        // SAFETY: the caller's promises.
        let (source, dir) = unsafe { (text(source, "the source")?, bytes(dir, "the directory")?) };
        let source: Source = source.parse()?;
        let progress = Progress::new(progress, context, 0);
        let state = lock(&editor.state);
        let put = state
            .editor
            .put(&source, dir, Rules::default(), &|done| progress.tell(done));
        let count = progress.ended(put.map_err(Fault::from))?;
        // SAFETY: the caller's promise.
        if let Ok(files) = unsafe { out(files, "files") } {
            *files = count;
        }
        Ok(0)
    })
}

/// Makes the file system larger: see diorite_volume_grow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_editor_grow(
    editor: EditorHandle,
    size: u64,
    grown: *mut u64,
) -> c_int {
    border(|| {
        let volume = hold(editor)?.volume();
        // SAFETY: the caller's promise.
        unsafe { volume::grow(&volume, size, grown) }
    })
}

/// Makes everything durable. Blocks.
///
/// Errors: EBADF, EBUSY (a transaction is open); those of diorite_volume_sync.
#[unsafe(no_mangle)]
pub extern "C" fn diorite_editor_sync(editor: EditorHandle) -> c_int {
    border(|| {
        hold(editor)?.volume().sync()?;
        Ok(0)
    })
}

/// Makes everything durable and closes the image; an open transaction is abandoned. The handle is invalid afterwards, after an error,
/// too. Blocks.
///
/// Errors: those of diorite_volume_close.
#[unsafe(no_mangle)]
pub extern "C" fn diorite_editor_close(editor: EditorHandle) -> c_int {
    border(|| {
        let editor = EDITORS.close(editor)?;
        let transaction = lock(&editor.state).transaction.take();
        match transaction {
            // That has closed it.
            Some(transaction) => transaction.abandon()?,
            None => editor.volume().close()?,
        }
        Ok(0)
    })
}
