//! Tests of `diorite bench` as a program: its command line, its JSON object, its verifying load. No test depends on a time.
//!
//! Input: the built command. Output: what it printed. Invariant: no root, no device of the host. Limits: tests that need mke2fs
//! are skipped, with a message, if it is missing.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn bench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_diorite"))
        .arg("bench")
        .args(args)
        .output()
        .expect("the command runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Standard output as one JSON value and nothing else.
fn object(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("standard output is one JSON value")
}

/// An image with a file of `mib` MiB in it; none without mke2fs.
fn image(dir: &Path, mib: usize) -> Option<String> {
    let (tree, path) = (dir.join("tree"), dir.join("image"));
    std::fs::create_dir(&tree).expect("a directory");
    let bytes: Vec<u8> = (0..mib << 20).map(|n| (n % 251) as u8).collect();
    std::fs::write(tree.join("file"), bytes).expect("a file");
    let made = xtask::run::tool("mke2fs")
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-d"])
        .arg(&tree)
        .arg(&path)
        .arg(format!("{}M", mib * 2 + 32))
        .status();
    if !made.is_ok_and(|s| s.success()) {
        xtask::skip::skipped("mke2fs is not installed");
        return None;
    }
    Some(path.display().to_string())
}

#[test]
fn a_load_on_memory_prints_a_row_with_everything_in_it() {
    let output = bench(&[
        "run",
        "--device",
        "mem:64M",
        "--rw",
        "randrw",
        "--numjobs",
        "2",
        "--iodepth",
        "32",
        "--runtime",
        "100ms",
        "--ramp-time",
        "10ms",
        "--json",
    ]);
    let object = object(&output);
    assert_eq!(
        (&object["experiment"], &object["io_engine"]),
        (&"run".into(), &"mem".into())
    );
    assert!(object["kernel"].as_str().is_some_and(|k| !k.is_empty()));
    let row = &object["rows"][0];
    assert!(row["iops"].as_f64() > Some(0.0));
    for key in ["mean", "p50", "p90", "p99", "p999", "max"] {
        assert!(row["latency_us"][key].is_number(), "{key}");
    }
    for key in [
        "user_percent",
        "system_percent",
        "user_us_per_request",
        "system_us_per_request",
    ] {
        assert!(row["cpu"][key].is_number(), "{key}");
    }
    for key in ["resident_mib", "page_cache_mib", "completions", "locks"] {
        assert!(!row[key].is_null(), "{key}");
    }
    assert_eq!(object["ratios"], Value::Array(Vec::new()));
}

#[test]
fn every_block_that_was_written_is_read_again() {
    let output = bench(&[
        "run",
        "--device",
        "sim:8M,latency=20us,jitter=30us",
        "--rw",
        "randrw",
        "--bs",
        "2k",
        "--verify",
        "--numjobs",
        "3",
        "--runtime",
        "100ms",
        "--ramp-time",
        "0s",
        "--json",
    ]);
    assert!(object(&output)["rows"][0]["verified"].as_u64() > Some(0));
}

#[test]
fn a_failing_device_fails_the_run_and_says_where() {
    let output = bench(&[
        "run",
        "--device",
        "sim:8M,eio=read:every-50",
        "--runtime",
        "100ms",
    ]);
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    assert!(
        message.contains("read of 4096 bytes at ") && message.contains("input/output error"),
        "{message}"
    );
}

#[test]
fn a_file_in_an_image_under_two_policies() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(image) = image(dir.path(), 8) else {
        return;
    };
    let output = bench(&[
        "run",
        "--image",
        &image,
        "--file",
        "/file",
        "--rw",
        "randwrite",
        "--bs",
        "2k",
        "--iodepth",
        "64",
        "--numjobs",
        "2",
        "--verify",
        "--policies",
        "linux-5.10,diorite",
        "--runtime",
        "100ms",
        "--ramp-time",
        "0s",
        "--json",
    ]);
    let object = object(&output);
    let counted = |row: usize, name: &str| {
        let completions = object["rows"][row]["completions"]
            .as_array()
            .expect("a list")
            .clone();
        completions
            .iter()
            .filter(|c| c[0] == name)
            .filter_map(|c| c[1].as_u64())
            .sum::<u64>()
    };
    let names: Vec<_> = (0..2).map(|n| object["rows"][n]["name"].clone()).collect();
    assert_eq!(names, ["linux-5.10", "diorite"]);
    assert!(
        counted(0, "deferred-policy") > 0,
        "linux-5.10 defers every write: {object}"
    );
    assert_eq!(counted(1, "deferred-policy"), 0);
    assert!(counted(1, "inline") > 0);
}

