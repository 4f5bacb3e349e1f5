//! An image with a few files, with blocks of 1 KiB and without checksums, for tests that change it and ask for verdicts.
//!
//! Input: features, files. Output: the image, debugfs on it, assertions about both verdicts. Invariant: the image is undamaged at first.
//! Limits: bytes are changed in place; nothing recomputes checksums.

use crate::common::recipe::debugfs;
use crate::common::{self, run, scratch};
use crate::{ours, theirs};
use std::path::{Path, PathBuf};

const NOTHING: (bool, String) = (false, String::new());

/// See the module.
pub(crate) struct Bench {
    dir: tempfile::TempDir,
    pub(crate) image: PathBuf,
}

impl Bench {
    pub(crate) fn new(features: &str, fill: impl Fn(&Path)) -> Bench {
        Bench::with(features, &[], fill)
    }

    pub(crate) fn with(features: &str, more: &[&str], fill: impl Fn(&Path)) -> Bench {
        let dir = scratch();
        let source = dir.path().join("source");
        std::fs::create_dir_all(&source).unwrap();
        fill(&source);
        let features = format!("^metadata_csum,^64bit,{features}");
        let args = [&["-t", "ext4", "-b", "1024", "-O", &features], more].concat();
        let image = common::image(dir.path(), "8M", &args, &source);
        Bench { dir, image }
    }

    pub(crate) fn debugfs(&self, script: &str) {
        debugfs(&self.image, self.dir.path(), script);
    }

    /// The first number in debugfs' answer.
    pub(crate) fn ask(&self, request: &str) -> u64 {
        let said = run("debugfs", &["-R", request, self.image.to_str().unwrap()]);
        said.split_whitespace()
            .find_map(|w| w.parse().ok())
            .unwrap()
    }

    pub(crate) fn ino(&self, path: &str) -> u64 {
        self.ask(&format!("stat {path}"))
    }

    pub(crate) fn patch(&self, at: usize, bytes: &[u8]) {
        let mut image = std::fs::read(&self.image).unwrap();
        image[at..at + bytes.len()].copy_from_slice(bytes);
        std::fs::write(&self.image, &image).unwrap();
    }

    /// Asserts that neither finds anything.
    pub(crate) fn both_clean(&self, what: &str) {
        assert_eq!(ours(&self.image), NOTHING, "{what}");
        assert!(!theirs(&self.image).0, "{what}: {:?}", theirs(&self.image));
    }

    /// Asserts that both find damage, and that the first finding of `check` contains these words.
    pub(crate) fn both_damaged(&self, words: &str) {
        self.ours_damaged(words);
        assert!(theirs(&self.image).0, "{words}");
    }

    /// Asserts that `check` finds damage, and that e2fsck prints the same, although its exit code is 0.
    pub(crate) fn both_say(&self, ours: &str, theirs_begins: &str) {
        self.ours_damaged(ours);
        let said = theirs(&self.image).1;
        assert!(said.starts_with(theirs_begins), "{said}");
    }

    /// Gives a file an attribute with its value in another inode. debugfs does not update the counts, so e2fsck repairs them.
    pub(crate) fn give_large_attribute(&self, path: &str, name: &str) {
        let value = self.dir.path().join("value");
        std::fs::write(&value, vec![b'x'; 5000]).unwrap();
        self.debugfs(&format!("ea_set -f {} {path} {name}\n", value.display()));
        let _ = xtask::run::tool("e2fsck")
            .args(["-fy", self.image.to_str().unwrap()])
            .output();
        self.both_clean("an attribute");
    }

    pub(crate) fn ours_damaged(&self, words: &str) {
        let (damaged, said) = ours(&self.image);
        assert!(damaged && said.contains(words), "{words}: {said:?}");
    }

    /// Asserts that `check` finds nothing, and that both find nothing after e2fsck has processed the orphans.
    pub(crate) fn clean_but_for_orphans(&self, what: &str) {
        assert_eq!(ours(&self.image), NOTHING, "{what}");
        let image = self.image.to_str().unwrap();
        // The exit code is 0 or 1 depending on the version: orphans count as repaired, or not.
        let _ = xtask::run::tool("e2fsck").args(["-p", image]).output();
        self.both_clean(what);
    }
}
