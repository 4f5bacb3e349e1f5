//! Images: new file systems, imports, checks.
//!
//! Input: locators, sources of files, devices. Output: file systems, reports. Invariants: an image that could not be made leaves no file;
//! a check writes nothing. Limits: blocks.

use crate::args::{Grows, bytes, check_flags, host_path, null, out, sized, text, text_or_none};
use crate::device::{self, DeviceHandle};
use crate::error::{Fault, border};
use crate::file::permissions;
use crate::options::Options;
use crate::sink::{self, Level, c_text};
use crate::volume;
use diorite::device::Device;
use diorite::mkfs::{MkfsOptions, NewJournal, mkfs};
use diorite::{Locator, OpenOptions};
use diorite_check::{CheckOptions, Report};
use diorite_image::{ImageBuilder, Rules, Size, Source};
use rustix::rand::{GetRandomFlags, getrandom};
use std::ffi::{c_char, c_int, c_void};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The image is a new file of `bytes` bytes, which must not exist yet.
pub const DIORITE_MKFS_CREATE: u32 = 1;
/// No journal.
pub const DIORITE_MKFS_NO_JOURNAL: u32 = 2;
/// No blocks are reserved for privileged users.
pub const DIORITE_MKFS_NO_RESERVE: u32 = 4;

/// Of an import: everything belongs to `uid` and `gid`, in place of the source's owners.
pub const DIORITE_IMPORT_OWNER: u32 = 1;

/// What a new file system is like. Set @size by DIORITE_INIT; a field that is zero or NULL has the default of mke2fs for the size.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct NewOptions {
    /// sizeof(struct diorite_mkfs_options).
    pub size: u32,
    /// DIORITE_MKFS_...
    pub flags: u32,
    /// "ext4" (the default), "ext3" or "ext2".
    pub r#type: *const c_char,
    /// At most 16 bytes.
    pub label: *const c_char,
    /// 16 bytes; NULL: a random one.
    pub uuid: *const u8,
    /// 16 bytes, the seed of the hashes of names; NULL: a random one. The same UUID, seed, time and files make the same bytes.
    pub hash_seed: *const u8,
    /// When it is made, in seconds since 1970; 0: now.
    pub time: i64,
    /// Bytes of the file system; 0: all of its device, or of an import what the files need and `headroom`.
    pub bytes: u64,
    /// Bytes of a block, 1,024 to 65,536.
    pub block_size: u32,
    /// Bytes of an inode.
    pub inode_size: u32,
    /// Number of inodes.
    pub inodes: u32,
    /// Blocks of the journal.
    pub journal_blocks: u32,
    /// Owner and group of the root directory, and its permissions (0: 0755).
    pub root_uid: u32,
    pub root_gid: u32,
    pub root_mode: u32,
    /// Blocks that only privileged users may have, in percent, at most 50; 0: 5, or none with DIORITE_MKFS_NO_RESERVE.
    pub reserved_percent: u32,
}

// SAFETY: repr(C), a u32 first, and zeros are numbers and NULLs.
unsafe impl Grows for NewOptions {}

/// How to import. Set @size by DIORITE_INIT.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ImportOptions {
    /// sizeof(struct diorite_import_options).
    pub size: u32,
    /// DIORITE_IMPORT_...
    pub flags: u32,
    pub uid: u32,
    pub gid: u32,
    /// What the file system is like; NULL: the defaults.
    pub mkfs: *const NewOptions,
    /// Bytes that are free in it afterwards, if its size follows from the files.
    pub headroom: u64,
    /// Told the bytes that are written, and those of all files; ends the import by anything but 0. NULL: nobody is told. It is called by
    /// any thread, also by several at once, and must not call the library.
    pub progress:
        Option<unsafe extern "C" fn(context: *mut c_void, done: u64, total: u64) -> c_int>,
    /// For @progress.
    pub context: *mut c_void,
}

// SAFETY: repr(C), a u32 first, and zeros are numbers and NULLs.
unsafe impl Grows for ImportOptions {}

/// How to check. Set @size by DIORITE_INIT.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct HowToCheck {
    /// sizeof(struct diorite_check_options).
    pub size: u32,
    /// Threads; 0: one for each processor.
    pub threads: u32,
    /// Findings of each kind that are told; 0: 20. All are counted.
    pub per_kind: u32,
    /// Zero.
    pub reserved: u32,
    /// How the volume is opened, never for writing; NULL: the defaults.
    pub open: *const Options,
    /// Told how far a stage is. It is called by any thread, also by several at once, and must not call the library.
    pub progress: Option<
        unsafe extern "C" fn(context: *mut c_void, stage: *const c_char, done: u64, total: u64),
    >,
    /// Told each finding when the check has ended, by the calling thread: its kind ("inode", "block_bitmap", ...), the inode (0: none),
    /// and a sentence. The texts are valid during the call.
    pub finding: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            kind: *const c_char,
            ino: u64,
            message: *const c_char,
        ),
    >,
    /// For both.
    pub context: *mut c_void,
}

