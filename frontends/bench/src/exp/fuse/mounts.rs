//! One image, mounted by one program after the other.
//!
//! Input: a program, an image file, a mount point. Output: a mount, which goes away with its guard. Invariants: nobody else has the image
//! open; when a mount has ended its image is free. Limits: root; an ordinary user's mount needs fusermount3.

use super::super::super::failure::Failure;
use super::super::super::peer::Peer;
use super::super::super::tool;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a program may take to let go of the image.
const END: Duration = Duration::from_secs(60);

/// An ordinary user: nobody.
pub(super) const USER: u32 = 65534;

/// Runs a program as [`USER`].
pub(super) fn as_user<A: AsRef<OsStr>>(
    program: &str,
    args: impl IntoIterator<Item = A>,
) -> Result<String, Failure> {
    let mut command = Command::new(program);
    command.args(args).uid(USER).gid(USER).current_dir("/");
    tool::output(program, &mut command)
}

/// Why the kernel sends no requests through io_uring, if it does not.
pub(super) fn why_no_rings() -> Option<String> {
    const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";
    match std::fs::read_to_string(PARAMETER) {
        Ok(on) if matches!(on.trim(), "Y" | "1") => None,
        Ok(_) => Some(format!("{PARAMETER} is N (root may set it to Y)")),
        Err(_) => Some("this kernel's FUSE has no io_uring".to_owned()),
    }
}

/// Who mounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    Diorite,
    /// Requests come through io_uring.
    Rings,
    /// Of the ordinary user [`USER`], whose the image has to be.
    OfUser,
    Fuse2fs,
    /// The kernel's ext4, through a loop device with direct I/O.
    Kernel,
}

impl Program {
    fn name(self) -> &'static str {
        match self {
            Program::Diorite => "diorite mount",
            Program::Rings => "diorite mount -o io_uring",
            Program::OfUser => "diorite mount of a user",
            Program::Fuse2fs => "fuse2fs",
            Program::Kernel => "kernel's ext4",
        }
    }
}

/// A program that mounts an image.
pub(super) struct Mounter<'a> {
    pub(super) program: Program,
    pub(super) image: &'a Path,
    pub(super) at: &'a Path,
}

impl Peer for Mounter<'_> {
    type Running = Mount;

    fn name(&self) -> &'static str {
        self.program.name()
    }

    fn start(&self) -> Result<Mount, Failure> {
        Mount::new(self.program, self.image, self.at)
    }

    fn stop(&self, mut mount: Mount) -> Result<(), Failure> {
        mount.release()
    }
}

/// A mount; see the module.
pub(super) struct Mount {
    program: Program,
    at: PathBuf,
    /// The kernel's device.
    device: Option<String>,
    mounted: bool,
}

impl Mount {
    fn new(program: Program, image: &Path, at: &Path) -> Result<Mount, Failure> {
        let (image, place) = (image.as_os_str(), at.as_os_str());
        let mut mount = Mount {
            program,
            at: at.to_owned(),
            device: None,
            mounted: false,
        };
        match program {
            Program::Diorite => {
                tool::run(this_program()?, ["mount".as_ref(), image, place])?;
            }
            Program::Rings => {
                let how = ["mount", "-o", "io_uring"].map(OsStr::new);
                tool::run(this_program()?, how.into_iter().chain([image, place]))?;
            }
            Program::OfUser => {
                let mounted = as_user(&this_program()?, ["mount".as_ref(), image, place]);
                mounted.map_err(|e| {
                    Failure::unavailable(format!("an ordinary user cannot mount here: {e}"))
                })?;
            }
            Program::Fuse2fs => {
                tool::run("fuse2fs", [image, place])?;
            }
            Program::Kernel => {
                let args = [
                    "--find".as_ref(),
                    "--show".as_ref(),
                    "--direct-io=on".as_ref(),
                    image,
                ];
                let device = tool::run("losetup", args)?.trim().to_owned();
                mount.device = Some(device.clone());
                tool::run(
                    "mount",
                    ["-t".as_ref(), "ext4".as_ref(), device.as_ref(), place],
                )?;
            }
        }
        mount.mounted = true;
        Ok(mount)
    }

    pub(super) fn path(&self) -> &Path {
        &self.at
    }

    /// Unmounts, and waits until the image is free.
    fn release(&mut self) -> Result<(), Failure> {
        if std::mem::take(&mut self.mounted) {
            unmount(&self.at)?;
        }
        if let Some(device) = self.device.take() {
            tool::run("losetup", ["--detach", &device])?;
        }
        match self.program {
            Program::Kernel => Ok(()),
            // fuse2fs and diorite write back after the unmount.
            Program::Fuse2fs => until_gone("fuse2fs", &self.at),
            Program::Diorite | Program::Rings | Program::OfUser => until_gone("diorite", &self.at),
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Only the earlier failure, which led here, is reported.
        let _ = self.release();
    }
}

fn this_program() -> Result<String, Failure> {
    let this = std::env::current_exe();
    let this = this.map_err(|e| Failure::host("cannot find this program", e))?;
    let this = this.into_os_string().into_string();
    this.map_err(|_| Failure::failed("this program's path is no text"))
}

/// Unmounts, with retries: who used a file last may hold it for a moment.
pub(super) fn unmount(at: &Path) -> Result<(), Failure> {
    for _ in 0..40 {
        if tool::run("umount", [at]).is_ok() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    tool::run("umount", [at]).map(drop)
}

/// Waits until no process of this name has the mount point among its arguments.
fn until_gone(name: &str, at: &Path) -> Result<(), Failure> {
    let began = Instant::now();
    let pattern = format!("{name}.*{}", at.display());
    while tool::run("pgrep", ["-f", &pattern]).is_ok() {
        if began.elapsed() > END {
            return Err(Failure::failed(format!(
                "{name} does not let go of the image"
            )));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
