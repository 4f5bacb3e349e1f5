//! Files mapped into the memory of another process (mmap(2), shared).
//!
//! Input: paths, ranges, bytes. Output: bytes as that process sees them in its mapping, changes that it makes there. Invariant: the memory
//! of this process is not touched, so no `unsafe` is needed. Limits: needs python3; a range must lie inside the file, as beyond it the
//! process gets SIGBUS.

use crate::bed::has;
use std::io::{BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Mappings stay until the file is longer than they are, or they are forgotten: what others change must be seen in them.
const SCRIPT: &str = r#"
import mmap, os, sys
maps = {}
def mapped(key, path, end):
    have = maps.get(key)
    if have and len(have[1]) < end:
        # First the new one, so that its inode stays even without a name.
        fd = os.dup(have[0])
        forget(key)
    elif not have:
        fd = os.open(path, os.O_RDWR)
    if key not in maps:
        maps[key] = (fd, mmap.mmap(fd, os.fstat(fd).st_size))
    return maps[key][1]
def forget(key):
    have = maps.pop(key, None)
    if have:
        have[1].close()
        os.close(have[0])
into, out = sys.stdin.buffer, sys.stdout.buffer
for line in into:
    op, key, at, n, path = line[:-1].split(b' ', 4)
    at, n = int(at), int(n)
    if op == b'r':
        out.write(mapped(key, path, at + n)[at:at + n])
    elif op == b'w':
        data = into.read(n)
        mapped(key, path, at + n)[at:at + n] = data
        out.write(b'.')
    elif op == b's':
        if key in maps:
            maps[key][1].flush()
        out.write(b'.')
    else:
        forget(key)
        out.write(b'.')
    out.flush()
"#;

/// A file: a number for its mapping, and a path by which it is opened if it has none yet.
#[derive(Clone, Copy)]
pub(crate) struct What<'a>(pub(crate) u64, pub(crate) &'a Path);

/// A process that maps files.
pub(crate) struct Mapped {
    process: Child,
    /// None at the end.
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Mapped {
    /// None, with the reason printed, without python3.
    pub(crate) fn start() -> Option<Mapped> {
        if !has("python3") {
            return None;
        }
        let mut process = Command::new("timeout")
            .args(["--signal=KILL", "3600", "python3", "-c", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let from = BufReader::new(process.stdout.take().unwrap());
        Some(Mapped {
            to: process.stdin.take(),
            process,
            from,
        })
    }

    fn ask(&mut self, op: char, what: What<'_>, at: usize, len: usize, data: &[u8]) {
        let What(key, path) = what;
        let line = format!("{op} {key} {at} {len} {}\n", path.display());
        let to = self.to.as_mut().expect("it is not the end");
        to.write_all(line.as_bytes()).unwrap();
        to.write_all(data).unwrap();
        to.flush().unwrap();
    }

    fn answer(&mut self, len: usize) -> Vec<u8> {
        let mut data = vec![0; len];
        let read = self.from.read_exact(&mut data);
        read.expect("python has said why");
        data
    }

    pub(crate) fn read(&mut self, what: What<'_>, at: usize, len: usize) -> Vec<u8> {
        self.ask('r', what, at, len, &[]);
        self.answer(len)
    }

    pub(crate) fn write(&mut self, what: What<'_>, at: usize, data: &[u8]) {
        self.ask('w', what, at, data.len(), data);
        self.answer(1);
    }

    /// msync(2) of all that is mapped of this file.
    pub(crate) fn sync(&mut self, what: What<'_>) {
        self.ask('s', what, 0, 0, &[]);
        self.answer(1);
    }

    /// Unmaps it.
    pub(crate) fn forget(&mut self, what: What<'_>) {
        self.ask('f', what, 0, 0, &[]);
        self.answer(1);
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // At the end of its input python ends, and only then timeout: nothing is mapped any more.
        self.to = None;
        if std::thread::panicking() {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}
