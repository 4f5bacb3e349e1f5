//! Images made of trees and archives, against mke2fs, and tar on a mount of the kernel; empty file systems, against mke2fs.
//!
//! Input: a tree of files that is made here, on memory. Output: `import-dir`, `import-tar-mke2fs`, `import-tar-kernel`, `export-tar`,
//! `zst-out`, `zst-out-size`, `mkfs-20g`, `mkfs-1t`, `import-rss`, `autosize`, `start`. Invariants: all programs read the same tree and
//! write to the same kind of file; each is a process of its own, timed from its start to its end; the first result of each is checked by
//! e2fsck. Limits: root for the kernel's mounts; a row whose program cannot do it here is skipped with the reason.

mod starts;

use super::super::args::Options;
use super::super::bed::Scratch;
use super::super::drive::Run;
use super::super::failure::Failure;
use super::super::host;
use super::super::job::{Job, Rw};
use super::super::load::Rng;
use super::super::report::Report;
use super::super::rounds::{Arm, Plan, Spread, interleave};
use super::super::targets::{least, most};
use super::super::{signals, tool};
use super::Experiment;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Files of the tree, and how many are in a directory.
const FILES: u32 = 52_000;
const TOGETHER: u32 = 100;
/// Bytes of the largest file.
const LARGEST: usize = 60_000;
/// Bytes of the tree's image.
const SIZE: &str = "2G";
/// What is asked to stay free.
const HEADROOM: u64 = 64 << 20;
/// How often a child's memory is looked at.
const LOOK: Duration = Duration::from_millis(2);

const DEVICE: &str = "files on tmpfs";
/// Features that our file systems have by default, as those of newer releases of mke2fs.
const SAME: &str = "orphan_file,metadata_csum_seed";

pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    name: "image",
    about: "Images made of trees and archives, against mke2fs and tar on a mount of the kernel; empty ones, against mke2fs",
    goals: &[
        least(
            "import-dir",
            2.5,
            "an image of a tree of 52,000 files: diorite import / mke2fs -d",
        ),
        least(
            "import-tar-mke2fs",
            3.0,
            "an image of a tar archive on standard input: diorite import / mke2fs -d",
        ),
        least(
            "import-tar-kernel",
            2.0,
            "the same, diorite import / tar x into the kernel's ext4, and sync",
        ),
        least(
            "export-tar",
            1.0,
            "a tar archive of the image: diorite export / tar c of the kernel's mount",
        ),
        least(
            "mkfs-20g",
            1.0,
            "an empty file system of 20 GiB: diorite mkfs / mke2fs",
        ),
        least(
            "mkfs-1t",
            2.0,
            "an empty file system of 1 TiB, inode tables zeroed: diorite mkfs / mke2fs",
        ),
        most(
            "zst-out",
            1.2,
            "the image of that tree compressed by zstd: time of diorite copy / zstd -3",
        ),
        most(
            "zst-out-size",
            1.02,
            "the same: bytes of diorite copy / zstd -3",
        ),
        most(
            "import-rss",
            128.0,
            "imports of that tree and archive: resident memory, MiB",
        ),
        most(
            "autosize",
            1.0,
            "an image whose size is found: available to users beyond what was asked / the larger of 1 MiB and 1 %",
        ),
        most(
            "start",
            1.2,
            "user and system time of a command: diorite info / dumpe2fs -h",
        ),
    ],
    own: None,
    run,
};

fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    if options.image.is_some() {
        return Err(Failure::usage(
            "this experiment makes images of its own: --image is not for it",
        ));
    }
    report.device(DEVICE, "buffered, or direct where the file can")?;
    let dir = Scratch::in_memory()?;
    let bed = Bed::make(&dir, options)?;
    bed.directories(options, report)?;
    bed.archives(options, report)?;
    bed.exports(options, report)?;
    bed.compressed(options, report)?;
    bed.empty_ones(options, report)?;
    bed.memory_and_size(report)?;
    starts::run((&bed.exe, &bed.image), options, report)
}

struct Bed {
    tree: PathBuf,
    tar: PathBuf,
    image: PathBuf,
    at: PathBuf,
    exe: PathBuf,
}

/// A program with its arguments that makes the image.
#[derive(Clone)]
struct Making {
    /// Bytes of the empty file that is there before; 0: none is.
    before: u64,
    words: Vec<OsString>,
}

