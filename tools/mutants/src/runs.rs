//! What it is: runs tests as processes: lists them, and records what each reaches and how long it takes.
//! Input: test binaries. Output: for each test its time in seconds, and the mutants whose code it runs.
//! Invariants: for the record, each test runs in its own process and without a mutant.
//! Limit: a process that takes too long is killed, with all processes that it started.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A test that takes longer than this is not run against mutants.
const SLOWEST: Duration = Duration::from_secs(40);

/// The user and group that runs the tests if this process is root.
const NOBODY: u32 = 65534;

/// The record of a test that ran without a mutant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Test {
    pub(crate) binary: PathBuf,
    pub(crate) name: String,
    pub(crate) seconds: f64,
    pub(crate) reaches: BTreeSet<u32>,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Well,
    Badly,
    AtLimit,
}

/// A process that has ended.
pub(crate) struct Ran {
    pub(crate) ended: Ended,
    /// The tests that failed, as the test harness names them.
    pub(crate) failed: Vec<String>,
}

/// Runs a test binary with these tests and with `env` set, and kills it after `limit`. Blocks.
///
/// # Errors
/// The binary cannot be started.
pub(crate) fn run(
    binary: &Path,
    names: &[&str],
    env: &[(&str, String)],
    limit: Duration,
) -> Result<Ran> {
    let scratch = tempfile::tempdir().map_err(Error::io("a scratch folder"))?;
    let mut command = Command::new(binary);
    command
        .args(["--exact", "--test-threads=2"])
        .args(names)
        .envs(env.iter().map(|(n, v)| (n, v)));
    command
        .env("TMPDIR", scratch.path())
        .env("RUST_BACKTRACE", "0")
        .env("CARGO_MANIFEST_DIR", package_of(binary));
    command.current_dir(package_of(binary)).process_group(0);
    let said = tempfile::tempfile().map_err(Error::io("a scratch file"))?;
    let writer = said.try_clone().map_err(Error::io("a scratch file"))?;
    command
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(Stdio::null());
    if is_root() {
        // Mutated code runs without root, so that the kernel does not mount its images.
        chown(scratch.path(), Some(NOBODY), Some(NOBODY)).map_err(Error::io("a scratch folder"))?;
        command.uid(NOBODY).gid(NOBODY);
    }
    let mut child = command.spawn().map_err(Error::io(binary.display()))?;
    let ended = wait(&mut child, limit);
    // Kills its children, too, and whatever they left running.
    let group = format!("-{}", child.id());
    let _gone = Command::new("kill")
        .args(["-KILL", "--", &group])
        .stderr(Stdio::null())
        .status();
    let _reaped = child.wait();
    Ok(Ran {
        ended,
        failed: failed(said),
    })
}

fn failed(mut said: File) -> Vec<String> {
    let mut text = Vec::new();
    // If the output cannot be read, no test is named; only the exit status counts.
    let _read = said.rewind().and_then(|()| said.read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text);
    let name = |line: &str| {
        Some(
            line.strip_prefix("test ")?
                .strip_suffix(" ... FAILED")?
                .to_owned(),
        )
    };
    text.lines().filter_map(name).collect()
}

/// True if this process runs as root.
fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

fn wait(child: &mut Child, limit: Duration) -> Ended {
    let (start, mut nap) = (Instant::now(), Duration::from_millis(1));
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ended::Well,
            Ok(Some(_)) | Err(_) => return Ended::Badly,
            Ok(None) if start.elapsed() > limit => return Ended::AtLimit,
            Ok(None) => std::thread::sleep(nap),
        }
        nap = (nap * 2).min(Duration::from_millis(20));
    }
}

/// The folder of the package whose tests are in this binary of `target/debug/deps`.
fn package_of(binary: &Path) -> PathBuf {
    let root = binary.ancestors().nth(4).unwrap_or(Path::new("."));
    let name = binary.file_name().unwrap_or_default().to_string_lossy();
    let is_block = name.starts_with("diorite_block-") || name.starts_with("contract-");
    root.join(if is_block {
        "crates/block"
    } else {
        "crates/engine"
    })
}

/// The names of the tests in a binary.
fn names(binary: &Path) -> Result<Vec<String>> {
    let listed = Command::new(binary)
        .args(["--list", "--format", "terse"])
        .output();
    let listed = listed.map_err(Error::io(binary.display()))?.stdout;
    let text = String::from_utf8_lossy(&listed).into_owned();
    Ok(text
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .map(str::to_owned)
        .collect())
}

/// The tests recorded in `file`, if no binary was built since then; else records them with [`record`] and writes the file.
///
/// # Errors
/// As [`record`]; or the file cannot be read or written.
pub(crate) fn recorded(
    file: &Path,
    binaries: &[PathBuf],
    most: u32,
    jobs: usize,
) -> Result<Vec<Test>> {
    let time = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified()).ok();
    let kept = time(file);
    if kept.is_some() && binaries.iter().all(|binary| time(binary) < kept) {
        let text = fs::read(file).map_err(Error::io(file.display()))?;
        let tests: Vec<Test> = serde_json::from_slice(&text)?;
        let has_one = |binary: &PathBuf| tests.iter().any(|test| test.binary == *binary);
        if binaries.iter().all(has_one) && tests.iter().all(|test| binaries.contains(&test.binary))
        {
            return Ok(tests);
        }
    }
    let tests = record(binaries, most, jobs)?;
    fs::write(file, serde_json::to_vec(&tests)?).map_err(Error::io(file.display()))?;
    Ok(tests)
}

/// Runs every test of the binaries in its own process, `jobs` at a time, and records what it reaches. Tests that are slow or fail
/// are left out, and printed.
///
/// # Errors
/// A test cannot be started.
fn record(binaries: &[PathBuf], most: u32, jobs: usize) -> Result<Vec<Test>> {
    let mut work = Vec::new();
    for binary in binaries {
        work.extend(
            names(binary)?
                .into_iter()
                .map(|name| (binary.clone(), name)),
        );
    }
    println!("{} tests to record", work.len());
    let (work, done) = (Mutex::new(work), Mutex::new(Vec::new()));
    let one = || -> Result<()> {
        while let Some((binary, name)) = locked(&work).pop() {
            if let Some(test) = record_one(&binary, name, most)? {
                locked(&done).push(test);
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(one)).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("recording does not panic"))
    })?;
    Ok(done.into_inner().expect("recording does not panic"))
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("no thread panics with the lock held")
}

fn record_one(binary: &Path, name: String, most: u32) -> Result<Option<Test>> {
    let record = tempfile::NamedTempFile::new().map_err(Error::io("a record"))?;
    fs::set_permissions(record.path(), PermissionsExt::from_mode(0o666))
        .map_err(Error::io("a record"))?;
    let env = [("DIORITE_MUTANTS_SEEN", record.path().display().to_string())];
    let start = Instant::now();
    match run(binary, &[&name], &env, SLOWEST)?.ended {
        Ended::Well => {}
        Ended::Badly => {
            println!(
                "left out, fails without any mutant: {name} of {}",
                binary.display()
            );
            return Ok(None);
        }
        Ended::AtLimit => {
            println!("left out, slower than {} s: {name}", SLOWEST.as_secs());
            return Ok(None);
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let seen = fs::read(record.path()).map_err(Error::io("a record"))?;
    let reaches = (1..=most)
        .filter(|n| seen.get(*n as usize) == Some(&1))
        .collect();
    Ok(Some(Test {
        binary: binary.to_owned(),
        name,
        seconds,
        reaches,
    }))
}
