//! Memory that stays in use after all of an image was read and written through the loop device, by direct requests of the volume in it.
//!
//! Input: a bed with a volume in its file. Output: `loop-memory`; the same in the other mode, without a target. Invariant: each mode is
//! measured in a process of its own, without a budget for pages. Limits: the host's page cache is that of all programs.

use super::super::super::args::{Child, ChildOptions};
use super::super::super::bed::{Bed, FILE};
use super::super::super::drive::drive;
use super::super::super::failure::Failure;
use super::super::super::host;
use super::super::super::image::FileTarget;
use super::super::super::job::{Job, Rw};
use super::super::super::report::{Print, Report, write_out};
use super::super::super::rounds::Spread;
use super::super::super::tool;
use super::{nest, policy};
use diorite::policy::LoopMode;
use diorite::{OpenFlags, OpenOptions, PageCache, Volume};
use std::path::Path;
use std::time::Duration;

const MIB: f64 = 1_048_576.0;
/// More than any image has.
const NO_BUDGET: u64 = 1 << 40;

pub(super) fn run(bed: &Bed, report: &mut Report) -> Result<(), Failure> {
    report.heading("memory after all of an image was read and written through loop, MiB")?;
    let Some(path) = bed.host_path() else {
        return report.note("loop-memory: skipped, the image is in the memory of this process");
    };
    for (id, word) in [
        ("loop-memory", "loop-direct"),
        ("loop-memory-buffered", "loop-buffered"),
    ] {
        if let Some(mib) = report.unless_skipped(id, measured(word, &path))? {
            report.ratio(id, &Spread::of(&[mib]), bed.label(), bed.counts)?;
        }
    }
    Ok(())
}

/// Runs the child; returns what it has grown by.
fn measured(word: &str, image: &Path) -> Result<f64, Failure> {
    let exe = std::env::current_exe().map_err(|e| Failure::host("cannot find this program", e))?;
    let mut command = std::process::Command::new(exe);
    command.args(["bench", "cost-child", word]).arg(image);
    let said: serde_json::Value = serde_json::from_str(&tool::output("diorite", &mut command)?)
        .map_err(|e| Failure::host("the child printed no JSON", e))?;
    Ok(said["grown"].as_f64().unwrap_or(f64::NAN) / MIB)
}

/// The child: opens the volume in the image's file, and reads and overwrites its file from end to end.
pub(in super::super) fn child(options: &ChildOptions, out: Print) -> Result<(), Failure> {
    let mode = match options.what {
        Child::LoopBuffered => LoopMode::BufferedSync,
        _ => LoopMode::DirectAsync,
    };
    let opened = OpenOptions::writable()
        .page_cache(PageCache::new(NO_BUDGET))
        .policy(policy(mode));
    let flags = OpenFlags::writable();
    let locator = options.image.display().to_string();
    let outer = Volume::open(&locator, &opened)?;
    let image = outer.open_path(FILE, flags)?;
    let inner = Volume::open_device(nest::looped(&image), &opened)?;
    let file = inner.open_path(FILE, flags)?;
    let used = || (host::own_status("VmRSS:") + host::page_cache()) as f64;
    let before = used();
    let target = FileTarget {
        volume: inner.clone(),
        len: file.size(),
        file,
        base: 0,
    };
    for rw in [Rw::Read, Rw::Write] {
        let job = Job {
            runtime: Duration::from_secs(3600),
            ..Job::new(rw, 128 << 10, 16).once()
        };
        drive(&target, &job)?;
    }
    let grown = used() - before;
    drop(target);
    inner.close()?;
    drop(image);
    outer.close()?;
    write_out(
        out,
        format_args!("{}\n", serde_json::json!({ "grown": grown })),
    )
}
