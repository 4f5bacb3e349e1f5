//! The house's floors: imports run down only, and no circle of files leaves its room.
//!
//! Input: the sources of the crates. Output: none. Invariants: a room is a module of a crate's top level, with all that lies in it; each
//! room of the engine stands on one floor of [`FLOORS`], each of the command on one of [`FLOORS_OF_COMMAND`], and imports from lower ones
//! only. Limits: what tests import does not count, nor
//! what a macro writes; methods are nobody's import, so an inherent `impl` stands in its type's own room.

mod source;

use source::{Crate, Import};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The engine's rooms, the lowest first.
const FLOORS: [&str; 44] = [
    "locks",
    "op",
    "error",
    "caller",
    "policy",
    "reason",
    "stats",
    "request",
    "pages",
    "undo",
    "options",
    "threads",
    "mapping",
    "device",
    "latest",
    "disk",
    "journal",
    "alloc",
    "map",
    "turn",
    "space",
    "orphan",
    "inode",
    "range",
    "xattr",
    "delete",
    "attr",
    "dir",
    "fast_commit",
    "mount",
    "relocate",
    "convert",
    "jobs",
    "ioend",
    "slots",
    "complete",
    "dio",
    "queue",
    "resize",
    "volume",
    "loopdev",
    "locator",
    "probe",
    "lib",
];

/// The command's rooms, the lowest first.
const FLOORS_OF_COMMAND: [&str; 13] = [
    "words", "output", "host", "args", "manual", "copying", "images", "encoding", "targets",
    "walking", "usage", "cmd", "main",
];

/// Methods that stand elsewhere: a volume is opened by a name, and what a name can lead to is above volumes.
const ENTRY_POINTS: [(&str, &str); 1] = [("locator.rs", "Volume")];

/// Files of one circle, at most.
const MOST_IN_CIRCLE: usize = 8;

const CRATES: [&str; 13] = [
    "crates/block/src",
    "crates/format/src",
    "crates/mkfs/src",
    "crates/engine/src",
    "crates/check/src",
    "crates/image/src",
    "crates/qcow2/src",
    "frontends/fuse/src",
    "frontends/async/src",
    "frontends/nbd/src",
    "frontends/bench/src",
    "frontends/c/src",
    "frontends/cli/src",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(src: &str) -> Crate {
    Crate::read(&root().join(src))
}

/// The room of a file: `a/b.rs` and `a.rs` are of room `a`.
fn room(file: &str) -> &str {
    let first = file.split('/').next().unwrap_or(file);
    first.strip_suffix(".rs").unwrap_or(first)
}

#[test]
fn imports_of_the_engine_run_down() {
    assert_run_down("crates/engine/src", &FLOORS, 500);
}

#[test]
fn imports_of_the_command_run_down() {
    assert_run_down("frontends/cli/src", &FLOORS_OF_COMMAND, 300);
}

fn assert_run_down(src: &str, floors: &[&str], least: usize) {
    let imports = read(src).imports();
    assert!(imports.len() > least, "the sources were not read");
    let floor = |file: &str| {
        let at = floors.iter().position(|name| *name == room(file));
        at.unwrap_or_else(|| panic!("{file}: its room has no floor"))
    };
    let up: Vec<String> = imports
        .iter()
        .filter(|i| room(&i.from) != room(&i.to) && floor(&i.from) < floor(&i.to))
        .map(|i| format!("{} takes {} from {}", i.from, i.name, i.to))
        .collect();
    assert!(up.is_empty(), "imports run up:\n{}", up.join("\n"));
}

/// No source is overlooked: what is not read is of tests, and a crate has no second name for itself; no crate is, and no floor is without
/// a room.
#[test]
fn all_sources_are_read() {
    for folder in ["crates", "frontends"] {
        for entry in std::fs::read_dir(root().join(folder)).expect("a folder of crates") {
            let name = entry.expect("an entry").file_name();
            let src = format!("{folder}/{}/src", name.to_str().expect("plain names"));
            assert!(CRATES.contains(&&src[..]), "{src} is in no list");
        }
    }
    for (src, floors) in [
        ("crates/engine/src", &FLOORS[..]),
        ("frontends/cli/src", &FLOORS_OF_COMMAND),
    ] {
        let of = read(src);
        let rooms: BTreeSet<&str> = of.files().into_iter().map(room).collect();
        let floors = floors.iter().copied().collect();
        assert_eq!(rooms, floors, "{src}: rooms and floors");
    }
    for src in CRATES {
        let of = read(src);
        assert_eq!(of.named_themselves(), Vec::<&str>::new(), "{src}");
        let (read, mut unread) = (of.files(), Vec::new());
        let mut todo = vec![root().join(src)];
        while let Some(dir) = todo.pop() {
            for entry in std::fs::read_dir(&dir).expect("a folder of sources") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    todo.push(path);
                    continue;
                }
                let file = path.strip_prefix(root().join(src)).expect("below it");
                let file = file.to_str().expect("plain names");
                let of_tests = ["tests.rs", "testing.rs"].iter().any(|t| file.ends_with(t));
                if !read.contains(file) && !of_tests && !file.contains("tests/") {
                    unread.push(file.to_owned());
                }
            }
        }
        assert!(unread.is_empty(), "{src}: {unread:?}");
    }
}

