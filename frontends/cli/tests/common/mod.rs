//! Helpers for the tests of the command: running it, images made by the installed tools, a tree with files of all types.
#![allow(dead_code, clippy::unwrap_used, missing_docs, unreachable_pub)]

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// What a command printed, and how it ended.
pub struct Ran {
    pub code: Option<i32>,
    pub out: Vec<u8>,
    pub err: String,
}

impl From<Output> for Ran {
    fn from(out: Output) -> Ran {
        Ran {
            code: out.status.code(),
            out: out.stdout,
            err: String::from_utf8_lossy(&out.stderr).into_owned(),
        }
    }
}

impl Ran {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    /// Asserts that the command succeeded without a message.
    #[track_caller]
    pub fn ok(self) -> Ran {
        assert_eq!(self.code, Some(0), "{}", self.err);
        assert_eq!(self.err, "");
        self
    }

    /// Asserts that the command failed with this exit code and this message.
    #[track_caller]
    pub fn failed(&self, code: i32, words: &str) {
        assert_eq!(self.code, Some(code), "{}\n{}", self.err, self.text());
        assert!(
            self.err.contains(words),
            "{:?} is not in: {}",
            words,
            self.err
        );
        assert!(
            self.err.starts_with("diorite: ") || code == 2,
            "{}",
            self.err
        );
    }
}

/// Runs the command under test.
pub fn diorite<S: AsRef<OsStr>>(args: &[S]) -> Ran {
    let out = Command::new(env!("CARGO_BIN_EXE_diorite"))
        .args(args)
        .env("TZ", "Europe/Berlin")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    Ran::from(out)
}

