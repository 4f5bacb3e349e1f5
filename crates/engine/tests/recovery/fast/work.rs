//! A workload on a mount with fast_commit: every change for which the kernel writes fast commits, and now and then one for which it
//! does not.
//!
//! Input: a directory and a seed. Output: files, directories and names made, changed and removed. Invariants: at the end of a step
//! all data is synced, and an fsync has ended that began after it. Limits: one thread.

use crate::common::Rng;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// An attribute value too large for any inode.
const LARGE: u64 = 300;

pub(super) struct Work {
    at: PathBuf,
    rng: Rng,
    files: Vec<PathBuf>,
    dirs: Vec<PathBuf>,
    /// Open files without a name.
    open: Vec<File>,
    made: u32,
    said: String,
}

impl Work {
    pub(super) fn new(at: &Path, rng: Rng) -> Work {
        Work {
            at: at.into(),
            rng,
            files: Vec::new(),
            dirs: vec![at.into()],
            open: Vec::new(),
            made: 0,
            said: String::new(),
        }
    }

    /// Makes what the first full commit has.
    pub(super) fn begin(&mut self) {
        for _ in 0..3 {
            self.mkdir();
        }
        for _ in 0..10 {
            self.create();
        }
        Command::new("sync")
            .arg("-f")
            .arg(&self.at)
            .status()
            .unwrap();
    }

    /// Closes files that would keep the mount busy.
    pub(super) fn end(&mut self) {
        self.open.clear();
    }

    /// What the last step did.
    pub(super) fn said(&self) -> &str {
        &self.said
    }

    pub(super) fn step(&mut self) {
        self.said.clear();
        for _ in 0..1 + self.rng.below(3) {
            self.change();
        }
        let tick = self.at.join("tick");
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(tick)
            .unwrap();
        file.write_all(b"tick").unwrap();
        file.sync_all().unwrap();
    }

    fn change(&mut self) {
        type Change = fn(&mut Work);
        let all: [(&str, Change); 15] = [
            ("create", Work::create),
            ("create", Work::create),
            ("write", Work::write),
            ("write", Work::write),
            ("truncate", Work::truncate),
            ("fallocate", Work::fallocate),
            ("punch", Work::punch),
            ("link", Work::link),
            ("rename", Work::rename),
            ("replace", Work::replace),
            ("unlink", Work::unlink),
            ("unlink while open", Work::unlink_open),
            ("mkdir", Work::mkdir),
            ("rmdir", Work::rmdir),
            ("made and gone", Work::made_and_gone),
        ];
        let (name, change) = match self.rng.below(40) {
            0 => ("grow", Work::grow as Change),
            1 => ("symlink", Work::symlink as Change),
            2 => ("chmod", Work::chmod as Change),
            _ => all[self.rng.below(all.len() as u64) as usize],
        };
        self.said.push_str(name);
        self.said.push(' ');
        change(self);
    }

    fn file(&mut self) -> PathBuf {
        if self.files.is_empty() {
            self.create();
        }
        self.files[self.rng.below(self.files.len() as u64) as usize].clone()
    }

    /// A file with blocks of its own. Data that moves out of an inode goes through the journal, and the kernel's fast commits lose
    /// it.
    fn large_file(&mut self) -> PathBuf {
        for _ in 0..20 {
            let path = self.file();
            if std::fs::metadata(&path).unwrap().len() >= LARGE {
                return path;
            }
        }
        let path = self.new_path();
        self.create_with(&path, LARGE + 1);
        path
    }

    fn new_path(&mut self) -> PathBuf {
        self.made += 1;
        let dir = &self.dirs[self.rng.below(self.dirs.len() as u64) as usize];
        dir.join(format!("name-{}", self.made))
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        let mut bytes = vec![0; 1 + self.rng.below(most) as usize];
        self.rng.fill(&mut bytes);
        bytes
    }

