//! Tests of commands whose host has no further threads for them, as in a container with a limit of processes: they do without or say what
//! is missing. None of them hangs, panics or leaves a part of a file.
//!
//! As root the commands run as an ordinary user: the superuser's threads are not limited.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Ran, copied_command, diorite, files, image, is_root, run, scratch};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Runs the command in `dir` with no other thread than its first one.
fn alone(dir: &Path, args: &[&str]) -> Ran {
    // Outside the limit, which counts all processes of the user.
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
    command.args(["prlimit", "--nproc=1", "./diorite"]);
    let out = command.args(args).current_dir(dir).output().unwrap();
    Ran {
        code: out.status.code(),
        out: out.stdout,
        err: String::from_utf8_lossy(&out.stderr).into_owned(),
    }
}

fn without_threads(dir: &Path) {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
    copied_command(dir);
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
        alone(dir, make).failed(1, "thread");
        let mut names: Vec<_> = fs::read_dir(dir).unwrap().collect();
        names.retain(|name| {
            let name = name.as_ref().unwrap().file_name();
            !["diorite", "img", "new", "tree"].contains(&name.to_str().unwrap())
        });
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
