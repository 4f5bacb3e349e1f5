//! The convert module: converts a file system that is not open anywhere to another form.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `image` | a device -> a file system with changes in memory; the blocks that differ |
//! | `bits` | blocks and inodes -> handed out, given back |
//! | `tree` | an inode -> the nodes and the runs of its map; runs -> a map |
//! | `sums` | the change of a superblock -> all checksums as it asks for |
//! | `values` | values of attributes in inodes of their own -> their checksums, and the hashes of these |
//! | `dirs` | a directory -> its blocks with checksums, or without |
//! | `journal` | the inode of a journal; journals made and taken away |
//! | `own` | the orphan file, kept blocks, the block against several mounts: made and taken away |
//! | `quota` | usage files of quotas: made and taken away |
//! | `inodes` | a size of inodes -> tables of larger ones |
//! | `log` | the image as it was and as it is to be -> the device with the latter, all or nothing |
//!
//! Input: a device with a file system that needs no recovery and is in use by nobody, and a [`Conversion`]. Output: the file system in its
//! new form. Invariants: everything is judged, and every structure that changes is checked, before the first write; each change is one
//! transaction (see `log`), so after a power cut the device holds the old file system, the new one, or a log from which recovery makes the
//! new one. Limits: changed blocks are in memory, all of them: inode tables, bitmaps, directories.

mod bits;
mod dirs;
mod image;
mod inodes;
mod journal;
mod log;
mod own;
mod quota;
mod sums;
#[cfg(all(test, not(any(feature = "_loom", feature = "_shuttle"))))]
mod tests;
mod tree;
mod values;

pub use journal::InnerJournal;
pub use quota::UsageFile;

use crate::disk::{Judged, check_tuning, judge_features};
use crate::error::Error;
use crate::options::Clock;
use diorite_block::Device;
use diorite_format::features::{Compat, Features, Incompat, RoCompat};
use diorite_format::superblock::{JournalPlace, SuperblockEdit, Tuning};
use diorite_format::{Ino, Inode, Superblock};
use image::Image;
use std::sync::Arc;
use std::time::Duration;
use values::Values;

/// How far a conversion has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What is being done.
    pub what: &'static str,
    /// Units that are done.
    pub done: u64,
    /// All of them.
    pub of: u64,
}

impl Step {
    fn checksums(done: u64, of: u64) -> Step {
        let what = "computing checksums of groups";
        Step { what, done, of }
    }

    fn tables(done: u64, of: u64) -> Step {
        let what = "copying inode tables";
        Step { what, done, of }
    }

    fn usage(done: u64, of: u64) -> Step {
        let what = "counting what inodes use";
        Step { what, done, of }
    }

    fn log(done: u64, of: u64) -> Step {
        let what = "writing blocks to the journal";
        Step { what, done, of }
    }
}

/// Is told of each step.
pub(crate) type Progress<'a> = &'a mut dyn FnMut(&Step);

/// Another form for a file system; what is `None`, empty or false stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conversion {
    /// Another UUID: checksums have it in them.
    pub uuid: Option<[u8; 16]>,
    /// Features to add.
    pub set: Features,
    /// Features to take away.
    pub clear: Features,
    /// Larger inodes, of so many bytes.
    pub inode_size: Option<u16>,
    /// Usage files to make or to take away, one by one.
    pub usage: Vec<UsageFile>,
    /// Blocks of the orphan file, if it is made.
    pub orphan_file_blocks: Option<u32>,
    /// Seconds between updates of the block against several mounts, if that is made.
    pub mmp_interval: Option<u16>,
    /// The host and the device that this block names, if it is made.
    pub mmp_names: (String, String),
    /// Nobody has it mounted, whatever that block says.
    pub clear_mmp: bool,
    /// The encoding of names that ignore case, and its flags, if casefold is set.
    pub encoding: Option<(u16, u16)>,
    /// Parameters that lie in the superblock alone; no UUID. Its features are judged as by [`crate::Volume::tune`].
    pub tuning: Tuning,
    /// A journal inside.
    pub journal: Option<InnerJournal>,
    /// A journal on the device with this UUID, which has this file system as its user already.
    pub journal_device: Option<[u8; 16]>,
}

