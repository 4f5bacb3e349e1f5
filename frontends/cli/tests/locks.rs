//! Tests of the image's lock: an image that another program writes is not written, whatever options a command itself has.
#![allow(clippy::unwrap_used)]

mod common;

use common::{diorite, image, scratch, tree};
use diorite::{OpenOptions, Volume};
use std::fs;

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
