#![allow(clippy::unwrap_used)]

use super::*;
use crate::history::History;

/// Defect: this was a finding, although e2fsck does not see it. Without a journal, a power cut can leave an attribute whose value
/// inode is deleted already.
#[test]
fn an_attribute_without_its_value_inode_is_excused_without_a_journal() {
    let dir = tempfile::tempdir().unwrap();
    let [image, value] = ["image", "value"].map(|name| dir.path().join(name).display().to_string());
    std::fs::write(&value, [b'v'; 5000]).unwrap();
    let args = ["-q", "-F", "-t", "ext4", "-b", "1024", "-O"];
    let args = [&args[..], &["^has_journal,ea_inode", &image, "8M"]].concat();
    run::run("mke2fs", &args).unwrap();
    for request in [
        &format!("write {value} file"),
        &format!("ea_set -f {value} file user.large"),
        "punch <13> 0",
        "sif <13> size 0",
        "sif <13> links_count 0",
        "sif <13> dtime 20300101000000",
    ] {
        run::run("debugfs", &["-w", "-R", request, &image]).unwrap();
    }
    let bytes = std::fs::read(&image).unwrap();
    let expect = Expect {
        history: History::new(Vec::new()),
        at: 0,
    };
    let mut judge = Judge::new(bytes.len()).unwrap();
    let verdict = judge.judge(Mode::None, &bytes, &expect, Also::default());
    assert_eq!(verdict.unwrap(), Verdict::Well);
    // The state has it, also after e2fsck.
    judge.mended = false;
    let mut found = Vec::new();
    judge.tree("it", &mut found);
    assert!(found.iter().any(|line| is_lost_value(line)), "{found:?}");
}

/// What e2fsck does mend stays a finding.
#[test]
fn a_name_without_an_inode_is_not_excused() {
    assert!(!is_lost_value("/tree/0: inode 37 is not in use"));
}