impl Conversion {
    /// Features that [`convert`] sets.
    #[must_use]
    pub fn settable() -> Features {
        Features {
            compat: Compat::HAS_JOURNAL.with(Compat::ORPHAN_FILE),
            incompat: Incompat::MMP.with(Incompat::CASEFOLD),
            ro_compat: SUMS.with(RoCompat::QUOTA).with(RoCompat::PROJECT),
        }
    }

    /// Features that [`convert`] takes away.
    #[must_use]
    pub fn clearable() -> Features {
        let settable = Conversion::settable();
        Features {
            compat: settable.compat.with(Compat::RESIZE_INODE),
            incompat: settable.incompat.with(Incompat::CSUM_SEED),
            ..settable
        }
    }

    /// Whether it asks for nothing.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Conversion::default()
    }
}

/// Features of checksums.
const SUMS: RoCompat = RoCompat::METADATA_CSUM.with(RoCompat::GDT_CSUM);
/// Seconds between updates of the block against several mounts, as of tune2fs.
const MMP_INTERVAL: u16 = 5;
/// Unicode 12.1.
const UTF8: u16 = 1;

/// Gives the file system on a device another form: see the module. Blocks.
///
/// # Errors
/// `Damaged`, `Format`: something is not as it should be; `NotSupported`, `Refused`: it cannot have that form, or has no room for the
/// change: nothing was changed. Later, errors of the device.
pub fn convert(
    device: &Arc<dyn Device>,
    change: &Conversion,
    clock: &Clock,
    progress: &mut dyn FnMut(&Step),
) -> Result<(), Error> {
    let now = clock();
    let mut old = Image::open(device)?;
    check(&old.sb, change)?;
    if old.has_lost_journal()? && change.clear.compat.has(Compat::HAS_JOURNAL) {
        return drop_lost_journal(&old, now);
    }
    let removes =
        change.clear.compat.has(Compat::HAS_JOURNAL) && old.sb.journal() != JournalPlace::None;
    let is_new = !removes && change.journal.is_some();
    let size = change
        .inode_size
        .filter(|size| u32::from(*size) != old.sb.geometry().inode_size());
    if is_new || size.is_some() {
        // All of it is judged before the first step is taken.
        let mut probe = old.clone();
        if is_new {
            probe.add_journal(&change.journal.unwrap_or_default())?;
        }
        main(&mut probe, change, (removes, now), &mut |_| {})?;
    }
    if is_new {
        old = add_journal(&old, change, now)?;
    }
    if let Some(size) = size {
        let mut new = old.clone();
        inodes::enlarge(&mut new, size, progress)?;
        log::commit(&old, new, now, progress)?;
        old = Image::open(device)?;
    }
    let mut new = old.clone();
    main(&mut new, change, (removes, now), progress)?;
    if new.raw_super() != old.raw_super() || new.is_changed() {
        log::commit(&old, new, now, progress)?;
        old = Image::open(device)?;
    }
    if removes {
        let mut new = old.clone();
        new.remove_journal()?;
        log::write_super_first(&old, new, now)?;
        old = Image::open(device)?;
    }
    if removes && change.journal.is_some() {
        old = add_journal(&old, change, now)?;
    }
    match &change.journal_device {
        Some(uuid) => {
            let mut new = old.clone();
            new.edit_super(|edit| edit.set_journal_on_device(uuid))?;
            log::write_super_first(&old, new, now)
        }
        None => Ok(()),
    }
}

