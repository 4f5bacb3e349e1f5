//! Every option that the manual of mke2fs has.

use super::options::UUID;
use super::{clean, path};
use crate::common::{diorite, scratch, skip};
use std::fs;
use std::process::Command;

/// Words of the manual page of mke2fs that begin a line of its list of options.
fn words_of_the_manual() -> Option<Vec<String>> {
    let page = Command::new("man")
        .args(["-P", "cat", "8", "mke2fs"])
        .env("MANWIDTH", "400")
        .env("LC_ALL", "C")
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&page.stdout).into_owned();
    // Bold letters are struck twice.
    let text: String = text.split('\u{8}').collect();
    let mut all: Vec<String> = Vec::new();
    for line in text.lines() {
        let word = line.trim_start().split([' ', '\t']).next().unwrap_or("");
        let is_option = line.starts_with("       -") && word.len() == 2;
        if is_option {
            all.push(word.to_owned());
        }
    }
    (!all.is_empty()).then_some(all)
}

/// Each option that mke2fs documents means something here: it works, or it is refused by name with what to do instead.
#[test]
fn every_option_of_the_manual_is_known() {
    let Some(mut words) = words_of_the_manual() else {
        skip("the manual of mke2fs is not installed");
        return;
    };
    words.sort();
    words.dedup();
    assert!(words.len() > 20, "{words:?}");
    let dir = scratch();
    let (img, list, tree) = (
        dir.path().join("img"),
        dir.path().join("list"),
        dir.path().join("tree"),
    );
    let undo = dir.path().join("undo");
    fs::write(&list, "20000\n").unwrap();
    fs::create_dir(&tree).unwrap();
    for word in words {
        let more: &[&str] = match &word[..] {
            "-b" => &["4096"],
            "-C" => &["16384", "-O", "bigalloc"],
            "-d" => &[path(&tree)],
            "-e" => &["panic"],
            "-E" => &["stride=4"],
            "-g" => &["8192"],
            "-G" => &["8"],
            "-i" => &["8192"],
            "-I" => &["256"],
            "-J" => &["size=8"],
            "-l" => &[path(&list)],
            "-L" => &["label"],
            "-m" => &["1"],
            "-M" => &["/mnt"],
            "-N" => &["2000"],
            "-o" => &["linux"],
            "-O" => &["^64bit"],
            "-r" => &["1"],
            "-t" => &["ext3"],
            "-T" => &["small"],
            "-U" => &[UUID],
            "-z" => &[path(&undo)],
            _ => &[],
        };
        let _ = fs::remove_file(&img);
        let mut args = vec!["mkfs", "-q", &word[..]];
        args.extend(more);
        args.extend([path(&img), "100M"]);
        let ran = diorite(&args);
        match &word[..] {
            // It has nothing to do with what is there.
            "-S" => ran.failed(1, "no root directory is there"),
            "-z" => {
                assert_eq!(ran.code, Some(0), "{}", ran.err);
                assert!(ran.err.contains("no undo file is written"), "{}", ran.err);
                clean(&img);
            }
            "-n" | "-V" => drop(ran.ok()),
            _ => {
                ran.ok();
                clean(&img);
            }
        }
    }
}
