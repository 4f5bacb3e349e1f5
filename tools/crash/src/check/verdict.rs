//! What it is: the verdict of a whole volume, by e2fsck and by our own check. Input: a recovered image, as a file and in the memory
//! device. Output: findings: what e2fsck should not have said, and that the two differ. Invariant: both judge the same bytes, and neither
//! changes them. Limit: what is excused is named here, line by line.

use super::Judge;
use diorite_block::Device;
use diorite_check::{CheckOptions, Finding, Kind, Report, check_device};
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use xtask::error::Error;
use xtask::run;

/// What e2fsck may say of a volume that was recovered as well as it can be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Excuse {
    Nothing,
    /// The superblock was put together from a copy; the next commit sets its counts right. The list of orphans was in it, and is lost:
    /// files that had lost their names and were still open when the volume was closed are e2fsck's to delete.
    FromCopy,
    /// e2fsck itself has deleted orphans, and leaves the inodes that held the values of their attributes, and the attributes' block of
    /// those without blocks of data, or its count where others share it (as it does of those that the kernel wrote).
    AttributesLeft,
}

/// What e2fsck begins the lines with that may be excused.
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

/// What our check finds, and e2fsck does not see and therefore does not mend, where there is no journal and the power is cut: one cluster
/// at two places of a file, in the middle of a shift, if two nodes of the map share it; attributes whose values are not there, and values
/// that nobody has, to which it gives names; a name that was on its way from one block of its directory to another.
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
    /// `e2fsck -fn` finds nothing in the image, or what is excused, and our check of the memory device, which holds the same, says so too.
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

    /// Our check of the memory device.
    pub(super) fn checked(&self) -> Result<Report, diorite::Error> {
        let device: Arc<dyn Device> = self.mem.clone();
        let options = CheckOptions {
            // Every processor has a judge of its own.
            threads: 1,
            ..CheckOptions::default()
        };
        check_device(&device, &options, &|_| {})
    }
}

/// What a check found first, in words.
pub(super) fn first_of(report: &Report) -> String {
    let first = report.kept().next();
    first.map_or("nothing".to_owned(), |(kind, f)| format!("{kind}: {f}"))
}

fn not_seen((kind, finding): (Kind, &Finding)) -> bool {
    NOT_SEEN
        .iter()
        .any(|(of, words)| *of == kind && finding.what.contains(words))
}

/// The first line that is neither of e2fsck's passes, nor its summary, nor an excuse.
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
            // An offer, no complaint: a tree that has grown is rarely packed as tightly as e2fsck could pack it.
            || line.contains("extent tree") && line.ends_with("Optimize? no")
            || excuse != Excuse::Nothing && excused(line)
    };
    said.lines().find(|line| !expected(line))
}
