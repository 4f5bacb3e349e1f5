//! The command `cargo xtask crash`: power cuts and kills.
//! Input: the command line. Output: a line per round; for each state in which something was found, where it is kept and how to
//! judge it again. The exit code is 0 only if nothing was found.

#![expect(clippy::print_stdout, reason = "a command line tool prints")]

use diorite_crash::acks::bed::Place;
use diorite_crash::acks::campaign::Wish as Behind;
use diorite_crash::acks::disk::Cache;
use diorite_crash::bed::Mode;
use diorite_crash::campaign::{self, Wish};
use diorite_crash::check::{Also, Verdict};
use diorite_crash::error::Result;
use diorite_crash::sizes::campaign::Wish as Sizes;
use diorite_crash::{acks, keep, kill, sizes};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

const USAGE: &str = "\
usage: cargo xtask crash [--states N] [--kills N] [--seed S] [--image-mib M]
                         [--mode ordered|writeback|journal|none]... [--sample N] [--keep DIR]
       cargo xtask crash --acks N [--seed S] [--sample N] [--keep DIR] [--cache fua|plain|through]
                         [--on disk|loop|journal-disk|loop-journal-disk]
       cargo xtask crash --sizes N [--seed S] [--sample N] [--keep DIR]
       cargo xtask crash --repeat DIR

Runs random workloads on a device that remembers every write, flush and FUA; builds images as
a power cut at any point may leave them (reordered, torn), N states in all; has each recovered
by diorite and by e2fsck and every --sample'th also by the kernel (as root) and told by debugfs;
compares the trees, checks them with e2fsck -fn and our own check, and every sector with what was written and
acknowledged. --kills kills N writing processes instead, or besides. A state in which something
is found is kept in DIR (target/crash); --repeat judges it again.
--acks judges N states more, or instead: threads write, sync and change names on slow disks, with and without
FUA, a cache, a journal disk, a loop device; the power goes right behind acknowledgements, and what was promised must be there.
--sizes judges N states more, or instead: an aged volume becomes larger, with writers on it, and smaller; it must have one of the
sizes and all acknowledged files, for diorite, for e2fsck, and for the kernel that mounts it first and fills it.
";

