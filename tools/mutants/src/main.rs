//! The command `cargo xtask mutants`: the mutants of cargo-mutants, all in one build, each judged by the tests that reach it.
//! Input: the command line, the sources. Output: a line per mutant and a table; exit code 1 if a mutant survives that
//! docs/mutants.md does not explain.
//!
//! The steps: `list` gets the mutants from cargo-mutants; `weave` puts each behind a call of the switch; `builds` compiles and
//! removes those that do not compile; `runs` records which mutants each test reaches; `judge` turns on one mutant at a time.

#![expect(clippy::print_stdout, reason = "a command line tool prints")]

mod builds;
mod error;
mod judge;
mod list;
mod places;
mod report;
mod runs;
mod weave;

use builds::{Copy, NotJudged};
use error::{Error, Result};
use judge::{Effort, Fate, Verdict};
use list::Mutant;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask mutants [--dir DIR] [--jobs N] [--seconds N] [--again] [--slice K/N] [--test NAME]... [FILE...]

Changes the code of the modules that .cargo/mutants.toml names in every way that cargo-mutants knows. All changes are in one build, in
DIR (target/mutants): the environment turns one on. Each is judged by the tests that run its code, quick ones first. Verdicts
are kept in DIR/verdicts.jsonl, and a later run goes on behind them; --again judges those that survived once more.
--seconds says for how long one mutant is tried, by what the tests take without any (60).
--slice judges every N'th mutant, beginning with the K'th. --test: these test targets alone, `lib` for the unit tests.
FILE: these sources alone.
";

/// Test binaries that are not run against mutants: interleavings, which need features, and long campaigns.
const NOT: [&str; 3] = ["interleave-", "golden-", "damage-"];

struct Wish {
    dir: PathBuf,
    effort: Effort,
    again: bool,
    slice: (usize, usize),
    tests: Vec<String>,
    files: Vec<String>,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let wish = match parse(args) {
        Ok(wish) => wish,
        Err(why) => {
            eprint!("mutants: {why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match campaign(&wish) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mutants: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(args: Vec<String>) -> std::result::Result<Wish, String> {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let effort = Effort { jobs, worth: 60.0 };
    let mut wish = Wish {
        dir: "target/mutants".into(),
        effort,
        again: false,
        slice: (1, 1),
        tests: Vec::new(),
        files: Vec::new(),
    };
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} wants a value"));
        match arg.as_str() {
            "--dir" => wish.dir = value()?.into(),
            "--jobs" => wish.effort.jobs = value()?.parse().map_err(|_| "--jobs wants a number")?,
            "--seconds" => {
                wish.effort.worth = value()?.parse().map_err(|_| "--seconds wants a number")?
            }
            "--slice" => wish.slice = slice(&value()?).ok_or("--slice wants K/N, 1 <= K <= N")?,
            "--test" => wish.tests.push(value()?),
            "--again" => wish.again = true,
            _ if arg.starts_with('-') => return Err(format!("what is {arg:?}?")),
            _ => wish.files.push(arg),
        }
    }
    Ok(wish)
}

fn slice(text: &str) -> Option<(usize, usize)> {
    let (k, n) = text.split_once('/')?;
    let (k, n) = (k.parse().ok()?, n.parse().ok()?);
    (1 <= k && k <= n).then_some((k, n))
}

/// Runs the whole campaign; returns the number of survivors without a reason.
fn campaign(wish: &Wish) -> Result<usize> {
    let root = std::env::current_dir().map_err(Error::io("the current folder"))?;
    let mutants = list::mutants(&root, &wish.files)?;
    println!("{} mutants", mutants.len());
    let dir = root.join(&wish.dir);
    let mut copy = Copy::make(&root, dir.join("tree"), &mutants)?;
    let path = dir.join("verdicts.jsonl");
    let known = judge::read(&path)?;
    let mut not = not_judged(&mutants, &known);
    copy.take_unviable_out(&mut not)?;
    let binaries = copy.build(&wish.tests)?;
    let binaries: Vec<_> = binaries
        .into_iter()
        .filter(|path| is_wanted(path))
        .collect();
    let open = File::options().create(true).append(true).open(&path);
    let mut file = open.map_err(Error::io(path.display()))?;
    write_not_judged(&mutants, &not, &known, &mut file)?;
    let most = u32::try_from(mutants.len()).unwrap_or(u32::MAX);
    let recorded = runs::recorded(
        &dir.join("recorded.json"),
        &binaries,
        most,
        wish.effort.jobs,
    )?;
    println!("{} tests recorded", recorded.len());
    let todo = todo(wish, &mutants, &not, &known);
    judge::judge(todo, &recorded, &mut file, wish.effort)?;
    report::report(&root, &mutants, &judge::read(&path)?)
}

fn is_wanted(binary: &Path) -> bool {
    let name = binary.file_name().unwrap_or_default().to_string_lossy();
    !NOT.iter().any(|not| name.starts_with(not))
}

/// The mutants that an earlier run found not to compile, so that they are left out at once.
fn not_judged(mutants: &[Mutant], known: &[Verdict]) -> NotJudged {
    let with = |fate| {
        let names: HashSet<_> = known
            .iter()
            .filter(|v| v.fate == fate)
            .map(|v| v.name.as_str())
            .collect();
        mutants
            .iter()
            .filter(|m| names.contains(m.name.as_str()))
            .map(|m| m.number)
            .collect()
    };
    NotJudged {
        unviable: with(Fate::Unviable),
        no_place: with(Fate::NoPlace),
    }
}

fn write_not_judged(
    mutants: &[Mutant],
    not: &NotJudged,
    known: &[Verdict],
    file: &mut File,
) -> Result<()> {
    let names: HashSet<_> = known.iter().map(|verdict| verdict.name.as_str()).collect();
    for mutant in mutants
        .iter()
        .filter(|mutant| !names.contains(mutant.name.as_str()))
    {
        let fate = match (
            not.unviable.contains(&mutant.number),
            not.no_place.contains(&mutant.number),
        ) {
            (true, _) => Fate::Unviable,
            (_, true) => Fate::NoPlace,
            _ => continue,
        };
        let verdict = Verdict {
            name: mutant.name.clone(),
            fate,
            by: String::new(),
        };
        let line = serde_json::to_string(&verdict)?;
        writeln!(file, "{line}").map_err(Error::io("the verdicts"))?;
    }
    Ok(())
}

/// The mutants that are to be judged now.
fn todo<'a>(
    wish: &Wish,
    mutants: &'a [Mutant],
    not: &NotJudged,
    known: &[Verdict],
) -> Vec<&'a Mutant> {
    let known: HashMap<_, _> = known
        .iter()
        .map(|verdict| (verdict.name.as_str(), verdict.fate))
        .collect();
    let (k, n) = wish.slice;
    let is_due = |mutant: &&Mutant| match known.get(mutant.name.as_str()) {
        None => true,
        Some(Fate::Survived | Fate::NotReached) => wish.again,
        Some(_) => false,
    };
    let viable = |mutant: &&Mutant| {
        !not.unviable.contains(&mutant.number) && !not.no_place.contains(&mutant.number)
    };
    mutants
        .iter()
        .skip(k - 1)
        .step_by(n)
        .filter(viable)
        .filter(is_due)
        .collect()
}
