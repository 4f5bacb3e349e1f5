//! Tests of commands under limits of their host: of processes, as in a container, of a file's size, and without /proc. They do without, or
//! say what is missing. None of them hangs, panics or leaves a part of a file.
//!
//! As root the commands run as an ordinary user: the superuser's threads are not limited.

use crate::common::{
    Ran, copied_command, diorite, files, image, is_root, noise, run, scratch, skip,
};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// Runs the command in `dir` with a limit of prlimit(1).
fn limited(dir: &Path, limit: &str, args: &[&str]) -> Ran {
    // Outside the limit, which may count all processes of the user.
    let mut command = xtask::run::tool("timeout");
    command.args(["--signal=KILL", "60"]);
    if is_root() {
        command.args([
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
        ]);
    }
    command.args(["prlimit", limit, "./diorite"]);
    let out = command.args(args).current_dir(dir).output().unwrap();
    Ran {
        code: out.status.code(),
        out: out.stdout,
        err: String::from_utf8_lossy(&out.stderr).into_owned(),
    }
}

/// With no other thread than the first one.
fn alone(dir: &Path, args: &[&str]) -> Ran {
    limited(dir, "--nproc=1", args)
}

/// The names in `dir`, but those of what was there before.
fn new_names(dir: &Path, before: &[&str]) -> Vec<OsString> {
    let names = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name());
    let is_new = |name: &OsString| !before.iter().any(|old| *old == *name);
    names.filter(is_new).collect()
}

fn prepare(dir: &Path) {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
    copied_command(dir);
}

fn without_threads(dir: &Path) {
    prepare(dir);
    files(&dir.join("tree"), &[("a", &[b'a'; 5000]), ("b", b"b")]);
    let img = image(dir, "img", "16M", &["-t", "ext4"], Some(&dir.join("tree")));
    fs::set_permissions(&img, fs::Permissions::from_mode(0o666)).unwrap();
    let is_well = |name: &str| {
        run("e2fsck", &["-fn", dir.join(name).to_str().unwrap()]);
    };

    alone(dir, &["ls", "img"]).ok();
    assert_eq!(alone(dir, &["cat", "img", "/b"]).ok().out, b"b");
    alone(dir, &["check", "img"]).ok();
    alone(dir, &["mkfs", "-q", "new", "16M"]).ok();
    is_well("new");

    let changes: [&[&str]; 4] = [
        &["grow", "img", "24M"],
        &["put", "img", "tree/a", "/c"],
        &["rm", "img", "/a"],
        &["sparsify", "img"],
    ];
    for change in changes {
        alone(dir, change).ok();
        is_well("img");
    }

    let makes: [&[&str]; 5] = [
        &["mkfs", "-q", "-d", "tree", "made", "16M"],
        &["import", "tree", "made"],
        &["copy", "img", "made"],
        &["export", "img", "made", "--as", "archive"],
        &["export", "img", "made.tar.zst"],
    ];
    for make in makes {
        alone(dir, make).failed(1, "cannot start a thread that");
        let names = new_names(dir, &["diorite", "img", "new", "tree"]);
        assert!(names.is_empty(), "{make:?} left {names:?}");
    }
    assert_eq!(diorite(&["cat", &img, "/b"]).ok().out, b"b");
}

#[test]
fn commands_do_without_threads_or_say_so() {
    without_threads(scratch().path());
}

/// On a disk more is passed to threads of the kernel than on tmpfs. The defect: commands that write waited for ever.
#[test]
fn commands_do_without_threads_on_a_disk() {
    without_threads(tempfile::tempdir().unwrap().path());
}

