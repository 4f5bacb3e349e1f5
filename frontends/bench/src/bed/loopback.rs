//! Block devices of the kernel that a bed makes and removes: a loop device on a file in memory, and zram.
//!
//! Input: a size. Output: a device node. Invariant: the backing file is unlinked at once and the loop device is removed when
//! its last user closes it, which is this process, so that even a killed bench leaves neither behind. Limits: root only; a
//! killed bench leaves its zram device.

use super::super::failure::Failure;
use super::super::{signals, tool};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A loop device with direct I/O and 512-byte sectors.
pub(in super::super) struct LoopBack {
    path: PathBuf,
    /// The last open descriptor: closing it removes the device.
    _user: File,
}

impl LoopBack {
    /// A loop device over a sparse file of `size` bytes in `dir`.
    pub(super) fn new(dir: &Path, size: u64) -> Result<LoopBack, Failure> {
        let backing = dir.join(format!("diorite-bench-{}.disk", std::process::id()));
        let made = File::create(&backing).and_then(|f| f.set_len(size));
        made.map_err(|e| Failure::host(format_args!("cannot make {}", backing.display()), e))?;
        let device = LoopBack::on(&backing);
        // From here on only the loop device keeps the file.
        fs::remove_file(&backing)
            .map_err(|e| Failure::host("cannot unlink the backing file", e))?;
        device
    }

    /// A loop device over this file.
    pub(in super::super) fn on(backing: &Path) -> Result<LoopBack, Failure> {
        attach(backing)
    }

    /// Allocates all memory of the backing file, so that no write waits for it.
    pub(super) fn allocate(&self, size: u64) -> Result<(), Failure> {
        let context = |e: std::io::Error| Failure::host("cannot fill the loop device", e);
        let mut device = File::options()
            .write(true)
            .open(&self.path)
            .map_err(context)?;
        let chunk = vec![0xa5; 1 << 20];
        for _ in 0..size / chunk.len() as u64 {
            signals::check()?;
            device.write_all(&chunk).map_err(context)?;
        }
        device.sync_all().map_err(context)
    }

    pub(in super::super) fn path(&self) -> &Path {
        &self.path
    }
}

fn attach(backing: &Path) -> Result<LoopBack, Failure> {
    let args = ["--direct-io=on", "--sector-size", "512", "--show", "-f"].map(Into::into);
    let args: Vec<std::ffi::OsString> = args.into_iter().chain([backing.into()]).collect();
    let path = PathBuf::from(tool::run("losetup", &args)?.trim());
    let user = File::open(&path);
    // Detaching takes effect when the last user closes the device.
    tool::run("losetup", ["-d".as_ref(), path.as_os_str()])?;
    let user =
        user.map_err(|e| Failure::host(format_args!("cannot open {}", path.display()), e))?;
    Ok(LoopBack { path, _user: user })
}

/// A zram device.
pub(super) struct Zram {
    path: PathBuf,
    number: u32,
}

impl Zram {
    /// A new zram device of `size` bytes.
    pub(super) fn new(size: u64) -> Result<Zram, Failure> {
        let none = |e: std::io::Error| Failure::unavailable(format!("zram: {e}"));
        let number = fs::read_to_string("/sys/class/zram-control/hot_add").map_err(none)?;
        let number = number
            .trim()
            .parse()
            .map_err(|e| Failure::unavailable(format!("zram: {e}")))?;
        let zram = Zram {
            path: PathBuf::from(format!("/dev/zram{number}")),
            number,
        };
        fs::write(
            format!("/sys/block/zram{number}/disksize"),
            size.to_string(),
        )
        .map_err(none)?;
        Ok(zram)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        // The kernel wants reset before hot_remove. The device may stay in use for a moment after our last descriptor of it is
        // closed.
        for _ in 0..40 {
            let reset = fs::write(format!("/sys/block/zram{}/reset", self.number), "1");
            let number = self.number.to_string();
            if reset.is_ok() && fs::write("/sys/class/zram-control/hot_remove", number).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
