//! What it is: the verdict of a whole volume, by e2fsck and by our own check.
//! Input: a recovered image, as a file and in the memory device. Output: findings: what e2fsck should not have said, and that the two differ.
//! Invariant: both judge the same bytes, and neither changes them. Limit: what is excused is named here, line by line.

use super::Judge;
use diorite::check::{CheckOptions, check_device};
use diorite_block::Device;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use xtask::error::Error;
use xtask::run;

/// What the superblock says is free.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Counts {
    Right,
    /// It was put together from a copy; the next commit sets it right. The list of orphans was in it, and is lost: files that had lost their names
    /// and were still open when the volume was closed are e2fsck's to delete.
    MayBeOld,
}

/// What e2fsck begins the lines with that are excused where counts may be old.
const EXCUSES: [&str; 7] = [
    "Free blocks count wrong (",
    "Free inodes count wrong (",
    "Fix? no",
    "Deleted inode ",
    "Inode bitmap differences: ",
    "Block bitmap differences: ",
    "e2fsck 1.",
];

impl Judge {
    /// `e2fsck -fn` finds nothing in the image, or what is excused, and our check of the memory device, which holds the same, says so too.
    pub(super) fn agree(&self, who: &str, image: &Path, counts: Counts, found: &mut Vec<String>) {
        let args = [OsStr::new("-fn"), image.as_os_str()];
        let (said, theirs) = match run::run("e2fsck", &args) {
            Ok(said) => (String::from_utf8_lossy(&said).into_owned(), true),
            Err(Error::Tool { output, .. }) => (output, false),
            Err(error) => return found.push(format!("e2fsck -fn of {who}: {error}")),
        };
        if let Some(remark) = remark(&said, image, counts) {
            found.push(format!("e2fsck -fn of {who} should be silent: {remark}"));
        }
        let device: Arc<dyn Device> = self.mem.clone();
        let options = CheckOptions {
            // Every processor has a judge of its own.
            threads: 1,
            ..CheckOptions::default()
        };
        match check_device(&device, &options, &|_| {}) {
            Ok(report) if report.is_clean() == theirs => {}
            Ok(report) => {
                let first = report.kept().next();
                let first = first.map_or("nothing".to_owned(), |(kind, f)| format!("{kind}: {f}"));
                found.push(format!(
                    "our check finds {first} in {who}, where e2fsck's verdict is {theirs}"
                ));
            }
            Err(error) => found.push(format!("our check of {who}: {error}")),
        }
    }
}

/// The first line that is neither of e2fsck's passes, nor its summary, nor an excuse.
fn remark<'a>(said: &'a str, image: &Path, counts: Counts) -> Option<&'a str> {
    let summary = format!("{}: ", image.display());
    let excused = |line: &str| {
        let starts = EXCUSES.iter().any(|start| line.starts_with(start));
        starts || line.ends_with("WARNING: Filesystem still has errors **********")
    };
    let expected = |line: &&str| {
        line.is_empty()
            || line.starts_with("Pass ")
            || line.starts_with(&summary)
            // An offer, no complaint: a tree that has grown is rarely packed as tightly as e2fsck could pack it.
            || line.contains("extent tree") && line.ends_with("Optimize? no")
            || counts == Counts::MayBeOld && excused(line)
    };
    said.lines().find(|line| !expected(line))
}
