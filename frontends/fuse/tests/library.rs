//! A program that mounts: the options that it begins with suffice.
#![allow(clippy::unwrap_used, missing_docs)]

use diorite::device::{Device, MemDevice};
use diorite::mkfs::{MkfsOptions, mkfs};
use diorite::{OpenOptions, Volume};
use diorite_fuse::{MountOptions, Mounted, mount, unmount};
use std::fs;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use xtask::skip::skipped;

/// `MountOptions::default()` mounts, for root and for an ordinary user, and what is written is in the volume after the end. The defect: its
/// empty name of the source was refused by the kernel.
#[test]
fn default_options_mount() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let device: Arc<dyn Device> = Arc::new(MemDevice::new(16 << 20));
    let options = MkfsOptions::new([1; 16], [2; 16], 1_700_000_000);
    let user = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    mkfs(&device, &options.root_owner(user))?;
    let volume = Volume::open_device(device.clone(), &OpenOptions::writable())?;
    let options = MountOptions::default();
    let point = fs::File::open(dir.path())?.into();
    let fuse = match mount(dir.path(), &point, &options) {
        Ok(fuse) => fuse,
        Err(why) => {
            skipped(format!("this host mounts nothing: {why}"));
            return Ok(());
        }
    };
    let mut mounted = Mounted::serve(volume, fuse, options)?;
    let path = dir.path().join("file");
    fs::write(&path, b"through the mount")?;
    assert_eq!(fs::read(&path)?, b"through the mount");
    unmount(dir.path(), false)?;
    mounted.wait();
    mounted.closer().close()?;
    drop(mounted);
    let volume = Volume::open_device(device, &OpenOptions::default())?;
    assert_eq!(volume.read("/file")?, b"through the mount");
    assert_eq!(fs::metadata(&path).unwrap_err().kind(), ErrorKind::NotFound);
    Ok(())
}
