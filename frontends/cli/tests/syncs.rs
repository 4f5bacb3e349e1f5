//! The order of fsync and of giving a name, for files that commands make on the host, and what a failed fsync leaves: by strace, which sees
//! the calls and makes them fail.

use crate::common::{Ran, diorite, files, noise, scratch, skip};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Whether the host has strace and lets it trace. Who has not is told why.
fn may_trace() -> bool {
    let mut probe = Command::new("strace");
    probe.args(["-f", "-o", "/dev/null", "true"]);
    let works = probe
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success());
    if !works {
        skip("strace is not installed, or may not trace");
    }
    works
}

/// What gives a name, or makes a file durable.
const NAMES: &str = "fsync,linkat,renameat,renameat2";

/// Runs the command, with `inject` as strace has it. Returns the calls of [`NAMES`], too.
fn traced(dir: &Path, inject: Option<&str>, args: &[&str]) -> (Ran, Vec<String>) {
    traced_by(NAMES, dir, inject, args)
}

/// As [`traced`], with these calls.
fn traced_by(trace: &str, dir: &Path, inject: Option<&str>, args: &[&str]) -> (Ran, Vec<String>) {
    let calls = dir.join("calls");
    let mut command = Command::new("strace");
    command.args(["-f", "-y", "-qq", "-e", &format!("trace={trace}")]);
    command.args(["-e", "signal=none", "-o", calls.to_str().unwrap()]);
    if let Some(inject) = inject {
        command.args(["-e", &format!("inject={inject}")]);
    }
    command.arg(env!("CARGO_BIN_EXE_diorite")).args(args);
    let out = command
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let ran = Ran {
        code: out.status.code(),
        out: out.stdout,
        err: String::from_utf8_lossy(&out.stderr).into_owned(),
    };
    let calls = fs::read_to_string(calls).unwrap();
    (ran, calls.lines().map(str::to_owned).collect())
}

/// A directory with an image and sources, and commands that make the file `new`.
fn bed() -> (tempfile::TempDir, Vec<(&'static str, Vec<&'static str>)>) {
    let dir = scratch();
    files(dir.path(), &[("tree/file", &noise(200_000, 1))]);
    let image = dir.path().join("old.img");
    let made = ["mkfs", "-q", image.to_str().unwrap(), "8M"];
    diorite(&made).ok();
    let commands = vec![
        ("new.img", vec!["copy", "-q", "old.img", "new.img"]),
        ("new.img.zst", vec!["copy", "-q", "old.img", "new.img.zst"]),
        ("new.qcow2", vec!["copy", "-q", "old.img", "new.qcow2"]),
        (
            "new.map",
            vec!["copy", "-q", "--bmap", "new.map", "old.img", "other.img"],
        ),
        ("new.img", vec!["mkfs", "-q", "new.img", "8M"]),
        ("new.img", vec!["import", "-q", "tree", "new.img"]),
        ("new.img", vec!["disk", "-q", "new.img", "old.img"]),
        ("new.tar", vec!["export", "-q", "old.img", "new.tar"]),
        (
            "new.tar.zst",
            vec!["export", "-q", "old.img", "new.tar.zst"],
        ),
    ];
    (dir, commands)
}

/// A file gets its name after an fsync of it, and its directory is synced after that.
#[test]
fn a_name_is_given_to_durable_bytes_and_made_durable() {
    if !may_trace() {
        return;
    }
    let (dir, commands) = bed();
    let home = format!("<{}>)", dir.path().canonicalize().unwrap().display());
    for (name, args) in commands {
        for replaces in [false, true] {
            let at = dir.path().join(name);
            // Only these replace.
            if replaces && !matches!(args[0], "import" | "disk" | "export") {
                continue;
            }
            if !replaces {
                let _none = fs::remove_file(&at);
            }
            let (ran, calls) = traced(dir.path(), None, &args);
            assert_eq!((ran.code, &ran.err[..]), (Some(0), ""), "{args:?}");
            let _none = fs::remove_file(dir.path().join("other.img"));
            let quoted = format!("\"{name}\"");
            let named = calls
                .iter()
                .rposition(|call| call.contains(&quoted))
                .unwrap();
            let is_sync = |call: &String| call.contains("fsync(") && call.ends_with("= 0");
            let of_dir = |call: &&String| is_sync(call) && call.contains(&home);
            let of_file = |call: &&String| is_sync(call) && !call.contains(&home);
            let first = calls
                .iter()
                .position(|call| !call.contains("fsync("))
                .unwrap();
            assert!(
                calls[..first].iter().any(|c| of_file(&c)),
                "{args:?}: {calls:#?}"
            );
            assert!(
                calls[named..].iter().any(|c| of_dir(&c)),
                "{args:?}: {calls:#?}"
            );
        }
        let _none = fs::remove_file(dir.path().join(name));
    }
}

