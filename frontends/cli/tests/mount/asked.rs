//! What the kernel asks for, by operation: what no caller needs is not asked for.

use crate::bed::{Bed, DIORITE, said};
use crate::life::until;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

const FILES: u64 = 200;
/// What the mount itself, and others who look at it, may ask for beside the test.
const OTHERS: u64 = 20;

/// Mounts it, does this, and unmounts it. Returns how many requests came, by operation.
fn asked(bed: &Bed, what: impl FnOnce()) -> BTreeMap<String, u64> {
    let mut keeper = Command::new(DIORITE)
        .args(bed.args(&["-f", "-v"]))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("it is mounted", || bed.is_mounted());
    what();
    bed.unmount();
    let mut told = String::new();
    let (mut out, mut err) = (keeper.stdout.take().unwrap(), keeper.stderr.take().unwrap());
    out.read_to_string(&mut told).unwrap();
    err.read_to_string(&mut told).unwrap();
    assert!(keeper.wait().unwrap().success(), "{told}");
    let line = told
        .lines()
        .find_map(|line| line.split_once("requests by operation: "));
    let (_, all) = line.unwrap_or_else(|| panic!("no counts: {told}"));
    let each = all.split(", ").map(|one| {
        let (name, count) = one.split_once(' ').unwrap();
        (name.to_owned(), count.parse().unwrap())
    });
    each.collect()
}

/// The names of the files, which are made on a mount.
fn names(bed: &Bed) -> Vec<std::path::PathBuf> {
    (0..FILES).map(|n| bed.path(&format!("file-{n}"))).collect()
}

/// CREATE tells what LOOKUP and GETATTR would; FLUSH, OPENDIR and ACCESS are answered once for all; what was told is not asked again.
#[test]
fn what_no_caller_needs_is_not_asked_for() {
    let Some(bed) = Bed::new(&[]) else { return };
    let counts = asked(&bed, || {
        for path in &names(&bed) {
            let mut file = File::create_new(path).unwrap();
            // It is known: the reply to CREATE had it.
            assert_eq!(rustix::fs::fstat(&file).unwrap().st_size, 0);
            file.write_all(&[7; 5000]).unwrap();
        }
        for _ in 0..3 {
            for path in &names(&bed) {
                assert_eq!(rustix::fs::stat(path).unwrap().st_size, 5000);
            }
        }
    });
    let of = |name: &str| counts.get(name).copied().unwrap_or(0);
    assert_eq!(of("CREATE"), FILES, "{counts:?}");
    assert_eq!(of("WRITE"), FILES, "{counts:?}");
    assert_eq!(of("OPEN"), 0, "{counts:?}");
    // Each name was looked for before it was made, and not again.
    assert!(of("LOOKUP") <= FILES + OTHERS, "{counts:?}");
    // The kernel takes a write to have changed what it knows of the file, and a new name what it knows of the directory.
    assert!(
        of("GETATTR") + of("STATX") <= 2 * FILES + OTHERS,
        "{counts:?}"
    );
    for once in ["FLUSH", "OPENDIR", "RELEASEDIR", "ACCESS", "FSYNC"] {
        assert!(of(once) <= 1, "{once}: {counts:?}");
    }
    bed.check();
}

/// A listing tells what LOOKUP and GETATTR would; bytes that the kernel has are not read again, whoever opens the file.
#[test]
fn what_was_told_is_not_asked_again() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.mount(&[]);
    for path in &names(&bed) {
        std::fs::write(path, [7; 5000]).unwrap();
    }
    bed.unmount();
    let counts = asked(&bed, || {
        for _ in 0..2 {
            said("ls", &["-l", bed.at.to_str().unwrap()]);
        }
        for path in names(&bed).iter().chain(&names(&bed)) {
            assert_eq!(std::fs::read(path).unwrap().len(), 5000);
        }
    });
    let of = |name: &str| counts.get(name).copied().unwrap_or(0);
    assert!(of("LOOKUP") <= OTHERS, "{counts:?}");
    assert_eq!(of("OPEN"), 2 * FILES, "{counts:?}");
    assert!(of("READ") <= FILES, "{counts:?}");
    for once in ["FLUSH", "OPENDIR", "RELEASEDIR", "ACCESS"] {
        assert!(of(once) <= 1, "{once}: {counts:?}");
    }
    bed.check();
}

/// Each request of a file that tar unpacks is one that no answer of a server takes away: LOOKUP, CREATE, WRITE, SETATTR for owner, mode and
/// times, GETXATTR of `security.capability` before the write and before the change of the owner, GETATTR of the directory, RELEASE.
#[test]
fn a_file_is_unpacked_with_eleven_requests_at_most() {
    let Some(bed) = Bed::new(&[]) else { return };
    let outside = crate::common::scratch();
    let (tree, archive) = (outside.path().join("tree"), outside.path().join("tree.tar"));
    std::fs::create_dir(&tree).unwrap();
    for n in 0..FILES {
        std::fs::write(tree.join(format!("file-{n}")), [7; 5000]).unwrap();
    }
    let (dir, name) = (outside.path().to_str().unwrap(), archive.to_str().unwrap());
    said("tar", &["-C", dir, "-cf", name, "tree"]);
    let counts = asked(&bed, || {
        said("tar", &["-C", bed.at.to_str().unwrap(), "-xf", name]);
    });
    let of = |name: &str| counts.get(name).copied().unwrap_or(0);
    assert_eq!(of("CREATE"), FILES, "{counts:?}");
    assert_eq!(of("RELEASE"), FILES, "{counts:?}");
    let most = [
        // What is in two of tar's records of 10 KiB is written twice.
        ("WRITE", 2),
        ("LOOKUP", 1),
        ("SETATTR", 3),
        ("GETXATTR", 2),
        ("GETATTR", 1),
    ];
    for (name, times) in most {
        assert!(of(name) <= times * FILES + OTHERS, "{name}: {counts:?}");
    }
    let all: u64 = counts.values().sum();
    assert!(all <= 11 * FILES + 2 * OTHERS, "{counts:?}");
    bed.check();
}
