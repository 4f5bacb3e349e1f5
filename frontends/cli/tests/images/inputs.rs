//! Archives of the world: packages of Debian, crates, npm and PyPI. What is not on this machine and cannot be fetched is skipped.

use super::{clean, kernel_shows, path};
use crate::common::{diorite, facts, is_root, run, same_but, scratch, skip};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What GNU tar says of each entry, in the order of names, without slashes at the ends of directories.
fn listed(tar: &Path) -> Vec<String> {
    let text = run(
        "tar",
        &["-tvf", path(tar), "--numeric-owner", "--full-time", "--utc"],
    );
    let mut all: Vec<String> = text
        .lines()
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words
                .join(" ")
                .replace(" ./", " ")
                .trim_end_matches('/')
                .to_owned()
        })
        // The root directory, and what every file system has, are not in all archives.
        .filter(|line| {
            !line.ends_with(" .") && !line.contains("lost+found") && line.split(' ').count() > 5
        })
        .collect();
    all.sort_by_key(|line| {
        line.split(' ')
            .skip(5)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    });
    all
}

/// Into an image and out again: the same entries, and what tar unpacks is what the kernel shows.
fn there_and_back(dir: &Path, tar: &Path, what: &str) {
    let (img, out) = (dir.join("img"), dir.join("out.tar"));
    diorite(&["import", "-q", path(tar), path(&img)]).ok();
    clean(&img);
    diorite(&["export", "-q", path(&img), path(&out)]).ok();
    let (before, after) = (listed(tar), listed(&out));
    assert!(!before.is_empty(), "{what}");
    // Directories that an archive does not list are made with a time of their own.
    let missing: Vec<&String> = before.iter().filter(|l| !after.contains(l)).collect();
    assert!(missing.is_empty(), "{what}: {missing:#?}");
    let surplus = after
        .iter()
        .filter(|l| !before.contains(l) && !l.starts_with('d'));
    assert_eq!(surplus.collect::<Vec<_>>(), Vec::<&String>::new(), "{what}");
    if is_root() {
        let unpacked = dir.join("unpacked");
        fs::create_dir_all(&unpacked).unwrap();
        run(
            "tar",
            &["-xpf", path(&out), "-C", path(&unpacked), "--numeric-owner"],
        );
        kernel_shows(&img, &dir.join("m"), |at| {
            same_but(&unpacked, at, "lost+found")
        });
        fs::remove_dir_all(&unpacked).unwrap();
    }
}

/// Runs a program in a directory, with a limit of time.
fn fetched(dir: &Path, words: &[&str]) -> bool {
    let ran = Command::new("timeout")
        .arg("60")
        .args(words)
        .current_dir(dir)
        .stdin(Stdio::null())
        .output();
    ran.is_ok_and(|ran| ran.status.success())
}

fn with_end(dir: &Path, ends: &[&str]) -> Vec<PathBuf> {
    let all = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    let mut all: Vec<PathBuf> = all.map(|entry| entry.path()).collect();
    all.retain(|path| {
        let name = path.to_string_lossy();
        ends.iter().any(|end| name.ends_with(end))
    });
    all.sort();
    all
}

/// A root directory of packages: all of them one above the other, as dpkg unpacks them.
#[test]
fn packages_of_debian() {
    let dir = scratch();
    let packages = ["base-files", "coreutils", "libc6", "login", "passwd"];
    let mut words = vec!["apt-get", "download", "-q"];
    words.extend(packages);
    if !fetched(dir.path(), &words) {
        skip("no packages of Debian can be fetched here");
        return;
    }
    let debs = with_end(dir.path(), &[".deb"]);
    assert_eq!(debs.len(), packages.len());
    let mut tars = Vec::new();
    for deb in &debs {
        let tar = deb.with_extension("tar");
        let data = Command::new("dpkg-deb")
            .arg("--fsys-tarfile")
            .arg(deb)
            .output()
            .unwrap();
        assert!(data.status.success());
        fs::write(&tar, data.stdout).unwrap();
        there_and_back(dir.path(), &tar, path(deb));
        tars.push(tar);
    }
    let img = dir.path().join("root.img");
    let mut args = vec!["import", "-q"];
    args.extend(tars.iter().map(|tar| path(tar)));
    args.push(path(&img));
    diorite(&args).ok();
    clean(&img);
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    if !is_root() {
        skip("the owners of a root directory need root");
        return;
    }
    for tar in &tars {
        run(
            "tar",
            &[
                "-xpf",
                path(tar),
                "-C",
                path(&root),
                "--numeric-owner",
                "--keep-directory-symlink",
            ],
        );
    }
    // A directory gets a new time from GNU tar when the next archive adds to it.
    let settled = |at: &Path| -> Vec<(PathBuf, String)> {
        let all = facts(at).into_iter();
        all.map(|(path, text)| match text.starts_with("mode 4") {
            true => (
                path,
                text.split(" mtime ").next().unwrap_or_default().to_owned(),
            ),
            false => (path, text),
        })
        .collect()
    };
    kernel_shows(&img, &dir.path().join("m"), |at| {
        assert!(settled(at) == settled(&root));
    });
}

#[test]
fn crates_of_this_build() {
    let dir = scratch();
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let cache = home
        .map(|home| home.join("registry/cache"))
        .unwrap_or_default();
    let registries = fs::read_dir(cache)
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    let mut all: Vec<PathBuf> = registries
        .flat_map(|r| with_end(&r.path(), &[".crate"]))
        .collect();
    if all.is_empty() {
        skip("no crates are in cargo's cache");
        return;
    }
    // The largest, and some others.
    all.sort_by_key(|path| std::cmp::Reverse(fs::metadata(path).map_or(0, |m| m.len())));
    let step = (all.len() / 6).max(1);
    let some = all.iter().skip(3).step_by(step);
    for (n, file) in some.enumerate() {
        let tar = dir.path().join(format!("{n}.tar.gz"));
        fs::copy(file, &tar).unwrap();
        there_and_back(dir.path(), &tar, path(file));
    }
}

#[test]
fn packages_of_npm_and_pypi() {
    let dir = scratch();
    let (npm, pypi) = (dir.path().join("npm"), dir.path().join("pypi"));
    for at in [&npm, &pypi] {
        fs::create_dir(at).unwrap();
    }
    let mut found = Vec::new();
    match fetched(&npm, &["npm", "pack", "--silent", "is-odd@3.0.1"]) {
        true => found.extend(with_end(&npm, &[".tgz"])),
        false => skip("no package of npm can be fetched here"),
    }
    let words = [
        "pip3",
        "download",
        "-q",
        "--no-deps",
        "--no-binary",
        ":all:",
        "--no-build-isolation",
        "six==1.16.0",
    ];
    match fetched(&pypi, &words) {
        true => found.extend(with_end(&pypi, &[".tar.gz"])),
        false => skip("no package of PyPI can be fetched here"),
    }
    for tar in found {
        there_and_back(dir.path(), &tar, path(&tar));
    }
}
