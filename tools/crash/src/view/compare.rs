//! Compares two views of what should be the same tree.
//!
//! Input: entries from a judge, and entries from diorite. Output: every difference, in words. Invariant: each path of both lists is
//! compared. Limits: ranges of data are compared only if both views have them.

use std::collections::BTreeMap;
use xtask::manifest::Entry;

/// Compares the lists path by path; `judged` is taken as correct.
pub fn compare(judged: &[Entry], walked: &[Entry], found: &mut Vec<String>) {
    let mut ours: BTreeMap<&str, &Entry> = walked.iter().map(|e| (e.path.as_str(), e)).collect();
    if ours.len() != walked.len() {
        found.push(format!(
            "{} paths were found, {} of them different",
            walked.len(),
            ours.len()
        ));
    }
    for theirs in judged {
        match ours.remove(theirs.path.as_str()) {
            None => found.push(format!("{} was not found", theirs.path)),
            Some(ours) => differences(theirs, ours, found),
        }
    }
    found.extend(
        ours.keys()
            .map(|path| format!("{path} was found, and is not there")),
    );
}

/// Compares field by field, so that a difference is readable. Only the kernel reports ranges of data.
fn differences(theirs: &Entry, ours: &Entry, found: &mut Vec<String>) {
    let path = &theirs.path;
    let mut differ = |what: &str, theirs: &dyn std::fmt::Debug, ours: &dyn std::fmt::Debug| {
        let (theirs, ours) = (format!("{theirs:?}"), format!("{ours:?}"));
        if theirs != ours {
            let short = |text: String| text.chars().take(200).collect::<String>();
            found.push(format!(
                "{path}: {what} is {}, found {}",
                short(theirs),
                short(ours)
            ));
        }
    };
    differ("inode", &theirs.ino, &ours.ino);
    differ("first name", &theirs.link_of, &ours.link_of);
    let (Some(theirs), Some(ours)) = (&theirs.facts, &ours.facts) else {
        return;
    };
    differ("kind", &theirs.kind, &ours.kind);
    differ("mode", &theirs.mode, &ours.mode);
    differ("uid", &theirs.uid, &ours.uid);
    differ("gid", &theirs.gid, &ours.gid);
    differ("size", &theirs.size, &ours.size);
    differ("nlink", &theirs.nlink, &ours.nlink);
    differ("mtime", &theirs.mtime, &ours.mtime);
    differ("atime", &theirs.atime, &ours.atime);
    differ("ctime", &theirs.ctime, &ours.ctime);
    differ("crtime", &theirs.crtime, &ours.crtime);
    differ("rdev", &theirs.rdev, &ours.rdev);
    differ("target", &theirs.target, &ours.target);
    differ("xattrs", &theirs.xattrs, &ours.xattrs);
    differ("digest", &theirs.digest, &ours.digest);
    if let (Some(theirs), Some(ours)) = (&theirs.data, &ours.data) {
        differ("data", theirs, ours);
    }
}
