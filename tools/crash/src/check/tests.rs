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

/// Defect: this was a finding. Of a map with several leaves, e2fsck frees one leaf of an orphan and gives up.
#[test]
fn what_e2fsck_truncates_wrongly_is_not_held_against_diorite() {
    let dir = tempfile::tempdir().unwrap();
    let [image, data, requests] =
        ["image", "data", "requests"].map(|name| dir.path().join(name).display().to_string());
    std::fs::write(&data, vec![b'd'; 400 << 10]).unwrap();
    let args = ["-q", "-F", "-t", "ext4", "-b", "1024", "-O"];
    let args = [&args[..], &["^metadata_csum", &image, "8M"]].concat();
    run::run("mke2fs", &args).unwrap();
    // 200 extents of one block each: 84 of them have room in a leaf.
    let punched = (0..200).map(|hole| format!("punch <12> {0} {0}\n", 2 * hole + 1));
    let orphan = ["sif <12> size 0\n", "ssv last_orphan 12\n"];
    let lines = std::iter::once(format!("write {data} file\n"));
    let lines = lines.chain(punched).chain(orphan.map(str::to_owned));
    std::fs::write(&requests, lines.collect::<String>()).unwrap();
    run::run("debugfs", &["-w", "-f", &requests, &image]).unwrap();
    let bytes = std::fs::read(&image).unwrap();
    let expect = Expect {
        history: History::new(Vec::new()),
        at: 0,
    };
    let mut judge = Judge::new(bytes.len()).unwrap();
    let verdict = judge.judge(Mode::Ordered, &bytes, &expect, Also::default());
    assert!(judge.truncated_wrongly, "e2fsck has truncated the file");
    assert_eq!(verdict.unwrap(), Verdict::Well);
}
