//! The library as C has it: a suite of every function, built with all warnings as errors, run plainly, under Valgrind and with sanitizers;
//! the header as C++ and against the sources; the examples.
//!
//! Input: the shared library that cargo has built beside this program. Output: what the programs say. Limits: what the host does not have
//! is skipped, with the reason.

mod common;
#[path = "engine/fio.rs"]
mod fio;

use common::{Library, compiler, has, run};
use std::path::Path;
use std::process::Command;
use xtask::skip::skipped;

const GROUPS: [&str; 10] = [
    "arguments",
    "files",
    "handles",
    "threads",
    "fork",
    "queues",
    "names",
    "editor",
    "images",
    "devices",
];

/// Runs each group of the suite in a folder of its own.
fn run_suite(library: &Library, program: &Path, wrap: &[&str], env: &[(&str, &str)], but: &[&str]) {
    for group in GROUPS.iter().filter(|group| !but.contains(group)) {
        let dir = tempfile::tempdir_in(common::scratch()).expect("a scratch folder");
        let mut command = match wrap.split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.arg(group).arg(dir.path());
        command.env("LD_LIBRARY_PATH", library.dir());
        command.envs(env.iter().copied());
        run(&mut command, group);
    }
}

#[test]
fn the_suite_runs() {
    let Some(cc) = compiler("cc") else { return };
    let library = Library::new();
    let program = library.suite(&cc, "suite", &["-O1"]);
    run_suite(&library, &program, &[], &[], &[]);
}

/// No byte is read or written that is not there, and what is allocated is given back.
#[test]
fn the_suite_is_clean_under_valgrind() {
    let Some(cc) = compiler("cc") else { return };
    if !has("valgrind") {
        return skipped("there is no valgrind");
    }
    let library = Library::new();
    let program = library.suite(&cc, "suite", &["-O1", "-g"]);
    let wrap = [
        "timeout",
        "--signal=KILL",
        "600",
        "valgrind",
        "--quiet",
        "--error-exitcode=99",
        "--leak-check=full",
        "--show-leak-kinds=definite",
        "--errors-for-leak-kinds=definite",
        "--fair-sched=yes",
    ];
    // Valgrind runs one thread at a time, and does not let another run while one waits in a ring. A child of a fork has what its parent
    // has not given back.
    let env = [("SUITE_IO_ENGINE", "threads")];
    run_suite(&library, &program, &wrap, &env, &["fork"]);
}

/// The C side, and what both sides share, under the sanitizers of addresses and of undefined behaviour.
#[test]
fn the_suite_is_clean_with_sanitizers() {
    let Some(cc) = compiler("cc") else { return };
    let library = Library::new();
    let flags = [
        "-O1",
        "-g",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
    ];
    if !library.can_link(&cc, &flags) {
        return skipped("the compiler has no sanitizers");
    }
    let program = library.suite(&cc, "sanitized", &flags);
    let env = [("ASAN_OPTIONS", "detect_leaks=0:abort_on_error=0")];
    run_suite(&library, &program, &[], &env, &[]);
}

#[test]
fn the_header_is_cpp17_too() {
    let Some(cxx) = compiler("c++") else { return };
    let mut command = Command::new(cxx);
    command.args(["-Wall", "-Wextra", "-Werror", "-Wpedantic", "-std=c++17"]);
    command
        .args(["-fsyntax-only", "-x", "c++"])
        .arg(xtask::header::path());
    run(&mut command, "the header as C++");
}

