//! Tests of the output and exit codes of commands, against coreutils and findutils in a directory of the host with the same
//! files.
//!
//! | file | tests |
//! |---|---|
//! | `messages` | what -v prints, whom an error names, what check says |
//! | `shown` | what readlink, stat, find, ls, df and du print |
//! | `streams` | standard input and output, and cmp |
//! | `locators` | the ways in which an image and its sides are named |

mod locators;
mod messages;
mod shown;
mod streams;

use crate::common::{Ran, diorite, files, image, noise, run};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

fn path(p: &Path) -> &str {
    p.to_str().unwrap()
}

fn fsck(img: &str) {
    run("e2fsck", &["-fn", img]);
}

/// A directory of the host, and an image with the same files.
fn both(dir: &Path) -> (String, PathBuf) {
    let host = dir.join("host");
    fs::create_dir_all(host.join("empty")).unwrap();
    files(
        &host,
        &[
            ("a file", b"some words\n"),
            ("big", &noise(300_001, 1)),
            ("dir/one", &noise(5_000, 2)),
            ("dir/deep/two", b"2\n"),
        ],
    );
    symlink("../big", host.join("dir/link")).unwrap();
    for (name, mode) in [("big", 0o755), ("dir", 0o2750), ("dir/one", 0o4640)] {
        fs::set_permissions(host.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    (
        image(dir, "image", "32M", &["-t", "ext4"], Some(&host)),
        host,
    )
}

/// The output of a tool of the host in that directory, where paths are those of the image without the leading slash.
fn on_host(host: &Path, words: &[&str]) -> (Option<i32>, String) {
    let bare = |word: &&str| match word.strip_prefix('/') {
        Some("") => ".".to_owned(),
        Some(path) => path.to_owned(),
        None => (*word).to_owned(),
    };
    let out = Command::new(words[0])
        .args(words[1..].iter().map(bare))
        .env("LC_ALL", "C.UTF-8")
        .env("TZ", "Europe/Berlin")
        .current_dir(host)
        .output()
        .unwrap();
    (
        out.status.code(),
        String::from_utf8_lossy(&out.stdout).into_owned(),
    )
}

/// Runs a command of diorite. The image comes after the name and the options, and before the other words.
fn in_image(img: &str, words: &[&str]) -> Ran {
    let options = words[1..].iter().take_while(|w| w.starts_with('-')).count();
    let (front, rest) = words.split_at(1 + options);
    diorite(&[front, &[img], rest].concat())
}

/// Removes the leading slash from paths of the image.
fn bare(text: &str) -> String {
    text.replace("'/", "'")
}
