//! The golden walk: diorite finds in images made by mke2fs, debugfs and the kernel what the kernel or debugfs found there.
//!
//! Input: the recipes of xtask, each an image and a manifest. Output: none; differences are reported, a few per image. Invariants:
//! an image is only read; the overwrite test works on a copy, which must then equal the image except for times and journal, and in
//! which e2fsck finds nothing. Limits: the few images that every test run uses are made without root, so debugfs provides the
//! manifest.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod overwrite;

use diorite::{Error, OpenOptions, Volume};
use diorite_check::{CheckOptions, check};
use diorite_crash::view::{compare, walk};
use diorite_format::FormatError;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use xtask::images::{Made, RECIPES, Recipe, RootFill, default_dir, ensure};
use xtask::manifest::{Entry, Manifest};

/// The number of differences reported per image; the others are counted.
const TOLD: usize = 12;

/// The images for single features: their names, the feature, and the features for which opening for writing is refused.
const FEATURES: &[(&str, &str, &[&str])] = &[
    ("feature-quota", "quota", &["quota"]),
    ("feature-project", "project", &["quota", "project"]),
    ("feature-mmp", "mmp", &["mmp"]),
    ("feature-casefold", "casefold", &[]),
    ("feature-encrypt", "encrypt", &[]),
    ("feature-verity", "verity", &[]),
    ("feature-stable-inodes", "stable_inodes", &[]),
    ("feature-fast-commit", "fast_commit", &[]),
];

#[test]
fn a_few_images_made_without_root() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("golden");
    walk_all(
        &["ext4-1k", "ext2-4k", "feature-mmp"],
        &dir,
        RootFill::Never,
    );
}

#[test]
#[ignore = "needs the images of `make images`, in DIORITE_IMAGES or target/images; scripts/test runs it"]
fn every_image() {
    let names: Vec<&str> = RECIPES.iter().map(|recipe| recipe.name).collect();
    walk_all(&names, &default_dir(), RootFill::Auto);
}

#[test]
fn every_feature_image_has_a_verdict_here() {
    let made: Vec<&str> = RECIPES
        .iter()
        .map(|recipe| recipe.name)
        .filter(|name| name.starts_with("feature-"))
        .collect();
    let expected: Vec<&str> = FEATURES.iter().map(|(name, ..)| *name).collect();
    assert_eq!(made, expected);
}

/// Checks the images, two at a time, and fails with everything that was found.
fn walk_all(names: &[&str], dir: &Path, root: RootFill) {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
            let start = std::time::Instant::now();
            let found = match ensure(name, dir, root) {
                Ok(made) => judge(Recipe::named(name).unwrap(), &made, dir),
                Err(error) => vec![error.to_string()],
            };
            eprintln!(
                "{name}: {} ({:.1} s)",
                if found.is_empty() { "same" } else { "DIFFERS" },
                start.elapsed().as_secs_f64()
            );
            failed.lock().unwrap().extend(told(name, &found));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
}

/// The first differences of an image, and the number of others.
fn told(name: &str, found: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = found
        .iter()
        .take(TOLD)
        .map(|what| format!("{name}: {what}"))
        .collect();
    if found.len() > TOLD {
        lines.push(format!(
            "{name}: and {} differences more",
            found.len() - TOLD
        ));
    }
    lines
}

/// All differences of one image.
fn judge(recipe: &Recipe, made: &Made, dir: &Path) -> Vec<String> {
    let manifest = match Manifest::load(&made.manifest) {
        Ok(manifest) => manifest,
        Err(error) => return vec![error.to_string()],
    };
    let locator = made.image.to_str().unwrap();
    let volume = match Volume::open(locator, &OpenOptions::default()) {
        Ok(volume) => volume,
        Err(error) => return vec![format!("open: {error}")],
    };
    let mut found = Vec::new();
    // A note may also say what the host does not give (such as locked memory for a ring); such a note does not concern the image.
    let of_host = volume.device().report().fallbacks;
    for note in volume.notes().iter().filter(|n| !of_host.contains(n)) {
        found.push(format!("a clean image has a note: {note}"));
    }
    match check(locator, &CheckOptions::default(), &|_| ()) {
        Ok(report) => found.extend(
            report
                .kept()
                .map(|(kind, what)| format!("check: {kind}: {what}")),
        ),
        Err(error) => found.push(format!("check: {error}")),
    }
    let walked = walk(&volume, &mut found);
    compare(&manifest.entries, &walked, &mut found);
    lookups(&volume, &manifest.entries, &mut found);
    let feature = FEATURES.iter().find(|(name, ..)| *name == recipe.name);
    if let Some((_, feature, _)) = feature {
        let names = volume.superblock().features().names();
        if !names.iter().any(|name| name == feature) {
            found.push(format!("the feature {feature} is not among {names:?}"));
        }
    }
    volume.close().unwrap();
    match feature {
        Some((_, _, refused)) if !refused.is_empty() => refusal(locator, refused, &mut found),
        _ => overwrite::same_bytes(&made.image, &manifest.entries, dir, &mut found),
    }
    found
}

/// Looks up every path by its names, through the index where there is one, and names that do not exist.
fn lookups(volume: &Volume, judged: &[Entry], found: &mut Vec<String>) {
    for entry in judged {
        let path = entry.path_bytes();
        match volume.resolve(&path, false) {
            Ok(ino) if u64::from(ino.get()) == entry.ino => {}
            other => found.push(format!("{}: looked up, gives {other:?}", entry.path)),
        }
        let is_dir = entry
            .facts
            .as_ref()
            .is_some_and(|facts| facts.kind == xtask::manifest::Kind::Dir);
        let absent = [&path[..], b"/no such name"].concat();
        if is_dir && !matches!(volume.resolve(&absent, false), Err(Error::NotFound { .. })) {
            found.push(format!(
                "{}: an absent name was not said to be absent",
                entry.path
            ));
        }
    }
}

/// Asserts that opening for writing is refused with these names, and that the error offers reading.
fn refusal(locator: &str, names: &[&str], found: &mut Vec<String>) {
    match Volume::open(locator, &OpenOptions::writable()) {
        Ok(_) => found.push(format!("opened for writing in spite of {names:?}")),
        Err(Error::Format(error)) => match &*error {
            FormatError::Unsupported(why)
                if why.feature == names.join(" ")
                    && why.read_only_would_do
                    && !why.help.is_empty() => {}
            other => found.push(format!("refused for writing by {other:?}, not {names:?}")),
        },
        Err(other) => found.push(format!("refused for writing by {other}, not {names:?}")),
    }
}
