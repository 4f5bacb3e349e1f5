//! What it is: turns on one mutant at a time and runs the tests that reach it until one notices it.
//! Input: mutants, recorded tests. Output: a line per mutant in the file of verdicts, as soon as the verdict is known.
//! Invariant: a mutant survives only if every recorded test that reaches it has passed with it, or the time for one mutant is used
//! up.
//! Limits: tests run in batches, quick ones first. A batch is killed after several times the time that it takes without a mutant;
//! that counts as noticed.

use crate::error::{Error, Result};
use crate::list::Mutant;
use crate::runs::{Ended, Test, locked, run};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

/// How many of the tests that killed most mutants of the same file are run first.
const FIRST: usize = 6;

/// The verdict on a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fate {
    /// A test failed.
    Killed,
    /// A test did not end in time.
    Hung,
    /// Every test that runs its code passed.
    Survived,
    /// No test runs its code.
    NotReached,
    /// The compiler rejects it.
    Unviable,
    /// It cannot be woven in.
    NoPlace,
}

/// A line of the file of verdicts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) name: String,
    pub(crate) fate: Fate,
    /// The test that noticed it.
    pub(crate) by: String,
}

/// How many mutants are judged at once, and how long each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// Mutants that are judged at once.
    pub(crate) jobs: usize,
    /// The time limit for the tests of one mutant in seconds, by the times recorded without a mutant.
    pub(crate) worth: f64,
}

/// Judges the mutants and appends the verdicts to `file`.
///
/// # Errors
/// Tests cannot be started, or the file cannot be written.
pub(crate) fn judge(
    mutants: Vec<&Mutant>,
    tests: &[Test],
    file: &mut File,
    effort: Effort,
) -> Result<()> {
    let (todo, file) = (Mutex::new(VecDeque::from(mutants)), Mutex::new(file));
    let killers = Mutex::new(Killers::new());
    let one = || -> Result<()> {
        loop {
            let Some(mutant) = locked(&todo).pop_front() else {
                return Ok(());
            };
            let (fate, by) = judge_one(mutant, tests, &killers, effort.worth)?;
            let verdict = Verdict {
                name: mutant.name.clone(),
                fate,
                by,
            };
            println!("{fate:?}: {}", verdict.name);
            let line = serde_json::to_string(&verdict)?;
            writeln!(locked(&file), "{line}").map_err(Error::io("the verdicts"))?;
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..effort.jobs).map(|_| scope.spawn(one)).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("judging does not panic"))
    })
}

/// How often each test killed a mutant of a file.
type Killers = HashMap<(PathBuf, String), usize>;

fn judge_one(
    mutant: &Mutant,
    tests: &[Test],
    killers: &Mutex<Killers>,
    worth: f64,
) -> Result<(Fate, String)> {
    let kills = |test: &Test| {
        let key = (mutant.file.clone(), test.name.clone());
        locked(killers).get(&key).copied().unwrap_or(0)
    };
    let batches = batches(mutant.number, tests, kills, worth);
    if batches.is_empty() {
        return Ok((Fate::NotReached, String::new()));
    }
    let env = [("DIORITE_MUTANT", mutant.number.to_string())];
    for batch in batches {
        let limit = Duration::from_secs_f64(6.0 + 4.0 * batch.seconds);
        let ran = run(batch.binary, &batch.names, &env, limit)?;
        let fate = match ran.ended {
            Ended::Well => continue,
            Ended::Badly => Fate::Killed,
            Ended::AtLimit => Fate::Hung,
        };
        let by = ran
            .failed
            .first()
            .cloned()
            .unwrap_or_else(|| batch.names[0].to_owned());
        *locked(killers)
            .entry((mutant.file.clone(), by.clone()))
            .or_default() += 1;
        return Ok((fate, by));
    }
    Ok((Fate::Survived, String::new()))
}

/// Tests of one binary that run in one process.
struct Batch<'a> {
    binary: &'a Path,
    names: Vec<&'a str>,
    seconds: f64,
}

impl<'a> Batch<'a> {
    fn of(test: &'a Test) -> Self {
        Self {
            binary: &test.binary,
            names: vec![&test.name],
            seconds: test.seconds,
        }
    }
}

/// Batches of the tests that reach a mutant: first those that have killed other mutants of the file, then quick ones. Batches grow
/// with the time already spent on the mutant.
fn batches(
    number: u32,
    tests: &[Test],
    kills: impl Fn(&Test) -> usize,
    worth: f64,
) -> Vec<Batch<'_>> {
    let mut reaching: Vec<_> = tests
        .iter()
        .filter(|test| test.reaches.contains(&number))
        .collect();
    reaching.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let mut killers: Vec<_> = reaching
        .iter()
        .map(|test| (kills(test), *test))
        .filter(|(kills, _)| *kills > 0)
        .collect();
    killers.sort_by_key(|(kills, _)| std::cmp::Reverse(*kills));
    killers.truncate(FIRST);
    reaching.retain(|test| {
        killers
            .iter()
            .all(|(_, killer)| !std::ptr::eq(*killer, *test))
    });
    let mut batches: Vec<_> = killers.iter().map(|(_, test)| Batch::of(test)).collect();
    // At most the last 8 batches take more tests.
    let (mut spent, mut open) = (0.0, batches.len());
    for test in reaching {
        if spent > worth {
            break;
        }
        let size = 0.2 + spent / 4.0;
        let fits = |batch: &&mut Batch<'_>| {
            batch.binary == test.binary && batch.seconds + test.seconds <= size
        };
        match batches[open..].iter_mut().find(fits) {
            Some(batch) => {
                batch.names.push(&test.name);
                batch.seconds += test.seconds;
            }
            None => {
                open = open.max(batches.len().saturating_sub(8));
                batches.push(Batch::of(test));
            }
        }
        spent += test.seconds;
    }
    batches
}

/// The verdicts in a file, in the order in which they were written.
///
/// # Errors
/// A line is not a verdict.
pub(crate) fn read(path: &Path) -> Result<Vec<Verdict>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(Error::io(path.display())(error)),
    };
    text.lines()
        .map(|line| Ok(serde_json::from_str(line)?))
        .collect()
}
