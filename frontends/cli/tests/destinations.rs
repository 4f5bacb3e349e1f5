//! Tests of the destinations of `get`: it never writes to a file that the process has open as an image, whatever its name; it
//! writes into devices and through links as `cp` does.
//!
//! As root each test runs twice, the second time as an ordinary user.

use crate::common::{Ran, copied_command, diorite, image, is_root, run, scratch, tree};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use xtask::loopback::Loop;

const WORDS: &[u8] = b"a few words\n";

/// The user who runs the command.
struct User {
    program: PathBuf,
    is_root: bool,
}

impl User {
    fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = match self.is_root || !is_root() {
            true => Command::new(&self.program),
            false => {
                let mut other = xtask::run::tool("setpriv");
                other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
                other.arg(&self.program);
                other
            }
        };
        command.args(args).stdin(Stdio::null());
        command
    }

    fn diorite<S: AsRef<OsStr>>(&self, args: &[S]) -> Ran {
        let out = self.command(args).output().unwrap();
        Ran {
            code: out.status.code(),
            out: out.stdout,
            err: String::from_utf8_lossy(&out.stderr).into_owned(),
        }
    }
}

fn path(p: &Path) -> &str {
    p.to_str().unwrap()
}

/// Runs a test as the present user and, if that is root, also as the user nobody, each time in a new directory that both may
/// write to.
fn as_each_user(test: impl Fn(&User, &Path)) {
    for is_root in [is_root(), false] {
        let dir = scratch();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let program = copied_command(dir.path());
        test(&User { program, is_root }, dir.path());
    }
}

/// An image with a short file, a directory `d` that has a file with the image's own name, and a file with two names.
fn prepared(dir: &Path, name: &str) -> String {
    let source = dir.join(format!("source of {name}"));
    fs::create_dir_all(source.join("d")).unwrap();
    for file in ["small", "d/x", "d/linked"] {
        fs::write(source.join(file), WORDS).unwrap();
    }
    fs::hard_link(source.join("small"), source.join("d/small too")).unwrap();
    fs::hard_link(source.join("d/linked"), source.join("d/linked too")).unwrap();
    let img = image(dir, name, "16M", &["-t", "ext4"], Some(&source));
    fs::set_permissions(&img, fs::Permissions::from_mode(0o666)).unwrap();
    img
}

/// The defect: `get x /small x` overwrote the image with three bytes, without a message.
#[test]
fn an_image_in_use_is_no_destination() {
    as_each_user(|user, dir| {
        let img = prepared(dir, "x");
        let names = dir.join("names");
        fs::create_dir(&names).unwrap();
        fs::set_permissions(&names, fs::Permissions::from_mode(0o777)).unwrap();
        fs::hard_link(&img, names.join("hard")).unwrap();
        symlink("../x", names.join("soft")).unwrap();
        symlink("soft", names.join("softer")).unwrap();
        let before = fs::read(&img).unwrap();
        let other = names.join("hard");
        for opened in [
            &img,
            path(&other),
            &format!("{img}?ro"),
            &format!("{img}?size=16M&offset=0"),
        ] {
            for dest in [
                path(&dir.join("x")).to_owned(),
                format!("{}/../x", path(&names)),
                path(&names.join("hard")).to_owned(),
                path(&names.join("soft")).to_owned(),
                path(&names.join("softer")).to_owned(),
            ] {
                for source in ["/small", "/d/x"] {
                    let ran = user.diorite(&["get", opened, source, &dest]);
                    ran.failed(1, "which is in use as an image");
                }
            }
            assert!(before == fs::read(&img).unwrap(), "{opened}");
        }
        // Copies of directories that contain the image's name, for both places in the code where a copy gets its name.
        for (n, source) in ["x", "linked", "linked too"].iter().enumerate() {
            let copy = dir.join(format!("copy {n}"));
            fs::create_dir_all(copy.join("d")).unwrap();
            for at in [&copy, &copy.join("d")] {
                fs::set_permissions(at, fs::Permissions::from_mode(0o777)).unwrap();
            }
            fs::hard_link(&img, copy.join("d").join(source)).unwrap();
            let ran = user.diorite(&["get", "--no-same-owner", &img, "/d", path(&copy)]);
            ran.failed(1, "which is in use as an image");
            assert!(before == fs::read(&img).unwrap(), "{source}");
            assert!(
                before == fs::read(copy.join("d").join(source)).unwrap(),
                "{source}"
            );
            if *source != "x" {
                assert_eq!(
                    fs::read(copy.join("d/x")).unwrap(),
                    WORDS,
                    "the others are copied"
                );
            }
        }
        // A symbolic link to the image in the destination stays as well: the image may have been opened by that name.
        let copy = dir.join("copy");
        fs::create_dir(&copy).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o777)).unwrap();
        symlink(&img, copy.join("small")).unwrap();
        let ran = user.diorite(&["get", &img, "/small", path(&copy)]);
        ran.failed(1, "which is in use as an image");
        assert!(copy.join("small").is_symlink());
    });
}

