//! Tests of the image's lock: an image that another program writes is not written, whatever options a command itself has.

use crate::common::{diorite, image, run, scratch, tree};
use diorite::{OpenOptions, Volume};
use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};

/// The defect: `rm -f` and `ln -sf` wrote to a locked image, because their `--force` was taken for the option that ignores the
/// lock.
#[test]
fn no_command_writes_to_an_image_that_is_held() {
    let dir = scratch();
    let source = dir.path().join("source");
    tree(&source);
    let img = image(dir.path(), "x", "64M", &["-t", "ext4"], Some(&source));
    let script = dir.path().join("script");
    fs::write(&script, "rm -rf /small\n").unwrap();
    let (script, host) = (script.to_str().unwrap(), source.join("small"));
    let host = host.to_str().unwrap();
    let holder = Volume::open(&img, &OpenOptions::writable()).unwrap();
    let before = fs::read(&img).unwrap();
    let (inside, copy) = (format!("{img}:/new"), format!("{img}:/small"));
    let commands: [&[&str]; 25] = [
        &["rm", "-f", &img, "/small"],
        &["rm", "-rf", &img, "/many"],
        &["rm", "--force", &img, "/small"],
        &["ln", "-sf", &img, "/big", "/small"],
        &["ln", "--force", &img, "/big", "/small"],
        &["put", "-f", &img, host, "/new"],
        &["edit", "-f", script, &img],
        &["truncate", "-s", "0", &img, "/small"],
        &["fallocate", "-l", "1M", &img, "/small"],
        &["mkdir", &img, "/new"],
        &["mv", &img, "/small", "/new"],
        &["mknod", &img, "/new", "p"],
        &["touch", &img, "/small"],
        &["chmod", &img, "600", "/small"],
        &["chown", &img, "1:1", "/small"],
        &["setfattr", "-n", "user.a", &img, "/small"],
        &["setfacl", "-m", "u:1:r", &img, "/small"],
        &["chattr", &img, "+A", "/small"],
        &["sync", &img],
        &["find", &img, "/small", "-delete"],
        &["cp", host, &inside],
        &["cp", &copy, &inside],
        &["recover", &img],
        &["sparsify", &img],
        &["zerofree", &img],
    ];
    for command in commands {
        diorite(command).failed(1, "--ignore-lock risks its contents");
        let ls = ["ls", "--force", &img];
        assert_eq!(diorite(&ls).code, Some(2), "a reader has no such option");
    }
    let repair = diorite(&["check", "--repair", &img]);
    repair.failed(8, "--ignore-lock risks its contents");
    // Commands that read print a warning. The defect: `check` printed none.
    let ls = diorite(&["ls", &img]);
    assert!(
        ls.code == Some(0) && ls.err.contains("a writer is present"),
        "{}",
        ls.err
    );
    let check = diorite(&["check", &img]).text();
    assert!(check.contains("note: a writer is present"), "{check}");
    let check = diorite(&["check", "--json", &img]).text();
    assert!(check.contains("a writer is present"), "{check}");
    assert!(before == fs::read(&img).unwrap(), "the image has changed");
    diorite(&["find", "--ignore-lock", &img, "/small", "-delete"]).ok();
    assert!(before != fs::read(&img).unwrap(), "nothing was removed");
    drop(holder);
}

/// The defect: `info`, `import` of another image and `export` to an image said nothing of a writer.
#[test]
fn every_reader_says_that_a_writer_is_present() {
    let dir = scratch();
    let source = dir.path().join("source");
    tree(&source);
    let img = image(dir.path(), "x", "64M", &["-t", "ext4"], Some(&source));
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (inside, made, exported) = (format!("{img}:/"), at("made.img"), at("exported.img"));
    let commands: [&[&str]; 6] = [
        &["info", &img],
        &["info", "--json", &img],
        &["info", "-d", &img],
        &["import", &inside, &made],
        &["export", &img, &exported],
        &["export", &img, &at("exported.tar")],
    ];
    let warned = |command: &[&str]| {
        let done = diorite(command);
        assert_eq!(done.code, Some(0), "{command:?}: {}", done.err);
        done.err.contains("a writer is present")
    };
    let holder = Volume::open(&img, &OpenOptions::writable()).unwrap();
    for command in commands {
        assert!(warned(command), "{command:?}");
    }
    drop(holder);
    for command in commands {
        assert!(!warned(command), "{command:?}");
    }
}