impl Making {
    /// A shell command.
    fn shell(text: String) -> Making {
        Making {
            before: 0,
            words: ["sh", "-c", &text].map(OsString::from).into(),
        }
    }

    fn run(&self) -> Result<(), Failure> {
        let (program, args) = self.words.split_first().expect("a program");
        tool::run(program, args).map(drop)
    }
}

/// A shell command with paths in its place.
fn shell(text: &str) -> Result<(), Failure> {
    tool::run("sh", ["-c", text]).map(drop)
}

/// Runs of one kind in a second.
fn timed(work: impl FnOnce() -> Result<(), Failure>) -> Result<Run, Failure> {
    signals::check()?;
    Run::of_one(work)
}

fn job(what: &str) -> Job {
    Job {
        calls: Some(what.to_owned()),
        ..Job::new(Rw::Write, 4096, 1)
    }
}

impl Bed {
    fn make(dir: &Scratch, options: &Options) -> Result<Bed, Failure> {
        let exe =
            std::env::current_exe().map_err(|e| Failure::host("cannot find this program", e))?;
        let bed = Bed {
            tree: dir.path().join("tree"),
            tar: dir.path().join("tree.tar"),
            image: dir.path().join("image"),
            at: dir.path().join("mnt"),
            exe,
        };
        let context = |e| Failure::host("cannot make the tree", e);
        let mut noise = vec![0; 1 << 20];
        let mut rng = Rng::new(options.seed);
        rng.fill(&mut noise);
        fs::create_dir(&bed.at).map_err(context)?;
        for n in 0..FILES {
            let place = bed
                .tree
                .join(format!("d{}/s{}", n / TOGETHER / 25, n / TOGETHER));
            if n % TOGETHER == 0 {
                fs::create_dir_all(&place).map_err(context)?;
            }
            // Files of some hundred bytes, and others up to the largest.
            let len = 300 + rng.below(LARGEST as u64 - 300) as usize * (n as usize % 3) / 2;
            let from = rng.below((noise.len() - LARGEST) as u64) as usize;
            fs::write(
                place.join(format!("file{n}.dat")),
                &noise[from..from + len.min(LARGEST)],
            )
            .map_err(context)?;
        }
        for n in 0..4 {
            let mut all = Vec::new();
            (0..32).for_each(|_| all.extend_from_slice(&noise));
            fs::write(bed.tree.join(format!("large{n}")), all).map_err(context)?;
        }
        tool::run(
            "tar",
            [
                "-cf".as_ref(),
                bed.tar.as_os_str(),
                "-C".as_ref(),
                bed.tree.as_os_str(),
                ".".as_ref(),
            ],
        )?;
        Ok(bed)
    }

    /// A run that makes the image again, and is checked once.
    fn remake(&self, making: &Making) -> Result<Run, Failure> {
        let _ = fs::remove_file(&self.image);
        if making.before > 0 {
            let made = File::create(&self.image).and_then(|file| file.set_len(making.before));
            made.map_err(|e| Failure::host("cannot make a file", e))?;
        }
        timed(|| making.run())
    }

    fn words(&self) -> [String; 4] {
        [&self.exe, &self.tree, &self.tar, &self.image].map(|path| format!("'{}'", path.display()))
    }

    fn check(&self) -> Result<(), Failure> {
        tool::run("e2fsck", ["-fn".as_ref(), self.image.as_os_str()]).map(drop)
    }

    /// Compares commands that make the image.
    fn compare(
        &self,
        ids: &[&str],
        heading: &str,
        makings: &[(&str, Making)],
        plan: Plan,
        report: &mut Report,
    ) -> Result<(), Failure> {
        report.heading(heading)?;
        for (_, making) in makings {
            if let Err(e) = self.remake(making).and_then(|_| self.check()) {
                return report.note(format!("{}: skipped: {e}", ids.join(", ")));
            }
        }
        let job = job(heading);
        let arm = |(name, making): &(&str, Making)| {
            let making = making.clone();
            Arm::new(*name, job.clone(), move |_| self.remake(&making))
        };
        let arms: Vec<Arm<'_>> = makings.iter().map(arm).collect();
        let rounds = interleave(&arms, plan)?;
        report.rows(&rounds, DEVICE)?;
        for (n, id) in ids.iter().enumerate() {
            report.ratio(id, &rounds.ratio(0, n + 1), DEVICE, true)?;
        }
        Ok(())
    }

