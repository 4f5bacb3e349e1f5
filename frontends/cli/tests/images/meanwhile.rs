//! Directories that change while they are a source.

use super::path;
use crate::common::{diorite, files, run, scratch};
use std::fs;

/// The defects: a directory that became a symbolic link while another source was read led to files outside, and a file that became a device
/// was read; attributes of a source that is named by a link were those of the link.
#[test]
fn what_changes_meanwhile_leads_nowhere_else() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    for (n, change) in [
        "mv source/sub old; ln -s ../other source/sub",
        "rm source/sub/f; ln -s ../../other/f source/sub/f",
        "rm source/sub/f; mkfifo source/sub/f",
        "rm source/sub/f; mkdir source/sub/f",
        "rm source/sub/f",
        "printf x > source/sub/f",
    ]
    .iter()
    .enumerate()
    {
        files(
            &at(&format!("{n}")),
            &[("source/sub/f", b"inside"), ("other/f", b"secret")],
        );
        // More than a pipe holds is read, and then the change comes, when the files of the first source are known and their data is not
        // read yet: what is read is an archive of nothing, whose end is awaited.
        let script = format!(
            "cd \"$1\"; mkfifo pipe; \"$0\" import -q source - img < pipe 2> why & \
             {{ head -c 200000 /dev/zero; {change}; }} > pipe; wait $!; echo $? > code"
        );
        let here = at(&format!("{n}"));
        run(
            "sh",
            &["-c", &script, env!("CARGO_BIN_EXE_diorite"), path(&here)],
        );
        let code = fs::read_to_string(here.join("code")).unwrap();
        let why = fs::read_to_string(here.join("why")).unwrap();
        assert!(
            code == "1\n" && why.contains("source/sub/f: "),
            "{change}: {code}{why}"
        );
        assert!(!here.join("img").exists(), "{change}");
    }
    files(&at("tree"), &[("f", b"x")]);
    std::os::unix::fs::symlink("tree", at("named")).unwrap();
    run(
        "setfattr",
        &["-n", "user.note", "-v", "hi", path(&at("tree"))],
    );
    diorite(&["import", "-q", path(&at("named")), path(&at("img"))]).ok();
    let all = diorite(&["getfattr", "-d", path(&at("img")), "/"])
        .ok()
        .text();
    assert!(all.contains("user.note"), "{all}");
}
