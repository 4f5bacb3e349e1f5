//! Deliberate damage: every field of every structure is changed, in half of the cases with its checksum recomputed, and the verdict
//! of `check` is compared with that of `e2fsck -fn`.
//!
//! `cargo xtask damage --cases N --seed S` sets `DIORITE_DAMAGE_CASES` and `DIORITE_SEED` for a longer or a different run; each
//! case prints what was changed where. Damage that e2fsck finds and `check` does not fails the test, unless [`excused`] has a
//! reason. Damage that only `check` finds is printed.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `victim` | a kind of volume -> an image with one of everything |
//! | `fields` | structures -> their fields |
//! | `places` | an image -> every field of every structure in it |
//! | `seal` | changed bytes -> their checksum recomputed |
//! | `quotas` | volumes with quotas -> the verdict of both on every way in which the recorded usage can be wrong |
//! | `flags` | inodes -> the verdict of both on every flag |
//! | `verdicts` | states that crashes and other tools leave, and states that the kernel refuses -> the verdict of both |
//! | `bench` | features, files -> an image to change, and both verdicts |
//! | `unread` | what e2fsck does not read, or does not see: values in inodes, copies, inodes that were never used |
//! | `excused` | damage that e2fsck finds and `check` does not, with reasons |
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

mod bench;
mod excused;
mod fields;
mod flags;
mod places;
mod quotas;
mod seal;
mod unread;
mod verdicts;
mod victim;

use common::watch::Watchdog;
use common::{Rng, scaled, scratch};
use diorite_check::{CheckOptions, check};
use excused::excuse;
use places::{Place, places};
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use victim::{KINDS, victim};

const LIMIT: Duration = Duration::from_secs(60);

/// The counts of all cases.
#[derive(Default)]
struct Tally {
    cases: u64,
    both_damaged: u64,
    both_clean: u64,
    /// By structure and field: the number of cases, and the first case.
    ours_only: BTreeMap<String, (u64, String)>,
    theirs_only: BTreeMap<String, (u64, String)>,
    missed: Vec<String>,
}

