//! What commands leave in the host's page cache.
//!
//! Input: a file that is made here, on disk. Output: `dontcache`, `dontcache-get`, `dontcache-export`. Invariant: nothing of the files is
//! in the cache before a command. Limits: hosts whose kernel or file system cannot leave its cache alone show what they do instead.

use super::super::args::Options;
use super::super::bed::Scratch;
use super::super::failure::Failure;
use super::super::load::Rng;
use super::super::report::Report;
use super::super::rounds::Spread;
use super::super::targets::most;
use super::super::{signals, tool};
use super::Experiment;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Bytes of the file.
const SIZE: u64 = 4 << 30;
const PIECE: usize = 1 << 20;
const MIB: f64 = 1_048_576.0;
const DEVICE: &str = "files on disk";

pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    name: "dontcache",
    about: "What import, get and export of a file of 4 GiB leave in the host's page cache",
    goals: &[most(
        "dontcache",
        64.0,
        "host page cache grown by an import of 4 GiB, MiB",
    )],
    own: None,
    run,
};

fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    if options.image.is_some() {
        return Err(Failure::usage(
            "this experiment makes an image of its own: --image is not for it",
        ));
    }
    report.device(DEVICE, "direct where the file can")?;
    let exe = std::env::current_exe().map_err(|e| Failure::host("cannot find this program", e))?;
    let dir = Scratch::new(&std::env::temp_dir())?;
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("tree")).map_err(|e| Failure::host("cannot make a directory", e))?;
    let large = at("tree/large");
    fill(&large, options.seed)?;
    let words = |words: &[&str]| words.iter().map(PathBuf::from).collect::<Vec<PathBuf>>();
    let (tree, image) = (at("tree"), at("image"));
    let import = [words(&["import", "-q"]), vec![tree, image.clone()]].concat();
    let get = [
        words(&["get", "-q"]),
        vec![image.clone(), "/large".into(), at("got")],
    ]
    .concat();
    let export = [words(&["export", "-q"]), vec![image.clone(), at("out.tar")]].concat();
    let commands = [
        ("dontcache", import, [&large, &image].map(PathBuf::clone)),
        ("dontcache-get", get, [image.clone(), at("got")]),
        ("dontcache-export", export, [image.clone(), at("out.tar")]),
    ];
    for (id, args, files) in commands {
        signals::check()?;
        for file in files.iter().filter(|file| file.exists()) {
            drop_cache(file)?;
        }
        tool::run(&exe, &args)?;
        let mut grown = 0;
        for file in &files {
            grown += cached(file)?;
        }
        let grown = Spread::of(&[grown as f64 / MIB]);
        report.ratio(id, &grown, DEVICE, true)?;
        for made in files
            .iter()
            .filter(|file| **file != image && **file != large)
        {
            fs::remove_file(made).map_err(|e| Failure::host("cannot remove a file", e))?;
        }
    }
    Ok(())
}

/// A file of noise.
fn fill(path: &Path, seed: u64) -> Result<(), Failure> {
    let context = |e| Failure::host("cannot make a file of 4 GiB", e);
    let mut noise = vec![0; PIECE];
    Rng::new(seed).fill(&mut noise);
    let mut file = File::create(path).map_err(context)?;
    for n in 0..SIZE / PIECE as u64 {
        signals::check()?;
        noise[..8].copy_from_slice(&n.to_le_bytes());
        file.write_all(&noise).map_err(context)?;
    }
    file.sync_all().map_err(context)
}

/// Takes a file out of the cache.
fn drop_cache(path: &Path) -> Result<(), Failure> {
    let context = |e| Failure::host("cannot take a file out of the cache", e);
    let file = File::open(path).map_err(context)?;
    file.sync_all().map_err(context)?;
    let advice = rustix::fs::Advice::DontNeed;
    rustix::fs::fadvise(&file, 0, None, advice).map_err(|e| context(e.into()))
}

/// Bytes of a file in the cache.
fn cached(path: &Path) -> Result<u64, Failure> {
    let said = tool::run(
        "fincore",
        ["-nbo".as_ref(), "RES".as_ref(), path.as_os_str()],
    )?;
    let bytes = said.trim().parse();
    bytes.map_err(|_| Failure::failed(format!("fincore says no number: {said}")))
}