#[test]
fn the_header_says_what_the_sources_say() {
    if !has("cbindgen") {
        return skipped("there is no cbindgen (cargo install cbindgen --locked)");
    }
    let kept = std::fs::read_to_string(xtask::header::path()).expect("the header");
    let made = xtask::header::made().expect("cbindgen makes it");
    let words = |text: &str| {
        text.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert!(words(&kept) == words(&made), "run `cargo xtask header`");
}

/// Programs find the library by the name of its ABI, and it exports nothing but its functions.
#[test]
fn the_library_has_its_name_and_its_symbols() {
    if !has("readelf") || !has("nm") {
        return skipped("there are no binutils");
    }
    let library = Library::new();
    let mut readelf = Command::new("readelf");
    let dynamic = run(readelf.arg("-d").arg(library.shared()), "readelf");
    assert!(dynamic.contains("[libdiorite.so.0]"), "{dynamic}");
    let mut nm = Command::new("nm");
    nm.args(["-D", "--defined-only"]).arg(library.shared());
    let symbols = run(&mut nm, "nm");
    let header = std::fs::read_to_string(xtask::header::path()).expect("the header");
    let mut count = 0;
    for symbol in symbols.lines().filter_map(|line| line.split(' ').nth(2)) {
        assert!(symbol.starts_with("diorite_"), "{symbol}");
        assert!(
            header.contains(&format!("{symbol}(")),
            "{symbol} is in no header"
        );
        count += 1;
    }
    assert!(count > 70, "only {count} functions");
}

/// An image with a file system, made by a program of C.
fn image(library: &Library, cc: &str, path: &Path) {
    let source = library.dir().join("mkfs.c");
    let text = r#"
#include <diorite.h>
#include <stdio.h>

int main(int count, char **words)
{
    struct diorite_mkfs_options options;
    DIORITE_INIT(&options);
    options.flags = DIORITE_MKFS_CREATE;
    options.bytes = 64 << 20;
    if (count != 2 || diorite_mkfs(words[1], &options) < 0) {
        fprintf(stderr, "%s\n", diorite_error_message());
        return 1;
    }
    return 0;
}
"#;
    std::fs::write(&source, text).expect("a scratch file");
    let program = library.program(cc, "mkfs", &[], [source]);
    let mut command = Command::new(program);
    command.arg(path).env("LD_LIBRARY_PATH", library.dir());
    run(&mut command, "mkfs");
}

/// The examples: a file goes into an image with 64 requests in flight, and comes out by Go. e2fsck judges the image.
#[test]
fn the_examples_run() {
    let Some(cc) = compiler("cc") else { return };
    let library = Library::new();
    let dir = tempfile::tempdir_in(common::scratch()).expect("a scratch folder");
    let (disk, file) = (dir.path().join("disk"), dir.path().join("file"));
    image(&library, &cc, &disk);
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let copy = library.program(&cc, "copy", &["-O2"], [examples.join("copy.c")]);
    let go = go_program(&library, &examples.join("go"));
    // The last one ends inside a sector, replaces the others, and has more pieces than are in flight.
    for len in [0_usize, 4096, 10_000_123] {
        let bytes: Vec<u8> = (0..len).map(|n| (n * 7 % 251) as u8).collect();
        std::fs::write(&file, &bytes).expect("a scratch file");
        let mut command = Command::new(&copy);
        command.env("LD_LIBRARY_PATH", library.dir());
        run(command.args([&file, &disk]).arg("/copied"), "copy");
        let volume = diorite::Volume::open(disk.to_str().expect("text"), &Default::default());
        let volume = volume.expect("the image");
        assert!(
            volume.read("/copied").expect("the file") == bytes,
            "{len} bytes"
        );
        volume.close().expect("nothing is owed");
        if let Some(go) = &go {
            let mut command = Command::new(go);
            command.env("LD_LIBRARY_PATH", library.dir());
            let ran = command.arg(&disk).arg("/copied").output().expect("it runs");
            let errors = String::from_utf8_lossy(&ran.stderr);
            assert!(
                ran.status.success() && ran.stdout == bytes,
                "Go, {len} bytes: {errors}"
            );
        }
    }
    if let Some(go) = &go {
        let mut command = Command::new(go);
        command.env("LD_LIBRARY_PATH", library.dir());
        let names = run(command.arg(&disk).arg("/"), "Go lists");
        assert!(names.lines().any(|name| name == "copied"), "{names}");
    }
    match has("e2fsck") {
        true => drop(run(
            xtask::run::tool("e2fsck").arg("-fn").arg(&disk),
            "e2fsck",
        )),
        false => skipped("there is no e2fsck"),
    }
}

/// The programs in the README and in the book compile, and do what the text says.
#[test]
fn the_programs_in_documents_run() {
    let Some(cc) = compiler("cc") else { return };
    let library = Library::new();
    let dir = tempfile::tempdir_in(common::scratch()).expect("a scratch folder");
    let disk = dir.path().join("disk.img");
    image(&library, &cc, &disk);
    let open = || {
        let options = diorite::OpenOptions::writable();
        diorite::Volume::open(disk.to_str().expect("text"), &options).expect("the image")
    };
    let volume = open();
    volume.mkdir("/etc", 0o755).expect("room");
    let name = volume.create("/etc/hostname", 0o644).expect("room");
    name.write_bytes(0, b"example\n").expect("room");
    drop(name);
    volume.close().expect("nothing fails");
    for (name, document, says) in [
        ("hostname", "frontends/c/README.md", "example\n"),
        ("table", "docs/book/src/tutorials/c.md", "done\n"),
    ] {
        let text = std::fs::read_to_string(xtask::documents::root().join(document));
        let text = text.expect("a document");
        let code = text
            .split("```c\n")
            .nth(1)
            .and_then(|rest| rest.split("```").next());
        let source = library.dir().join(format!("{name}.c"));
        std::fs::write(&source, code.expect("a program")).expect("a scratch file");
        let program = library.program(&cc, name, &["-O1"], [source]);
        let mut command = Command::new(program);
        command
            .current_dir(dir.path())
            .env("LD_LIBRARY_PATH", library.dir());
        assert_eq!(run(&mut command, name), says, "{document}");
    }
    let volume = open();
    let table = volume.read("/table").expect("the table");
    assert_eq!(table.len(), 4096 * 1000);
    let sound = |(n, page): (usize, &[u8])| page.iter().all(|byte| usize::from(*byte) == n % 251);
    assert!(table.chunks(4096).enumerate().all(sound));
    volume.close().expect("nothing fails");
}

/// The example in Go; None, and a line that says so, without a toolchain.
fn go_program(library: &Library, source: &Path) -> Option<std::path::PathBuf> {
    let mut version = Command::new("go");
    if !version
        .arg("version")
        .output()
        .is_ok_and(|ran| ran.status.success())
    {
        skipped("there is no Go toolchain");
        return None;
    }
    let program = library.dir().join("cat");
    let mut command = Command::new("go");
    command
        .current_dir(source)
        .args(["build", "-o"])
        .arg(&program);
    command
        .env("CGO_ENABLED", "1")
        .env("GOTOOLCHAIN", "local")
        .env("GOFLAGS", "-buildvcs=false");
    command.env("GOCACHE", library.dir().join("go-cache"));
    command.env(
        "CGO_CFLAGS",
        format!("-O1 -I{}", env!("CARGO_MANIFEST_DIR")),
    );
    command.env("CGO_LDFLAGS", format!("-L{}", library.dir().display()));
    run(&mut command, "go build");
    Some(program)
}