// SAFETY: repr(C), a u32 first, and zeros are numbers and NULLs.
unsafe impl Grows for HowToCheck {}

/// What a check has found.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CheckResult {
    /// Number of findings: 0 if the volume is consistent.
    pub findings: u64,
    /// Counts of what is in the volume.
    pub inodes: u64,
    pub directories: u64,
    pub names: u64,
    pub blocks: u64,
    /// 1: the check could not be completed; a finding says why.
    pub unfinished: u32,
    /// 1: something was not compared that e2fsck compares.
    pub partial: u32,
    /// Zero.
    pub reserved: [u64; 2],
}

/// The progress function of a caller.
pub(crate) struct Progress {
    function: Option<unsafe extern "C" fn(context: *mut c_void, done: u64, total: u64) -> c_int>,
    context: *mut c_void,
    total: u64,
    has_ended: AtomicBool,
}

// SAFETY: the caller has promised that any thread may call the function with the context.
unsafe impl Sync for Progress {}

impl Progress {
    pub(crate) fn new(
        function: Option<
            unsafe extern "C" fn(context: *mut c_void, done: u64, total: u64) -> c_int,
        >,
        context: *mut c_void,
        total: u64,
    ) -> Progress {
        Progress {
            function,
            context,
            total,
            has_ended: AtomicBool::new(false),
        }
    }

    /// Tells it; false if it ends what is under way.
    pub(crate) fn tell(&self, done: u64) -> bool {
        // SAFETY: the host's function takes these.
        let goes_on = self
            .function
            .is_none_or(|told| unsafe { told(self.context, done, self.total) } == 0);
        if !goes_on {
            self.has_ended.store(true, Ordering::Relaxed);
        }
        goes_on
    }

    /// The result of what was told of: that the host has ended it is an error of its own.
    pub(crate) fn ended<T>(&self, result: Result<T, Fault>) -> Result<T, Fault> {
        let canceled = || Fault::new(libc::ECANCELED, "the progress function has ended it");
        result.map_err(|fault| match self.has_ended.load(Ordering::Relaxed) {
            true => canceled(),
            false => fault,
        })
    }
}

fn random() -> Result<[u8; 16], Fault> {
    let mut bytes = [0; 16];
    let mut got = 0;
    while got < bytes.len() {
        let more = getrandom(&mut bytes[got..], GetRandomFlags::empty());
        got += more.map_err(std::io::Error::from)?;
    }
    Ok(bytes)
}

impl NewOptions {
    /// # Safety
    /// The pointers are NULL, texts, or of 16 bytes.
    unsafe fn of_mkfs(&self) -> Result<MkfsOptions, Fault> {
        check_flags(self.flags, 7, "diorite_mkfs_options.flags")?;
        // SAFETY: the caller's promises.
        let (kind, label, uuid, seed) = unsafe {
            (
                text_or_none(self.r#type, "the type")?,
                text_or_none(self.label, "the label")?.unwrap_or_default(),
                self.uuid.cast::<[u8; 16]>().as_ref(),
                self.hash_seed.cast::<[u8; 16]>().as_ref(),
            )
        };
        let or_random = |bytes: Option<&[u8; 16]>| bytes.map_or_else(random, |bytes| Ok(*bytes));
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_secs() as i64);
        let time = if self.time == 0 { now } else { self.time };
        let mut options = MkfsOptions::new(or_random(uuid)?, or_random(seed)?, time);
        options.features = match kind {
            None | Some("ext4") => MkfsOptions::ext4(),
            Some("ext3") => MkfsOptions::ext3(),
            Some("ext2") => MkfsOptions::ext2(),
            Some(other) => {
                return Err(Fault::invalid(format!("{other} is not ext2, ext3 or ext4")));
            }
        };
        if self.flags & DIORITE_MKFS_NO_JOURNAL != 0 {
            use diorite::format::features::Compat;
            let without = [Compat::HAS_JOURNAL, Compat::ORPHAN_FILE];
            for feature in without {
                options.features.compat = options.features.compat.without(feature);
            }
        }
        let room = options.label.get_mut(..label.len());
        let long = || Fault::invalid("a label has at most 16 bytes");
        room.ok_or_else(long)?.copy_from_slice(label.as_bytes());
        let some = |value: u32| (value != 0).then_some(value);
        options.bytes = (self.bytes != 0).then_some(self.bytes);
        options.block_size = some(self.block_size);
        options.inodes = some(self.inodes);
        if let Some(size) = some(self.inode_size) {
            let size = u16::try_from(size);
            options.inode_size = size.map_err(|_| Fault::invalid("such inodes do not exist"))?;
        }
        if let Some(blocks) = some(self.journal_blocks) {
            options.journal = NewJournal::Blocks(blocks);
        }
        options.root_owner = (self.root_uid, self.root_gid);
        if let Some(mode) = some(self.root_mode) {
            options.root_mode = permissions(mode)?;
        }
        match some(self.reserved_percent) {
            Some(percent) => options.reserved_percent = f64::from(percent),
            None if self.flags & DIORITE_MKFS_NO_RESERVE != 0 => options.reserved_percent = 0.0,
            None => {}
        }
        Ok(options)
    }
}

