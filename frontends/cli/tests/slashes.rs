//! Tests of paths that end in a slash, and of paths with two meanings, in the commands that copy.

use crate::common::{diorite, image, run, scratch};
use std::path::Path;

/// An image with `/dir`, in which a symbolic link leads out of it.
fn made(dir: &Path) -> String {
    let source = dir.join("source");
    std::fs::create_dir_all(source.join("dir/deep")).unwrap();
    std::fs::create_dir(source.join("other")).unwrap();
    std::fs::write(source.join("dir/f"), "x").unwrap();
    std::os::unix::fs::symlink("/other", source.join("dir/x")).unwrap();
    image(dir, "a.img", "16M", &["-t", "ext4"], Some(&source))
}

/// Defect: within one image, "No such file or directory" was said of a new directory's name with a slash behind it.
#[test]
fn a_new_directory_may_end_in_a_slash() {
    let dir = scratch();
    let img = made(dir.path());
    diorite(&["cp", &format!("{img}:/dir"), &format!("{img}:/new/")]).ok();
    let ran = diorite(&["find", &img, "/new"]).ok();
    assert_eq!(ran.text(), "/new\n/new/deep\n/new/f\n/new/x\n");
    run("e2fsck", &["-fn", &img]);
}

/// Defect: what was checked was `/dir/x`, which leads out of the directory, and the copy went 1,000 levels deep.
#[test]
fn a_slash_does_not_get_past_the_check() {
    let dir = scratch();
    let img = made(dir.path());
    let ran = diorite(&["cp", &format!("{img}:/dir"), &format!("{img}:/dir/xy/")]);
    ran.failed(1, "a directory is not copied into itself");
}

/// Defect: `'/d/dir' -> ...`.
#[test]
fn the_source_is_told_as_it_was_given() {
    let dir = scratch();
    let img = made(dir.path());
    let out = dir.path().join("out");
    let out = out.to_str().unwrap();
    let ran = diorite(&["get", "--no-same-owner", "-v", &img, "/dir/", out]).ok();
    assert!(ran.text().starts_with("'/dir' -> "), "{}", ran.text());
}

/// As the other commands say it. Defect: the directory's blocks were opened as an image.
#[test]
fn a_directory_is_no_image() {
    let dir = scratch();
    let img = made(dir.path());
    let ran = diorite(&["cp", &format!("{img}:/dir:/f"), &format!("{img}:/f")]);
    ran.failed(1, "/dir is no regular file");
}

/// Defect: the image that was opened was not the one that was checked.
#[test]
fn a_path_with_two_meanings_is_refused() {
    let dir = scratch();
    let img = made(dir.path());
    // `IMG:/dir` is also a file of the host.
    let other = dir.path().join("a.img:");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("dir"), "no image").unwrap();
    let path = format!("{img}:/dir:/f");
    let ran = diorite(&["cp", &path, dir.path().to_str().unwrap()]);
    ran.failed(2, "has two meanings");
}

/// Defect: the name got a slash in front.
#[test]
fn a_path_without_a_slash_is_told_so() {
    let dir = scratch();
    let img = made(dir.path());
    let out = dir.path().join("out");
    let out = out.to_str().unwrap();
    let ran = diorite(&["get", "--no-same-owner", "-v", &img, "dir/f", out]).ok();
    assert!(ran.text().starts_with("'dir/f' -> "), "{}", ran.text());
    let other = format!("{out}.d");
    let ran = diorite(&["get", "--no-same-owner", "-v", &img, "dir", &other]).ok();
    assert!(ran.text().starts_with("'dir' -> "), "{}", ran.text());
    assert!(!ran.text().contains("'/dir"), "{}", ran.text());
}

/// A file's new name cannot end in a slash, as cp has it.
#[test]
fn a_new_file_does_not_end_in_a_slash() {
    let dir = scratch();
    let img = made(dir.path());
    let ran = diorite(&["cp", &format!("{img}:/dir/f"), &format!("{img}:/new/")]);
    ran.failed(1, "/new/");
    run("e2fsck", &["-fn", &img]);
}

/// As cp: "Not a directory". Defect: the host's file was made, without the slash.
#[test]
fn a_new_file_of_the_host_does_not_end_in_a_slash() {
    let dir = scratch();
    let img = made(dir.path());
    let inside = format!("{img}:/dir/f");
    let source = dir.path().join("source");
    let source = source.to_str().unwrap();
    let good = dir.path().join("good");
    let good = good.to_str().unwrap();
    for end in ["", ".zst", ".simg", ".qcow2"] {
        for slash in ["/", "//", "/.", "/./"] {
            let new = format!("{}/new{end}{slash}", dir.path().display());
            for args in [
                &["copy", &img, &new][..],
                &["import", source, &new],
                &["mkfs", &new, "8M"],
                &["disk", &new, &img],
                &["get", "--no-same-owner", &img, "/dir/f", &new],
                &["cp", &inside, &new],
                &["copy", "--bmap", &new, &img, good],
                &["import", "--bmap", &new, source, good],
            ] {
                let why = match (args[0], end) {
                    ("disk", ".zst" | ".simg") => "packs it",
                    _ => "Not a directory",
                };
                diorite(args).failed(1, why);
            }
        }
    }
    let mut names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    names.sort_by_key(|entry| entry.as_ref().unwrap().file_name());
    let names: Vec<_> = names.into_iter().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["a.img", "source"]);
}

/// As rm. Defect: -f said "Not a directory" of a path through a file.
#[test]
fn what_cannot_be_there_is_removed_by_force() {
    let dir = scratch();
    let img = made(dir.path());
    for path in ["/dir/f/", "/dir/f/x", "/dir/x/"] {
        diorite(&["rm", &img, path]).failed(1, "Not a directory");
        diorite(&["rm", "-f", &img, path]).ok();
        diorite(&["rm", "-rf", &img, path]).ok();
    }
    assert_eq!(
        diorite(&["find", &img, "/dir"]).ok().text().lines().count(),
        4
    );
}