/// A write over the limit of a file's size fails, as on a full disk. The defect: it ended the process in the middle.
#[test]
fn files_over_the_limit_of_their_size_are_refused() {
    let dir = scratch();
    let dir = dir.path();
    prepare(dir);
    files(&dir.join("tree"), &[("a", &[b'a'; 100_000])]);
    let img = image(dir, "img", "16M", &["-t", "ext4"], Some(&dir.join("tree")));
    fs::set_permissions(&img, fs::Permissions::from_mode(0o666)).unwrap();
    let limit = "--fsize=50000";
    let makes: [&[&str]; 4] = [
        &["mkfs", "-q", "made", "16M"],
        &["import", "tree", "made"],
        &["copy", "img", "made"],
        &["export", "img", "made.tar"],
    ];
    for make in makes {
        limited(dir, limit, make).failed(1, "File too large");
        let names = new_names(dir, &["diorite", "img", "tree"]);
        assert!(names.is_empty(), "{make:?} left {names:?}");
    }
    limited(dir, limit, &["grow", "img", "24M"]).failed(1, "File too large");
    run("e2fsck", &["-fn", &img]);
}

/// In a chroot /proc may not be mounted. The defect: no image and no archive could be made there.
#[test]
fn images_are_made_without_proc() {
    if !is_root() {
        return xtask::skip::skipped("only root can hide /proc");
    }
    let dir = scratch();
    let dir = dir.path();
    files(&dir.join("tree"), &[("a", &[b'a'; 100_000])]);
    symlink("a", dir.join("tree/link")).unwrap();
    let img = image(dir, "img", "16M", &["-t", "ext4"], Some(&dir.join("tree")));
    let without_proc = |args: &[&str]| {
        let mut command = xtask::run::tool("unshare");
        let words = "mount -t tmpfs none /proc && exec \"$@\"";
        command.args(["--mount", "timeout", "60", "sh", "-c", words, "sh"]);
        command.arg(env!("CARGO_BIN_EXE_diorite")).args(args);
        let out = command.current_dir(dir).output().unwrap();
        Ran {
            code: out.status.code(),
            out: out.stdout,
            err: String::from_utf8_lossy(&out.stderr).into_owned(),
        }
    };
    let makes: [&[&str]; 9] = [
        &["mkfs", "-q", "made", "16M"],
        &["import", "tree", "made"],
        &["copy", "img", "made"],
        &["export", "--as", "image", "img", "made"],
        &["disk", "made", "img"],
        &["export", "--as", "archive", "img", "made"],
        &["copy", "img", "made.zst"],
        &["copy", "img", "made.qcow2"],
        &["import", "tree", "made.qcow2"],
    ];
    for (n, make) in makes.iter().enumerate() {
        without_proc(make).ok();
        let names = new_names(dir, &["img", "tree"]);
        assert_eq!(names.len(), 1, "{make:?} left {names:?}");
        let made = dir.join(&names[0]);
        if n < 4 {
            run("e2fsck", &["-fn", made.to_str().unwrap()]);
        }
        fs::remove_file(made).unwrap();
    }
    without_proc(&["put", "img", "tree/a", "/c"]).ok();
    without_proc(&["put", "img", "tree/link", "/l"]).failed(1, "where /proc is not mounted");
    without_proc(&["put", "--no-xattrs", "img", "tree/link", "/l"]).ok();
    without_proc(&["mount", "img", "tree"]).failed(1, "/proc is not mounted");
    run("e2fsck", &["-fn", &img]);
}

/// The file system of an image that a command could not write is free when the command has ended. The defect: the kernel takes rings down
/// some time later, and the file system stayed busy until then.
#[test]
fn a_full_host_is_let_go_of() {
    if !is_root() {
        return skip("root mounts a small tmpfs");
    }
    let dir = scratch();
    let dir = dir.path();
    files(dir, &[("large", &noise(300_000, 1))]);
    image(dir, "img", "32M", &["-O", "^has_journal", "-N", "64"], None);
    let [img, at, large] =
        ["img", "small", "large"].map(|name| dir.join(name).to_str().unwrap().to_owned());
    fs::create_dir(&at).unwrap();
    run("mount", &["-t", "tmpfs", "-o", "size=1M", "tmpfs", &at]);
    run("cp", &["--sparse=always", &img, &at]);
    let there = format!("{at}/img");
    let ends: Vec<_> = ["/a", "/b", "/c", "/d"]
        .map(|name| diorite(&["put", &there, &large, name]).code)
        .to_vec();
    // Before anything can fail.
    let unmounted = xtask::run::run("umount", &[&at]);
    if unmounted.is_err() {
        run("umount", &["-l", &at]);
    }
    assert_eq!(ends.last(), Some(&Some(1)), "{ends:?}");
    unmounted.unwrap();
}

