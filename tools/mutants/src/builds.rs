//! What it is: a copy of the workspace with all mutants woven in, and its tests built.
//! Input: the mutants. Output: test binaries, and the mutants that do not compile (cargo-mutants calls them unviable) or cannot be
//! woven in.
//! Invariant: the copy holds the files that git tracks or would add; the original sources are never changed.
//! Limit: each run of the compiler removes at least one mutant, so the loop ends.

use crate::error::{Error, Result};
use crate::list::Mutant;
use crate::weave::{Woven, weave};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Packages that mutants are woven into, and their folders.
const WOVEN: [(&str, &str); 2] = [
    ("diorite-block", "crates/block"),
    ("diorite", "crates/engine"),
];

/// Why a mutant is not judged.
#[derive(Debug, Default)]
pub(crate) struct NotJudged {
    /// The compiler rejects it.
    pub(crate) unviable: BTreeSet<u32>,
    /// It cannot be woven in: `let` in a condition, a constant function.
    pub(crate) no_place: BTreeSet<u32>,
}

#[derive(Deserialize)]
struct Line {
    reason: String,
    message: Option<Message>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Message {
    level: String,
    code: Option<Code>,
    #[serde(default)]
    spans: Vec<Span>,
    rendered: Option<String>,
}

#[derive(Deserialize)]
struct Code {
    code: String,
}

#[derive(Deserialize)]
struct Span {
    file_name: PathBuf,
    byte_start: usize,
    byte_end: usize,
    is_primary: bool,
}

/// A copy of the workspace that is being made.
pub(crate) struct Copy<'a> {
    pub(crate) dir: PathBuf,
    mutants: &'a [Mutant],
    sources: BTreeMap<PathBuf, String>,
    woven: BTreeMap<PathBuf, Woven>,
}

impl<'a> Copy<'a> {
    /// Copies the workspace `from` to `dir` and adds the switch to it. What was built in `dir` before is kept.
    ///
    /// # Errors
    /// A file of the host cannot be read or written, or git cannot be started.
    pub(crate) fn make(from: &Path, dir: PathBuf, mutants: &'a [Mutant]) -> Result<Self> {
        let listed = Command::new("git")
            .current_dir(from)
            .args(["ls-files", "-co", "--exclude-standard"])
            .output();
        let listed = listed.map_err(Error::io("git ls-files"))?.stdout;
        let files = String::from_utf8_lossy(&listed).into_owned();
        let mut copy = Self {
            dir,
            mutants,
            sources: BTreeMap::new(),
            woven: BTreeMap::new(),
        };
        for file in files.lines().filter(|file| from.join(file).is_file()) {
            copy.take(from, Path::new(file))?;
        }
        copy.add_switch()?;
        Ok(copy)
    }

    /// Copies one file. Sources with mutants are written by `weave`, so that each is written once and cargo sees no change if there
    /// is none.
    fn take(&mut self, from: &Path, file: &Path) -> Result<()> {
        let bytes = fs::read(from.join(file)).map_err(Error::io(file.display()))?;
        if self.mutants.iter().any(|mutant| mutant.file == file) {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            self.sources.insert(file.to_owned(), text);
            return Ok(());
        }
        if WOVEN
            .iter()
            .any(|(_, folder)| file == Path::new(folder).join("Cargo.toml"))
        {
            let text = String::from_utf8_lossy(&bytes);
            let with = "[dependencies]\ndiorite_mutant = { path = \"../mutant\" }";
            return self.write(file, text.replacen("[dependencies]", with, 1).as_bytes());
        }
        self.write(file, &bytes)
    }

    /// Writes a file unless it already has these bytes, so that cargo does not rebuild it.
    fn write(&self, file: &Path, bytes: &[u8]) -> Result<()> {
        let path = self.dir.join(file);
        if fs::read(&path).is_ok_and(|old| old == bytes) {
            return Ok(());
        }
        let parent = path.parent().unwrap_or(&self.dir);
        fs::create_dir_all(parent).map_err(Error::io(parent.display()))?;
        fs::write(&path, bytes).map_err(Error::io(path.display()))
    }

    fn add_switch(&self) -> Result<()> {
        let manifest = "[package]\nname = \"diorite_mutant\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[lib]\npath = \"switch.rs\"\n";
        self.write(Path::new("crates/mutant/Cargo.toml"), manifest.as_bytes())?;
        self.write(
            Path::new("crates/mutant/switch.rs"),
            include_bytes!("switch.rs"),
        )
    }

