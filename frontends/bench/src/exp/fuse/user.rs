//! An ordinary user: a source tree unpacked on a mount of that user's, and on one of root's.
//!
//! Input: an archive. Output: `fuse-user`. Invariants: the same archive, image and user; the image belongs to the user. Limits: root, which
//! becomes the user; fusermount3; the user must be able to run this program.

use super::super::super::args::Options;
use super::super::super::bed::{Image, Scratch, make_image};
use super::super::super::drive::Run;
use super::super::super::failure::Failure;
use super::super::super::job::{Job, Rw};
use super::super::super::peer::Peer;
use super::super::super::report::Report;
use super::super::super::rounds::{Rounds, interleave};
use super::LABEL;
use super::mounts::{Mounter, Program, USER, as_user};
use super::tree;
use std::os::unix::fs::chown;
use std::path::Path;

const FILES: u32 = 5_000;

pub(super) fn run(dir: &Scratch, options: &Options, report: &mut Report) -> Result<(), Failure> {
    report.heading(
        "an ordinary user unpacks a source tree: on a mount of that user's, and on one of root's",
    )?;
    let Some(rounds) = report.unless_skipped("fuse-user", measure(dir, options))? else {
        return Ok(());
    };
    report.rows(&rounds, LABEL)?;
    report.ratio("fuse-user", &rounds.ratio(0, 1), LABEL, true)
}

fn measure(dir: &Scratch, options: &Options) -> Result<Rounds, Failure> {
    let archive = tree::make(dir, FILES)?;
    let place = Scratch::in_memory()?;
    let image = make_image(&place, Image::with_file(1 << 30, 1 << 20))?;
    let at = place.path().join("mnt");
    let context = |e| Failure::host("cannot make what is a user's", e);
    std::fs::create_dir(&at).map_err(context)?;
    let user = Some(USER);
    for path in [place.path(), &image, &at] {
        chown(path, user, user).map_err(context)?;
    }
    let mounter = |program| Mounter {
        program,
        image: &image,
        at: &at,
    };
    let by_root = mounter(Program::Diorite);
    let mount = by_root.start()?;
    let given = chown(&at, user, user).map_err(context);
    by_root.stop(mount)?;
    given?;
    let job = Job {
        calls: Some(format!("unpack, {FILES} files, as an ordinary user")),
        ..Job::new(Rw::Write, 4096, 1)
    };
    let arm = |program| mounter(program).arm(&job, |mount, _| unpack(mount.path(), &archive));
    interleave(
        &[arm(Program::OfUser), arm(Program::Diorite)],
        options.plan_of(5),
    )
}

/// Unpacks it as the user, and removes it.
fn unpack(at: &Path, archive: &Path) -> Result<Run, Failure> {
    let tar = [
        "-C".as_ref(),
        at.as_os_str(),
        "-xf".as_ref(),
        archive.as_os_str(),
    ];
    let time = tree::timed(|| as_user("tar", tar).map(drop))?;
    as_user("rm", ["-rf".as_ref(), at.join("tree").as_os_str()])?;
    Ok(Run::of_calls(f64::from(FILES) / time.as_secs_f64()))
}