/// An image in an image: no file of the host that holds it is written and, as root, not the device of its journal.
#[test]
fn nor_is_what_lies_below_it() {
    as_each_user(|user, dir| {
        let inner = prepared(dir, "inner");
        let holder = dir.join("holder");
        fs::create_dir(&holder).unwrap();
        fs::rename(&inner, holder.join("inner")).unwrap();
        let outer = image(dir, "outer", "64M", &["-t", "ext4"], Some(&holder));
        fs::set_permissions(&outer, fs::Permissions::from_mode(0o666)).unwrap();
        let nested = format!("{outer}!/inner");
        let ran = user.diorite(&["get", &nested, "/small", &outer]);
        ran.failed(1, "which is in use as an image");
        let third = dir.join("third");
        user.diorite(&["get", "--no-same-owner", &nested, "/small", path(&third)])
            .ok();
        assert_eq!(fs::read(third).unwrap(), WORDS);
    });
}

/// `/dev/stdout` and `/dev/fd/1`; for root links of the same kind, because a defect would replace the host's own.
fn stdout_links(user: &User, dir: &Path) -> (String, String) {
    if !user.is_root {
        return ("/dev/stdout".to_owned(), "/dev/fd/1".to_owned());
    }
    let (stdout, fd) = (dir.join("stdout"), dir.join("fd"));
    symlink("/proc/self/fd/1", &stdout).unwrap();
    symlink("/proc/self/fd", &fd).unwrap();
    (path(&stdout).to_owned(), format!("{}/1", path(&fd)))
}

/// An image that the shell has opened as standard output is not written to either.
#[test]
fn standard_output_is_no_image_in_use() {
    as_each_user(|user, dir| {
        let img = prepared(dir, "x");
        let before = fs::read(&img).unwrap();
        let (dev, links) = stdout_links(user, dir);
        for args in [
            &["cat", &img, "/small"][..],
            &["ls", &img],
            &["ls", "/no/such/image"],
            &["info", &img],
            &["find", &img],
            &["tree", &img],
            &["stat", &img, "/"],
            &["check", &img],
            &["extents", &img, "/small"],
            &["lsattr", &img],
            &["get", &img, "/small", &dev],
            &["get", &img, "/small", &links],
            &["get", &img, "/small", "/proc/self/fd/1"],
        ] {
            let it = fs::File::options().append(true).open(&img).unwrap();
            let ended = user.command(args).stdout(it).output().unwrap();
            let said = String::from_utf8_lossy(&ended.stderr);
            assert!(!ended.status.success(), "{args:?}: {said}");
            assert!(
                args[1] != img || said.contains("in use as an image"),
                "{args:?}: {said}"
            );
            assert!(before == fs::read(&img).unwrap(), "{args:?}");
        }
        let it = fs::File::options().append(true).open(&img).unwrap();
        let ended = user.command(&["cat", &img, "/nothing"]).stderr(it).output();
        assert_eq!(ended.unwrap().status.code(), Some(1));
        assert!(before == fs::read(&img).unwrap(), "complaints");
    });
}