    /// Weaves the viable mutants in and compiles, until the compiler reports no error.
    ///
    /// # Errors
    /// The compiler reports an error that no mutant caused.
    pub(crate) fn take_unviable_out(&mut self, not: &mut NotJudged) -> Result<()> {
        loop {
            self.weave(not)?;
            let (lines, _) = self.cargo(&["check", "--lib"])?;
            let mut found = 0;
            for message in lines.into_iter().filter_map(|line| line.message) {
                if message.level == "error" && !message.spans.is_empty() {
                    found += self.blame(&message, not)?;
                }
            }
            println!(
                "the compiler took out {found}: {} unviable, {} without a place",
                not.unviable.len(),
                not.no_place.len()
            );
            if found == 0 {
                return Ok(());
            }
        }
    }

    fn weave(&mut self, not: &mut NotJudged) -> Result<()> {
        for (file, text) in &self.sources {
            let is_here = |m: &&Mutant| {
                m.file == *file
                    && !not.unviable.contains(&m.number)
                    && !not.no_place.contains(&m.number)
            };
            let here: Vec<_> = self.mutants.iter().filter(is_here).collect();
            let woven = weave(text, &here).map_err(|source| Error::Syntax {
                file: file.display().to_string(),
                source,
            })?;
            not.no_place.extend(&woven.left_out);
            self.write(file, woven.text.as_bytes())?;
            self.woven.insert(file.clone(), woven);
        }
        Ok(())
    }

    /// Removes the mutants that caused an error; returns their number.
    fn blame(&self, message: &Message, not: &mut NotJudged) -> Result<usize> {
        let is = |wanted| {
            message
                .code
                .as_ref()
                .is_some_and(|code| code.code == wanted)
        };
        // E0015: a call of the switch in a constant function. E0004: a match that is not exhaustive without one of its arms.
        let (is_constant, is_uncovered) = (is("E0015"), is("E0004"));
        // With a return type `impl Iterator`, the mutant returns another type than the body.
        let rendered = message.rendered.as_deref().unwrap_or_default();
        let beside_return = ["Empty<", "Once<"]
            .iter()
            .any(|kind| rendered.contains(kind));
        let (primary, others): (Vec<_>, Vec<_>) =
            message.spans.iter().partition(|span| span.is_primary);
        for span in primary.iter().chain(&others) {
            let Some(woven) = self.woven.get(&span.file_name) else {
                continue;
            };
            let range = span.byte_start..span.byte_end;
            let owners = if is_uncovered {
                woven.arms_behind(range.end)
            } else {
                woven.owners(&range, beside_return)
            };
            if !owners.is_empty() {
                let list = if is_constant {
                    &mut not.no_place
                } else {
                    &mut not.unviable
                };
                let before = list.len();
                list.extend(owners);
                return Ok(list.len() - before);
            }
        }
        Err(Error::Cargo(rendered.to_owned()))
    }

    /// Builds these test targets, or all if there are none; returns the binaries.
    ///
    /// # Errors
    /// They do not build.
    pub(crate) fn build(&self, targets: &[String]) -> Result<Vec<PathBuf>> {
        let mut args = vec!["test", "--no-run"];
        for target in targets {
            match target.as_str() {
                "lib" => args.push("--lib"),
                name => args.extend(["--test", name]),
            }
        }
        if targets.is_empty() {
            args.push("--tests");
        }
        let (lines, well) = self.cargo(&args)?;
        if !well {
            return Err(Error::Cargo("the woven tests do not build".into()));
        }
        Ok(lines
            .into_iter()
            .filter_map(|line| line.executable)
            .collect())
    }

    fn cargo(&self, args: &[&str]) -> Result<(Vec<Line>, bool)> {
        let mut command = Command::new("cargo");
        command
            .current_dir(&self.dir)
            .args(args)
            .arg("--message-format=json");
        let has_mutants = |folder| self.mutants.iter().any(|m| m.file.starts_with(folder));
        for (package, _) in WOVEN.iter().filter(|(_, folder)| has_mutants(folder)) {
            command.args(["-p", package]);
        }
        let output = command
            .stderr(Stdio::inherit())
            .output()
            .map_err(Error::io("cargo"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let lines = text.lines().filter(|line| line.starts_with('{'));
        let lines: Vec<Line> = lines
            .map(serde_json::from_str)
            .collect::<std::result::Result<_, _>>()?;
        Ok((
            lines
                .into_iter()
                .filter(|line| line.reason.starts_with("compiler"))
                .collect(),
            output.status.success(),
        ))
    }
}