/// What the superblock alone tells.
fn check(sb: &Superblock, change: &Conversion) -> Result<(), Error> {
    let has_journal = sb.journal() != JournalPlace::None;
    let removes = change.clear.compat.has(Compat::HAS_JOURNAL);
    let adds = change.journal.is_some() || change.journal_device.is_some();
    if adds && has_journal && !removes {
        return Err(Error::Invalid(
            "the file system already has a journal".to_owned(),
        ));
    }
    let stable = sb.features().compat.has(Compat::STABLE_INODES);
    if stable && change.uuid.is_some_and(|uuid| uuid != *sb.uuid()) {
        let what =
            "a new UUID, which the feature stable_inodes forbids: encrypted files depend on it";
        return Err(Error::NotSupported(what.to_owned()));
    }
    if sb.needs_recovery() || !sb.last_orphan().is_none() {
        return Err(own::unfinished());
    }
    if sb.has_error_state() {
        let what = "it has errors, and the change relies on all of its structures";
        return Err(Error::refused(
            what,
            "run 'diorite check --repair' or e2fsck -f first",
        ));
    }
    if sb.info().revision == 0 && (!change.set.names().is_empty() || change.inode_size.is_some()) {
        let what = "revision 0 has no features";
        return Err(Error::NotSupported(what.to_owned()));
    }
    Ok(())
}

/// The removal of a journal was cut off: its inode and its blocks are given back.
fn drop_lost_journal(old: &Image, now: Duration) -> Result<(), Error> {
    let mut new = old.clone();
    new.remove_own(diorite_format::Ino::JOURNAL)?;
    log::write_super_first(old, new, now)
}

/// Makes a journal, durably. Returns the file system with it.
fn add_journal(old: &Image, change: &Conversion, now: Duration) -> Result<Image, Error> {
    let mut new = old.clone();
    let runs = new.add_journal(&change.journal.unwrap_or_default())?;
    log::write_super_last(old, new, &runs, now)?;
    Image::open(old.blocking.device())
}

/// All changes but those of inode tables and of the journal.
fn main(
    image: &mut Image,
    change: &Conversion,
    (removes, now): (bool, Duration),
    progress: Progress<'_>,
) -> Result<(), Error> {
    let (set, clear) = (&change.set, &change.clear);
    match change.clear_mmp {
        true => image.clear_mmp()?,
        false => image.check_mmp()?,
    }
    if clear.incompat.has(Incompat::MMP) {
        image.remove_mmp()?;
    }
    let stays_without = removes && change.journal.is_none() && change.journal_device.is_none();
    if clear.compat.has(Compat::ORPHAN_FILE) || stays_without {
        image.remove_orphan_file()?;
    }
    if clear.compat.has(Compat::RESIZE_INODE) {
        image.remove_kept_blocks()?;
    }
    if clear.incompat.has(Incompat::CASEFOLD) && image.has_incompat(Incompat::CASEFOLD) {
        image.check_no_casefold()?;
        image.edit_super(|edit| {
            edit.switch_features(&Features::default(), &casefold());
            edit.set_encoding(0, 0);
        })?;
    }
    if set.incompat.has(Incompat::CASEFOLD) && !image.has_incompat(Incompat::CASEFOLD) {
        let (encoding, flags) = change.encoding.unwrap_or((UTF8, 0));
        image.edit_super(|edit| {
            edit.switch_features(&casefold(), &Features::default());
            edit.set_encoding(encoding, flags);
        })?;
    }
    if let Some(interval) = change
        .mmp_interval
        .filter(|_| image.has_incompat(Incompat::MMP))
    {
        image.set_mmp_interval(interval)?;
    }
    if set.incompat.has(Incompat::MMP) {
        let interval = change.mmp_interval.unwrap_or(MMP_INTERVAL);
        image.add_mmp(interval, &change.mmp_names, now)?;
    }
    if set.compat.has(Compat::ORPHAN_FILE) {
        image.add_orphan_file(change.orphan_file_blocks)?;
    }
    let quota = RoCompat::QUOTA.with(RoCompat::PROJECT).bits();
    let asks = (set.ro_compat.bits() | clear.ro_compat.bits()) & quota != 0;
    if asks || !change.usage.is_empty() {
        let features = (set.ro_compat, clear.ro_compat);
        image.change_quota(features, &change.usage, progress)?;
    }
    checksums(image, change, progress)?;
    tune(image, &change.tuning)
}

