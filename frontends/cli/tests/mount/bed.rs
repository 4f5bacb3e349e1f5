//! An image, its mount, and commands that end: a server that hangs must not hang the test.

use crate::common::{scratch, skip};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;
use tempfile::TempDir;
use xtask::run;

/// Seconds that a command may take.
const PATIENCE: &str = "60";

/// Runs a command, at most for a minute.
pub(crate) fn within(program: impl AsRef<OsStr>, args: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command
        .args(["--signal=KILL", PATIENCE])
        .arg(program)
        .args(args);
    let path = std::env::var("PATH").unwrap_or_default();
    let home = std::env::var("CARGO_HOME").unwrap_or_default();
    command.env("PATH", format!("{home}/bin:{path}:/usr/sbin:/sbin"));
    command.output().unwrap()
}

/// What a command prints; it succeeds.
pub(crate) fn said(program: impl AsRef<OsStr>, args: &[&str]) -> String {
    let program = program.as_ref();
    let done = within(program, args);
    let (out, err) = texts(&done);
    assert!(
        done.status.success(),
        "{program:?} {args:?}: {}\n{out}{err}",
        done.status
    );
    out
}

pub(crate) fn texts(done: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&done.stdout), text(&done.stderr))
}

/// Whether the host has this program.
pub(crate) fn has(program: &str) -> bool {
    let is_there = within("sh", &["-c", &format!("command -v {program}")])
        .status
        .success();
    if !is_there {
        skip(format!("{program} is not installed"));
    }
    is_there
}

pub(crate) const DIORITE: &str = env!("CARGO_BIN_EXE_diorite");

pub(crate) fn diorite(args: &[&str]) -> Output {
    within(DIORITE, args)
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether this user may mount. Whoever may not is told why.
pub(crate) fn may_mount() -> bool {
    let device = fs::File::options().read(true).write(true).open("/dev/fuse");
    if let Err(error) = device {
        skip(format!("/dev/fuse: {error}"));
        return false;
    }
    is_root() || has("fusermount3")
}

/// An image and a directory to mount it at.
pub(crate) struct Bed {
    _dir: TempDir,
    pub(crate) image: PathBuf,
    pub(crate) at: PathBuf,
}

impl Bed {
    /// An empty image of 64 MiB whose root belongs to this user. None if this user may not mount.
    pub(crate) fn new(mke2fs: &[&str]) -> Option<Bed> {
        Bed::sized(mke2fs, "64M")
    }

    /// As [`Bed::new`] for root alone; `why` says what needs root.
    #[track_caller]
    pub(crate) fn of_root(why: &str) -> Option<Bed> {
        if !is_root() {
            skip(why);
            return None;
        }
        Bed::new(&[])
    }

    /// As [`Bed::new`], of another size.
    pub(crate) fn sized(mke2fs: &[&str], size: &str) -> Option<Bed> {
        Bed::in_dir(scratch(), mke2fs, size)
    }

    /// As [`Bed::sized`], in this directory.
    pub(crate) fn in_dir(dir: TempDir, mke2fs: &[&str], size: &str) -> Option<Bed> {
        if !may_mount() {
            return None;
        }
        let (image, at) = (dir.path().join("disk.img"), dir.path().join("mnt"));
        fs::create_dir(&at).unwrap();
        let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
        let owner = format!("root_owner={}:{}", uid.as_raw(), gid.as_raw());
        let path = image.to_str().unwrap();
        let args = [
            &["-q", "-F", "-t", "ext4", "-E", &owner][..],
            mke2fs,
            &[path, size],
        ]
        .concat();
        run::run("mke2fs", &args).unwrap();
        Some(Bed {
            _dir: dir,
            image,
            at,
        })
    }

    /// Other users may reach the mount point.
    pub(crate) fn open_to_all(&self) {
        let dir = self.image.parent().unwrap();
        fs::set_permissions(dir, fs::Permissions::from_mode(0o711)).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.at.join(name)
    }

    /// The arguments of a mount with these options.
    pub(crate) fn args<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let (image, at) = (self.image.to_str().unwrap(), self.at.to_str().unwrap());
        [&["mount"], more, &[image, at]].concat()
    }

    /// Mounts it, which says nothing.
    pub(crate) fn mount(&self, more: &[&str]) {
        let done = diorite(&self.args(more));
        let (out, err) = texts(&done);
        assert!(done.status.success(), "{more:?}: {err}");
        assert_eq!((&out[..], &err[..]), ("", ""));
    }

    /// Unmounts it. A process that another test has just forked has copies of this process's files for a moment, until it runs its program.
    pub(crate) fn unmount(&self) {
        for n in 0.. {
            let done = diorite(&["umount", self.at.to_str().unwrap()]);
            let (_, err) = texts(&done);
            if done.status.success() {
                return;
            }
            let is_busy = err.contains("busy") || err.contains("in use");
            assert!(is_busy && n < 20, "{err}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn is_mounted(&self) -> bool {
        self.mountinfo().is_some()
    }

    /// The line of the mount table.
    pub(crate) fn mountinfo(&self) -> Option<String> {
        // Others' mounts may have names that are no text.
        let table = bytes(Path::new("/proc/self/mountinfo"));
        let table = String::from_utf8_lossy(&table);
        let place = format!(" {} ", self.at.display());
        table
            .lines()
            .rfind(|line| line.contains(&place))
            .map(str::to_owned)
    }

    /// The processes of `diorite mount` that have the mount point among their arguments.
    pub(crate) fn processes(&self) -> Vec<i32> {
        self.processes_with("mount")
    }

    /// The process that keeps it mounted; more than one, if an earlier one has not ended yet.
    pub(crate) fn keepers(&self) -> Vec<i32> {
        let others = [
            self.processes_with("--server="),
            self.processes_with("--sweep="),
        ]
        .concat();
        let mut all = self.processes_with("--detached");
        all.retain(|pid| !others.contains(pid));
        all
    }

    /// Those of them that also have an argument that begins like this.
    pub(crate) fn processes_with(&self, word: &str) -> Vec<i32> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
                continue;
            };
            // It may have ended meanwhile. A dead one has no arguments.
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let args: Vec<&[u8]> = line.split(|b| *b == 0).collect();
            let is_ours =
                args[0].ends_with(b"diorite") || args[0].ends_with(b"/mount.fuse.diorite");
            let at = self.at.as_os_str().as_encoded_bytes();
            if is_ours && args.contains(&at) && args.iter().any(|a| a.starts_with(word.as_bytes()))
            {
                found.push(pid);
            }
        }
        found
    }

    pub(crate) fn check(&self) {
        run::check(&self.image).unwrap();
    }

    /// Unmounts it; the image is sound.
    pub(crate) fn end(self) {
        self.unmount();
        self.check();
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if self.is_mounted() {
            // After a failed test only: what is left is taken away.
            within("umount", &["-l", self.at.to_str().unwrap()]);
            within("fusermount3", &["-uz", self.at.to_str().unwrap()]);
        }
        for process in self.processes() {
            within("kill", &["-9", &process.to_string()]);
        }
    }
}

/// A file's bytes.
pub(crate) fn bytes(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap()
}