/// The defect: as root `get IMG /small /dev/stdout` replaced the link /dev/stdout by a regular file, which then received the
/// output of scripts.
#[test]
fn links_stay_and_lead_to_the_copy() {
    as_each_user(|user, dir| {
        let img = prepared(dir, "x");
        let (old, link, longer) = (dir.join("old"), dir.join("link"), dir.join("longer"));
        symlink("old", &link).unwrap();
        symlink(&link, &longer).unwrap();
        let copy =
            |what: &str, to: &Path| user.diorite(&["get", "--no-same-owner", &img, what, path(to)]);
        fs::write(&old, "what was there is longer than the copy").unwrap();
        copy("/small", &longer).ok();
        assert!(link.is_symlink() && longer.is_symlink());
        assert_eq!(fs::read(&old).unwrap(), WORDS);
        // As cp(1): nothing is made through a link that leads to nothing, and a link takes the place of a link.
        fs::remove_file(&old).unwrap();
        copy("/small", &longer).failed(1, "a symbolic link that leads to nothing");
        assert!(longer.is_symlink() && !old.exists());
        diorite(&["ln", "-s", &img, "small", "/to-small"]).ok();
        copy("/to-small", &longer).ok();
        assert_eq!(fs::read_link(&longer).unwrap(), Path::new("small"));
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("old"));
        symlink("round", dir.join("round")).unwrap();
        let round = dir.join("round");
        let ran = user.diorite(&["get", &img, "/small", path(&round)]);
        ran.failed(1, "Too many levels of symbolic links");
        // A file without a name is written to as well.
        let words = r#"exec 3<>"$3"; rm "$3"; "$0" get "$1" "$2" /dev/fd/3; cat /dev/fd/3"#;
        let lost = dir.join("lost");
        let sh = Command::new("sh")
            .args([
                "-c",
                words,
                env!("CARGO_BIN_EXE_diorite"),
                &img,
                "/small",
                path(&lost),
            ])
            .output()
            .unwrap();
        assert_eq!((&sh.stdout[..], &sh.stderr[..]), (WORDS, &b""[..]));
    });
}

#[test]
fn standard_output_takes_the_bytes() {
    as_each_user(|user, dir| {
        let img = prepared(dir, "x");
        let (dev, links) = stdout_links(user, dir);
        for dest in [&dev, &links, "/proc/self/fd/1", "/proc/thread-self/fd/1"] {
            let piped = user.diorite(&["get", &img, "/small", dest]).ok();
            assert_eq!(piped.out, WORDS, "{dest}");
            assert!(fs::symlink_metadata(&dev).unwrap().is_symlink());
        }
        // If standard output is a file, the bytes follow earlier output.
        let file = dir.join("file");
        let mut out = fs::File::create(&file).unwrap();
        std::io::Write::write_all(&mut out, b"first\n").unwrap();
        for dest in [&dev, "/proc/self/fd/1"] {
            let to = out.try_clone().unwrap();
            let ended = user
                .command(&["get", &img, "/small", dest])
                .stdout(to)
                .status();
            assert!(ended.unwrap().success(), "{dest}");
        }
        assert_eq!(
            fs::read(&file).unwrap(),
            b"first\na few words\na few words\n"
        );
        let ran = user.diorite(&["get", &img, "/d", &dev]);
        ran.failed(1, "a directory cannot replace it");
        assert_eq!(ran.out, b"");
    });
}

/// Defect: a file that the host does not let the user replace was called a directory.
#[test]
fn a_file_of_somebody_else_is_not_called_a_directory() {
    if !is_root() {
        return xtask::skip::skipped("files of another user need root");
    }
    as_each_user(|user, dir| {
        let img = prepared(dir, "x");
        let shared = dir.join("shared");
        let file = shared.join("small");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
        fs::write(&file, b"of root").unwrap();
        let ran = user.diorite(&["get", &img, "/small", path(&file)]);
        if user.is_root {
            ran.ok();
            return;
        }
        ran.failed(1, "cannot replace what is there: Operation not permitted");
        assert_eq!(fs::read(&file).unwrap(), b"of root");
    });
}

