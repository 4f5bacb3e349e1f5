//! `diorite umount`: the end of mounts.
//!
//! Input: mount points. Output: nothing is mounted there any more, and the images are free. Invariant: success means that everything is
//! durable. Limits: waits a minute at most for the process that served a mount.

use super::mount::{MOUNT_FAILED, control};
use crate::args::{Global, UmountArgs};
use crate::report::{Reason, Report};
use diorite_block::Locator;
use diorite_block::device::DeviceErrorKind;
use diorite_fuse::mounted_at;
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
    // Before the end, so that the keeper knows who wants to be told.
    let keeper = match lazy {
        true => None,
        false => control::ask(&entry.device, control::WAIT),
    };
    diorite_fuse::unmount(&absolute, lazy).map_err(|e| Reason::new(e.to_string()))?;
    match keeper {
        _ if lazy => Ok(()),
        Some(keeper) => match keeper.answer(PATIENCE)? {
            control::DONE => Ok(()),
            _ => Err(Reason::new(
                "it is unmounted, but not everything could be made durable",
            )),
        },
        None => match String::from_utf8(entry.source).map(|text| Locator::parse(&text)) {
            Ok(Ok(locator)) => until_free(global, &locator),
            _ => Ok(()),
        },
    }
}

/// Waits until the image can be opened by others: then its server has ended. For a mount whose keeper was killed.
fn until_free(global: &Global, locator: &Locator) -> Result<(), Reason> {
    let began = Instant::now();
    let options = crate::device::options(global, true);
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