/// Parameters in the superblock alone. Features are judged as those of an open volume are: it is the last step, so each is judged on the
/// file system that has the others.
fn tune(image: &mut Image, tuning: &Tuning) -> Result<(), Error> {
    if *tuning == Tuning::default() {
        return Ok(());
    }
    let mut tuning = tuning.clone();
    check_tuning(&image.sb, &tuning)?;
    judge_features(image, &mut tuning)?;
    image.edit_super(|edit| edit.tune(&tuning))
}

impl Judged for Image {
    fn superblock(&self) -> &Superblock {
        &self.sb
    }

    fn inode(&mut self, ino: Ino) -> Result<Inode, Error> {
        Image::inode(self, ino)
    }

    fn each_inode(
        &mut self,
        look: &mut dyn FnMut(&Inode) -> Result<(), Error>,
    ) -> Result<(), Error> {
        Image::each_inode(self, &mut |_, inode| look(inode))
    }
}

fn casefold() -> Features {
    Features {
        incompat: Incompat::CASEFOLD,
        ..Features::default()
    }
}

/// Another UUID, and checksums of metadata on or off.
fn checksums(image: &mut Image, change: &Conversion, progress: Progress<'_>) -> Result<(), Error> {
    let of = |all: &Features| quota::ro(RoCompat::from_bits(all.ro_compat.bits() & SUMS.bits()));
    let (mut set, mut clear) = (of(&change.set), of(&change.clear));
    clear.incompat = change.clear.incompat;
    clear.incompat = Incompat::from_bits(clear.incompat.bits() & Incompat::CSUM_SEED.bits());
    let has = image.sb.features().ro_compat;
    if set.ro_compat.has(RoCompat::METADATA_CSUM) {
        // It takes the place of checksums of descriptors alone.
        set.ro_compat = set.ro_compat.without(RoCompat::GDT_CSUM);
        clear.ro_compat = clear.ro_compat.with(RoCompat::GDT_CSUM);
    } else if clear.ro_compat.has(RoCompat::METADATA_CSUM) && has.has(RoCompat::METADATA_CSUM) {
        // As tune2fs: a seed is of no use then, and descriptors keep checksums.
        clear.incompat = clear.incompat.with(Incompat::CSUM_SEED);
        if !clear.ro_compat.has(RoCompat::GDT_CSUM) {
            set.ro_compat = set.ro_compat.with(RoCompat::GDT_CSUM);
        }
    } else if has.has(RoCompat::METADATA_CSUM) {
        // As tune2fs: descriptors have better ones.
        set.ro_compat = set.ro_compat.without(RoCompat::GDT_CSUM);
    }
    let edit = |edit: &mut SuperblockEdit<'_>| {
        edit.switch_features(&set, &clear);
        if set.ro_compat.has(RoCompat::METADATA_CSUM) {
            edit.set_checksum_type(true);
        } else if clear.ro_compat.has(RoCompat::METADATA_CSUM) {
            edit.set_checksum_type(false);
        }
        if clear.incompat.has(Incompat::CSUM_SEED) {
            edit.forget_seed();
        }
        if let Some(uuid) = &change.uuid {
            edit.set_uuid(uuid);
        }
    };
    let mut probe = image.clone();
    probe.edit_super(edit)?;
    let same = sums::are_same(&image.sb, &probe.sb) && !values::change(&image.sb, &probe.sb);
    match same {
        true => image.edit_super(edit),
        false => {
            let values = Values::new(image, &probe.sb)?;
            sums::rewrite(image, edit, values, progress)
        }
    }
}
