//! What it is: the judges of one state.
//! Input: an image as a power cut or a kill left it, and what its files may hold. Output: findings, in words.
//! Steps: with a journal, diorite's check must find nothing in the state as it is; without one, `e2fsck -fy` runs first, as users
//! are told to run it. Then copy A is recovered by diorite, copy B by `e2fsck -E journal_only`, which also processes orphans, and
//! copy C (if requested) by the kernel. The trees must be equal, `e2fsck -fn` and diorite's check must find nothing in any copy,
//! and A's files must hold what they may hold. debugfs (if requested) must report of B what diorite reports of A. A recovery that
//! is interrupted (if requested) must produce the same tree when it is repeated.
//! If the superblock is torn, B is repaired with `e2fsck -fy` instead, because the group descriptors beside a backup superblock are
//! old; the kernel cannot recover such a volume.
//! Limits: one state at a time; a judge's files are in memory and are reused.

mod again;
mod verdict;

use crate::bed::{Mode, scratch};
use crate::error::{Result, at};
use crate::expect::Expect;
use crate::left;
use crate::torn::{Super, has_orphans, superblock};
use crate::view::{compare, walk};
use diorite::{OpenOptions, Volume};
use diorite_block::record::Event;
use diorite_block::{Device, MemDevice, RecordDevice};
use diorite_format::Superblock;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use verdict::{Excuse, first_of};
use xtask::images::{told_by_debugfs, told_by_kernel};
use xtask::manifest::Entry;
use xtask::run::{self, Replayed};

/// What to do besides the recoveries by diorite and e2fsck.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Also {
    /// Recover a copy with the kernel, which needs root.
    pub kernel: bool,
    /// Compare with what debugfs reports.
    pub debugfs: bool,
    /// Cut diorite's own recovery with a simulated power loss, and recover again.
    pub again: bool,
}

/// The verdict of the judges on a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing was found.
    Well,
    /// The superblock is torn and has no backup; diorite refuses it, as e2fsck and the kernel do.
    Lost,
    /// These findings.
    Wrong(Vec<String>),
}

impl Verdict {
    fn of(found: Vec<String>) -> Verdict {
        if found.is_empty() {
            Verdict::Well
        } else {
            Verdict::Wrong(found)
        }
    }
}

/// A judge with the memory and files that it reuses. See the module.
pub struct Judge {
    scratch: tempfile::TempDir,
    mem: Arc<MemDevice>,
    /// Copy A and copy B after their recovery. The buffers are reused, because fresh memory costs more than the copying.
    ours: Vec<u8>,
    theirs: Vec<u8>,
    /// Recovery has truncations to finish, which set times: the kernel and diorite set the current time, e2fsck leaves the time as
    /// it is.
    times_differ: bool,
    /// The state has orphans, which may have attributes; e2fsck does not free all blocks and inodes of those.
    attributes_may_be_left: bool,
    /// e2fsck has truncated a file wrongly ([`Replayed`]), or may have: of a file of clusters it may leave blocks allocated without
    /// a word. The trees of such a state are not compared with e2fsck's.
    truncated_wrongly: bool,
    /// The volume has no journal, so `e2fsck -fy` has run first.
    mended: bool,
}

impl std::fmt::Debug for Judge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Judge").finish_non_exhaustive()
    }
}

impl Judge {
    /// A judge of images of `size` bytes.
    ///
    /// # Errors
    /// The host has no room.
    pub fn new(size: usize) -> Result<Judge> {
        Ok(Judge {
            scratch: scratch()?,
            mem: Arc::new(MemDevice::try_new(size as u64)?),
            ours: vec![0; size],
            theirs: vec![0; size],
            times_differ: false,
            attributes_may_be_left: false,
            truncated_wrongly: false,
            mended: false,
        })
    }

    /// Judges a state.
    ///
    /// # Errors
    /// A tool is missing, or the host has no room. An error that a tool or diorite reports about the state is a finding.
    pub fn judge(
        &mut self,
        mode: Mode,
        image: &[u8],
        expect: &Expect,
        also: Also,
    ) -> Result<Verdict> {
        self.mended = mode == Mode::None;
        let superblock = superblock(image);
        if superblock == Super::Lost {
            return self.without_superblock(mode, image, expect);
        }
        let also = Also {
            kernel: also.kernel && superblock == Super::Whole,
            ..also
        };
        let mut found = Vec::new();
        let journal_only = mode != Mode::None && superblock == Super::Whole;
        if journal_only {
            self.as_it_is(image, &mut found);
        }
        let theirs = self.by_fsck(image, journal_only, &mut found)?;
        let start = if mode == Mode::None { &theirs } else { image };
        self.compare_all(mode, (start, &theirs), expect, also, &mut found)?;
        self.theirs = theirs;
        Ok(Verdict::of(found))
    }

