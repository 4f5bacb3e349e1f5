//! Images for tests, made by the installed tools, and seeded randomness.
#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    clippy::unwrap_used,
    missing_docs,
    unreachable_pub
)]

pub mod attributes;
pub mod bytes;
pub mod fixture;
pub mod kernel;
pub mod limit;
pub mod log;
pub mod names;
pub mod nest;
pub mod recipe;
pub mod stage;
pub mod storm;
pub mod valve;
pub mod walk;
pub mod watch;

use diorite_check::CheckOptions;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

/// Methods of a test's own device: it answers like the device in its field `below`, but for what the test writes itself.
macro_rules! answers_as_below {
    () => {
        fn below(&self) -> Option<&dyn diorite_block::Device> {
            Some(&*self.below)
        }

        fn geometry(&self) -> diorite_block::Geometry {
            self.below.geometry()
        }
    };
}
pub(crate) use answers_as_below;

/// Runs a tool; panics with its output if it fails.
pub fn run(program: &str, args: &[&str]) -> String {
    let out = xtask::run::tool(program)
        .args(args)
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    assert!(
        out.status.success(),
        "{program} {args:?}: {}\n{text}",
        out.status
    );
    text
}

/// Runs a script of Python in `at` with this standard input; panics with its messages if it fails.
pub fn python(script: &str, args: &[&str], at: &Path, input: &str) -> String {
    let mut lines = tempfile::tempfile().unwrap();
    lines.write_all(input.as_bytes()).unwrap();
    lines.rewind().unwrap();
    let out = xtask::run::tool("python3")
        .args(["-c", script])
        .args(args)
        .current_dir(at)
        .stdin(lines)
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{err}");
    String::from_utf8(out.stdout).unwrap()
}

/// Runs a script of debugfs that changes an image. Returns what debugfs has printed.
pub fn debugfs_script(image: &Path, script: &str) -> String {
    let path = image.with_extension("script");
    std::fs::write(&path, script).unwrap();
    let args = ["-w", "-f", path.to_str().unwrap()];
    run("debugfs", &[&args[..], &[image.to_str().unwrap()]].concat())
}

/// An image of `size` made by mke2fs, filled from `source`.
pub fn image(dir: &Path, size: &str, args: &[&str], source: &Path) -> PathBuf {
    let path = dir.join("image");
    let (p, s) = (path.to_str().unwrap(), source.to_str().unwrap());
    let all: Vec<&str> = ["-q", "-F", "-d", s]
        .into_iter()
        .chain(args.iter().copied())
        .chain([p, size])
        .collect();
    run("mke2fs", &all);
    path
}

/// Asserts that e2fsck finds nothing, and diorite's own check neither.
pub fn fsck(image: &Path) {
    run("e2fsck", &["-fn", image.to_str().unwrap()]);
    let found = diorite_check::check(image.to_str().unwrap(), &CheckOptions::default(), &|_| ());
    let found = found.unwrap();
    let said: Vec<_> = found.kept().collect();
    assert!(
        found.is_clean(),
        "e2fsck is content, and check finds {said:?}"
    );
}

/// A number that an environment variable may raise for a longer run.
pub fn scaled(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(default)
}

pub use xtask::rng::Rng;
pub use xtask::run::{scratch, words};