/// Runs a tool; panics with its messages if it fails.
pub fn run<S: AsRef<OsStr>>(program: &str, args: &[S]) -> String {
    let out = xtask::run::tool(program)
        .args(args)
        .env("TZ", "Europe/Berlin")
        .env("LC_ALL", "C.UTF-8")
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{program}: {err}");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Copies `what` out of an image to `to`. For an ordinary user owners are not copied: at least `lost+found` belongs to root.
#[track_caller]
pub fn get(img: &str, what: &str, to: &Path) {
    let owners: &[&str] = if is_root() { &[] } else { &["--no-same-owner"] };
    diorite(&[&["get"], owners, &[img, what, to.to_str().unwrap()]].concat()).ok();
}

/// An image made by mke2fs, filled from `source` if there is one.
pub fn image(dir: &Path, name: &str, size: &str, args: &[&str], source: Option<&Path>) -> String {
    let path = dir.join(name).to_str().unwrap().to_owned();
    let mut all = vec!["-q", "-F"];
    if let Some(source) = source {
        all.extend(["-d", source.to_str().unwrap()]);
    }
    all.extend(args);
    all.extend([path.as_str(), size]);
    run("mke2fs", &all);
    path
}

pub fn debugfs(image: &str, request: &str) -> String {
    run("debugfs", &["-w", "-R", request, image])
}

/// A copy of the command in this directory, for a user who cannot reach the built one. `cp` makes it: if a thread of this process had the
/// copy open for writing while another one starts a program, that program would have it open too for a moment, and the copy could not be
/// run (ETXTBSY).
pub fn copied_command(dir: &Path) -> PathBuf {
    let copy = dir.join("diorite");
    run("cp", &[Path::new(env!("CARGO_BIN_EXE_diorite")), &copy]);
    copy
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub use xtask::run::scratch;
/// Prints why a test, or a part of it, is skipped.
pub use xtask::skip::skipped as skip;

/// A kernel mount, unmounted when dropped.
pub struct Mount(pub PathBuf);

impl Mount {
    /// None, with the reason printed, where mounting such an image is not possible.
    pub fn new(image: &str, at: &Path, options: &str) -> Option<Mount> {
        if !is_root() {
            skip("mounting needs root");
            return None;
        }
        fs::create_dir_all(at).unwrap();
        let options = format!("loop,{options}");
        let out = xtask::run::tool("mount")
            .args(["-o", &options, image])
            .arg(at)
            .output()
            .unwrap();
        if !out.status.success() {
            let said = String::from_utf8_lossy(&out.stderr);
            let is_its_own = xtask::mount::mounts_one_like(Path::new(image), &options);
            assert!(!is_its_own, "the kernel refuses {image}: {said}");
            skip(format_args!("mount: {said}"));
            return None;
        }
        Some(Mount(at.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = xtask::mount::unmount(&self.0) {
            assert!(std::thread::panicking(), "{error}");
        }
    }
}

/// A name that is not UTF-8.
pub fn odd_name() -> OsString {
    OsString::from_vec(b"not utf-8 \xff\xfe".to_vec())
}

/// Bytes that do not repeat soon.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut bytes = vec![0; len];
    for chunk in bytes.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk.copy_from_slice(&state.to_ne_bytes()[..chunk.len()]);
    }
    bytes
}

/// Writes these files below `at`, and creates the directories that they need.
pub fn files(at: &Path, all: &[(&str, &[u8])]) {
    for (name, bytes) in all {
        let path = at.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

/// Creates a tree with files of every type that an ordinary user can create.
pub fn tree(at: &Path) {
    fs::create_dir_all(at.join("dir/deeper")).unwrap();
    fs::create_dir_all(at.join("many")).unwrap();
    fs::write(at.join("empty"), b"").unwrap();
    fs::write(at.join("small"), b"a few words\n").unwrap();
    fs::write(at.join("big"), noise(3_000_001, 1)).unwrap();
    fs::write(at.join("dir/one name"), noise(5_000, 2)).unwrap();
    fs::write(at.join("dir/line\nbreak"), b"odd\n").unwrap();
    fs::write(at.join(odd_name()), b"odder\n").unwrap();
    let sparse = fs::File::create(at.join("sparse")).unwrap();
    sparse.write_at(&noise(70_000, 3), 40 << 20).unwrap();
    sparse.write_at(b"end", (100 << 20) + 5).unwrap();
    fs::hard_link(at.join("big"), at.join("dir/deeper/big too")).unwrap();
    fs::hard_link(at.join("small"), at.join("dir/small too")).unwrap();
    symlink("../small", at.join("dir/link")).unwrap();
    symlink("x".repeat(200), at.join("dir/long link")).unwrap();
    symlink("dir", at.join("link to dir")).unwrap();
    run("mkfifo", &[at.join("pipe")]);
    for n in 0..700 {
        fs::write(at.join(format!("many/file {n}")), n.to_string().repeat(n)).unwrap();
    }
    for (name, mode) in [
        ("small", 0o640),
        ("dir", 0o2750),
        ("big", 0o755),
        ("dir/deeper", 0o1777),
    ] {
        fs::set_permissions(at.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    for (name, date) in [
        ("small", "1965-04-05 06:07:08"),
        ("dir/link", "2030-02-03 04:05:06"),
        ("dir", "2001-01-01"),
    ] {
        run(
            "touch",
            &[
                OsStr::new("-h"),
                OsStr::new("-d"),
                OsStr::new(date),
                at.join(name).as_os_str(),
            ],
        );
    }
    let big = fs::File::open(at.join("big")).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::fsetxattr(&big, "user.colour", b"blue", flags).unwrap();
    rustix::fs::fsetxattr(&big, "user.long", &[7; 60], flags).unwrap();
}

/// Every path below `at`, sorted, with the properties that a copy must have as well.
pub fn facts(at: &Path) -> Vec<(PathBuf, String)> {
    let mut all = Vec::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(at.join(&dir)).unwrap() {
            let entry = entry.unwrap();
            let path = dir.join(entry.file_name());
            if path.as_os_str().as_bytes() == b"lost+found" {
                continue;
            }
            all.push((path.clone(), fact(&at.join(&path))));
            if entry.file_type().unwrap().is_dir() {
                todo.push(path);
            }
        }
    }
    all.sort();
    all
}

fn fact(path: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    let m = fs::symlink_metadata(path).unwrap();
    let size = if m.is_dir() { 0 } else { m.size() };
    let target = fs::read_link(path).unwrap_or_default();
    let rdev = m.rdev();
    format!(
        "mode {:o} owner {}:{} size {size} links {} mtime {} rdev {rdev} -> {target:?} {:?}",
        m.mode(),
        m.uid(),
        m.gid(),
        m.nlink(),
        m.mtime(),
        xattrs(path),
    )
}

/// The attributes that an ordinary user can read.
pub fn xattrs(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut names = vec![0; 64 << 10];
    let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap_or(0);
    let value = |name: &[u8]| {
        let mut value = vec![0; 64 << 10];
        let len = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap_or(0);
        value[..len].to_vec()
    };
    let all = names[..len].split(|b| *b == 0).filter(|n| !n.is_empty());
    let mut all: Vec<_> = all.map(|n| (n.to_vec(), value(n))).collect();
    all.sort();
    all
}

/// Asserts that both trees have the same files, byte for byte.
#[track_caller]
pub fn same(a: &Path, b: &Path) {
    same_but(a, b, "");
}

/// Like [`same`], without some paths.
#[track_caller]
pub fn same_but(a: &Path, b: &Path, but: &str) {
    let (in_a, in_b) = (facts(a), facts(b));
    let only = |x: &[(PathBuf, String)], y: &[(PathBuf, String)]| -> Vec<_> {
        let looked_at = x
            .iter()
            .filter(|f| but.is_empty() || !f.0.to_string_lossy().contains(but));
        looked_at
            .filter(|f| !y.contains(f))
            .take(5)
            .cloned()
            .collect()
    };
    assert_eq!(only(&in_a, &in_b), only(&in_b, &in_a));
    for (path, _) in facts(a) {
        let (a, b) = (a.join(&path), b.join(&path));
        if fs::symlink_metadata(&a).unwrap().is_file() {
            assert!(
                fs::read(&a).unwrap() == fs::read(&b).unwrap(),
                "{path:?} differs"
            );
        }
    }
}

/// Replaces all occurrences of some bytes in an image; returns how many there were.
pub fn patch(image: &str, from: &[u8], to: &[u8]) -> usize {
    assert_eq!(from.len(), to.len());
    let mut bytes = fs::read(image).unwrap();
    let (mut at, mut count) = (0, 0);
    while let Some(found) = bytes[at..].windows(from.len()).position(|w| w == from) {
        bytes[at + found..at + found + to.len()].copy_from_slice(to);
        at += found + to.len();
        count += 1;
    }
    fs::write(image, bytes).unwrap();
    count
}

/// Whether qemu-img is installed; if not, that is printed.
pub fn has_qemu() -> bool {
    let ran = xtask::run::tool("qemu-img").arg("--version").output();
    if ran.is_err() {
        skip("qemu-img is not installed");
    }
    ran.is_ok()
}

/// qemu-io, which has this image open, and whose lock holds it; None, with that printed, if it is not installed. It ends when its standard
/// input does.
pub fn held_by_qemu(format: &str, image: &Path) -> Option<Child> {
    let holder = Command::new("qemu-io")
        .args(["-f", format])
        .arg(image)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut holder) = holder else {
        skip("qemu-io is not installed");
        return None;
    };
    // Its prompt says that it has the file open.
    let mut prompt = [0; 8];
    holder
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut prompt)
        .unwrap();
    Some(holder)
}

/// Writable qcow2 images that lead to a raw one beside them: `raw.qcow2` by its name, in the older version; `top.qcow2` through `mid.qcow2`
/// and `base.qcow2`, a copy of it, by absolute names. None without qemu-img.
pub fn overlays(raw: &Path) -> Option<[PathBuf; 2]> {
    if !has_qemu() {
        return None;
    }
    let at = |name: &str| raw.with_file_name(name);
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let over = |options: &[&str], (format, base): (&str, &str), name: &str| {
        let to = text(&at(name));
        let words = [
            &["create", "-q", "-f", "qcow2"],
            options,
            &["-F", format, "-b", base, &to],
        ];
        run("qemu-img", &words.concat());
        at(name)
    };
    let name = raw.file_name().unwrap().to_str().unwrap();
    let first = over(&["-o", "compat=0.10"], ("raw", name), "raw.qcow2");
    let [base, mid] = [text(&at("base.qcow2")), text(&at("mid.qcow2"))];
    run("qemu-img", &["convert", "-O", "qcow2", &text(raw), &base]);
    over(&[], ("qcow2", &base), "mid.qcow2");
    Some([first, over(&[], ("qcow2", &mid), "top.qcow2")])
}
