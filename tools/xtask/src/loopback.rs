//! What it is: the kernel's loop devices over files of tests, and when they have released those.
//! Input: a file. Output: its loop device. Invariant: after a device is detached, the file holds everything that was written through
//! the device, and the kernel no longer holds the file. The kernel releases it when the last process closes the device, and udev may
//! have opened it. Limit: a release is awaited for ten seconds.

use crate::error::{Error, Result};
use crate::run::run;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long to wait for a loop device to release its file.
const RELEASING: Duration = Duration::from_secs(10);

/// A loop device, detached when it is dropped.
#[derive(Debug)]
pub struct Loop(String);

impl Loop {
    /// `losetup -f --show`, with these options.
    ///
    /// # Errors
    /// As [`run`]; attaching needs root.
    pub fn attach(file: &Path, options: &[&str]) -> Result<Loop> {
        let mut args = ["-f", "--show"].map(OsStr::new).to_vec();
        args.extend(options.iter().map(OsStr::new));
        args.push(file.as_os_str());
        let said = run("losetup", &args)?;
        Ok(Loop(String::from_utf8_lossy(&said).trim().to_owned()))
    }

    /// As [`Loop::attach`]; where that is not possible, prints that the test is skipped.
    #[track_caller]
    #[must_use]
    pub fn attach_or_skip(file: &Path, options: &[&str]) -> Option<Loop> {
        match Loop::attach(file, options) {
            Ok(device) => Some(device),
            Err(error) => {
                crate::skip::skipped(format_args!("no loop device can be made (root?): {error}"));
                None
            }
        }
    }

    /// The path of the device.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.0
    }
}

impl Drop for Loop {
    /// `losetup -d`, and waits until the device has released its file.
    ///
    /// # Panics
    /// The device keeps the file, and the thread is not panicking already.
    fn drop(&mut self) {
        let name = self.0.trim_start_matches("/dev/");
        let held = Held::by(&Path::new("/sys/block").join(name));
        let gone = run("losetup", &["-d", &self.0]).and_then(|_| held.released());
        if let Err(error) = gone
            && !std::thread::panicking()
        {
            panic!("{error}");
        }
    }
}

/// The file that a loop device holds.
#[derive(Debug)]
pub(crate) struct Held {
    /// The kernel's file with the file's name; another one may be there later.
    attribute: PathBuf,
    file: Option<String>,
}

impl Held {
    /// What the device below the file system that is mounted at `at` releases with the mount: the file of a loop device that `mount`
    /// made. Nothing for a bind mount of a neighbour, whose device stays in use.
    pub(crate) fn below(at: &Path) -> Held {
        let number = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.dev());
        let (here, around) = (number(at), at.parent().map_or(0, number));
        let (major, minor) = (rustix::fs::major(here), rustix::fs::minor(here));
        let device = Path::new("/sys/dev/block").join(format!("{major}:{minor}"));
        let mut held = Held::by(&device);
        let autoclear = std::fs::read_to_string(device.join("loop/autoclear"));
        held.file = held
            .file
            .filter(|_| here != around && autoclear.is_ok_and(|set| set.trim() == "1"));
        held
    }

    /// What the block device with this folder in sysfs holds: nothing, if it is no loop device.
    fn by(device: &Path) -> Held {
        let attribute = device.join("loop/backing_file");
        let file = std::fs::read_to_string(&attribute).ok();
        Held { attribute, file }
    }

    /// Waits until the device holds the file no longer.
    ///
    /// # Errors
    /// It still does after ten seconds.
    pub(crate) fn released(&self) -> Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let begin = Instant::now();
        while std::fs::read_to_string(&self.attribute).ok().as_ref() == Some(file) {
            if begin.elapsed() > RELEASING {
                return Err(Error::Answer {
                    what: "a loop device that is not in use, and keeps its file",
                    text: file.trim_end().to_owned(),
                });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::fs::File;

    /// Keeps the device open for a moment, as udev does.
    fn hold(device: &str) -> std::thread::JoinHandle<()> {
        let open = File::open(device).unwrap();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            drop(open);
        })
    }

    /// Defect: mke2fs noted in a journal device who its user is, and the file behind the device did not have it yet.
    #[test]
    fn a_device_is_dropped_when_its_file_is_released() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let Some(device) = Loop::attach_or_skip(file.path(), &[]) else {
            return;
        };
        let name = device.device().trim_start_matches("/dev/").to_owned();
        let held = Held::by(&Path::new("/sys/block").join(name));
        assert!(held.file.is_some());
        let other = hold(device.device());
        drop(device);
        let now = std::fs::read_to_string(&held.attribute).ok();
        assert_ne!(now, held.file);
        other.join().unwrap();
    }

    #[test]
    fn an_image_is_unmounted_when_it_is_released() {
        let dir = tempfile::tempdir().unwrap();
        let (image, at) = (dir.path().join("image"), dir.path().join("at"));
        std::fs::create_dir(&at).unwrap();
        run("mke2fs", &["-q".as_ref(), image.as_os_str(), "4M".as_ref()]).unwrap();
        let options = ["-o", "loop"].map(OsStr::new);
        let args = [&options[..], &[image.as_os_str(), at.as_os_str()]].concat();
        if let Err(error) = run("mount", &args) {
            return crate::skip::skipped(format_args!("mounting needs root: {error}"));
        }
        let held = Held::below(&at);
        let number = held.attribute.parent().unwrap().parent().unwrap();
        let name = std::fs::canonicalize(number).unwrap();
        let device = Path::new("/dev").join(name.file_name().unwrap());
        let other = hold(device.to_str().unwrap());
        crate::mount::unmount(&at).unwrap();
        assert!(held.file.is_some());
        assert_ne!(std::fs::read_to_string(&held.attribute).ok(), held.file);
        other.join().unwrap();
    }
}