/// A process that has a file open for writing, and takes no lock. It ends with its standard input.
fn stranger(img: &str) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", "exec 3<>\"$0\"; echo .; read x", img]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let stdout = child.stdout.as_mut().unwrap();
    stdout.read_exact(&mut [0; 1]).unwrap();
    child
}

/// The defect: an image that a program without locks had open, fuse2fs for one, was written beside it. Servers see it from their sandbox.
#[test]
fn writers_without_locks_are_named() {
    let dir = scratch();
    let img = image(dir.path(), "x", "64M", &["-t", "ext4"], None);
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (host, socket, place) = (at("host"), at("socket"), at("place"));
    fs::write(&host, "text").unwrap();
    fs::create_dir(&place).unwrap();
    let mut child = stranger(&img);
    let who = format!("open for writing in sh (pid {})", child.id());
    let before = fs::read(&img).unwrap();
    let put = diorite(&["put", &img, &host, "/new"]);
    put.failed(1, &who);
    let served = diorite(&["serve", "nbd", "--socket", &socket, &img]);
    assert!(
        served.code != Some(0) && served.err.contains(&who),
        "{}",
        served.err
    );
    if has_fuse() {
        let mounted = diorite(&["mount", &img, &place]);
        assert!(
            mounted.code != Some(0) && mounted.err.contains(&who),
            "{}",
            mounted.err
        );
    }
    let ls = diorite(&["ls", &img]);
    assert!(ls.code == Some(0) && ls.err.contains(&who), "{}", ls.err);
    assert!(fs::read(&img).unwrap() == before, "the image has changed");
    diorite(&["put", "--ignore-lock", &img, &host, "/new"]).ok();
    drop(child.stdin.take());
    child.wait().unwrap();
    diorite(&["put", "-f", &img, &host, "/new"]).ok();
}

fn has_fuse() -> bool {
    fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .is_ok()
}

/// Who calls us with a descriptor, or under a lock of its own, is nobody else.
#[test]
fn callers_are_no_strangers() {
    let dir = scratch();
    let img = image(dir.path(), "x", "64M", &["-t", "ext4"], None);
    let program = env!("CARGO_BIN_EXE_diorite");
    for script in [
        "exec 3<>\"$1\"; \"$0\" mkdir \"$1\" /a",
        "exec 3<>\"$1\"; sleep 9 & \"$0\" mkdir \"$1\" /b; kill $!",
        "flock \"$1\" \"$0\" mkdir \"$1\" /c",
        "exec 9<\"$1\"; flock 9; \"$0\" mkdir \"$1\" /d",
    ] {
        let done = Command::new("bash")
            .args(["-ec", script, program, &img])
            .output();
        let done = done.unwrap();
        let err = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success() && err.is_empty(), "{script}: {err}");
    }
}

/// The defect: a program whose threads write images and start other programs, as this test is one, had a child between its fork and its
/// exec for a moment, with whatever was open; a command that it started then was told that this child writes the image.
#[test]
fn a_fork_of_the_caller_that_is_soon_another_program_is_waited_for() {
    let dir = scratch();
    let img = image(dir.path(), "a.img", "8M", &[], None);
    // The subshell is a fork of the shell, and has the image open for a moment.
    let script = r#"( sleep 0.05; : ) 3<>"$1" & sleep 0.01; "$0" label "$1" later; code=$?; wait; exit $code"#;
    let diorite = env!("CARGO_BIN_EXE_diorite");
    run("sh", &["-c", script, diorite, &img]);
    let script =
        r#"( sleep 1; : ) 3<>"$1" & sleep 0.01; "$0" label "$1" never; code=$?; wait; exit $code"#;
    let ran = std::process::Command::new("sh")
        .args(["-c", script, diorite, &img])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(
        !ran.status.success() && said.contains("open for writing in sh"),
        "{said}"
    );
    run("e2fsck", &["-fn", &img]);
}
