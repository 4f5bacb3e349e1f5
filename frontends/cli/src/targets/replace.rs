//! Asks the user before the contents of a device are replaced. Every command that replaces the whole of a device calls this.
//!
//! Input: a device, and whether an option says that no question is asked. Output: permission, or a [`Reason`]. Invariants: nothing was
//! written before the answer; an answer that does not begin with y is a no. Limits: as of mke2fs, there is a question only if standard
//! input and output are both a terminal; a script that has none goes on.

use crate::images::device::Opened;
use crate::images::signatures::{self, Found};
use crate::output::report::Reason;
use diorite_block::Locator;
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::fs::FileTypeExt;

/// Asks whether what is in this file or on this device is to be replaced, if it is recognised or cannot be read. `name`: the user's word
/// for it; `force`: it is only told.
///
/// # Errors
/// The answer was no: nothing was changed.
pub(crate) fn ask(name: &str, opened: &Opened, force: bool) -> Result<(), Reason> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Ok(());
    }
    let seen = signatures::look(&opened.device);
    let told = match &seen.found {
        Some(found) => told(name, found),
        None if seen.is_partial => {
            format!("Parts of {name} cannot be read: what it contains is not known\n")
        }
        None => return Ok(()),
    };
    let mut out = io::stdout();
    // A terminal that is gone gives no answer, either.
    let _ = write!(out, "{told}");
    if force {
        return Ok(());
    }
    let _ = write!(out, "Proceed anyway? (y,N) ");
    let _ = out.flush();
    let mut answer = String::new();
    let _ = io::stdin().lock().read_line(&mut answer);
    match answer.starts_with(['y', 'Y']) {
        true => Ok(()),
        false => Err(Reason::new("it was not replaced; nothing was changed")),
    }
}

/// As [`ask`], of a block device of the host or a part of one. A file is replaced as by cp(1): what it holds is no matter.
///
/// # Errors
/// As of [`ask`].
pub(crate) fn ask_of_device(
    name: &str,
    locator: &Locator,
    opened: &Opened,
    force: bool,
) -> Result<(), Reason> {
    let Locator::File(file) = locator else {
        return Ok(());
    };
    let is_device = |meta: std::fs::Metadata| meta.file_type().is_block_device();
    match file.path.metadata().is_ok_and(is_device) {
        true => ask(name, opened, force),
        false => Ok(()),
    }
}

/// The lines of mke2fs.
fn told(name: &str, found: &Found) -> String {
    if found.is_table {
        return format!("Found a {} partition table in {name}\n", found.kind);
    }
    let label = match found.label.is_empty() {
        true => String::new(),
        false => format!(" labelled '{}'", found.label),
    };
    let more = found.more.as_ref();
    let more = more.map_or_else(String::new, |more| format!("\t{more}\n"));
    format!(
        "{name} contains a {} file system{label}\n{more}",
        found.kind
    )
}
