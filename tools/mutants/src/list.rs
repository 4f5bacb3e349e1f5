//! What it is: the mutants as cargo-mutants lists them.
//! Input: `cargo mutants --list --json`, and the files that `.cargo/mutants.toml` names. Output: mutants, numbered from 1.
//! Invariant: a number is valid within one list; a name contains file, line and column, so it is valid for one version of the
//! sources.

use crate::error::{Error, Result};
use crate::places::Spot;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How a mutant changes the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) enum Genre {
    FnValue,
    BinaryOperator,
    UnaryOperator,
    MatchArm,
    MatchArmGuard,
    StructField,
}

#[derive(Debug, Clone, Deserialize)]
struct Listed {
    file: PathBuf,
    name: String,
    genre: Genre,
    replacement: String,
    span: Span,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct Span {
    start: LineColumn,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct LineColumn {
    line: usize,
    column: usize,
}

/// One change of the code.
#[derive(Debug, Clone)]
pub(crate) struct Mutant {
    pub(crate) number: u32,
    pub(crate) file: PathBuf,
    pub(crate) name: String,
    pub(crate) genre: Genre,
    pub(crate) replacement: String,
    pub(crate) spot: Spot,
}

/// Lists the mutants of the workspace in `dir`: those of `files`, or of all configured files if `files` is empty.
///
/// # Errors
/// cargo-mutants is not installed, or its output is not a list.
pub(crate) fn mutants(dir: &Path, files: &[String]) -> Result<Vec<Mutant>> {
    let mut command = Command::new("cargo");
    command
        .current_dir(dir)
        .args(["mutants", "--list", "--json"]);
    for file in files {
        command.args(["-f", file]);
    }
    let output = command.output().map_err(Error::io("cargo mutants"))?;
    if !output.status.success() {
        return Err(Error::Cargo(
            String::from_utf8_lossy(&output.stderr).into_owned(),
        ));
    }
    let mut listed: Vec<Listed> = serde_json::from_slice(&output.stdout)?;
    // cargo-mutants adds the files of its configuration to those on the command line.
    let is_named = |listed: &Listed| files.iter().any(|file| listed.file == Path::new(file));
    listed.retain(|listed| files.is_empty() || is_named(listed));
    Ok((1..).zip(listed).map(numbered).collect())
}

fn numbered((number, listed): (u32, Listed)) -> Mutant {
    let start = listed.span.start;
    Mutant {
        number,
        file: listed.file,
        name: listed.name,
        genre: listed.genre,
        replacement: listed.replacement,
        spot: (start.line, start.column),
    }
}