    fn directories(&self, options: &Options, report: &mut Report) -> Result<(), Failure> {
        let [exe, tree, _, image] = self.words();
        let makings = [
            (
                "diorite import",
                Making::shell(format!("{exe} import -q --size {SIZE} {tree} {image}")),
            ),
            (
                "mke2fs -d",
                Making::shell(format!(
                    "mke2fs -q -F -t ext4 -d {tree} {image} {SIZE} 2>&1"
                )),
            ),
        ];
        self.compare(
            &["import-dir"],
            "a tree of 52,000 files, of a directory",
            &makings,
            options.plan_of(5),
            report,
        )
    }

    fn archives(&self, options: &Options, report: &mut Report) -> Result<(), Failure> {
        let [exe, _, tar, image] = self.words();
        let at = format!("'{}'", self.at.display());
        let ours = (
            "diorite import -",
            Making::shell(format!(
                "cat {tar} | {exe} import -q --size {SIZE} - {image}"
            )),
        );
        let heading = "the same, of a tar archive on standard input";
        let mke2fs = Making::shell(format!("mke2fs -q -F -t ext4 -d {tar} {image} {SIZE} 2>&1"));
        self.compare(
            &["import-tar-mke2fs"],
            heading,
            &[ours.clone(), ("mke2fs -d", mke2fs)],
            options.plan_of(5),
            report,
        )?;
        if !host::is_root() {
            return report.note("import-tar-kernel: skipped: the kernel's mount needs root");
        }
        let mount = format!("mke2fs -q -F -t ext4 {image} && mount -o loop {image} {at}");
        let unpack = format!("cat {tar} | tar x -C {at} && sync -f {at}");
        let kernel = Making::shell(format!(
            "truncate -s {SIZE} {image} && {mount} && ({unpack}; e=$?; umount {at}; exit $e)"
        ));
        self.compare(
            &["import-tar-kernel"],
            heading,
            &[ours, ("tar x, kernel", kernel)],
            options.plan_of(5),
            report,
        )
    }

    fn exports(&self, options: &Options, report: &mut Report) -> Result<(), Failure> {
        let [exe, tree, _, image] = self.words();
        self.remake(&Making::shell(format!(
            "{exe} import -q --size {SIZE} {tree} {image}"
        )))?;
        if !host::is_root() {
            return report.note("export-tar: skipped: the kernel's mount needs root");
        }
        let heading = "its files as a tar archive, nothing cached";
        report.heading(heading)?;
        let at = format!("'{}'", self.at.display());
        let ours = format!("{exe} export -q {image} - | cat > /dev/null");
        let mounted = format!("mount -o loop,ro {image} {at}");
        let theirs = format!("tar c -C {at} . | cat > /dev/null");
        let arms = [
            Arm::new("diorite export", job(heading), |_| timed(|| shell(&ours))),
            Arm::new("tar c, kernel", job(heading), |_| {
                shell(&mounted)?;
                let run = timed(|| shell(&theirs));
                shell(&format!("umount {at}"))?;
                run
            }),
        ];
        let rounds = interleave(&arms, options.plan_of(5))?;
        report.rows(&rounds, DEVICE)?;
        report.ratio("export-tar", &rounds.ratio(0, 1), DEVICE, true)
    }

