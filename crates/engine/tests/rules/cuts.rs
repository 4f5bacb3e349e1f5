//! Power cuts while a full volume gives files blocks that others have just freed: no file shows a byte that was never written to it
//! (rules U2, U3, G17).
//!
//! Input: small volumes with poison in their free space, on a recording device with a volatile cache. Output: none. Invariant: in
//! every state that a cut may leave, each file holds its own byte and zeros only; without a journal, that holds once e2fsck has
//! run. Limits: blocks are not torn; `DIORITE_CUTS` states per volume, spread over the whole log.

use crate::common::fixture::{LIMIT, filled, run_all, writable};
use crate::common::recipe::{RECIPES, Recipe, bare};
use crate::common::stage::mem_of;
use crate::common::watch::Watchdog;
use crate::common::{Rng, scaled, scratch};
use diorite::{Error, Fallocate, File, OpenFlags, OpenOptions, Request, Volume};
use diorite_block::record::{Cut, PowerCuts, RecordDevice, Survival, plan};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const JOURNAL: Recipe = Recipe {
    name: "journal",
    args: &["-t", "ext4", "-b", "1024", "-J", "size=1", "-m", "0"],
    size: "4M",
    ..RECIPES[1]
};
const NO_JOURNAL: Recipe = Recipe {
    name: "no journal",
    args: &["-t", "ext4", "-b", "1024", "-O", "^has_journal", "-m", "0"],
    ..JOURNAL
};
const INDIRECT: Recipe = Recipe {
    name: "indirect",
    args: &["-t", "ext2", "-b", "1024", "-m", "0"],
    extents: false,
    ..JOURNAL
};

/// The files, and the byte that each is filled with.
const FILES: [(&str, u8); 3] = [("/empty", 1), ("/sparse", 2), ("/odd", 0x55)];

/// Rules U2, U3, G17. The power is cut anywhere, and any of the unflushed writes are lost.
#[test]
fn no_cut_shows_what_a_file_never_held() {
    let mut rng = Rng::from_env("cuts");
    for (recipe, cuts) in [(&JOURNAL, 150), (&NO_JOURNAL, 40), (&INDIRECT, 40)] {
        let _watchdog = Watchdog::new(LIMIT, recipe.name);
        let dir = scratch();
        let base = full(std::fs::read(bare(dir.path(), recipe)).unwrap());
        let record = RecordDevice::with_volatile_cache(Arc::new(mem_of(&base)));
        let options = OpenOptions::writable().commit_interval(Duration::from_secs(3600));
        let volume = Volume::open_device(Arc::new(record.clone()), &options).unwrap();
        (0..12).for_each(|round| give_and_take(&volume, round, &mut rng));
        // A checkpoint writes everything home and empties the log. All its writes are cut, too.
        let home = record.log().len();
        volume.close().unwrap();
        let log = record.log();
        let close: Vec<Cut> = (home..=log.len()).map(|at| loss(at, &mut rng)).collect();
        let cuts = scaled("DIORITE_CUTS", cuts) as usize;
        let mut walk = PowerCuts::new(base, &log);
        let mut cuts = plan(&log, cuts, rng.below(u64::MAX), 1024);
        cuts.extend(close);
        cuts.sort_by_key(|cut| cut.at);
        for cut in cuts {
            let image = walk.with_image(cut, |image| image.to_vec());
            let image = match recipe.name {
                "journal" => image,
                _ => mended(dir.path(), &image),
            };
            judge(&image, &format!("{}, {cut:?}", recipe.name));
        }
    }
}

/// A cut at this write, which keeps some of the unflushed ones.
fn loss(at: usize, rng: &mut Rng) -> Cut {
    let (seed, unit) = (rng.below(u64::MAX), 1024);
    let survival = Survival::Chance { seed, unit };
    Cut { at, survival }
}

/// The image with all of its space in `/empty`.
fn full(image: Vec<u8>) -> Vec<u8> {
    let memory = Arc::new(mem_of(&image));
    let volume = Volume::open_device(memory.clone(), &OpenOptions::writable()).unwrap();
    fill(&volume.open_path("/empty", writable()).unwrap());
    volume.close().unwrap();
    let mut image = image;
    memory.read_at(0, &mut image);
    image
}

fn fill(file: &File) {
    for len in [64 << 10, 1 << 10] {
        while had_space(file.write_buf(file.size(), filled(1, len)).1) {}
    }
}

fn had_space(result: Result<usize, Error>) -> bool {
    match result {
        Ok(_) => true,
        Err(error) if matches!(error.root(), Error::NoSpace { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

/// One file frees some blocks, and another allocates some of them; now and then all is committed.
fn give_and_take(volume: &Volume, round: u64, rng: &mut Rng) {
    let open = |path| volume.open_path(path, writable()).unwrap();
    let (grown, sparse) = (open("/empty"), open("/sparse"));
    let block = |n: u64| n * 1024;
    grown
        .truncate(grown.size() - block(8 + rng.below(24)))
        .unwrap();
    let queue = volume.queue(8).unwrap();
    let id = queue.attach(&sparse).unwrap();
    let writes = (0..6).map(|n| {
        let (at, sectors) = (rng.below(1 << 10) * 1024, 1 + rng.below(4));
        Request::write(id, at, filled(2, 512 * sectors as usize), n)
    });
    for done in run_all(&queue, writes.collect()) {
        had_space(done.result);
    }
    match round % 3 {
        0 => sparse.sync().unwrap(),
        1 => volume.sync().unwrap(),
        _ => {}
    }
    let hole = Fallocate::PunchHole;
    sparse
        .fallocate(hole, block(rng.below(1 << 9)), block(512))
        .unwrap();
    fill(&grown);
    if round.is_multiple_of(2) {
        grown.sync_data().unwrap();
    }
}

/// The image after a repair by e2fsck.
fn mended(dir: &Path, image: &[u8]) -> Vec<u8> {
    let path = dir.join("cut");
    std::fs::write(&path, image).unwrap();
    let done = xtask::run::tool("e2fsck")
        .args(["-fy", path.to_str().unwrap()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.code().is_some_and(|c| c < 4), "{said}");
    std::fs::read(&path).unwrap()
}

fn judge(image: &[u8], what: &str) {
    let volume = Volume::open_device(Arc::new(mem_of(image)), &OpenOptions::default()).unwrap();
    for (path, own) in FILES {
        let file = volume.open_path(path, OpenFlags::default()).unwrap();
        let mut bytes = vec![0xEE; file.size() as usize];
        file.read_bytes(0, &mut bytes).unwrap();
        let stranger = bytes.iter().position(|b| *b != own && *b != 0);
        let stranger = stranger.map(|at| (at, bytes[at]));
        assert_eq!(stranger, None, "{what}: {path}");
    }
}