    /// Judges a state whose primary superblock is torn and has no backup. Only diorite may recover it: it may know what the torn
    /// sectors should hold.
    fn without_superblock(&mut self, mode: Mode, image: &[u8], expect: &Expect) -> Result<Verdict> {
        self.mem.write_at(0, image);
        if open(self.mem.clone(), false).is_err() {
            return Ok(Verdict::Lost);
        }
        let mut found = Vec::new();
        self.by_diorite(mode, image, expect, &mut found)?;
        Ok(Verdict::of(found))
    }

    /// Checks the state itself, whose journal is not replayed and which may have orphans. diorite's check judges it as it will be
    /// after replay, and must find nothing.
    fn as_it_is(&self, image: &[u8], found: &mut Vec<String>) {
        self.mem.write_at(0, image);
        match self.checked() {
            Ok(report) if report.is_clean() => {}
            Ok(report) => {
                let first = first_of(&report);
                found.push(format!(
                    "our check finds {first} in what the power cut left"
                ));
            }
            Err(error) => found.push(format!("our check of what the power cut left: {error}")),
        }
    }

    /// Copy B: recovered by e2fsck. Takes the kept buffer out of `self`; the caller puts it back.
    fn by_fsck(
        &mut self,
        image: &[u8],
        journal_only: bool,
        found: &mut Vec<String>,
    ) -> Result<Vec<u8>> {
        let b = self.file("b", image)?;
        let recovered = if journal_only {
            run::replay_journal(&b)
        } else {
            run::repair(&b).map(|()| Replayed::Whole)
        };
        self.truncated_wrongly = matches!(recovered, Ok(Replayed::TruncatedWrongly));
        if let Err(error) = recovered {
            found.push(format!("e2fsck recovers: {error}"));
        }
        let mut theirs = std::mem::take(&mut self.theirs);
        theirs.resize(image.len(), 0);
        left::read_into(&b, &mut theirs)?;
        Ok(theirs)
    }

    /// Recovers copy A and compares it with copy B, and with the kernel and debugfs if requested.
    fn compare_all(
        &mut self,
        mode: Mode,
        (start, theirs): (&[u8], &[u8]),
        expect: &Expect,
        also: Also,
        found: &mut Vec<String>,
    ) -> Result<()> {
        let b = self.scratch.path().join("b");
        let (ours, log) = self.by_diorite(mode, start, expect, found)?;
        let comparable = !self.truncated_wrongly;
        if *theirs != self.ours && comparable {
            self.mem.write_at(0, theirs);
            let by_fsck = self.tree("copy B", found);
            let left = match self.attributes_may_be_left {
                true => Excuse::AttributesLeft,
                false => Excuse::Nothing,
            };
            self.differ("e2fsck", &by_fsck, &ours, found);
            self.agree("copy B", &b, left, found);
        }
        if also.kernel {
            self.by_kernel(start, &ours, found)?;
        }
        if also.debugfs && comparable {
            match told_by_debugfs(&b, self.scratch.path()) {
                Ok(told) => self.differ("debugfs", &told, &ours, found),
                Err(error) if self.mended && is_refused_value(&error.to_string()) => {}
                Err(error) => found.push(format!("debugfs: {error}")),
            }
        }
        if also.again {
            self.again(start, &log, &ours, found);
        }
        Ok(())
    }