#[test]
fn devices_and_pipes_take_the_bytes() {
    as_each_user(|user, dir| {
        let img = prepared(dir, "x");
        user.diorite(&["get", &img, "/small", "/dev/null"]).ok();
        user.diorite(&["get", &img, "/small", "/dev/full"])
            .failed(1, "No space left on device");
        let pipe = dir.join("pipe");
        run("mkfifo", &["-m", "666", path(&pipe)]);
        let mut get = user
            .command(&["get", &img, "/small", path(&pipe)])
            .spawn()
            .unwrap();
        assert_eq!(fs::read(&pipe).unwrap(), WORDS);
        assert!(get.wait().unwrap().success());
        let kind = fs::symlink_metadata(&pipe).unwrap().file_type();
        assert!(std::os::unix::fs::FileTypeExt::is_fifo(&kind), "{kind:?}");
        let ran = user.diorite(&["get", &img, "/small", "/d/x", path(&pipe)]);
        ran.failed(1, "Not a directory");
    });
}

/// Block devices are compared by number, so another device node is recognised. The backing file of a loop device and the
/// journal of a volume are protected, too.
#[test]
fn block_devices_in_use_are_no_destination() {
    let dir = scratch();
    let img = prepared(dir.path(), "x");
    let Some(device) = Loop::attach_or_skip(Path::new(&img), &[]) else {
        return;
    };
    let before = fs::read(&img).unwrap();
    let minor = device.device().trim_start_matches("/dev/loop");
    let node = dir.path().join("node");
    run("mknod", &[path(&node), "b", "7", minor]);
    let link = dir.path().join("link");
    symlink(&node, &link).unwrap();
    for dest in [device.device(), path(&node), path(&link), &img] {
        diorite(&["get", device.device(), "/small", dest]).failed(1, "which is in use as an image");
    }
    assert!(before == fs::read(&img).unwrap());
    // The reverse: the file is open as an image, and the loop device would write to it.
    diorite(&["get", &img, "/small", device.device()]).failed(1, "which is in use as an image");
    assert!(before == fs::read(&img).unwrap());
    // A bind mount of the image is recognised.
    let bound = dir.path().join("bound");
    fs::write(&bound, b"").unwrap();
    if xtask::run::tool("mount")
        .args(["--bind", &img, path(&bound)])
        .status()
        .unwrap()
        .success()
    {
        let ran = diorite(&["get", &img, "/small", path(&bound)]);
        xtask::mount::unmount(&bound).unwrap();
        ran.failed(1, "which is in use as an image");
    }
    assert!(before == fs::read(&img).unwrap());
    // A device that is not in use is written to.
    let blank = dir.path().join("blank");
    fs::write(&blank, vec![7; 1 << 20]).unwrap();
    let Some(free) = Loop::attach_or_skip(&blank, &[]) else {
        return;
    };
    drop(device);
    diorite(&["get", &img, "/small", free.device()]).ok();
    let mut first = vec![0; WORDS.len()];
    std::io::Read::read_exact(&mut fs::File::open(free.device()).unwrap(), &mut first).unwrap();
    assert_eq!(first, WORDS);
}

/// A journal on a device of its own.
#[test]
fn nor_is_the_journal_of_one() {
    let dir = scratch();
    let log = dir.path().join("journal");
    fs::File::create(&log).unwrap().set_len(4 << 20).unwrap();
    run(
        "mke2fs",
        &["-q", "-F", "-b", "4096", "-O", "journal_dev", path(&log)],
    );
    let Some(device) = Loop::attach_or_skip(&log, &[]) else {
        return;
    };
    let source = dir.path().join("source");
    tree(&source);
    let on = format!("device={}", device.device());
    let args = ["-t", "ext4", "-b", "4096", "-J", &on];
    let img = image(dir.path(), "x", "64M", &args, Some(&source));
    drop(device);
    let before = fs::read(&log).unwrap();
    let ran = diorite(&["get", "--journal", path(&log), &img, "/small", path(&log)]);
    ran.failed(1, "which is in use as an image");
    assert!(before == fs::read(&log).unwrap());
}

