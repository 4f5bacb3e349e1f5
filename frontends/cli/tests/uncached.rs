//! What commands leave in the host's page cache of large files that they read and write: nothing.

use crate::common::{diorite, files, noise, run, skip};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};
use std::fs::{self, File};
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::process::Command;

/// RWF_DONTCACHE.
const ONCE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(libc::RWF_DONTCACHE as _);
const PAGE: u64 = 4096;

/// A folder on a file system that can leave its page cache alone. Who has none is told why.
fn folder() -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir().unwrap();
    let file = File::create(dir.path().join("probe")).unwrap();
    match pwritev2(&file, &[IoSlice::new(b"x")], 0, ONCE) {
        Ok(_) => Some(dir),
        Err(Errno::OPNOTSUPP | Errno::INVAL) => {
            skip("the host's kernel or file system has no RWF_DONTCACHE");
            None
        }
        Err(errno) => panic!("{errno}"),
    }
}

/// Pages of a file in the host's cache.
fn cached(file: &Path) -> u64 {
    let said = run("fincore", &[Path::new("-nbo"), Path::new("PAGES"), file]);
    said.trim().parse().unwrap()
}

/// Takes a file out of the cache.
fn drop_cache(file: &Path) {
    let file = File::open(file).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

/// Runs commands that read the files `sources` and write the file that they name last. Asserts that none of these is in the cache then.
fn leave_nothing(dir: &Path, sources: &[&str], commands: &[&[&str]]) {
    let sources: Vec<PathBuf> = sources.iter().map(|name| dir.join(name)).collect();
    for args in commands {
        sources.iter().for_each(|source| drop_cache(source));
        let out = Command::new(env!("CARGO_BIN_EXE_diorite"))
            .args(*args)
            .current_dir(dir)
            .output()
            .unwrap();
        let err = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{args:?}: {err}");
        let made = dir.join(args.last().unwrap());
        for file in sources.iter().chain(made.is_file().then_some(&made)) {
            let (pages, all) = (cached(file), fs::metadata(file).unwrap().len() / PAGE);
            // Threads that read neighbouring ranges at a time leave some pages that both touch.
            let what = format!(
                "{args:?}: {pages} of {all} pages of {} stay",
                file.display()
            );
            assert!(pages <= 64.max(all / 3), "{what}");
        }
    }
}

/// Large files that commands read and write are not in the cache afterwards. Pages that were there before stay.
#[test]
fn large_files_pass_the_cache_once() {
    let Some(dir) = folder() else { return };
    let dir = dir.path();
    files(
        dir,
        &[
            ("tree/large", &noise(32 << 20, 7)),
            ("few/large", &noise(4 << 20, 8)),
        ],
    );
    let sh = |script: &str| run("sh", &["-c", &format!("cd {} && {script}", dir.display())]);
    sh("tar -C tree -cf large.tar large && tar -C few -c large | gzip -1 >few.tar.gz");
    leave_nothing(
        dir,
        &["tree/large", "large.tar"],
        &[
            &["import", "--size", "auto+80M", "tree", "tree.img"],
            &["import", "large.tar", "tar.img"],
            &["put", "tree.img", "tree/large", "/again"],
            &["get", "tree.img", "/large", "got"],
            &["export", "tree.img", "out.tar"],
            &["copy", "tree.img", "out.img"],
        ],
    );
    leave_nothing(
        dir,
        &["few/large", "few.tar.gz"],
        &[
            &["import", "few.tar.gz", "few.img"],
            &["export", "few.img", "few-out.tar.gz"],
            &["export", "few.img", "few-out.tar.zst"],
            &["copy", "few.img", "few.img.gz"],
            &["copy", "few.img", "few.simg"],
            &["copy", "few.img.gz", "few-back.img"],
        ],
    );
    sh("cmp got tree/large && cmp tree.img out.img && cmp few.img few-back.img");

    // What somebody else reads into the cache stays there.
    let large = dir.join("tree/large");
    fs::read(&large).unwrap();
    let before = cached(&large);
    let (img, large) = (dir.join("tree.img"), large.to_str().unwrap());
    let img = img.to_str().unwrap();
    diorite(&["put", img, large, "/third"]).ok();
    assert_eq!(cached(Path::new(large)), before);
    diorite(&["cmp", img, "/third", large]).ok();
}
