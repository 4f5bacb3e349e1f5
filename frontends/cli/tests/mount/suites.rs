//! The test-suites and programs of others on a mount.

use crate::bed::{Bed, has, is_root, said, texts, within};
use crate::common::skip;
use std::fs;
use std::path::PathBuf;

/// A configuration that lies beside the image.
fn beside(bed: &Bed, name: &str, text: &str) -> PathBuf {
    let path = bed.image.with_file_name(name);
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn pjdfstest() {
    if !is_root() {
        return skip("pjdfstest needs root");
    }
    if !has("pjdfstest") {
        return;
    }
    let Some(bed) = Bed::new(&[]) else { return };
    let words = "[features]\nposix_fallocate = {}\nrename_ctime = {}\nutime_now = {}\nutimensat = {}\nstat_st_birthtime = {}\n\
        [settings]\nnaptime = 0.05\nallow_remount = false\n[dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], \
        [\"daemon\", \"daemon\"], [\"bin\", \"bin\"]]\n";
    let config = beside(&bed, "pjdfstest.toml", words);
    bed.mount(&[]);
    let args = [
        "-c",
        config.to_str().unwrap(),
        "-p",
        bed.at.to_str().unwrap(),
    ];
    let out = said("pjdfstest", &args);
    let summary = out
        .lines()
        .rfind(|line| line.starts_with("Summary: "))
        .unwrap();
    assert!(summary.starts_with("Summary: 0 failed"), "{out}");
    let passed = summary
        .split(", ")
        .find_map(|part| part.strip_suffix(" passed"))
        .unwrap();
    assert!(passed.parse::<u32>().unwrap() > 300, "{summary}");
    bed.end();
}

#[test]
fn fsx() {
    if !has("fsx") {
        return;
    }
    for (options, seed) in [
        ("rw", "11"),
        ("direct_io", "12"),
        ("nowriteback_cache", "13"),
        ("data=journal", "14"),
    ] {
        for block in ["1024", "4096"] {
            let Some(bed) = Bed::new(&["-b", block]) else {
                return;
            };
            bed.mount(&["-o", options]);
            let file = bed.path("file");
            let dir = bed.image.parent().unwrap().to_str().unwrap();
            let args = ["-N", "2500", "-S", seed, "-P", dir, file.to_str().unwrap()];
            said("fsx", &args);
            bed.end();
        }
    }
}

#[test]
fn stress() {
    if !has("stress-ng") {
        return;
    }
    // More inodes than the 8,192 symbolic links that one of the stressors makes: the others end early if they get none.
    let Some(bed) = Bed::new(&["-N", "20000"]) else {
        return;
    };
    bed.mount(&[]);
    let stressors = [
        "--dir",
        "--dentry",
        "--rename",
        "--link",
        "--symlink",
        "--fallocate",
        "--hdd",
        "--iomix",
        "--xattr",
        "--chmod",
    ];
    let mut args = vec![
        "--temp-path",
        bed.at.to_str().unwrap(),
        "--timeout",
        "8",
        "--quiet",
    ];
    for stressor in stressors {
        args.extend([stressor, "1"]);
    }
    args.extend([
        "--hdd-bytes",
        "4m",
        "--iomix-bytes",
        "4m",
        "--fallocate-bytes",
        "4m",
        "--dentries",
        "200",
        "--dir-dirs",
        "200",
    ]);
    let done = within("stress-ng", &args);
    assert!(done.status.success(), "{:?}", texts(&done));
    bed.end();
}

#[test]
fn fio_reads_what_it_wrote() {
    if !has("fio") {
        return;
    }
    let Some(bed) = Bed::new(&[]) else { return };
    bed.mount(&[]);
    let at = format!("--directory={}", bed.at.display());
    for direct in ["--direct=0", "--direct=1"] {
        let args = [
            "--name=verify",
            &at,
            direct,
            "--rw=randrw",
            "--bsrange=512-65536",
            "--size=8m",
            "--numjobs=2",
            "--iodepth=16",
            "--ioengine=libaio",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--do_verify=1",
            "--verify_state_save=0",
        ];
        said("fio", &args);
    }
    bed.end();
}

#[test]
fn git_and_sqlite() {
    let Some(bed) = Bed::new(&["-N", "8192"]) else {
        return;
    };
    bed.mount(&[]);
    let at = bed.at.to_str().unwrap();
    if has("git") {
        let script = "cd \"$1\" && git init -q a && cd a && git config user.email a@b && git config user.name a && \
            for n in $(seq 300); do mkdir -p d$((n % 20)) && echo $n > d$((n % 20))/f$n; done && git add . && \
            git commit -qm all && cd .. && git clone -q a b && cd b && git fsck --strict && git gc -q && git status --porcelain";
        let done = said("sh", &["-ec", script, "sh", at]);
        assert_eq!(done.trim(), "");
    }
    if has("sqlite3") {
        let script = "create table t(a integer primary key, b text); \
            with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000) \
            insert into t select i, hex(randomblob(50)) from n; delete from t where a % 3 = 0; vacuum; \
            pragma integrity_check; select count(*) from t;";
        for mode in ["delete", "wal"] {
            let file = bed.path(&format!("{mode}.db"));
            let sql = format!("pragma journal_mode={mode}; {script}");
            let out = said("sqlite3", &[file.to_str().unwrap(), &sql]);
            assert!(out.contains("ok\n3334"), "{out}");
        }
    }
    bed.end();
}