#[test]
fn an_experiment_on_an_image_of_ones_own_has_ratios_without_targets() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(image) = image(dir.path(), 8) else {
        return;
    };
    let output = bench(&[
        "read-scaling",
        "--image",
        &image,
        "--file",
        "/file",
        "--runtime",
        "20ms",
        "--ramp-time",
        "0s",
        "--rounds",
        "1",
        "--max-rounds",
        "1",
        "--json",
    ]);
    let object = object(&output);
    let ratios = object["ratios"].as_array().expect("a list");
    let raw = ratios
        .iter()
        .find(|r| r["id"] == "read-raw-4")
        .expect("the ratio is there");
    for key in ["median", "min", "max", "runs", "aa_min", "aa_max"] {
        assert!(raw[key].is_number(), "{key}: {raw}");
    }
    assert_eq!(
        (&raw["target"], &raw["device"]),
        (&Value::Null, &image.as_str().into())
    );
    let cpu = ratios.iter().filter(|r| r["id"] == "cpu-raw");
    let of: Vec<&Value> = cpu.map(|r| &r["of"]).collect();
    assert_eq!(of, ["read-raw-1", "read-raw-2", "read-raw-4"]);
    assert_eq!(
        object["rows"].as_array().map(Vec::len),
        Some(12),
        "four rows for 1, 2, 4 threads"
    );
}

#[test]
fn experiments_in_new_space_make_their_own_images() {
    let ids = [
        ("append", &["append-async", "commits-dsync"][..]),
        ("holes", &["subblock-new"]),
        ("unwritten", &["unwritten-overwrite", "handles"]),
        ("fsync", &["dsync-fua"]),
        ("atomic", &["atomic-doublewrite", "atomic-plain"]),
    ];
    if xtask::run::tool("debugfs").arg("-V").output().is_err() {
        xtask::skip::skipped("debugfs is not installed");
        return;
    }
    for (experiment, ids) in ids {
        let words = format!("{experiment} --on mem --file-size 8M --runtime 20ms --json");
        let rounds = ["--rounds", "1", "--max-rounds", "1"];
        let args: Vec<&str> = words.split(' ').chain(rounds).collect();
        let object = object(&bench(&args));
        let ratios = object["ratios"].as_array().expect("a list");
        for id in ids {
            let ratio = ratios.iter().find(|r| r["id"] == *id);
            let median = ratio.and_then(|r| r["median"].as_f64());
            assert!(median > Some(0.0), "{id}: {object}");
        }
        let other = bench(&[experiment, "--image", "x", "--file", "/x"]);
        assert_eq!(other.status.code(), Some(2), "{}", text(&other.stderr));
    }
}

#[test]
fn names_are_made_moved_removed_and_looked_up() {
    let words = "names --on mem --file-size 8M --files 400 --directory 3000 --runtime 20ms --json";
    let rounds = ["--rounds", "1", "--max-rounds", "1"];
    let args: Vec<&str> = words.split(' ').chain(rounds).collect();
    if xtask::run::tool("mke2fs").arg("-V").output().is_err() {
        xtask::skip::skipped("mke2fs is not installed");
        return;
    }
    let object = object(&bench(&args));
    let rows = object["rows"].as_array().expect("a list");
    assert_eq!(rows.len(), 5, "create, rename, unlink, two directories");
    assert!(rows.iter().all(|row| row["iops"].as_f64() > Some(0.0)));
    let ratio = &object["ratios"][0];
    assert_eq!(ratio["id"], "lookup-million");
    assert!(ratio["median"].as_f64() > Some(0.0));
    let skipped = object["notes"].as_array().expect("a list");
    assert!(skipped.iter().any(|n| {
        n.as_str()
            .is_some_and(|n| n.starts_with("unlink-kernel: skipped"))
    }));
}