    /// The image of the tree as a file of zstd, by both at the level that zstd has by itself.
    fn compressed(&self, options: &Options, report: &mut Report) -> Result<(), Failure> {
        let heading = "the image of that tree compressed by zstd";
        report.heading(heading)?;
        let [exe, tree, _, image] = self.words();
        self.remake(&Making::shell(format!(
            "{exe} import -q --size {SIZE} {tree} {image}"
        )))?;
        let outs = ["ours.zst", "theirs.zst"].map(|end| self.image.with_extension(end));
        let [ours, theirs] = outs.each_ref().map(|out| format!("'{}'", out.display()));
        let ours = format!("{exe} copy -q {image} {ours}");
        let theirs = format!("zstd -q -f -3 {image} -o {theirs}");
        for command in [&ours, &theirs] {
            if let Err(e) = shell(command) {
                return report.note(format!("zst-out, zst-out-size: skipped: {e}"));
            }
        }
        let len = |out: &PathBuf| fs::metadata(out).map(|meta| meta.len());
        let lens = len(&outs[0]).and_then(|ours| Ok((ours, len(&outs[1])?)));
        let (a, b) = lens.map_err(|e| Failure::host("cannot look at a file", e))?;
        let arms = [
            Arm::new("diorite copy", job(heading), |_| timed(|| shell(&ours))),
            Arm::new("zstd -3", job(heading), |_| timed(|| shell(&theirs))),
        ];
        let rounds = interleave(&arms, options.plan_of(5))?;
        report.rows(&rounds, DEVICE)?;
        // Times are the other way round than rates.
        report.ratio("zst-out", &rounds.ratio(1, 0), DEVICE, true)?;
        let size = Spread::of(&[a as f64 / b as f64]);
        report.ratio("zst-out-size", &size, DEVICE, true)?;
        outs.iter().for_each(|out| drop(fs::remove_file(out)));
        Ok(())
    }

    /// Both programs make the same features, and so write the same blocks.
    fn empty_ones(&self, options: &Options, report: &mut Report) -> Result<(), Failure> {
        for (id, before, more, heading) in [
            (
                "mkfs-20g",
                20 << 30,
                &[][..],
                "an empty file system of 20 GiB, tables left to the kernel",
            ),
            (
                "mkfs-1t",
                1 << 40,
                &["-E", "lazy_itable_init=0"],
                "an empty file system of 1 TiB, tables zeroed",
            ),
        ] {
            let making = |program: &Path, words: &[&str]| {
                let words = words.iter().chain(more).map(OsString::from);
                let image = self.image.clone().into_os_string();
                Making {
                    before,
                    words: [program.into()]
                        .into_iter()
                        .chain(words)
                        .chain([image])
                        .collect(),
                }
            };
            let theirs = ["-q", "-F", "-t", "ext4", "-O", SAME];
            let makings = [
                ("diorite mkfs", making(&self.exe, &["mkfs", "-q"])),
                ("mke2fs", making(Path::new("mke2fs"), &theirs)),
            ];
            self.compare(&[id], heading, &makings, options.plan(), report)?;
        }
        let _ = fs::remove_file(&self.image);
        Ok(())
    }

    /// Imports with a size that is found, and looks at the memory meanwhile and at what is free afterwards.
    fn memory_and_size(&self, report: &mut Report) -> Result<(), Failure> {
        report.heading("the size is found; resident memory")?;
        let headroom = format!("auto+{HEADROOM}");
        let (mut most, mut said) = (0, serde_json::Value::Null);
        for source in [&self.tree, &self.tar] {
            let out = File::create(self.at.with_extension("json"));
            let out = out.map_err(|e| Failure::host("cannot make a file", e))?;
            let child = Command::new(&self.exe)
                .args([
                    "import".as_ref(),
                    "--json".as_ref(),
                    "--size".as_ref(),
                    headroom.as_ref(),
                    source.as_os_str(),
                    self.image.as_os_str(),
                ])
                .stdout(Stdio::from(out))
                .spawn();
            let mut child = child.map_err(|e| Failure::host("cannot run this program", e))?;
            let ended = loop {
                most = most.max(host::status_of(child.id(), "VmHWM:"));
                match child.try_wait() {
                    Ok(Some(status)) => break status,
                    Ok(None) => std::thread::sleep(LOOK),
                    Err(e) => return Err(Failure::host("cannot wait for the import", e)),
                }
            };
            if !ended.success() {
                return Err(Failure::failed("diorite import failed"));
            }
            self.check()?;
            let text = fs::read_to_string(self.at.with_extension("json"));
            let text = text.map_err(|e| Failure::host("cannot read a file", e))?;
            said = serde_json::from_str(&text)
                .map_err(|e| Failure::host("the import printed no JSON", e))?;
        }
        report.ratio(
            "import-rss",
            &Spread::of(&[most as f64 / 1_048_576.0]),
            DEVICE,
            true,
        )?;
        let of = |key: &str| said[key].as_f64().unwrap_or(f64::NAN);
        let beyond = of("available_blocks") * of("block_size") - HEADROOM as f64;
        let most = (of("size") / 100.0).max(1_048_576.0);
        report.ratio("autosize", &Spread::of(&[beyond / most]), DEVICE, true)
    }
}