/// A stack or an address space that is too small (`ulimit -s`, `-v`). Defect: both ended the process in the middle, by SIGABRT.
#[test]
fn too_little_memory_is_an_error() {
    let dir = scratch();
    prepare(dir.path());
    let img = image(dir.path(), "img", "8M", &["-t", "ext4"], None);
    fs::set_permissions(&img, fs::Permissions::from_mode(0o666)).unwrap();
    fs::write(dir.path().join("data"), noise(3 << 20, 1)).unwrap();
    fs::set_permissions(dir.path().join("data"), fs::Permissions::from_mode(0o644)).unwrap();
    for args in [
        &["ls", "img"][..],
        &["--help"],
        &["put", "img", "data", "/"],
    ] {
        limited(dir.path(), "--stack=65536:65536", args)
            .failed(1, "the limit of the stack is 64 KiB");
    }
    // A limit that may be raised is.
    limited(dir.path(), "--stack=65536:8388608", &["ls", "img"]).ok();
    let space = "--as=104857600";
    limited(dir.path(), space, &["ls", "img"]).ok();
    limited(dir.path(), space, &["put", "img", "data", "/"]).failed(1, "no memory: ");
    limited(dir.path(), space, &["get", "img", "/lost+found", "out"]).failed(1, "no memory: ");
    limited(dir.path(), "--as=1073741824", &["put", "img", "data", "/"]).ok();
    run("e2fsck", &["-fn", &img]);
}

/// The buffers of `copy` and `compare`, under several limits of the address space. Defect: the large ones were made at their first use,
/// where a refusal of the host ended the process by SIGABRT.
#[test]
fn buffers_that_the_host_refuses_are_an_error() {
    let dir = scratch();
    prepare(dir.path());
    for name in ["a", "b"] {
        fs::write(dir.path().join(name), noise(9 << 20, 5)).unwrap();
        fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(0o644)).unwrap();
    }
    let before = new_names(dir.path(), &[]).len();
    for kib in [50_000, 60_000, 80_000] {
        let space = format!("--as={}", kib << 10);
        let copy = limited(dir.path(), &space, &["copy", "-q", "a", "c"]);
        copy.failed(1, "no memory: ");
        let compare = limited(dir.path(), &space, &["compare", "-q", "a", "b"]);
        compare.failed(2, "no memory: ");
        assert_eq!(new_names(dir.path(), &[]).len(), before, "{kib}");
    }
    let space = "--as=1073741824";
    limited(dir.path(), space, &["copy", "-q", "a", "c"]).ok();
    limited(dir.path(), space, &["compare", "-q", "a", "c"]).ok();
}

/// The defect: where the host had no threads for zstd, or no address space for their buffers, nothing was compressed. One thread makes the
/// same bytes; without any the frame has others.
#[test]
fn zstd_does_with_fewer_threads() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    prepare(dir.path());
    let data = noise(1 << 20, 3).repeat(40);
    fs::write(at("data"), &data).unwrap();
    let copy = |limit: &str| {
        let _ = fs::remove_file(at("made.zst"));
        let ran = limited(dir.path(), limit, &["copy", "data", "made.zst"]);
        assert_eq!(ran.code, Some(0), "{limit} {}", ran.err);
        run("zstd", &["-dqf", at("made.zst").to_str().unwrap()]);
        assert!(fs::read(at("made")).unwrap() == data, "{limit}");
        fs::read(at("made.zst")).unwrap()
    };
    let free = copy("--as=4000000000");
    for limit in [
        "--nproc=1",
        "--as=100000000",
        "--as=150000000",
        "--as=200000000",
    ] {
        copy(limit);
    }
    assert!(copy("--as=400000000") == free);
}
