//! What it is: processes that write to an image and are killed at any instruction, hundreds of times.
//! Input: a number of kills and a seed. Output: the same as of a campaign of power cuts.
//! The writer is this program in another process: it runs a workload on an image file of the host, and prints each note on its
//! standard output before or after the act. A kill is no power cut: data that was acknowledged must be there, unless it goes
//! through the journal.
//! Invariant: only a child that was started here is killed. Limit: an action counts as begun only if the writer printed its note
//! before the kill.

use crate::bed::{Bed, Mode, scratch};
use crate::campaign::{MOST_FOUND, Outcome, Wish};
use crate::check::{Also, Judge};
use crate::error::{Result, at, notes};
use crate::expect::Expect;
use crate::history::{History, Note, Start};
use crate::keep::Kept;
use crate::rng::Rng;
use crate::workload;
use diorite::{OpenOptions, Volume};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// The number of actions of a writer that is not killed.
const ACTIONS: u32 = 2000;

/// The writer process: what the hidden argument `--writer IMAGE FILES SEED` runs.
///
/// # Errors
/// The image cannot be used.
pub fn writer(image: &str, files: &str, seed: u64) -> Result<()> {
    let files: Vec<Start> = serde_json::from_str(files).map_err(notes("a list of files"))?;
    let volume = Volume::open(image, &OpenOptions::writable())?;
    let mut out = std::io::stdout();
    let mut sink = |note: Note| {
        let mut line = serde_json::to_vec(&note).map_err(notes("a note"))?;
        line.push(b'\n');
        // A single write, so the note is in the pipe completely before the act that it announces, and after the act that it
        // confirms.
        out.write_all(&line).map_err(at(Path::new("the pipe")))?;
        out.flush().map_err(at(Path::new("the pipe")))
    };
    workload::run(volume, &files, seed, (1, ACTIONS), &mut sink).map(drop)
}

/// Starts and kills `kills` writers, each on an image of its own.
///
/// # Errors
/// A tool is missing, the host has no room, or a writer cannot be started.
pub fn run(wish: &Wish, kills: usize, say: &mut dyn FnMut(&str)) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let (mut rng, scratch) = (Rng::new(wish.seed), scratch()?);
    let image = scratch.path().join("image");
    for number in 0..kills {
        let mode = wish.modes[number % wish.modes.len()];
        let bed = Bed::make(mode, wish.mib, rng.next())?;
        std::fs::write(&image, &bed.image).map_err(at(&image))?;
        let mut history = one(&bed, &image, rng.next(), rng.below(1500))?;
        if mode != Mode::Journal {
            // In that mode, data that was acknowledged is in the writer's memory until its commit.
            history.keeps_what_was_acked();
        }
        judge(wish, mode, number, &history, &image, &mut outcome)?;
        if (number + 1) % 50 == 0 {
            say(&format!("{} writers killed", number + 1));
        }
        if outcome.found.len() >= MOST_FOUND {
            break;
        }
    }
    Ok(outcome)
}

/// Runs a writer and kills it when it has printed `after` notes; returns the history of what it printed.
fn one(bed: &Bed, image: &Path, seed: u64, after: u64) -> Result<History> {
    let program = std::env::current_exe().map_err(at(Path::new("this program")))?;
    let files = serde_json::to_string(&bed.files).map_err(notes("a list of files"))?;
    let started = Command::new(&program)
        .arg("--writer")
        .arg(image)
        .args([&files, &seed.to_string()])
        .stdout(Stdio::piped())
        .spawn();
    let mut child = started.map_err(at(&program))?;
    let pipe = child.stdout.take().expect("started with a pipe");
    let mut history = History::new(bed.files.clone());
    for (mark, line) in BufReader::new(pipe).split(b'\n').enumerate() {
        let line = line.map_err(at(&program))?;
        // A kill may cut the last line. What that line announces had not begun; what it confirms was not acknowledged to anybody.
        if let Ok(note) = serde_json::from_slice(&line) {
            history.note(&note, mark);
        }
        if mark as u64 == after {
            // The writer may have ended already, which is no failure.
            let _ended = child.kill();
        }
    }
    child.wait().map_err(at(&program))?;
    Ok(history)
}

fn judge(
    wish: &Wish,
    mode: Mode,
    number: usize,
    history: &History,
    image: &Path,
    outcome: &mut Outcome,
) -> Result<()> {
    let bytes = std::fs::read(image).map_err(at(image))?;
    let expect = Expect {
        history: history.clone(),
        at: usize::MAX,
    };
    let verdict = Judge::new(bytes.len())?.judge(mode, &bytes, &expect, Also::default())?;
    let found = history.findings(&verdict);
    outcome.states += 1;
    if let Some(first) = found.first().cloned() {
        let origin = format!("seed {}, kill {number} ({})", wish.seed, mode.name());
        let kept = Kept {
            mode,
            origin,
            expect,
        };
        let name = format!("seed-{}-kill-{number}", wish.seed);
        let dir = kept.store(&wish.keep, &name, &bytes, &found)?;
        outcome.found.push((dir, first));
    }
    Ok(())
}