/// A new file of the host, removed unless it is kept.
struct NewFile<'a> {
    path: &'a Path,
    is_kept: bool,
}

impl<'a> NewFile<'a> {
    fn make(path: &'a Path, bytes: u64) -> Result<NewFile<'a>, Fault> {
        let shown = path.display().to_string();
        if i64::try_from(bytes).is_err() {
            let long = format!(
                "{shown}: a file has at most {} bytes, not {bytes}",
                i64::MAX
            );
            return Err(Fault::new(libc::EFBIG, long));
        }
        let file = File::create_new(path).map_err(|e| Fault::from(e).at(&shown))?;
        let new = NewFile {
            path,
            is_kept: false,
        };
        file.set_len(bytes).map_err(|e| Fault::from(e).at(&shown))?;
        Ok(new)
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            // Nothing more can be done about one that stays.
            let _best_effort = std::fs::remove_file(self.path);
        }
    }
}

fn open_device(locator: &Locator) -> Result<Arc<dyn Device>, Fault> {
    volume::know_qcow2();
    Ok(diorite::open_device(locator, &OpenOptions::writable())?)
}

/// Makes a file system on what a locator names. With DIORITE_MKFS_CREATE @image is the path of a file of the host that is created. What
/// was there is lost. @options may be NULL. Blocks.
///
/// Errors: EEXIST; EINVAL: the options make no sense, or do not fit each other; EFBIG: no file is so long; ENOSPC; EBUSY: somebody has it
/// open; those of the host.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_mkfs(image: *const c_char, options: *const NewOptions) -> c_int {
    border(|| {
        // SAFETY: the caller's promises.
        let (image, from, options) = unsafe {
            let from = sized(options, "diorite_mkfs_options")?;
            (bytes(image, "the image")?, from, from.of_mkfs()?)
        };
        if from.flags & DIORITE_MKFS_CREATE == 0 {
            let text = std::str::from_utf8(image);
            let text = text.map_err(|_| Fault::invalid("the image is not UTF-8"))?;
            mkfs(&open_device(&Locator::parse(text)?)?, &options)?;
            return Ok(0);
        }
        if from.bytes == 0 {
            return Err(Fault::invalid("a new file needs a number of bytes"));
        }
        let path = host_path(image);
        let mut file = NewFile::make(path, from.bytes)?;
        mkfs(&open_device(&Locator::file(path))?, &options)?;
        file.is_kept = true;
        Ok(0)
    })
}

/// As diorite_mkfs, on a device of the host program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_mkfs_device(
    device: DeviceHandle,
    options: *const NewOptions,
) -> c_int {
    border(|| {
        let device = device::hold(device)?.clone();
        // SAFETY: the caller's promises.
        let options = unsafe { sized(options, "diorite_mkfs_options")?.of_mkfs()? };
        mkfs(&device, &options)?;
        Ok(0)
    })
}

