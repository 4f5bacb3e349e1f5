//! Mounts a read-only mount again for writing (`-o remount,rw`).
//!
//! The volume was opened for reading, in a sandbox that permits nothing else. So the mount ends, if it is not in use, and the keeper
//! executes this program again, as the same process, with the same arguments and one more.
//!
//! Input: a keeper whose mount has ended, and the process that asked for it. Output: a keeper that mounts for writing, or read-only as
//! before if that fails. Invariants: the process stays the same, so its process number in a pid file, and in its parent, stays right.
//! Limits: between the two mounts others see the directory below.

use super::{raw, this_program};
use crate::args::MountArgs;
use crate::output::report::Reason;
use rustix::io::{FdFlags, fcntl_setfd};
use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;

/// What the one who asked is told if the mount does not end.
pub(super) const IN_USE: &[u8] =
    b"the image was opened read-only, and the mount is in use: it cannot be mounted anew";

/// What the one who asked is told if the locator says that the image is only read.
pub(super) const READ_ONLY: &[u8] = b"its locator says ?ro: mount it without that to write to it";

const ANEW: &str = "--anew-fd=";

/// Becomes a keeper that mounts for writing, and tells `client` of it. `here`: where the arguments' paths begin. Returns only if that
/// fails.
pub(super) fn begin(args: &MountArgs, client: &UnixStream, here: Option<&Path>) -> Reason {
    if let Err(error) = fcntl_setfd(client, FdFlags::empty()) {
        return Reason::host("a socket", error);
    }
    // What it has to say about a failure is for whoever asked, where nobody else listens.
    let errors = args.detached.then(|| client.try_clone().ok()).flatten();
    run(args, Some(format!("{ANEW}{}", raw(client))), here, errors)
}

/// After [`begin`] has become this process and could not mount: becomes the keeper that there was before. Returns only if that fails.
pub(super) fn go_back(args: &MountArgs) -> Reason {
    run(args, None, None, None)
}

/// The arguments of this process, without descriptors that somebody has been told through.
fn still_true(words: Vec<OsString>) -> Vec<OsString> {
    const OLD: [&str; 3] = [ANEW, "--front-fd=", "--ready-fd="];
    let mut kept = Vec::with_capacity(words.len());
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        if word == "--ready-fd" {
            words.next();
            continue;
        }
        let bytes = word.as_encoded_bytes();
        if !OLD.iter().any(|old| bytes.starts_with(old.as_bytes())) {
            kept.push(word);
        }
    }
    kept
}

fn run(
    args: &MountArgs,
    more: Option<String>,
    here: Option<&Path>,
    errors: Option<UnixStream>,
) -> Reason {
    let (mut all, behind) = crate::usage::around("mount");
    all.extend(more.map(OsString::from));
    all.extend(still_true(behind));
    let mut program = match this_program() {
        Ok(program) => program,
        Err(why) => return why,
    };
    program.args(all);
    if let Some(here) = here {
        program.current_dir(here);
    }
    if args.detached {
        program.stderr(errors.map_or_else(Stdio::null, |fd| std::os::fd::OwnedFd::from(fd).into()));
    }
    Reason::new(format!("this program, again: {}", program.exec()))
}
