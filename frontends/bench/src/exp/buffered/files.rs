//! The buffered calls of a load, on files of diorite or of the kernel.
//!
//! Input: paths, positions, bytes. Output: files, errors. Invariant: one call of [`Files`] is one call of diorite, or one of the kernel.
//! Limits: blocking calls.

use super::super::super::bed::Ready;
use super::super::super::drive::Run;
use super::super::super::failure::Failure;
use diorite::{OpenOptions, Volume};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub(super) trait Files: Sync {
    type File: Send + Sync;

    fn make_dir(&self, path: &str) -> Result<(), Failure>;
    fn create(&self, path: &str) -> Result<Self::File, Failure>;
    fn write(&self, file: &Self::File, pos: u64, data: &[u8]) -> Result<(), Failure>;
    fn sync(&self, file: &Self::File) -> Result<(), Failure>;
    fn sync_data(&self, file: &Self::File) -> Result<(), Failure>;
    /// Makes all files durable.
    fn sync_all(&self) -> Result<(), Failure>;
}

/// A load that both sides run.
pub(super) trait Calls {
    fn run<F: Files>(&self, files: &F) -> Result<Run, Failure>;
}

/// Runs the load on a volume.
pub(super) fn ours(ready: &Ready<'_>, calls: &impl Calls) -> Result<Run, Failure> {
    let volume = ready.volume(&OpenOptions::writable())?;
    let run = calls.run(&Ours(&volume))?;
    volume.close()?;
    Ok(run)
}

pub(super) struct Ours<'a>(pub(super) &'a Volume);

impl Files for Ours<'_> {
    type File = diorite::File;

    fn make_dir(&self, path: &str) -> Result<(), Failure> {
        Ok(self.0.mkdir(path, 0o755).map(drop)?)
    }

    fn create(&self, path: &str) -> Result<diorite::File, Failure> {
        Ok(self.0.create(path, 0o644)?)
    }

    fn write(&self, file: &diorite::File, pos: u64, data: &[u8]) -> Result<(), Failure> {
        match file.write_bytes(pos, data)? {
            done if done == data.len() => Ok(()),
            done => Err(Failure::failed(format!(
                "only {done} of {} bytes were written",
                data.len()
            ))),
        }
    }

    fn sync(&self, file: &diorite::File) -> Result<(), Failure> {
        Ok(file.sync()?)
    }

    fn sync_data(&self, file: &diorite::File) -> Result<(), Failure> {
        Ok(file.sync_data()?)
    }

    fn sync_all(&self) -> Result<(), Failure> {
        Ok(self.0.sync()?)
    }
}

/// The mount point.
/// The calls on a mount of the kernel's, below its path.
pub(super) struct Kernels<'a>(pub(super) &'a Path);

impl Kernels<'_> {
    fn path(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }
}

fn failed(e: std::io::Error) -> Failure {
    Failure::host("a file on the kernel's mount", e)
}

impl Files for Kernels<'_> {
    type File = std::fs::File;

    fn make_dir(&self, path: &str) -> Result<(), Failure> {
        std::fs::create_dir(self.path(path)).map_err(failed)
    }

    fn create(&self, path: &str) -> Result<std::fs::File, Failure> {
        let mut new = std::fs::File::options();
        let made = new.write(true).create_new(true).open(self.path(path));
        made.map_err(failed)
    }

    fn write(&self, file: &std::fs::File, pos: u64, data: &[u8]) -> Result<(), Failure> {
        file.write_all_at(data, pos).map_err(failed)
    }

    fn sync(&self, file: &std::fs::File) -> Result<(), Failure> {
        file.sync_all().map_err(failed)
    }

    fn sync_data(&self, file: &std::fs::File) -> Result<(), Failure> {
        file.sync_data().map_err(failed)
    }

    fn sync_all(&self) -> Result<(), Failure> {
        let root = std::fs::File::open(self.0).map_err(failed)?;
        rustix::fs::syncfs(root).map_err(|e| failed(e.into()))
    }
}