/// The defect: an ordinary user could not delete, nor read, what `get` had made of directories and files without permissions.
#[test]
fn permissions_of_copies_may_be_changed() {
    use std::os::unix::fs::PermissionsExt;
    let dir = scratch();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (source, img) = (at("source"), at("img"));
    fs::create_dir_all(format!("{source}/shut")).unwrap();
    for (name, mode) in [("none", 0o000), ("run", 0o011)] {
        let file = format!("{source}/shut/{name}");
        fs::write(&file, name).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode | 0o400)).unwrap();
    }
    diorite(&["import", "-q", &source, &img]).ok();
    diorite(&["chmod", &img, "000", "/shut/none", "/shut/run"]).ok();
    diorite(&["chmod", &img, "0011", "/shut/run"]).ok();
    diorite(&["setfacl", "-m", "u:1234:rw", &img, "/shut/none"]).ok();
    diorite(&["chmod", &img, "0550", "/shut"]).ok();
    let mode = |path: String| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let out = at("out");
    diorite(&[
        "get",
        "-q",
        "--no-same-owner",
        "--chmod",
        "u+rwX",
        &img,
        "/shut",
        &out,
    ])
    .ok();
    assert_eq!(mode(out.clone()), 0o750);
    let none = mode(format!("{out}/none"));
    assert_eq!(none & 0o700, 0o600, "{none:o}");
    assert_eq!(mode(format!("{out}/run")), 0o711);
    assert_eq!(fs::read_to_string(format!("{out}/none")).unwrap(), "none");
    let names = crate::common::xattrs(format!("{out}/none").as_ref());
    assert!(
        names
            .iter()
            .all(|(name, _)| !name.starts_with(b"system.posix_acl")),
        "{names:?}"
    );
    // An octal mode is of files.
    let other = at("other");
    diorite(&[
        "get",
        "-q",
        "--no-same-owner",
        "--chmod",
        "640",
        &img,
        "/shut",
        &other,
    ])
    .ok();
    assert_eq!(
        (mode(other.clone()), mode(format!("{other}/run"))),
        (0o550, 0o640)
    );
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
    diorite(&["get", "--chmod", "u+q", &img, "/shut", &at("x")]).failed(2, "invalid mode");
}

/// A name below /dev that is not there is a typing error. Defect: it became a file, which the host loses when it is started again.
#[test]
fn no_file_is_made_among_devices() {
    as_each_user(|user, dir| {
        let img = prepared(dir, "img");
        let name = format!("/dev/diorite-test-{}", std::process::id());
        let file = format!("{img}:/small");
        for words in [
            &["get", &img, "/small", &name][..],
            &["cp", &file, &name],
            &["get", &img, "/d", &name],
            &["export", "--as", "directory", &img, &name],
        ] {
            let ran = user.diorite(words);
            let made = Path::new(&name);
            let is_made = made.symlink_metadata().is_ok();
            let _ = fs::remove_file(made).or_else(|_| fs::remove_dir_all(made));
            ran.failed(1, "no file is made among devices");
            assert!(!is_made, "{words:?}");
        }
    });
}

/// Links and pipes do not replace a device, which the host would be without; a link that leads in circles is replaced, as by `cp -a`.
#[test]
fn links_replace_links_but_no_devices() {
    as_each_user(|user, dir| {
        let img = prepared(dir, "img");
        diorite(&["ln", "-s", &img, "small", "/link"]).ok();
        diorite(&["mknod", &img, "/pipe", "p"]).ok();
        symlink("loop", dir.join("loop")).unwrap();
        let at = dir.join("loop");
        user.diorite(&["get", "--no-same-owner", &img, "/link", path(&at)])
            .ok();
        assert_eq!(fs::read_link(&at).unwrap(), Path::new("small"));
        fs::remove_file(&at).unwrap();
        symlink("loop", &at).unwrap();
        let file = user.diorite(&["get", &img, "/small", path(&at)]);
        file.failed(1, "Too many levels of symbolic links");
        if !user.is_root {
            return;
        }
        let device = dir.join("null");
        let made = xtask::run::tool("mknod")
            .arg(&device)
            .args(["c", "1", "3"])
            .status();
        if !made.is_ok_and(|made| made.success()) {
            return xtask::skip::skipped("this root may not make devices");
        }
        for name in ["/link", "/pipe"] {
            let ran = user.diorite(&["get", &img, name, path(&device)]);
            ran.failed(1, "which only a device replaces");
            assert!(
                device
                    .symlink_metadata()
                    .unwrap()
                    .file_type()
                    .is_char_device()
            );
        }
        diorite(&["mknod", &img, "/zero", "c", "1", "5"]).ok();
        let replaced = user.diorite(&["get", "-q", &img, "/zero", path(&device)]);
        replaced.ok();
    });
}
