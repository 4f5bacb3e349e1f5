//! Commands with an undo file that are killed, and an `undo` that is killed: what was there comes back to the byte.
//!
//! Input: strace(1), which ends a program at a chosen call that writes. Output: verdicts. Invariant: whatever call a command was ended at,
//! and whatever call the first `undo` was, the second one brings back the image and its length. Limits: calls are counted in each thread by
//! itself.

use crate::common::{diorite, image, run, scratch, skip};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Calls that change a file or make it durable.
const CALLS: &str = "pwrite64,pwritev,pwritev2,ftruncate,fdatasync,fsync,fallocate,unlink";
/// More than any of these commands makes in one thread.
const MOST: usize = 400;

/// Runs the command, killed at the `nth` of the calls. Returns whether it came to that.
fn killed(nth: usize, args: &[&str]) -> bool {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null", "-e"]);
    strace.args([format!("trace={CALLS}"), "-e".to_owned()]);
    strace.arg(format!("inject={CALLS}:signal=KILL:when={nth}"));
    strace.arg(env!("CARGO_BIN_EXE_diorite")).args(args);
    let out = strace.stdin(Stdio::null()).output().unwrap();
    let killed = std::os::unix::process::ExitStatusExt::signal(&out.status) == Some(9);
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(killed || out.status.success(), "{args:?}: {err}");
    killed
}

fn can_trace(dir: &Path) -> bool {
    let probe = dir.join("probe");
    let mut strace = Command::new("strace");
    strace.args([
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "inject=fsync:signal=KILL:when=1000",
    ]);
    strace.arg("true").stderr(Stdio::null());
    std::fs::write(probe, "").is_ok() && strace.status().is_ok_and(|status| status.success())
}

/// Whether there was an undo file with a header: before that nothing of the image is changed.
fn has_header(undo: &Path) -> bool {
    std::fs::read(undo).is_ok_and(|bytes| bytes.starts_with(b"E2UNDO02"))
}

struct Stand {
    img: PathBuf,
    undo: PathBuf,
    before: Vec<u8>,
}

impl Stand {
    fn is_as_before(&self, what: &str) {
        let now = std::fs::read(&self.img).unwrap();
        assert_eq!(now.len(), self.before.len(), "{what}");
        assert!(now == self.before, "{what}");
    }

    /// e2undo puts it back, but for the length, which it knows nothing of; in the superblock it says that the file system wants a check.
    fn is_undone_by_e2undo(&self, what: &str, mut image: Vec<u8>) {
        let theirs = self.img.with_file_name("theirs");
        image.resize(image.len().max(self.before.len()), 0);
        std::fs::write(&theirs, image).unwrap();
        run("e2undo", &[Path::new("-f"), &self.undo, &theirs]);
        let mut found = std::fs::read(&theirs).unwrap();
        found.truncate(self.before.len());
        // When it was written, its state, its checksum.
        for range in [1072..1076, 1082..1084, 2044..2048] {
            found[range.clone()].copy_from_slice(&self.before[range]);
        }
        assert!(found == self.before, "{what}: e2undo");
    }

    /// Undoes what is there, killed at each `step`th call, and then again.
    fn undoes(&self, what: &str, step: usize) -> usize {
        if !has_header(&self.undo) {
            self.is_as_before(what);
            return 0;
        }
        let words = ["undo", "-f"].map(str::to_owned);
        let paths = [&self.undo, &self.img].map(|path| path.to_str().unwrap().to_owned());
        let words = [words, paths].concat();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let changed = std::fs::read(&self.img).unwrap();
        self.is_undone_by_e2undo(what, changed.clone());
        for nth in (1..MOST).step_by(step) {
            std::fs::write(&self.img, &changed).unwrap();
            if !killed(nth, &words) {
                self.is_as_before(what);
                return nth / step;
            }
            let ran = diorite(&words);
            assert_eq!(ran.code, Some(0), "{what}: {}", ran.err);
            self.is_as_before(&format!("{what}, undo killed at {nth}"));
        }
        panic!("{what}: undo makes more than {MOST} calls");
    }
}

/// The defects: a file that was cut by a command that was killed then could not be undone; an undo that was killed before it cut the file
/// did not cut it when it was repeated.
#[test]
fn what_was_killed_is_undone() {
    let dir = scratch();
    if !can_trace(dir.path()) {
        return skip("strace cannot trace here");
    }
    let img = image(
        dir.path(),
        "a.img",
        "16M",
        &["-t", "ext4", "-b", "1024"],
        None,
    );
    let stand = Stand {
        before: std::fs::read(&img).unwrap(),
        img: img.clone().into(),
        undo: dir.path().join("undo"),
    };
    let undo = stand.undo.to_str().unwrap();
    let commands: [(&[&str], usize); 4] = [
        (&["shrink", "-q", "-z", undo, &img, "12M"], 2),
        (&["grow", "-q", "-z", undo, &img, "40M"], 2),
        (&["tune", "-z", undo, "-O", "^metadata_csum", &img], 3),
        (&["mkfs", "-F", "-q", "-z", undo, &img, "20M"], 1),
    ];
    for (command, step) in commands {
        let (mut kills, mut again) = (0, 0);
        for nth in (1..MOST).step_by(step) {
            std::fs::write(&stand.img, &stand.before).unwrap();
            let _ = std::fs::remove_file(&stand.undo);
            if !killed(nth, command) {
                break;
            }
            kills += 1;
            again += stand.undoes(&format!("{command:?} killed at {nth}"), 5);
        }
        eprintln!("{command:?}: killed {kills} times, its undo {again} times");
        assert!(kills > 5 && again > 3, "{command:?}: {kills} and {again}");
    }
}

/// What is finished is undone without -f also when its undo was killed.
#[test]
fn an_undo_that_was_killed_needs_no_force() {
    let dir = scratch();
    if !can_trace(dir.path()) {
        return skip("strace cannot trace here");
    }
    let img = image(dir.path(), "a.img", "16M", &["-t", "ext4"], None);
    let stand = Stand {
        before: std::fs::read(&img).unwrap(),
        img: img.clone().into(),
        undo: dir.path().join("undo"),
    };
    let undo = stand.undo.to_str().unwrap();
    assert_eq!(
        diorite(&["grow", "-q", "-z", undo, &img, "40M"]).code,
        Some(0)
    );
    let grown = std::fs::read(&img).unwrap();
    for nth in 1..MOST {
        std::fs::write(&img, &grown).unwrap();
        if !killed(nth, &["undo", undo, &img]) {
            assert!(nth > 3, "{nth}");
            return stand.is_as_before("whole");
        }
        if std::fs::read(&img).unwrap() != stand.before {
            let ran = diorite(&["undo", undo, &img]);
            assert_eq!(ran.code, Some(0), "killed at {nth}: {}", ran.err);
        }
        stand.is_as_before(&format!("killed at {nth}"));
    }
    panic!("undo makes more than {MOST} calls");
}