/// A file whose bytes are not durable gets no name. The defect: one whose name was not durable kept it, and the message said that it had
/// none.
#[test]
fn a_file_that_is_not_durable_is_not_there() {
    if !may_trace() {
        return;
    }
    let (dir, commands) = bed();
    for (name, args) in commands {
        // A qcow2 file is synced more often, and a block map is the second file.
        if matches!(name, "new.qcow2" | "new.map") {
            continue;
        }
        let at = dir.path().join(name);
        for which in ["fsync:error=EIO:when=1", "fsync:error=EIO:when=2"] {
            let (ran, _) = traced(dir.path(), Some(which), &args);
            ran.failed(1, "Input/output error");
            assert!(!at.exists(), "{args:?} {which}: {}", ran.err);
        }
        // A host that has no fsync of directories.
        let (ran, _) = traced(dir.path(), Some("fsync:error=EINVAL:when=2"), &args);
        assert_eq!((ran.code, &ran.err[..]), (Some(0), ""), "{args:?}");
        if args[0] == "import" {
            let (ran, _) = traced(dir.path(), Some("fsync:error=EIO:when=2"), &args);
            ran.failed(1, "is in the place of the old one, but that is not durable");
            assert!(at.exists());
        }
        fs::remove_file(at).unwrap();
    }
}

/// The defect: a qcow2 file lost its mark at the end, although a flush had failed before and its tables may have been lost.
#[test]
fn a_qcow2_file_stays_marked_after_a_failed_flush() {
    if !may_trace() {
        return;
    }
    let dir = scratch();
    files(dir.path(), &[("file", &noise(200_000, 1))]);
    let image = dir.path().join("disk.qcow2");
    for (inject, marked) in [(None, 0), (Some("fsync:error=EIO:when=2"), 1)] {
        let _none = fs::remove_file(&image);
        diorite(&["mkfs", "-q", image.to_str().unwrap(), "8M"]).ok();
        let (ran, _) = traced(
            dir.path(),
            inject,
            &["put", "-q", "disk.qcow2", "file", "/file"],
        );
        assert_eq!(ran.code, Some(marked), "{}", ran.err);
        let features = fs::read(&image).unwrap()[79];
        assert_eq!(i32::from(features), marked, "{inject:?}");
    }
    // Whoever opens it for writing repairs it. Nothing was written after the failure, so the file system in it does not know of it.
    diorite(&["recover", image.to_str().unwrap()]).ok();
    assert_eq!(fs::read(&image).unwrap()[79], 0);
}

/// The mark is durable before anything else is written and goes when everything is; a block of the journal that is written durably is
/// followed by a flush.
#[test]
fn writes_and_flushes_of_a_qcow2_file_have_an_order() {
    if !may_trace() {
        return;
    }
    let dir = scratch();
    let image = dir.path().join("disk.qcow2");
    diorite(&["mkfs", "-q", image.to_str().unwrap(), "8M"]).ok();
    let trace = "pwrite64,pwritev,pwritev2,write,writev,fsync,fdatasync";
    let (ran, calls) = traced_by(trace, dir.path(), None, &["mkdir", "disk.qcow2", "/a"]);
    assert_eq!((ran.code, &ran.err[..]), (Some(0), ""));
    let file = "/disk.qcow2>";
    let kinds = calls.iter().filter(|call| call.contains(file)).map(|call| {
        match call.split_once(file).unwrap() {
            (name, _) if name.contains("sync(") => "flush",
            (_, rest) if rest.contains(", 8, 72") => "mark",
            _ => "write",
        }
    });
    let mut order: Vec<&str> = kinds.collect();
    order.dedup();
    let one = ["write", "flush"];
    let wanted = [
        &["mark", "flush"][..],
        // The superblock of a volume in use in the empty log, and in its place; where recovery begins; a transaction; its commit block.
        &one.repeat(5),
        // The same at home; the log is empty; the superblock of a volume that is not in use in the log, and in its place.
        &one.repeat(4),
        &["mark", "flush"],
    ];
    assert_eq!(order, wanted.concat(), "{calls:#?}");
}