/// Makes an image of files: @image is the path of a file of the host that is created; it is there whole or not at all. @sources are
/// @count texts: "dir:PATH", "tar:PATH", "oci:PATH", "docker:PATH" or "docker:PATH:NAME", "image:LOCATOR" or "image:LOCATOR:/DIR",
/// "manifest:PATH", or a path alone. A file of a later source replaces one of an earlier. @options may be NULL. Blocks.
///
/// Errors: EEXIST; ECANCELED: the progress function has ended it; EINVAL: a source; ENOENT, ENOSPC; those of the host.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_import(
    image: *const c_char,
    sources: *const *const c_char,
    count: usize,
    options: *const ImportOptions,
) -> c_int {
    border(|| {
        // SAFETY: the caller's promises.
        let (image, how, new) = unsafe {
            let how = sized(options, "diorite_import_options")?;
            let new = sized(how.mkfs, "diorite_mkfs_options")?;
            (bytes(image, "the image")?, how, new)
        };
        check_flags(
            how.flags,
            DIORITE_IMPORT_OWNER,
            "diorite_import_options.flags",
        )?;
        if sources.is_null() || count == 0 {
            return Err(null("sources"));
        }
        // SAFETY: the caller's promises.
        let mut builder = ImageBuilder::new(unsafe { new.of_mkfs() }?);
        let mut rules = Rules::default();
        if how.flags & DIORITE_IMPORT_OWNER != 0 {
            rules = rules.owner((how.uid, how.gid));
        }
        builder.set_rules(rules);
        for at in 0..count {
            // SAFETY: the caller's promises.
            let source = unsafe { text(*sources.add(at), "a source") }?;
            builder.add(source.parse::<Source>()?)?;
        }
        for warning in builder.warnings() {
            sink::write(Level::Warning, warning);
        }
        let plan = builder.plan(match new.bytes {
            0 => Size::Auto {
                headroom: how.headroom,
            },
            bytes => Size::Bytes(bytes),
        })?;
        let path = host_path(image);
        let mut file = NewFile::make(path, plan.bytes())?;
        let device = open_device(&Locator::file(path))?;
        let progress = Progress::new(how.progress, how.context, plan.contents().1);
        let written = plan.write(&device, &|done| progress.tell(done));
        progress.ended(written.map_err(Fault::from))?;
        file.is_kept = true;
        Ok(0)
    })
}

/// Checks the volume at a locator, as e2fsck -n does, and writes nothing. Damage is no error: it is in @result. @options may be NULL.
/// Blocks.
///
/// Errors: EFAULT, EINVAL; what prevents a check: ENOENT, EUCLEAN (no file system), EOPNOTSUPP (unknown features); those of the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_check(
    locator: *const c_char,
    options: *const HowToCheck,
    result: *mut CheckResult,
) -> c_int {
    border(|| {
        // SAFETY: the caller's promises.
        let (locator, how, result) = unsafe {
            let how = sized(options, "diorite_check_options")?;
            (text(locator, "the locator")?, how, out(result, "result")?)
        };
        volume::know_qcow2();
        // SAFETY: the caller's promises.
        unsafe {
            check(&how, result, |options, watch| {
                diorite_check::check(locator, options, watch)
            })
        }
    })
}

/// As diorite_check, of a device of the host program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_check_device(
    device: DeviceHandle,
    options: *const HowToCheck,
    result: *mut CheckResult,
) -> c_int {
    border(|| {
        let device = device::hold(device)?.clone();
        // SAFETY: the caller's promises.
        let (how, result) = unsafe {
            (
                sized(options, "diorite_check_options")?,
                out(result, "result")?,
            )
        };
        let run = |options: &CheckOptions, watch: diorite_check::Watch<'_>| {
            diorite_check::check_device(&device, options, watch)
        };
        // SAFETY: the caller's promises.
        unsafe { check(&how, result, run) }
    })
}

/// # Safety
/// The host's functions take the context, and may be called by any thread.
unsafe fn check(
    how: &HowToCheck,
    result: &mut CheckResult,
    run: impl FnOnce(&CheckOptions, diorite_check::Watch<'_>) -> Result<Report, diorite::Error>,
) -> Result<c_int, Fault> {
    struct Watched(HowToCheck);
    // SAFETY: the caller has promised that any thread may call the function with the context.
    unsafe impl Sync for Watched {}
    impl Watched {
        fn tell(&self, progress: diorite_check::Progress) {
            if let Some(told) = self.0.progress {
                let stage = c_text(progress.stage);
                // SAFETY: the host's function takes these.
                unsafe {
                    told(
                        self.0.context,
                        stage.as_ptr(),
                        progress.done,
                        progress.total,
                    )
                };
            }
        }
    }
    // SAFETY: the caller's promise.
    let open = unsafe { sized(how.open, "diorite_open_options")?.of_engine() }?;
    let mut options = CheckOptions::default().open(open);
    if how.threads != 0 {
        options = options.threads(how.threads as usize);
    }
    if how.per_kind != 0 {
        options = options.per_kind(how.per_kind as usize);
    }
    let watched = Watched(*how);
    let report = run(&options, &|progress| watched.tell(progress))?;
    if let Some(told) = how.finding {
        for (kind, finding) in report.kept() {
            let (kind, message) = (c_text(kind.name()), c_text(&finding.to_string()));
            let ino = finding.ino.map_or(0, |ino| u64::from(ino.get()));
            // SAFETY: the host's function takes these.
            unsafe { told(how.context, kind.as_ptr(), ino, message.as_ptr()) };
        }
    }
    *result = CheckResult {
        findings: report.count(),
        inodes: report.totals.inodes,
        directories: report.totals.directories,
        names: report.totals.names,
        blocks: report.totals.blocks,
        unfinished: u32::from(report.unfinished),
        partial: u32::from(report.partial),
        reserved: [0; 2],
    };
    Ok(0)
}
