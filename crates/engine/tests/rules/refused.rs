//! What is refused by name, and changes nothing: data through the journal.
//!
//! Input: images with such files. Output: none. Invariant: not one byte of the image changes. Limits: writes only.

use crate::common::fixture::{LIMIT, writable};
use crate::common::recipe::debugfs;
use crate::common::stage::Stage;
use crate::common::watch::Watchdog;
use crate::common::{image, run, scratch};
use diorite::{Error, NotYet, OpenOptions};
use diorite_block::Buf;
use std::path::{Path, PathBuf};

fn small(dir: &Path, features: &str) -> PathBuf {
    let source = dir.join("source");
    std::fs::create_dir_all(&source).unwrap();
    for name in ["plain", "journalled"] {
        std::fs::write(source.join(name), [7; 50]).unwrap();
    }
    let args = ["-t", "ext4", "-b", "4096", "-I", "256", "-O", features];
    image(dir, "16M", &args, &source)
}

/// Every write of it is refused, at its beginning and past its end; the image stays as it was.
fn refused(image: &Path, path: &str, expect: impl Fn(&NotYet) -> bool) {
    let _watchdog = Watchdog::new(LIMIT, path);
    let stage = Stage::mem(image);
    let before = stage.bytes();
    let volume = stage.open(&OpenOptions::writable()).unwrap();
    let file = volume.open_path(path, writable()).unwrap();
    for pos in [0, 4096, 1 << 20] {
        let (_, result) = file.write_at(pos, Buf::zeroed(512));
        let named = matches!(&result, Err(e) if matches!(e.root(), Error::NotYet(n) if expect(n)));
        assert!(named, "{path} at {pos}: {result:?}");
    }
    drop(file);
    volume.close().unwrap();
    assert!(stage.bytes() == before, "{path}: the image changed");
}

#[test]
fn what_is_refused_changes_nothing() {
    let dir = scratch();
    let image = small(dir.path(), "^inline_data");
    // EXTENTS and JOURNAL_DATA.
    debugfs(
        &image,
        dir.path(),
        "set_inode_field /journalled flags 0x84000\n",
    );
    refused(&image, "/journalled", |n| {
        matches!(n, NotYet::JournalledData { .. })
    });
    run("tune2fs", &["-o", "journal_data", image.to_str().unwrap()]);
    refused(&image, "/plain", |n| {
        matches!(n, NotYet::JournalledData { .. })
    });
}