/// Imports are seen wherever they stand. The defects: what was not for tests, or followed a field that was, was taken for a part of them;
/// a name that begins with `pub` lost that; `self::super` led nowhere.
#[test]
fn imports_are_seen_wherever_they_stand() {
    let dir = tempfile::tempdir().expect("a scratch folder");
    let low = r#"
#[cfg(not(test))]
use crate::high::NotForTests;
#[cfg(any(test, feature = "x"))]
use crate::high::AlsoForTests;
#[cfg(test)]
use crate::high::ForTests;
use crate::high::{
    published_fn,
};
struct Low {
    #[cfg(test)]
    watch: u32,
    field: crate::high::Field,
}
macro_rules! made {
    () => { $crate::high::Macro };
}
fn inside() {
    use self::super::high::Own;
    { use crate::high::*; }
}
"#;
    let high = "pub use inner::published_fn;\nmod inner;\n";
    for (file, code) in [
        ("lib.rs", "mod low;\nmod high;\n"),
        ("low.rs", low),
        ("high.rs", high),
        ("high/inner.rs", "pub fn published_fn() {}\n"),
    ] {
        let path = dir.path().join(file);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, code).expect("a file");
    }
    let imports = Crate::read(dir.path()).imports();
    let of_low = imports.iter().filter(|i| i.from == "low.rs");
    let taken: BTreeSet<(&str, &str)> = of_low.map(|i| (&i.name[..], &i.to[..])).collect();
    let all = ["", "AlsoForTests", "Field", "Macro", "NotForTests", "Own"];
    let mut expected: BTreeSet<(&str, &str)> = all.iter().map(|n| (*n, "high.rs")).collect();
    expected.insert(("published_fn", "high/inner.rs"));
    assert_eq!(taken, expected);
}

/// Circles of files: none leaves a room, none is large.
#[test]
fn circles_stay_small_and_in_their_rooms() {
    for src in CRATES {
        let imports = read(src).imports();
        for circle in circles(&imports) {
            let rooms: BTreeSet<&str> = circle.iter().map(|file| room(file)).collect();
            let ties = ties(&imports, &circle);
            assert!(rooms.len() == 1, "{src}: a circle of rooms:\n{ties}");
            let few = circle.len() <= MOST_IN_CIRCLE;
            assert!(few, "{src}: a circle of {} files:\n{ties}", circle.len());
        }
    }
}

/// A method is nobody's import: an inherent `impl` away from its type's room would hide what leads where.
#[test]
fn inherent_impls_stand_in_their_types_rooms() {
    for src in CRATES {
        let of = read(src);
        let impls = of.inherent_impls();
        assert!(impls.len() > 2, "{src}: the sources were not read");
        let away: Vec<String> = impls
            .iter()
            .filter(|(file, name, _)| !ENTRY_POINTS.contains(&(file, name)))
            .filter(|(file, _, defined)| !defined.iter().any(|other| room(other) == room(file)))
            .map(|(file, name, defined)| {
                format!("{file} has methods of {name}, which is of {defined:?}")
            })
            .collect();
        assert!(away.is_empty(), "{src}:\n{}", away.join("\n"));
    }
}

/// What ties a circle.
fn ties(imports: &[Import], circle: &BTreeSet<String>) -> String {
    let inside = |i: &&Import| circle.contains(&i.from) && circle.contains(&i.to);
    let lines = imports.iter().filter(inside);
    let lines: Vec<String> = lines
        .map(|i| format!("  {} takes {} from {}", i.from, i.name, i.to))
        .collect();
    lines.join("\n")
}

/// The sets of two or more files that lead to each other: those that each reaches, and is reached by.
fn circles(imports: &[Import]) -> Vec<BTreeSet<String>> {
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for import in imports {
        next.entry(&import.from).or_default().insert(&import.to);
    }
    let reached = |from: &str| {
        let (mut seen, mut todo) = (BTreeSet::new(), vec![from]);
        while let Some(at) = todo.pop() {
            for to in next.get(at).into_iter().flatten() {
                if seen.insert(*to) {
                    todo.push(to);
                }
            }
        }
        seen
    };
    let all: BTreeMap<&str, BTreeSet<&str>> = next.keys().map(|f| (*f, reached(f))).collect();
    let mut circles: Vec<BTreeSet<String>> = Vec::new();
    for (from, to) in &all {
        if !to.contains(from) || circles.iter().any(|c| c.contains(*from)) {
            continue;
        }
        let back = |other: &&&str| all.get(**other).is_some_and(|of| of.contains(from));
        circles.push(to.iter().filter(back).map(|s| (*s).to_owned()).collect());
    }
    circles
}

/// The checks can fail: a circle of two files, and one of three over two rooms, are found in a few made-up imports.
#[test]
fn circles_are_found() {
    let import = |from: &str, to: &str| Import {
        from: from.to_owned(),
        to: to.to_owned(),
        name: "X".to_owned(),
    };
    let imports = [
        import("a/x.rs", "a/y.rs"),
        import("a/y.rs", "a/x.rs"),
        import("b.rs", "c.rs"),
        import("c.rs", "d/e.rs"),
        import("d/e.rs", "b.rs"),
        import("a/x.rs", "b.rs"),
    ];
    let found = circles(&imports);
    let sizes: Vec<usize> = found.iter().map(BTreeSet::len).collect();
    assert_eq!(sizes, [2, 3]);
}
