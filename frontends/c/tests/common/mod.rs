//! What these tests share: the library as an installation has it, the compiler, programs that have to succeed.

use std::ffi::OsStr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use xtask::skip::skipped;

/// The shared library, under the names that an installation gives it.
pub(crate) struct Library {
    dir: TempDir,
}

fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where images are made: in memory if the host has such a place.
pub(crate) fn scratch() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    match memory.is_dir() {
        true => memory,
        false => std::env::temp_dir(),
    }
}

impl Library {
    pub(crate) fn new() -> Library {
        // Cargo builds it with the rlib that this program links.
        assert_eq!(diorite_c::diorite_abi_version(), 0);
        let own = std::env::current_exe().expect("a test has a program");
        let built = own.with_file_name("libdiorite_c.so");
        assert!(built.exists(), "{} is not there", built.display());
        let dir = tempfile::tempdir().expect("a scratch folder");
        for name in ["libdiorite.so", "libdiorite.so.0"] {
            symlink(&built, dir.path().join(name)).expect("a link");
        }
        Library { dir }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn shared(&self) -> PathBuf {
        self.dir.path().join("libdiorite.so.0")
    }

    /// Compiles and links a program of these sources.
    pub(crate) fn program<S: AsRef<OsStr>>(
        &self,
        cc: &str,
        name: &str,
        flags: &[&str],
        sources: impl IntoIterator<Item = S>,
    ) -> PathBuf {
        let program = self.dir.path().join(name);
        let mut command = Command::new(cc);
        command.args(["-Wall", "-Wextra", "-Werror", "-Wpedantic", "-std=c11"]);
        command.args(["-D_GNU_SOURCE", "-pthread"]).args(flags);
        command.arg(format!("-I{}", crate_dir().display()));
        // The sources say <diorite.h>, as those of users.
        command.args(sources).arg("-o").arg(&program);
        command
            .arg(format!("-L{}", self.dir.path().display()))
            .arg("-ldiorite");
        run(&mut command, name);
        program
    }

    /// The suite.
    pub(crate) fn suite(&self, cc: &str, name: &str, flags: &[&str]) -> PathBuf {
        let dir = crate_dir().join("tests/c");
        let sources = std::fs::read_dir(&dir).expect("the suite's folder");
        let sources = sources.map(|entry| entry.expect("an entry").path());
        let sources: Vec<PathBuf> = sources
            .filter(|path| path.extension().is_some_and(|end| end == "c"))
            .collect();
        assert!(sources.len() >= 7, "only {} sources", sources.len());
        self.program(cc, name, flags, sources)
    }

    /// Whether programs can be made with these flags.
    pub(crate) fn can_link(&self, cc: &str, flags: &[&str]) -> bool {
        let source = self.dir.path().join("try.c");
        std::fs::write(&source, "int main(void) { return 0; }\n").expect("a scratch file");
        let mut command = Command::new(cc);
        command
            .args(flags)
            .arg(&source)
            .arg("-o")
            .arg(self.dir.path().join("try"));
        command.output().is_ok_and(|ran| ran.status.success())
    }
}

/// Whether the host has a program.
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// The compiler's name; None, and a line that says so, without one.
#[track_caller]
pub(crate) fn compiler(name: &str) -> Option<String> {
    let found = has(name);
    if !found {
        skipped(format!("there is no compiler {name}"));
    }
    found.then(|| name.to_owned())
}

/// Runs a program that has to succeed; gives what it has printed.
pub(crate) fn run(command: &mut Command, what: &str) -> String {
    let ran = command.output();
    let ran = ran.unwrap_or_else(|e| panic!("{what}: {command:?}: {e}"));
    let (out, err) = (
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr),
    );
    assert!(
        ran.status.success(),
        "{what}: {command:?}: {}\n{out}{err}",
        ran.status
    );
    out.into_owned()
}