    /// Copy A: opened for writing, which recovers it, and closed; then judged. Leaves the copy in the memory device; returns its
    /// tree and the writes of the recovery.
    fn by_diorite(
        &mut self,
        mode: Mode,
        image: &[u8],
        expect: &Expect,
        found: &mut Vec<String>,
    ) -> Result<(Vec<Entry>, Vec<Event>)> {
        self.mem.write_at(0, image);
        // A volume opened for reading replays the log in memory and leaves the orphans as they are.
        let before = open(self.mem.clone(), false);
        let sb = before.ok().map(|volume| volume.superblock().clone());
        self.times_differ = sb.as_ref().is_some_and(has_orphans);
        self.attributes_may_be_left = self.times_differ;
        let clusters = |sb: &Superblock| sb.geometry().cluster_ratio() > 1;
        self.truncated_wrongly |= self.times_differ && sb.as_ref().is_some_and(clusters);
        let device = RecordDevice::with_volatile_cache(self.mem.clone());
        if let Err(error) = open(Arc::new(device.clone()), true).and_then(Volume::close) {
            found.push(format!("diorite recovers: {error}"));
        }
        let tree = self.tree("copy A", found);
        match open(self.mem.clone(), false) {
            Ok(volume) => expect.judge(&volume, mode, found),
            Err(error) => found.push(format!("copy A: {error}")),
        }
        self.mem.read_at(0, &mut self.ours);
        let a = self.file("a", &self.ours)?;
        let excuse = match superblock(image) {
            Super::Torn => Excuse::FromCopy,
            Super::Whole | Super::Lost => Excuse::Nothing,
        };
        self.agree("copy A", &a, excuse, found);
        Ok((tree, device.log()))
    }

    /// Copy C: the kernel mounts it, which recovers it, its tree is read, and it is unmounted.
    fn by_kernel(&self, image: &[u8], ours: &[Entry], found: &mut Vec<String>) -> Result<()> {
        let c = self.file("c", image)?;
        match told_by_kernel(&c, true) {
            Ok(theirs) => self.differ("the kernel", &theirs, ours, found),
            Err(error) if self.mended && is_refused_value(&error.to_string()) => {}
            Err(error) => found.push(format!("the kernel: {error}")),
        }
        let bytes = left::read(&c, image.len())?;
        self.mem.write_at(0, &bytes);
        self.agree("copy C", &c, Excuse::Nothing, found);
        Ok(())
    }

    /// The tree that diorite reads from the memory device; the volume must be clean.
    fn tree(&self, name: &str, found: &mut Vec<String>) -> Vec<Entry> {
        match open(self.mem.clone(), false) {
            Ok(volume) => {
                for remark in volume.notes() {
                    found.push(format!("{name} is recovered and has a note: {remark}"));
                }
                let mut here = Vec::new();
                let tree = walk(&volume, &mut here);
                here.retain(|line| !(self.mended && is_lost_value(line)));
                found.append(&mut here);
                tree
            }
            Err(error) => {
                found.push(format!("{name}: {error}"));
                Vec::new()
            }
        }
    }

    /// Adds the differences of two trees to the findings, with the name of whose tree was compared.
    fn differ(&self, who: &str, theirs: &[Entry], ours: &[Entry], found: &mut Vec<String>) {
        let mut differences = Vec::new();
        compare(theirs, ours, &mut differences);
        let of_time = |d: &String| d.contains(": mtime is ") || d.contains(": ctime is ");
        differences.retain(|d| !(self.times_differ && of_time(d)));
        // The tools differ in what they report of an attribute without its value, and of which of two attributes with one name.
        differences.retain(|d| !(self.mended && d.contains(": xattrs is ")));
        found.extend(
            differences
                .into_iter()
                .map(|d| format!("by {who}, against diorite: {d}")),
        );
    }

    fn file(&self, name: &str, bytes: &[u8]) -> Result<PathBuf> {
        let path = self.scratch.path().join(name);
        // Writes over the file of the last state, so that the host's pages are reused.
        let open = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let written = open.and_then(|file| {
            file.set_len(bytes.len() as u64)?;
            file.write_all_at(bytes, 0)
        });
        written.map_err(at(&path))?;
        Ok(path)
    }
}

/// True for the kernel's errors about attribute values that it refuses. Without a journal, a power cut may leave an attribute whose
/// value inode was not written, or the reverse. e2fsck detects neither: the attribute stays without its value, and a value inode
/// that no attribute names is linked into lost+found like any file. The kernel refuses both.
fn is_refused_value(error: &str) -> bool {
    error.contains("Structure needs cleaning") || error.contains("Stale file handle")
}

/// True for diorite's error about such an attribute.
fn is_lost_value(line: &str) -> bool {
    line.contains(": an attribute's value is in inode ")
        && line.ends_with(", which is not in use; run e2fsck")
}

fn open(device: Arc<dyn Device>, write: bool) -> std::result::Result<Volume, diorite::Error> {
    let options = OpenOptions::default().write(write).workers(1);
    Volume::open_device(device, &options)
}

#[cfg(test)]
mod tests;