    fn create(&mut self) {
        // Some files have inline data, where volumes allow that.
        let most = [150, 20_000, 20_000][self.rng.below(3) as usize];
        let (path, len) = (self.new_path(), 1 + self.rng.below(most));
        self.create_with(&path, len);
    }

    fn create_with(&mut self, path: &Path, len: u64) {
        let mut bytes = vec![0; len as usize];
        self.rng.fill(&mut bytes);
        let mut file = File::create(path).unwrap();
        file.write_all(&bytes).unwrap();
        file.sync_all().unwrap();
        self.files.push(path.into());
    }

    fn write(&mut self) {
        let (path, bytes) = (self.large_file(), self.bytes(9_000));
        let mut file = OpenOptions::new().write(true).open(path).unwrap();
        let at = self.rng.below(60_000);
        file.seek(SeekFrom::Start(at)).unwrap();
        file.write_all(&bytes).unwrap();
        file.sync_all().unwrap();
    }

    fn truncate(&mut self) {
        let path = self.large_file();
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(LARGE + self.rng.below(40_000)).unwrap();
        file.sync_all().unwrap();
    }

    fn fallocate(&mut self) {
        let from = self.rng.below(30_000).to_string();
        self.run_fallocate(&["-o", &from, "-l", "9000"]);
    }

    fn punch(&mut self) {
        let from = self.rng.below(30_000).to_string();
        self.run_fallocate(&["-p", "-o", &from, "-l", "7000"]);
    }

    /// Files mapped by block pointers refuse the operation, and stay as they are.
    fn run_fallocate(&mut self, args: &[&str]) {
        let path = self.large_file();
        let _refused = Command::new("fallocate")
            .args(args)
            .arg(&path)
            .output()
            .unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
    }

    fn link(&mut self) {
        let (from, to) = (self.file(), self.new_path());
        std::fs::hard_link(&from, &to).unwrap();
        self.files.push(to);
    }

    fn rename(&mut self) {
        let (from, to) = (self.file(), self.new_path());
        std::fs::rename(&from, &to).unwrap();
        self.files.retain(|path| *path != from);
        self.files.push(to);
    }

    fn replace(&mut self) {
        let (from, to) = (self.file(), self.file());
        std::fs::rename(&from, &to).unwrap();
        // If both are names of the same file, rename does nothing.
        if from != to && !from.exists() {
            self.files.retain(|path| *path != from);
        }
    }

    fn unlink(&mut self) {
        let path = self.file();
        std::fs::remove_file(&path).unwrap();
        self.files.retain(|other| *other != path);
    }

    fn unlink_open(&mut self) {
        let path = self.large_file();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        self.files.retain(|other| *other != path);
        file.write_all(b"not for long").unwrap();
        file.sync_all().unwrap();
        self.open.push(file);
        if self.open.len() > 2 {
            self.open.remove(0);
        }
    }

    fn mkdir(&mut self) {
        let path = self.new_path();
        std::fs::create_dir(&path).unwrap();
        self.dirs.push(path);
    }

    fn rmdir(&mut self) {
        let n = self.rng.below(self.dirs.len() as u64) as usize;
        if n > 0 && std::fs::remove_dir(&self.dirs[n]).is_ok() {
            self.dirs.remove(n);
        }
    }

    fn made_and_gone(&mut self) {
        let path = self.new_path();
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("in it"), b"gone").unwrap();
        std::fs::remove_dir_all(&path).unwrap();
    }

    /// Creates more names than one block of the directory holds.
    fn grow(&mut self) {
        let long = self.new_path().to_str().unwrap().to_owned() + &"-long".repeat(20);
        for n in 0..60 {
            let path = PathBuf::from(format!("{long}{n}"));
            File::create(&path).unwrap();
            self.files.push(path);
        }
    }

    fn symlink(&mut self) {
        let path = self.new_path();
        std::os::unix::fs::symlink("somewhere", path).unwrap();
    }

    fn chmod(&mut self) {
        use std::os::unix::fs::PermissionsExt;
        let path = self.file();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
    }
}
