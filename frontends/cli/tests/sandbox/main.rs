//! Rule M8: the sandboxes of `serve` and `mount`, judged from inside. A library is preloaded into the real server, and once the sandbox is
//! complete it tries every way out of the list in `escape.c`. None may lead out.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

use common::{scratch, skip};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

/// A process that is ended when this is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The library. None, with a reason, without a C compiler and the kernel's headers.
fn library(dir: &Path) -> Option<PathBuf> {
    let library = dir.join("escape.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sandbox/escape.c");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([library.as_os_str(), source.as_ref()])
        .output();
    match built {
        Ok(out) if out.status.success() => Some(library),
        Ok(out) => {
            skip(format!(
                "escape.c: {}",
                String::from_utf8_lossy(&out.stderr)
            ));
            None
        }
        Err(e) => {
            skip(format!("no C compiler: {e}"));
            None
        }
    }
}

/// Runs the command until the library has tried everything; what it said.
fn judged(dir: &Path, mut command: Command) -> Vec<String> {
    let other = Command::new("sleep").arg("1000").current_dir(dir).spawn();
    let other = Ended(other.unwrap());
    command.env("ESCAPE_FROM", other.0.id().to_string());
    command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .current_dir(dir);
    let mut server = Ended(command.spawn().unwrap());
    let said = BufReader::new(server.0.stderr.take().unwrap());
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for line in said.lines().map_while(Result::ok) {
            let _ = tell.send(line);
        }
    });
    let mut all = Vec::new();
    loop {
        match told.recv_timeout(Duration::from_secs(120)) {
            Ok(line) if line.starts_with("kept end") => {
                all.push(line);
                break;
            }
            Ok(line) => all.push(line),
            Err(e) => panic!("the library did not come to its end: {e}; {all:#?}"),
        }
    }
    let pid = rustix::process::Pid::from_child(&server.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let status = server.0.wait().unwrap();
    assert!(status.success(), "{status}");
    all
}

#[track_caller]
fn nothing_is_out(said: &[String]) {
    let out: Vec<_> = said
        .iter()
        .filter(|line| !line.starts_with("kept "))
        .collect();
    assert!(out.is_empty(), "{out:#?}");
    assert!(said.len() > 130, "{said:#?}");
    let root = rustix::process::geteuid().is_root();
    // Root's servers are not root's any more.
    let uid = if root {
        65534
    } else {
        rustix::process::getuid().as_raw()
    };
    assert_eq!(said.last().unwrap(), &format!("kept end ({uid})"));
    if !said
        .iter()
        .any(|line| line.starts_with("kept the operations of a ring"))
    {
        skip("the host has no io_uring: no ring was tried");
    }
}

fn command(library: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_diorite"));
    command.env("LD_PRELOAD", library);
    command
}

#[test]
fn nothing_leads_out_of_serve() {
    let dir = scratch();
    let Some(library) = library(dir.path()) else {
        return;
    };
    fs::write(dir.path().join("secret"), "x").unwrap();
    let raw = dir.path().join("disk.img");
    fs::File::create(&raw).unwrap().set_len(1 << 20).unwrap();
    // What images name is let in, and nothing else that is beside it.
    let overlays = common::overlays(&raw).is_some();
    let over: &[&str] = match overlays {
        true => &["raw.qcow2?backing", "top.qcow2?backing"],
        false => &[],
    };
    for image in [&["disk.img"], over].concat() {
        let mut serve = command(&library);
        serve.args(["serve", "nbd", "--socket", "s", "--pid-file", "pid", image]);
        nothing_is_out(&judged(dir.path(), serve));
        assert!(!dir.path().join("s").exists() && !dir.path().join("pid").exists());
    }
}

#[test]
fn nothing_leads_out_of_mount() {
    let dir = scratch();
    let Some(library) = library(dir.path()) else {
        return;
    };
    if fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .is_err()
    {
        return skip("this user may not open /dev/fuse");
    }
    if !rustix::process::geteuid().is_root() {
        return skip(
            "the keeper of an ordinary user's mount runs fusermount3, which preloads nothing",
        );
    }
    fs::write(dir.path().join("secret"), "x").unwrap();
    let image = common::image(dir.path(), "disk.img", "16M", &["-t", "ext4"], None);
    let point = dir.path().join("point");
    fs::create_dir(&point).unwrap();
    let mut mount = command(&library);
    mount.args(["mount", "-f", &image]).arg(&point);
    nothing_is_out(&judged(dir.path(), mount));
}

/// A kernel without Landlock: both servers say so always, whether they are asked to say more or not, and nothing without a sandbox.
#[test]
fn a_sandbox_with_a_gap_says_so() {
    let dir = scratch();
    let image = common::image(dir.path(), "disk.img", "16M", &["-t", "ext4"], None);
    let point = dir.path().join("point");
    fs::create_dir(&point).unwrap();
    let serve = ["serve", "nbd", "--socket", "s", &image];
    let mut ways = vec![serve.to_vec(), [&serve[..], &["--no-sandbox"]].concat()];
    let can_mount = fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .is_ok();
    if can_mount && rustix::process::geteuid().is_root() {
        ways.push(vec!["mount", "-f", &image, point.to_str().unwrap()]);
    } else {
        skip("this user may not open /dev/fuse: mount was not tried");
    }
    for args in ways {
        let mut command = Command::new(env!("CARGO_BIN_EXE_diorite"));
        command.args(&args).current_dir(dir.path());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        // The filter is inherited by what this thread starts.
        let server = std::thread::spawn(move || {
            apply_filter(&no_landlock()).unwrap();
            command.spawn().unwrap()
        });
        let mut server = Ended(server.join().unwrap());
        let pid = rustix::process::Pid::from_child(&server.0);
        let is_ready = || dir.path().join("s").exists() || is_mounted(&point);
        for _ in 0..3000 {
            if is_ready() || server.0.try_wait().unwrap().is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let (mut err, stderr) = (String::new(), server.0.stderr.as_mut().unwrap());
        std::io::Read::read_to_string(stderr, &mut err).unwrap();
        assert!(server.0.wait().unwrap().success(), "{args:?}: {err}");
        let says = err.contains("this kernel has no Landlock");
        assert_eq!(says, !args.contains(&"--no-sandbox"), "{args:?}: {err}");
    }
}

fn is_mounted(point: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &Path| fs::metadata(path).map(|there| there.dev()).ok();
    device(point) != device(point.parent().unwrap())
}

fn no_landlock() -> BpfProgram {
    let rules = [(libc::SYS_landlock_create_ruleset, Vec::new())].into();
    let refused = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch);
    filter.unwrap().try_into().unwrap()
}