#[test]
fn a_check_is_compared_with_that_of_e2fsck() {
    if xtask::run::tool("mke2fs").arg("-V").output().is_err() {
        xtask::skip::skipped("mke2fs is not installed");
        return;
    }
    let words = "check --files 1300 --rounds 1 --max-rounds 1 --json";
    let object = object(&bench(&words.split(' ').collect::<Vec<_>>()));
    let ratios = object["ratios"].as_array().expect("a list");
    let ids: Vec<&str> = ratios.iter().filter_map(|r| r["id"].as_str()).collect();
    assert_eq!(ids, ["check-e2fsck", "check-e2fsck-cold", "check-rss"]);
    assert!(ratios.iter().all(|r| r["median"].as_f64() > Some(0.0)));
    assert!(ratios.iter().all(|r| r["target"].is_null()));
}

#[test]
fn loads_in_an_image_on_loop_leave_both_volumes_consistent() {
    if xtask::run::tool("mke2fs").arg("-V").output().is_err() {
        xtask::skip::skipped("mke2fs is not installed");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let keep = dir.path().display().to_string();
    let words = "loop --on file --set 1M --file-size 16M --runtime 20ms --ramp-time 0s --json";
    let rounds = ["--rounds", "1", "--max-rounds", "1", "--keep", &keep];
    let args: Vec<&str> = words.split(' ').chain(rounds).collect();
    let object = object(&bench(&args));
    let ratios = object["ratios"].as_array().expect("a list");
    let patterns = ["randwrite", "write", "read", "randread"];
    let loads = patterns.map(|pattern| [16, 1].map(|jobs| format!("loop-{pattern}-{jobs}")));
    let others = [
        "loop-direct-16",
        "loop-switches",
        "loop-discard",
        "loop-layer",
        "loop-layer-write",
        "loop-layer3",
        "loop-layer3-write",
        "loop-memory",
        "loop-memory-buffered",
    ];
    for id in loads.into_iter().flatten().chain(others.map(str::to_owned)) {
        let ratio = ratios.iter().find(|r| r["id"] == *id);
        let median = ratio.and_then(|r| r["median"].as_f64());
        assert!(median.is_some(), "{id}: {object}");
    }
    // Whatever a load reads is checked, and some of what it has written.
    let rows = object["rows"].as_array().expect("a list");
    let loads = rows.iter().filter(|row| {
        let load = row["load"].as_str();
        load.is_some_and(|load| load.contains("4k, buffered"))
    });
    let verified: Vec<_> = loads.map(|row| row["verified"].as_u64()).collect();
    assert_eq!(verified.len(), 16, "two modes of eight loads");
    assert!(verified.iter().all(|n| *n > Some(0)), "{verified:?}");
    for image in ["outer.img", "inner.img"] {
        let checked = xtask::run::check(&dir.path().join(image));
        checked.unwrap_or_else(|e| panic!("{image}: {e}"));
    }
    let other = bench(&["loop", "--image", "x", "--file", "/x"]);
    assert_eq!(other.status.code(), Some(2), "{}", text(&other.stderr));
}

#[test]
fn wrong_usage_is_refused() {
    for args in [
        &["run", "--device", "/etc/hostname", "--rw", "randwrite"][..],
        &["run", "--device", "mem:64M", "--bs", "1000"],
        &["run", "--device", "mem:64M", "--verify"],
        &["run"],
        &["run", "--device", "mem:4k", "--numjobs", "9"],
    ] {
        let output = bench(args);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{args:?}: {}",
            text(&output.stderr)
        );
        assert!(output.stdout.is_empty());
    }
}