/// What the command line requests.
enum Task {
    Run {
        wish: Wish,
        kills: usize,
        acks: Behind,
        sizes: Sizes,
    },
    Repeat(PathBuf),
    Writer {
        image: String,
        files: String,
        seed: u64,
    },
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|a| a == "--help" || a == "-h") {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let task = match parse(&args) {
        Ok(task) => task,
        Err(why) => {
            eprint!("crash: {why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let done = match task {
        Task::Run {
            wish,
            kills,
            acks,
            sizes,
        } => run(&wish, kills, &acks, &sizes),
        Task::Repeat(dir) => repeat(&dir),
        Task::Writer { image, files, seed } => kill::writer(&image, &files, seed).map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("crash: {error}");
            ExitCode::FAILURE
        }
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn parse(args: &[String]) -> std::result::Result<Task, String> {
    // `kill` starts this program again with these arguments.
    if let [writer, image, files, seed] = args
        && writer == "--writer"
    {
        let seed = seed.parse().map_err(|e| format!("--writer: {e}"))?;
        let (image, files) = (image.clone(), files.clone());
        return Ok(Task::Writer { image, files, seed });
    }
    let clock = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut wish = Wish {
        states: 2000,
        seed: clock.map_or(1, |d| u64::from(d.subsec_nanos())),
        mib: 16,
        modes: Vec::new(),
        sample: 25,
        kernel: is_root(),
        keep: Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/crash")).into(),
    };
    let (mut kills, mut acks, mut sizes, mut states) = (0, 0, 0, None);
    let (mut places, mut caches) = (Place::all(wish.kernel), Cache::ALL.to_vec());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let value = args.next().ok_or_else(|| format!("{arg} wants a value"))?;
        let number = || value.parse::<u64>().map_err(|e| format!("{arg}: {e}"));
        let count = || value.parse::<usize>().map_err(|e| format!("{arg}: {e}"));
        match arg.as_str() {
            "--states" => states = Some(count()?),
            "--kills" => kills = count()?,
            "--acks" => acks = count()?,
            "--sizes" => sizes = count()?,
            "--on" => places.retain(|place| place.short() == value),
            "--cache" => {
                caches = vec![Cache::named(value).ok_or_else(|| format!("no cache {value:?}"))?];
            }
            "--seed" => wish.seed = number()?,
            "--image-mib" => wish.mib = number()?.clamp(16, 1 << 20),
            "--sample" => wish.sample = count()?,
            "--mode" => wish
                .modes
                .push(Mode::named(value).ok_or_else(|| format!("no mode {value:?}"))?),
            "--keep" => wish.keep = value.into(),
            "--repeat" => return Ok(Task::Repeat(value.into())),
            other => return Err(format!("what is {other:?}?")),
        }
    }
    if wish.modes.is_empty() {
        wish.modes = Mode::ALL.to_vec();
    }
    let others = kills > 0 || acks > 0 || sizes > 0;
    wish.states = states.unwrap_or(if others { 0 } else { wish.states });
    if places.is_empty() {
        return Err(
            "--on: disk, loop, journal-disk, loop-journal-disk (those with a journal disk as root)"
                .into(),
        );
    }
    let acks = Behind {
        states: acks,
        seed: wish.seed,
        places,
        caches,
        sample: wish.sample,
        keep: wish.keep.clone(),
    };
    let sizes = Sizes {
        states: sizes,
        seed: wish.seed,
        sample: wish.sample,
        kernel: wish.kernel,
        keep: wish.keep.clone(),
    };
    Ok(Task::Run {
        wish,
        kills,
        acks,
        sizes,
    })
}

fn run(wish: &Wish, kills: usize, behind: &Behind, sizes: &Sizes) -> Result<bool> {
    let began = Instant::now();
    println!("seed {}", wish.seed);
    if !wish.kernel {
        println!("skipped: recovery by the kernel, for it needs root");
    }
    let mut say = |line: &str| println!("{line}");
    let cuts = campaign::run(wish, &mut say)?;
    let killed = kill::run(wish, kills, &mut say)?;
    let promised = acks::campaign::run(behind, &mut say)?;
    let sized = sizes::campaign::run(sizes, &mut say)?;
    println!(
        "{} states ({} by the kernel too, {} lost with their superblock), {} kills: {} in which something was found ({:.1} s)",
        cuts.states,
        cuts.by_kernel,
        cuts.lost,
        killed.states,
        cuts.found.len() + killed.found.len(),
        began.elapsed().as_secs_f64()
    );
    if behind.states > 0 {
        println!(
            "{} states behind acknowledgements: {} in which something was found{}",
            promised.states,
            promised.found.len(),
            promised
                .first
                .map_or(String::new(), |n| format!(", the first among {n}")),
        );
    }
    if sizes.states > 0 {
        println!(
            "{} states while sizes change ({} by the kernel too): {} in which something was found",
            sized.states,
            sized.by_kernel,
            sized.found.len()
        );
    }
    let others = tell(&killed.found) & tell(&promised.found) & tell(&sized.found);
    Ok(tell(&cuts.found) & others)
}

/// Prints what was found and how to judge it again; true if nothing was found.
fn tell(found: &[(PathBuf, String)]) -> bool {
    for (dir, first) in found {
        let dir = dir.canonicalize().unwrap_or_else(|_| dir.clone());
        println!("FOUND: {first}");
        println!("    again: cargo xtask crash --repeat {}", dir.display());
    }
    found.is_empty()
}

fn repeat(dir: &Path) -> Result<bool> {
    let again = match dir {
        dir if acks::keep::is_kept(dir) => Some(acks::keep::repeat(dir)?),
        dir if sizes::keep::is_kept(dir) => Some(sizes::keep::repeat(dir, is_root())?),
        _ => None,
    };
    if let Some((origin, found)) = again {
        println!("{origin}");
        if found.is_empty() {
            println!("nothing is found in it now");
        }
        found.iter().for_each(|line| println!("FOUND: {line}"));
        return Ok(found.is_empty());
    }
    let also = Also {
        kernel: is_root(),
        debugfs: true,
        again: true,
    };
    let (origin, verdict) = keep::repeat(dir, also)?;
    println!("{origin}");
    match &verdict {
        Verdict::Well => println!("nothing is found in it now"),
        Verdict::Lost => println!("its superblock is torn and has no copy"),
        Verdict::Wrong(found) => found.iter().for_each(|line| println!("FOUND: {line}")),
    }
    Ok(!matches!(verdict, Verdict::Wrong(_)))
}