#[test]
fn damage_is_found_as_e2fsck_finds_it() {
    // The default seed is fixed: a new difference is for long runs to find, not for the build of an unrelated change.
    let seed = scaled("DIORITE_SEED", 1);
    eprintln!("damage: DIORITE_SEED={seed}");
    let mut rng = Rng::new(seed);
    let dir = scratch();
    let cases = scaled("DIORITE_DAMAGE_CASES", 1200);
    let tally = Mutex::new(Tally::default());
    let next = AtomicUsize::new(0);
    let seeds: Vec<u64> = KINDS.iter().map(|_| rng.next()).collect();
    let work = || {
        while let Some(kind) = KINDS.get(next.fetch_add(1, Ordering::Relaxed)) {
            let n = KINDS.iter().position(|k| k.name == kind.name).unwrap();
            let home = dir.path().join(kind.name);
            std::fs::create_dir_all(&home).unwrap();
            let image = victim(&home, kind);
            let mut patient = Patient::new(image);
            let share = cases.div_ceil(KINDS.len() as u64);
            campaign(
                &mut patient,
                kind.name,
                share,
                &mut Rng::new(seeds[n]),
                &tally,
            );
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    tally.into_inner().unwrap().judge();
}

/// Runs its share of the cases on one image.
fn campaign(patient: &mut Patient, kind: &str, cases: u64, rng: &mut Rng, tally: &Mutex<Tally>) {
    let places = places(&patient.pristine);
    let watchdog = Watchdog::new(LIMIT, "start");
    // Structures in turn, so that those with many places do not dominate.
    let mut names: Vec<&str> = places.iter().map(|p| p.structure).collect();
    names.sort_unstable();
    names.dedup();
    for n in 0..cases {
        let structure = names[(n % names.len() as u64) as usize];
        let of: Vec<&Place> = places.iter().filter(|p| p.structure == structure).collect();
        // Fields at random with equal weight, however many places a field has.
        let mut of_fields: Vec<&str> = of.iter().map(|p| p.field).collect();
        of_fields.sort_unstable();
        of_fields.dedup();
        let field = of_fields[rng.below(of_fields.len() as u64) as usize];
        let of: Vec<&&Place> = of.iter().filter(|p| p.field == field).collect();
        let place = of[rng.below(of.len() as u64) as usize];
        let case = Case::new(patient, kind, place, rng);
        watchdog.feed(&case.label);
        let [ours, theirs] = patient.judge(&case);
        tally.lock().unwrap().count(place, case.label, ours, theirs);
    }
}

/// One change.
struct Case {
    label: String,
    /// The byte ranges that differ from the undamaged image.
    bytes: Vec<(u64, Vec<u8>)>,
}

impl Case {
    fn new(patient: &mut Patient, kind: &str, place: &Place, rng: &mut Rng) -> Case {
        let sealed = rng.below(2) == 0;
        let at = place.at as usize;
        let old = patient.pristine[at..at + place.len].to_vec();
        let new = mutated(&old, rng);
        let image = &mut patient.work;
        image[at..at + place.len].copy_from_slice(&new);
        let mut touched = vec![place.at / 1024];
        if sealed {
            touched.extend(place.seal.apply(image, &patient.pristine));
        }
        touched.sort_unstable();
        touched.dedup();
        let block = |n: &u64| (n * 1024, image[*n as usize * 1024..][..1024].to_vec());
        let bytes = touched.iter().map(block).collect();
        for n in touched {
            let range = n as usize * 1024..(n as usize + 1) * 1024;
            image[range.clone()].copy_from_slice(&patient.pristine[range]);
        }
        let sum = if sealed { "right" } else { "as it was" };
        let label = format!(
            "{kind}: {}, {} at byte {at}: {old:02x?} -> {new:02x?}, checksum {sum}",
            place.structure, place.field
        );
        Case { label, bytes }
    }
}

/// Another value, of the kind that damage and attackers produce.
fn mutated(old: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut word = [0; 8];
    word[..old.len()].copy_from_slice(old);
    let value = u64::from_le_bytes(word);
    let mask = if old.len() == 8 {
        u64::MAX
    } else {
        (1 << (8 * old.len())) - 1
    };
    loop {
        let new = match rng.below(9) {
            0 => 0,
            1 => mask,
            2 => value.wrapping_add(1),
            3 => value.wrapping_sub(1),
            4 | 5 => value ^ 1 << rng.below(8 * old.len() as u64),
            6 => value.wrapping_add(rng.below(64)),
            7 => value << 1,
            _ => rng.next(),
        } & mask;
        if new != value {
            return new.to_le_bytes()[..old.len()].to_vec();
        }
    }
}

/// An image that is damaged and restored for each case.
struct Patient {
    image: PathBuf,
    file: std::fs::File,
    pristine: Vec<u8>,
    work: Vec<u8>,
}

impl Patient {
    fn new(image: PathBuf) -> Patient {
        let pristine = std::fs::read(&image).unwrap();
        Patient {
            file: std::fs::File::options().write(true).open(&image).unwrap(),
            work: pristine.clone(),
            pristine,
            image,
        }
    }

    /// For `check` and for e2fsck: whether it finds the image damaged, and the first words of its output.
    fn judge(&self, case: &Case) -> [(bool, String); 2] {
        for (at, bytes) in &case.bytes {
            self.file.write_all_at(bytes, *at).unwrap();
        }
        let ours = ours(&self.image);
        let theirs = theirs(&self.image);
        for (at, bytes) in &case.bytes {
            let range = *at as usize..*at as usize + bytes.len();
            self.file.write_all_at(&self.pristine[range], *at).unwrap();
        }
        [ours, theirs]
    }
}

fn ours(image: &Path) -> (bool, String) {
    let options = CheckOptions::default().threads(1);
    match check(image.to_str().unwrap(), &options, &|_| ()) {
        Ok(report) => {
            let said = report
                .kept()
                .next()
                .map(|(kind, what)| format!("{kind}: {what}"));
            (!report.is_clean(), said.unwrap_or_default())
        }
        Err(error) => (true, error.to_string()),
    }
}

/// Whether e2fsck finds the image damaged, and the first words of its output.
fn theirs(image: &Path) -> (bool, String) {
    let out = xtask::run::tool("e2fsck")
        .arg("-fn")
        .arg(image)
        .env("LC_ALL", "C")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    let words = |l: &&str| !l.is_empty() && !l.starts_with("Pass ");
    let said = text.lines().find(words).unwrap_or_default();
    (out.status.code() != Some(0), said.to_owned())
}

impl Tally {
    fn count(
        &mut self,
        place: &Place,
        label: String,
        ours: (bool, String),
        theirs: (bool, String),
    ) {
        self.cases += 1;
        let name = format!("{}, {}", place.structure, place.field);
        match (ours.0, theirs.0) {
            (true, true) => self.both_damaged += 1,
            (false, false) => self.both_clean += 1,
            (true, false) => {
                let first = format!("{label}: {}", ours.1);
                self.ours_only.entry(name).or_insert((0, first)).0 += 1;
            }
            (false, true) if excuse(place).is_some() => {
                self.theirs_only.entry(name).or_insert((0, label)).0 += 1;
            }
            (false, true) => self.missed.push(format!("{label}: {}", theirs.1)),
        }
    }

    fn judge(self) {
        let sum = |m: &BTreeMap<String, (u64, String)>| m.values().map(|(n, _)| n).sum::<u64>();
        eprintln!(
            "damage: {} cases: both damaged {}, both clean {}, ours only {}, theirs only {} excused and {} not",
            self.cases,
            self.both_damaged,
            self.both_clean,
            sum(&self.ours_only),
            sum(&self.theirs_only),
            self.missed.len()
        );
        for (what, list) in [
            ("ours only", &self.ours_only),
            ("excused", &self.theirs_only),
        ] {
            for (name, (n, first)) in list {
                eprintln!("{what}: {name}: {n}, first {first}");
            }
        }
        assert!(
            self.missed.is_empty(),
            "e2fsck finds, and check does not:\n{}",
            self.missed.join("\n")
        );
    }
}
