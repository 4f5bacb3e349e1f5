//! Android sparse images that were divided: simg2simg makes them, and simg2img and the whole image are the judges.

use super::packed::has;
use super::path;
use crate::common::{Ran, diorite, noise, run, scratch};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

const SIZE: u64 = 12 << 20;

/// A disk with data, words that repeat, zeros as data, and holes; and the pieces of it.
fn divided(dir: &Path) -> Option<(PathBuf, Vec<PathBuf>)> {
    if !has("img2simg") || !has("simg2simg") || !has("simg2img") {
        return None;
    }
    let raw = dir.join("raw");
    let file = fs::File::create(&raw).unwrap();
    file.set_len(SIZE).unwrap();
    file.write_all_at(&noise(3_000_000, 5), 0).unwrap();
    file.write_all_at(&b"\xde\xad\xbe\xef".repeat(30_000), 4 << 20)
        .unwrap();
    file.write_all_at(&noise(2_500_000, 6), 6 << 20).unwrap();
    file.write_all_at(b"the end", SIZE - 7).unwrap();
    let (whole, piece) = (dir.join("whole.simg"), dir.join("system.img_sparsechunk"));
    run("img2simg", &[path(&raw), path(&whole)]);
    run("simg2simg", &[path(&whole), path(&piece), "1000000"]);
    let pieces: Vec<PathBuf> = (0..)
        .map(|n| dir.join(format!("system.img_sparsechunk.{n}")))
        .take_while(|piece| piece.exists())
        .collect();
    assert!(pieces.len() > 3);
    Some((raw, pieces))
}

fn copy(options: &[&str], pieces: &[PathBuf], to: &Path) -> Ran {
    let pieces: Vec<&str> = pieces.iter().map(|piece| path(piece)).collect();
    diorite(&[&["copy", "-q"], options, &pieces, &[path(to)]].concat())
}

/// In any order, to a new file, an existing one and a packed one, options before and behind.
#[test]
fn pieces_are_one_disk() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let Some((raw, mut pieces)) = divided(dir.path()) else {
        return;
    };
    let want = fs::read(&raw).unwrap();
    let strings: Vec<&str> = pieces.iter().map(|piece| path(piece)).collect();
    run(
        "simg2img",
        &[&strings[..], &[path(&at("by-simg2img"))]].concat(),
    );
    assert!(fs::read(at("by-simg2img")).unwrap() == want);
    copy(&[], &pieces, &at("new")).ok();
    assert!(fs::read(at("new")).unwrap() == want);
    assert!(
        fs::metadata(at("new")).unwrap().blocks() * 512 < SIZE,
        "it has holes"
    );
    pieces.reverse();
    // What is there is overwritten, also where no piece has anything.
    fs::write(at("old"), vec![0xa5; SIZE as usize]).unwrap();
    copy(&["--verify"], &pieces, &at("old")).ok();
    assert!(fs::read(at("old")).unwrap() == want);
    copy(&["-O", "qcow2"], &pieces, &at("new.qcow2")).ok();
    diorite(&["compare", "-s", path(&at("new.qcow2")), path(&raw)]).ok();
    let mut behind = vec!["copy", "-q"];
    behind.extend(pieces.iter().map(|piece| path(piece)));
    let (target, last) = (at("behind"), ["--sparse", "0", "--json"]);
    behind.extend([path(&target)].iter().chain(&last));
    let told = diorite(&behind).ok().text();
    assert!(
        told.contains("\"pieces\":[") && told.contains("sparsechunk.0"),
        "{told}"
    );
    assert!(fs::read(&target).unwrap() == want);
    assert!(
        fs::metadata(&target).unwrap().blocks() * 512 >= SIZE,
        "zeros are written"
    );
}

/// The defect: without the name of an output, the last piece was overwritten.
#[test]
fn a_piece_is_no_output() {
    let dir = scratch();
    let Some((raw, pieces)) = divided(dir.path()) else {
        return;
    };
    let (last, others) = pieces.split_last().unwrap();
    let was = fs::read(last).unwrap();
    for options in [&[][..], &["-O", "android-sparse"], &["-O", "raw"]] {
        copy(options, others, last).failed(1, "name an output");
        assert!(fs::read(last).unwrap() == was, "{options:?}");
    }
    // One that is asked for.
    let old = dir.path().join("old.simg");
    fs::copy(last, &old).unwrap();
    copy(&["--force"], &pieces, &old).ok();
    copy(&[], &[old], &dir.path().join("new")).ok();
    assert!(fs::read(dir.path().join("new")).unwrap() == fs::read(raw).unwrap());
}

/// What is no set of pieces is refused by name, and nothing is made.
#[test]
fn what_is_no_piece_is_refused() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let Some((raw, pieces)) = divided(dir.path()) else {
        return;
    };
    fs::write(at("short"), noise(1 << 20, 7)).unwrap();
    run("img2simg", &[path(&at("short")), path(&at("short.simg"))]);
    run("img2simg", &[path(&raw), path(&at("blocks.simg")), "8192"]);
    let mut cut = fs::read(&pieces[1]).unwrap();
    cut.truncate(cut.len() / 2);
    fs::write(at("cut"), cut).unwrap();
    let first = &pieces[0];
    for (other, words) in [
        (
            at("short.simg"),
            &["short.simg is of 1048576 bytes", "no pieces of one image"][..],
        ),
        (
            at("blocks.simg"),
            &[
                "blocks.simg is of",
                "in blocks of 8192",
                "no pieces of one image",
            ],
        ),
        (
            raw,
            &["raw: it is no valid Android sparse image", "magic number"],
        ),
        (
            at("cut"),
            &["cut: it is no valid Android sparse image", "ends in"],
        ),
        (at("missing"), &["missing", "No such file"]),
        (PathBuf::from("-"), &["standard input (-) is one SRC"]),
    ] {
        let said = copy(&[], &[first.clone(), other], &at("new")).err;
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
        assert!(!at("new").exists());
    }
    let said = copy(&["-f", "raw"], &pieces, &at("new")).err;
    assert!(
        said.contains("pieces of one Android sparse image"),
        "{said}"
    );
    // DST is a piece.
    let before = fs::read(&pieces[1]).unwrap();
    let said = copy(&[], &pieces, &pieces[1]).err;
    assert!(said.contains("SRC is DST"), "{said}");
    assert!(fs::read(&pieces[1]).unwrap() == before);
}
