//! `diorite umount`: the end of mounts.
//!
//! Input: mount points. Output: nothing is mounted there any more, and the images are free. Invariant: success means that everything is
//! durable, if it was the last mount of its file system. Limits: waits a minute at most for the process that served a mount; others are
//! found in the mount namespaces of processes that may be looked at.

use super::mount::{MOUNT_FAILED, control};
use crate::args::{Global, UmountArgs};
use crate::output::report::{Reason, Report};
use diorite_block::Locator;
use diorite_block::device::DeviceErrorKind;
use diorite_fuse::{Entry, mounted_at, mounts_of};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long to wait for the server.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the command.
pub(crate) fn run(global: &Global, args: &UmountArgs) -> ExitCode {
    let mut report = Report::new("umount", "");
    for dir in &args.dirs {
        if let Err(why) = unmount(global, dir, args.lazy) {
            report.elsewhere(dir, why);
        }
    }
    match report.has_failed() && args.helper {
        true => ExitCode::from(MOUNT_FAILED),
        false => report.exit_code(),
    }
}

fn unmount(global: &Global, dir: &Path, lazy: bool) -> Result<(), Reason> {
    // Not by canonicalize: that asks the server, which may be dead.
    let absolute = std::path::absolute(dir).map_err(|e| Reason::new(e.to_string()))?;
    let absolute = match absolute.canonicalize() {
        Ok(path) => path,
        Err(_) => absolute,
    };
    let entry = mounted_at(&absolute).ok_or_else(|| Reason::new("nothing is mounted there"))?;
    if !entry.is_fuse() {
        let kind = &entry.kind;
        return Err(Reason::new(format!(
            "it is no mount of diorite, its type is {kind}: use umount(8)"
        )));
    }
    let others = Others::of(&entry);
    // Before the end, so that the keeper knows who wants to be told.
    let keeper = match lazy {
        true => None,
        false => control::ask(&entry.device, control::WAIT),
    };
    diorite_fuse::unmount(&absolute, lazy).map_err(|e| Reason::new(e.to_string()))?;
    if lazy || others.are_there(false) {
        return Ok(());
    }
    match keeper {
        Some(keeper) => until_ended(keeper, &others),
        None => match String::from_utf8(entry.source).map(|text| Locator::parse(&text)) {
            Ok(Ok(locator)) => until_free(global, &locator),
            _ => Ok(()),
        },
    }
}

/// Mounts of a file system at other places and in other mount namespaces (`mount --bind`): with one of them left it does not end.
struct Others(Vec<Entry>);

impl Others {
    /// Those beside this one. Call before it is unmounted: afterwards the numbers of its device may be those of a stranger.
    fn of(own: &Entry) -> Others {
        let mut all = mounts_of(&own.device, true);
        all.retain(|entry| entry.id != own.id);
        Others(all)
    }

    /// Is one of them left, here or `everywhere`? An unmount may take several away, which were mounted together. A new mount is none of
    /// them, though it may have the device's numbers.
    fn are_there(&self, everywhere: bool) -> bool {
        let Some(first) = self.0.first() else {
            return false;
        };
        let now = mounts_of(&first.device, everywhere);
        // Places differ with the root of the process that sees them.
        let is_one = |entry: &Entry| {
            let mut before = self.0.iter();
            before.any(|other| other.id == entry.id && other.source == entry.source)
        };
        now.iter().any(is_one)
    }
}

/// Waits for the end of the server, of which the keeper tells; not if the file system is still mounted in another mount namespace.
fn until_ended(mut keeper: control::Asked, others: &Others) -> Result<(), Reason> {
    /// How long a server may take before other mount namespaces are looked at.
    const MOMENT: Duration = Duration::from_secs(1);
    let code = match keeper.answer_within(MOMENT)? {
        Some(code) => code,
        None if others.are_there(true) => return Ok(()),
        None => keeper.answer(PATIENCE)?,
    };
    match code {
        control::DONE => Ok(()),
        control::KILLED => Err(Reason::new(format!(
            "it is unmounted, but its server {}",
            keeper.why()
        ))),
        _ => Err(Reason::new(
            "it is unmounted, but not everything could be made durable",
        )),
    }
}

/// Waits until the image can be opened by others: then its server has ended. For a mount whose keeper was killed.
fn until_free(global: &Global, locator: &Locator) -> Result<(), Reason> {
    let began = Instant::now();
    let options = crate::images::device::options(global, true);
    loop {
        let held = match diorite::open_device(locator, &options) {
            Err(diorite::Error::Open(error)) => error.kind == DeviceErrorKind::Held,
            _ => false,
        };
        match (held, began.elapsed() < PATIENCE) {
            (false, _) => return Ok(()),
            (true, true) => std::thread::sleep(Duration::from_millis(10)),
            (true, false) => {
                return Err(Reason::new(
                    "it is unmounted, but the process that served it is still writing",
                ));
            }
        }
    }
}
