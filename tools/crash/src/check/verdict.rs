//! What it is: the verdict of e2fsck and of diorite's check on a whole volume.
//! Input: a recovered image, as a file and in the memory device. Output: findings: messages of e2fsck that are not excused, and
//! differences between the two. Invariant: both judge the same bytes, and neither changes them. Limit: each excused message is
//! listed here.

use super::Judge;
use diorite_block::Device;
use diorite_check::{CheckOptions, Finding, Kind, Report, check_device};
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use xtask::error::Error;
use xtask::run;

/// Which messages of e2fsck are allowed on a volume that was recovered as well as possible.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Excuse {
    Nothing,
    /// The superblock was restored from a backup; the next commit corrects its counts. The torn superblock had the head of the orphan
    /// list, which is lost: files that had no name and were still open are left for e2fsck to delete.
    FromCopy,
    /// e2fsck itself has deleted orphans. It leaves the inodes that held their attributes' values, and the attribute block of
    /// orphans without data blocks, or its use count if other inodes share the block (also for orphans that the kernel wrote).
    AttributesLeft,
}

/// The beginnings of the lines that may be excused.
const SUMS: [&str; 2] = ["Fix? no", "e2fsck 1."];
const FROM_COPY: [&str; 5] = [
    "Free blocks count wrong (",
    "Free inodes count wrong (",
    "Deleted inode ",
    "Inode bitmap differences: ",
    "Block bitmap differences: ",
];
const ATTRIBUTES_LEFT: [&str; 5] = [
    "Extended attribute block ",
    "Unattached inode ",
    "Connect to /lost+found? no",
    "Free blocks count wrong (",
    "Block bitmap differences: ",
];

/// Kinds of findings of diorite's check that e2fsck does not detect, and therefore does not repair, after a power cut without a
/// journal: one cluster at two positions of a file, if two nodes of its map share the cluster in the middle of a shift; attributes
/// without their value inodes; value inodes that no attribute names, which e2fsck gives names; a name that was being moved from one
/// block of its directory to another.
const NOT_SEEN: [(Kind, &str); 4] = [
    (
        Kind::BlockMap,
        ", in the cluster of another place of the file",
    ),
    (Kind::Xattr, " has its value in inode "),
    (
        Kind::Directory,
        " names an inode that holds an attribute's value",
    ),
    (Kind::Directory, " is in it twice"),
];

impl Judge {
    /// Requires that `e2fsck -fn` finds nothing in the image, or only what is excused, and that diorite's check of the memory
    /// device, which holds the same bytes, agrees.
    pub(super) fn agree(&self, who: &str, image: &Path, excuse: Excuse, found: &mut Vec<String>) {
        let args = [OsStr::new("-fn"), image.as_os_str()];
        let (said, theirs) = match run::run("e2fsck", &args) {
            Ok(said) => (String::from_utf8_lossy(&said).into_owned(), true),
            Err(Error::Tool { output, .. }) => (output, false),
            Err(error) => return found.push(format!("e2fsck -fn of {who}: {error}")),
        };
        if let Some(remark) = remark(&said, image, excuse) {
            found.push(format!("e2fsck -fn of {who} should be silent: {remark}"));
        }
        match self.checked() {
            Ok(report) if report.is_clean() == theirs => {}
            Ok(report) if theirs && self.mended && report.kept().all(not_seen) => {}
            Ok(report) => {
                let first = first_of(&report);
                found.push(format!(
                    "our check finds {first} in {who}, where e2fsck's verdict is {theirs}"
                ));
            }
            Err(error) => found.push(format!("our check of {who}: {error}")),
        }
    }

    /// Runs diorite's check on the memory device.
    pub(super) fn checked(&self) -> Result<Report, diorite::Error> {
        let device: Arc<dyn Device> = self.mem.clone();
        let options = CheckOptions::default()
            // Each processor has its own judge.
            .threads(1);
        check_device(&device, &options, &|_| {})
    }
}

/// The first finding of a check, in words.
pub(super) fn first_of(report: &Report) -> String {
    let first = report.kept().next();
    first.map_or("nothing".to_owned(), |(kind, f)| format!("{kind}: {f}"))
}

fn not_seen((kind, finding): (Kind, &Finding)) -> bool {
    NOT_SEEN
        .iter()
        .any(|(of, words)| *of == kind && finding.what.contains(words))
}

/// The first line that is not one of e2fsck's pass headings, its summary, or excused.
fn remark<'a>(said: &'a str, image: &Path, excuse: Excuse) -> Option<&'a str> {
    let summary = format!("{}: ", image.display());
    let excuses: &[&str] = match excuse {
        Excuse::Nothing => &[],
        Excuse::FromCopy => &FROM_COPY,
        Excuse::AttributesLeft => &ATTRIBUTES_LEFT,
    };
    let excused = |line: &str| {
        let mut all = excuses.iter().chain(&SUMS);
        all.any(|start| line.starts_with(start))
            || line.ends_with("WARNING: Filesystem still has errors **********")
    };
    let expected = |line: &&str| {
        line.is_empty()
            || line.starts_with("Pass ")
            || line.starts_with(&summary)
            // An offer to optimise, not a complaint: a tree that has grown is rarely as compact as e2fsck could make it.
            || line.contains("extent tree") && line.ends_with("Optimize? no")
            || excuse != Excuse::Nothing && excused(line)
    };
    said.lines().find(|line| !expected(line))
}
