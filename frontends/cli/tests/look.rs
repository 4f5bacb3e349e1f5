//! Tests of `info`, `ls`, `stat` and `extents` against dumpe2fs, coreutils and filefrag.

use crate::common::{Mount, debugfs, diorite, image, is_root, odd_name, run, scratch, skip, tree};
use serde_json::Value;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;

/// Volumes of many kinds: name, size, arguments of mke2fs.
const KINDS: [(&str, &str, &[&str]); 8] = [
    (
        "today",
        "64M",
        &[
            "-t",
            "ext4",
            "-O",
            "metadata_csum_seed,orphan_file",
            "-L",
            "a label",
        ],
    ),
    ("ext2", "8M", &["-t", "ext2"]),
    ("ext3", "16M", &["-t", "ext3", "-b", "2048"]),
    ("old", "2M", &["-r", "0", "-O", "none"]),
    (
        "bigalloc",
        "64M",
        &[
            "-t",
            "ext4",
            "-O",
            "bigalloc,quota,project,mmp",
            "-E",
            "stride=4,stripe_width=8",
        ],
    ),
    (
        "rare",
        "64M",
        &[
            "-t",
            "ext4",
            "-O",
            "casefold,sparse_super2,meta_bg,^resize_inode,ea_inode,large_dir",
        ],
    ),
    (
        "fast",
        "64M",
        &["-t", "ext4", "-O", "fast_commit,inline_data,encrypt,verity"],
    ),
    ("blocks64k", "128M", &["-t", "ext4", "-b", "65536"]),
];

/// The lines of `dumpe2fs -h` with runs of blanks reduced to one, without lines that are not about the superblock.
fn lines(text: &str) -> Vec<String> {
    let fold = |l: &str| l.split_whitespace().collect::<Vec<_>>().join(" ");
    let until = text
        .lines()
        .take_while(|l| !l.starts_with("MMP_block") && !l.starts_with("Can be read"));
    until.map(fold).filter(|l| !l.is_empty()).collect()
}

fn compare_info(img: &str) {
    let known = run("dumpe2fs", &["-h", img]);
    let ours = diorite(&["info", img]).ok().text();
    assert_eq!(lines(&known), lines(&ours), "{img}");
}

#[test]
fn info_reads_as_dumpe2fs() {
    let dir = scratch();
    for (name, size, args) in KINDS {
        let img = image(dir.path(), name, size, args, None);
        compare_info(&img);
    }
    let img = dir.path().join("today").to_str().unwrap().to_owned();
    run(
        "tune2fs",
        &[
            "-i",
            "10d",
            "-c",
            "30",
            "-e",
            "panic",
            "-o",
            "^acl,journal_data_ordered,discard",
            &img,
        ],
    );
    compare_info(&img);
    for set in [
        "error_count 3",
        "first_error_func abc",
        "first_error_time 1700000000",
        "first_error_ino 12",
        "state 3",
    ] {
        debugfs(&img, &format!("ssv {set}"));
    }
    compare_info(&img);
}

#[test]
fn info_says_what_can_be_done() {
    let dir = scratch();
    let img = image(
        dir.path(),
        "x",
        "64M",
        &["-t", "ext4", "-O", "quota,encrypt"],
        None,
    );
    let text = diorite(&["info", "-v", &img]).ok().text();
    let has = |words: &str| {
        let found = text.lines().any(|l| {
            l.split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
                .contains(words)
        });
        assert!(found, "{words:?} is not in\n{text}");
    };
    has("Can be read: yes");
    has("Can be written: no:");
    has("quota full refused quota usage is not kept yet");
    has("encrypt partial partial");
    has("extent full full");
    has("I/O engine:");
    let json: Value = serde_json::from_slice(&diorite(&["info", "--json", &img]).ok().out).unwrap();
    assert_eq!(json["block_count"], 65536);
    assert_eq!(json["can_write"], false);
    assert_eq!(json["state"], "clean");
    assert!(
        json["features"]
            .as_array()
            .unwrap()
            .iter()
            .any(|f| f["name"] == "quota" && f["write"] == "refused")
    );
    assert!(json["device"]["layers"][0]["engine"].is_string());
    assert_eq!(json["journal_start"], 0);
}

/// An image with features that no present driver can read is still described.
#[test]
fn info_describes_what_it_refuses() {
    let dir = scratch();
    let img = image(
        dir.path(),
        "x",
        "16M",
        &["-t", "ext4", "-O", "^metadata_csum,^metadata_csum_seed"],
        None,
    );
    debugfs(&img, "feature dirdata");
    let ran = diorite(&["info", &img]);
    ran.failed(1, "dirdata");
    assert!(
        ran.text().contains("Can be read:              no:"),
        "{}",
        ran.text()
    );
    diorite(&["ls", &img]).failed(2, "dirdata");
}

#[test]
fn ls_lists_names_sorted() {
    let dir = scratch();
    let source = dir.path().join("source");
    tree(&source);
    let img = image(dir.path(), "x", "64M", &["-t", "ext4"], Some(&source));
    let mut names: Vec<Vec<u8>> = fs::read_dir(source.join("many"))
        .unwrap()
        .map(|e| e.unwrap().file_name().as_bytes().to_vec())
        .collect();
    names.sort();
    let listed = diorite(&["ls", &img, "/many"]).ok().out;
    let listed: Vec<Vec<u8>> = listed
        .split(|b| *b == b'\n')
        .filter(|n| !n.is_empty())
        .map(<[u8]>::to_vec)
        .collect();
    assert_eq!(names, listed);
    // A symbolic link to a directory is followed without -l, and listed itself with -l.
    assert!(
        diorite(&["ls", &img, "link to dir"])
            .ok()
            .text()
            .contains("one name")
    );
    assert!(
        diorite(&["ls", "-l", &img, "link to dir"])
            .ok()
            .text()
            .ends_with("link to dir -> dir\n")
    );
    let all = diorite(&["ls", "-a", &img, "dir"]).ok().text();
    assert!(all.starts_with(".\n..\ndeeper\n"), "{all}");
    // -U is the order of the directory; the last word about the order counts.
    let names = |options: &str| diorite(&["ls", options, &img, "/"]).ok().text();
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_ne!(names("-U"), names("-1"));
    assert_eq!(sorted(&names("-U")), sorted(&names("-1")));
    assert_eq!((names("-tU"), names("-rU")), (names("-U"), names("-U")));
    let full = diorite(&["ls", "--full-time", &img, "dir"]).ok().text();
    let style = ["ls", "-l", "--time-style", "full-iso", &img, "dir"];
    assert_eq!(full, diorite(&style).ok().text());
    let deep = diorite(&["ls", "-R", &img, "/"]).ok().text();
    assert!(deep.contains("\n/dir/deeper:\nbig too\n"), "{deep}");
}

#[test]
fn ls_json_has_every_fact() {
    let dir = scratch();
    let source = dir.path().join("source");
    tree(&source);
    let img = image(dir.path(), "x", "64M", &["-t", "ext4"], Some(&source));
    let out = diorite(&["ls", "--json", &img, "/"]).ok().out;
    let all: Vec<Value> = out
        .split(|b| *b == b'\n')
        .filter(|l| !l.is_empty())
        .map(|l| serde_json::from_slice(l).unwrap())
        .collect();
    for entry in &all {
        let Some(name) = entry["name"]
            .as_str()
            .filter(|n| *n != "lost+found" && entry["name_hex"].is_null())
        else {
            continue;
        };
        let m = fs::symlink_metadata(source.join(name)).unwrap();
        assert_eq!(entry["mode"], m.mode() & 0o7777, "{name}");
        assert_eq!(entry["mtime"]["sec"], m.mtime(), "{name}");
        assert_eq!(entry["uid"], m.uid(), "{name}");
        assert_eq!(entry["links"], m.nlink(), "{name}");
        if !m.is_dir() {
            assert_eq!(entry["size"], m.size(), "{name}");
        }
    }
    let hex: String = odd_name()
        .as_bytes()
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    assert!(
        all.iter()
            .any(|e| e["name_hex"] == hex.as_str() && e["type"] == "file")
    );
    assert!(
        all.iter()
            .any(|e| e["target"] == "dir" && e["type"] == "symlink")
    );
}

/// The kernel's view of the same image, through coreutils, character by character.
#[test]
fn ls_and_stat_agree_with_coreutils_on_a_mount() {
    let dir = scratch();
    let source = dir.path().join("source");
    tree(&source);
    let img = image(dir.path(), "x", "64M", &["-t", "ext4"], Some(&source));
    let at = dir.path().join("mnt");
    {
        let Some(_mount) = Mount::new(&img, &at, "rw") else {
            return;
        };
        run(
            "mknod",
            &[
                "c".as_ref(),
                at.join("null").as_os_str(),
                "c".as_ref(),
                "1".as_ref(),
                "300".as_ref(),
            ][1..],
        );
        run(
            "chown",
            &[
                "-h".as_ref(),
                "1000:54321".as_ref(),
                at.join("small").as_os_str(),
            ],
        );
        run(
            "chmod",
            &["u+s,g+s,o+t".as_ref(), at.join("empty").as_os_str()],
        );
        let acl = b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x02\0\x07\0\xe8\x03\0\0\
            \x04\0\x04\0\xff\xff\xff\xff\x10\0\x07\0\xff\xff\xff\xff\x20\0\x04\0\xff\xff\xff\xff";
        rustix::fs::setxattr(
            at.join("big"),
            "system.posix_acl_access",
            acl,
            rustix::fs::XattrFlags::empty(),
        )
        .unwrap();
    }
    let Some(mount) = Mount::new(&img, &at, "ro") else {
        return;
    };
    for style in ["locale", "full-iso", "long-iso"] {
        let shown = Command::new("ls")
            .args(["-lnR", "--time-style", style, "."])
            .env("TZ", "Europe/Berlin")
            .env("LC_ALL", "C")
            .current_dir(&mount.0)
            .output()
            .unwrap();
        let ours = diorite(&["ls", "-lR", "--time-style", style, &img, "."]).ok();
        assert_eq!(String::from_utf8_lossy(&shown.stdout), ours.text());
    }
    for options in [
        "-1", "-A", "-ln", "-lnt", "-lntr", "-Sr", "-lnhS", "-tR", "-lnhA", "-St", "-tS", "-lln11",
        "-p", "-pF", "-s", "-sh", "-lns", "-lnsh", "-c", "-ct", "-lnc", "-lnct", "-u", "-lnu",
        "-lnut", "-uS", "-Ut",
    ] {
        let shown = Command::new("ls")
            .args([options, ".", "dir"])
            .env("TZ", "Europe/Berlin")
            .env("LC_ALL", "C")
            .current_dir(&mount.0)
            .output()
            .unwrap();
        let ours = diorite(&["ls", options, &img, ".", "dir"]).ok();
        assert_eq!(
            String::from_utf8_lossy(&shown.stdout),
            ours.text(),
            "{options}"
        );
    }
    for path in ["small", "null", "dir", "dir/link", "empty", "sparse"] {
        let shown = Command::new("stat")
            .arg(path)
            .env("TZ", "Europe/Berlin")
            .env("LC_ALL", "C")
            .current_dir(&mount.0)
            .output()
            .unwrap();
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        let ours = diorite(&["stat", &img, path]).ok().text();
        let wanted = |l: &&str| !l.starts_with("Device:") && !l.contains("Uid:");
        let theirs: Vec<&str> = shown.lines().filter(wanted).collect();
        let ours: Vec<&str> = ours
            .lines()
            .filter(|l| wanted(l) && !l.starts_with("Inode:"))
            .collect();
        assert_eq!(theirs, ours[..theirs.len()], "{path}");
    }
}

#[test]
fn stat_knows_what_debugfs_knows() {
    let dir = scratch();
    let source = dir.path().join("source");
    tree(&source);
    let img = image(dir.path(), "x", "64M", &["-t", "ext4"], Some(&source));
    debugfs(&img, "set_inode_field /small mtime_extra 0x3ade68b0");
    debugfs(&img, "set_inode_field /small flags 0x80050");
    let text = diorite(&["stat", &img, "/small"]).ok().text();
    assert!(text.contains("Access: (0640/-rw-r-----)"), "{text}");
    assert!(text.contains("Links: 2"), "{text}");
    assert!(text.contains("Flags: ----i-d-------e-------"), "{text}");
    assert!(text.contains("Extents: 1"), "{text}");
    let nanos = 0x3ade_68b0 >> 2;
    assert!(text.contains(&format!(".{nanos:09} ")), "{text}");
    let json: Value =
        serde_json::from_slice(&diorite(&["stat", "--json", &img, "/big"]).ok().out).unwrap();
    assert_eq!(json["size"], 3_000_001);
    let xattrs = json["xattrs"].as_array().unwrap();
    assert!(
        xattrs
            .iter()
            .any(|x| x["name"] == "user.colour" && x["value_hex"] == "626c7565"),
        "{xattrs:?}"
    );
    let followed = diorite(&["stat", "-L", "--json", &img, "/dir/link"])
        .ok()
        .text();
    assert!(!followed.contains("\"symlink\""));
}

#[test]
fn extents_cover_the_blocks_that_debugfs_lists() {
    let dir = scratch();
    let source = dir.path().join("source");
    tree(&source);
    for (name, args) in [
        ("extents", ["-t", "ext4", "-b", "1024"]),
        ("pointers", ["-t", "ext2", "-b", "1024"]),
    ] {
        let img = image(dir.path(), name, "64M", &args, Some(&source));
        let out = diorite(&["extents", "--json", &img, "/sparse"]).ok().text();
        let all: Vec<Value> = out
            .lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect();
        for extent in &all {
            let number = |key: &str| extent[key].as_u64().unwrap();
            for n in 0..number("length") {
                let (block, at) = (number("start") + n, number("physical") + n);
                assert_eq!(
                    debugfs(&img, &format!("bmap /sparse {block}")).trim(),
                    at.to_string()
                );
            }
        }
        let blocks: u64 = all.iter().map(|e| e["length"].as_u64().unwrap()).sum();
        assert_eq!(blocks, 70_000_u64.div_ceil(1024) + 1);
        assert_eq!(all.last().unwrap()["last"], true);
    }
}

#[test]
fn extents_agree_with_filefrag_on_a_mount() {
    let dir = scratch();
    let img = image(
        dir.path(),
        "x",
        "64M",
        &["-t", "ext4", "-b", "1024", "-O", "inline_data"],
        None,
    );
    let old = image(dir.path(), "y", "64M", &["-t", "ext3", "-b", "1024"], None);
    if !is_root() {
        return skip("mounting needs root");
    }
    for img in [img, old] {
        let at = dir.path().join("mnt");
        {
            let Some(mount) = Mount::new(&img, &at, "rw") else {
                return;
            };
            let script = "echo tiny >tiny; : >empty; head -c 30000 /dev/urandom >one; \
                for i in 1 2 3 4 5 6; do head -c 3000 /dev/urandom >>a; sync -f .; head -c 5000 /dev/urandom >>b; sync -f .; done; \
                dd if=/dev/urandom of=holes bs=1k seek=100 count=3 2>/dev/null; \
                dd if=/dev/urandom of=holes bs=1k seek=3000 count=5 conv=notrunc 2>/dev/null; \
                fallocate -o 4000k -l 20k holes; fallocate -n -o 9000k -l 20k holes; sync -f .; true";
            run(
                "sh",
                &["-c", &format!("cd {} && {script}", mount.0.display())],
            );
        }
        let Some(mount) = Mount::new(&img, &at, "ro") else {
            return;
        };
        for path in ["tiny", "empty", "one", "a", "b", "holes"] {
            let shown = xtask::run::tool("filefrag")
                .args(["-v", path])
                .current_dir(&mount.0)
                .output()
                .unwrap();
            let shown: Vec<String> = String::from_utf8_lossy(&shown.stdout)
                .lines()
                .map(str::to_owned)
                .collect();
            let shown: Vec<String> = shown
                .into_iter()
                .filter(|l| !l.contains("cylinder groups"))
                .collect();
            let ours = diorite(&["extents", &img, path]).ok().text();
            let ours: Vec<&str> = ours.lines().collect();
            if img.ends_with('x') {
                assert_eq!(shown, ours, "{path}");
            } else {
                // The kernel splits extents of block pointers where another level of pointers begins, so the file has that many
                // pieces.
                assert_eq!(
                    shown.last().map(String::as_str),
                    ours.last().copied(),
                    "{path}"
                );
            }
        }
    }
}

/// Images of other formats are named, with advice.
#[test]
fn what_is_no_image_is_told() {
    let dir = scratch();
    let path = dir.path().join("other");
    for (at, first, words) in [
        (0, &b"QFI\xfb"[..], "other?format=qcow2' opens it as such"),
        (
            0,
            b"\x1f\x8b\x08",
            "it is compressed by gzip; 'diorite copy -f gz ",
        ),
        (0, b"XFSB", "it is an XFS file system"),
        (257, b"ustar", "it is a tar archive; 'diorite import "),
        (32_769, b"CD001", "it is an ISO 9660 file system"),
        (0, b"else", "no ext2/ext3/ext4 superblock"),
    ] {
        let mut bytes = vec![0; 1 << 20];
        bytes[at..at + first.len()].copy_from_slice(first);
        fs::write(&path, bytes).unwrap();
        let path = path.to_str().unwrap();
        diorite(&["ls", path]).failed(2, words);
        let info = diorite(&["info", path]);
        info.failed(1, words);
        assert!(
            info.text().contains("Size:              1048576 bytes"),
            "{}",
            info.text()
        );
        diorite(&["check", path]).failed(8, words);
        diorite(&["touch", path, "/x"]).failed(1, words);
    }
    // The advice keeps the parameters.
    let mut bytes = b"QFI\xfb".to_vec();
    bytes.resize(1 << 20, 0);
    fs::write(&path, bytes).unwrap();
    let part = format!("{}?size=512K", path.display());
    diorite(&["ls", &part]).failed(2, "other?size=512K&format=qcow2' opens it as such");
    // One that is too small for a superblock, and one inside an image.
    fs::write(&path, b"\x1f\x8b\x08").unwrap();
    diorite(&["ls", path.to_str().unwrap()]).failed(2, "it is compressed by gzip");
    let img = image(dir.path(), "x", "8M", &["-t", "ext4"], None);
    diorite(&["put", &img, path.to_str().unwrap(), "/inner"]).ok();
    diorite(&["ls", &format!("{img}!/inner")]).failed(2, "it is compressed by gzip");
    // The defect: a pipe was opened to read its first bytes, which blocked until somebody wrote to it.
    let pipe = dir.path().join("pipe");
    run("mkfifo", &[&pipe]);
    let timed = Command::new("timeout")
        .args(["20", env!("CARGO_BIN_EXE_diorite"), "ls"])
        .arg(&pipe)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&timed.stderr);
    assert_eq!(timed.status.code(), Some(2), "{said}");
    assert!(said.contains("neither a file nor a block device"), "{said}");
}

/// `info -d` describes any device: its size to the byte, its holes, its partitions, a file in an image.
#[test]
fn info_describes_any_device() {
    let dir = scratch();
    let path = dir.path().join("any");
    let file = fs::File::create(&path).unwrap();
    file.set_len((4 << 20) + 100).unwrap();
    file.write_all_at(&[1; 4096], 1 << 20).unwrap();
    let path = path.to_str().unwrap();
    let said = diorite(&["info", "-d", path]).ok().text();
    for words in [
        "4194404 bytes, and zeros",
        "4096 bytes of data",
        "I/O engine:",
        "Opened read-only:  yes",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let json = |args: &[&str]| -> serde_json::Value {
        serde_json::from_str(&diorite(args).ok().text()).unwrap()
    };
    let facts = json(&["info", "-d", "--json", path]);
    assert_eq!(facts["size"], (4 << 20) + 100);
    assert_eq!(facts["stored"]["data"], 4096);
    assert_eq!(facts["stored"]["looked_at"], facts["device"]["size"]);
    assert_eq!(facts["partitions"], serde_json::json!([]));
    assert_eq!(
        json(&["info", "-d", "--json", "mem:1M"])["stored"]["hole"],
        1 << 20
    );
    // A partition of type 0x83 in an MBR: 2048 sectors from sector 2048 on.
    let mut entry = [0; 66];
    (entry[4], entry[64], entry[65]) = (0x83, 0x55, 0xAA);
    entry[8..12].copy_from_slice(&2048u32.to_le_bytes());
    entry[12..16].copy_from_slice(&2048u32.to_le_bytes());
    file.write_all_at(&entry, 446).unwrap();
    let facts = json(&["info", "-d", "--json", path]);
    let part = &facts["partitions"][0];
    assert_eq!(
        (&part["start"], &part["size"]),
        (&(1 << 20).into(), &(1 << 20).into())
    );
    assert_eq!(part["locator"], format!("{path}?part=1"));
    let said = diorite(&["info", "-d", path]).ok().text();
    assert!(
        said.contains("'{path}?part=1'".replace("{path}", path).as_str()),
        "{said}"
    );
    let img = image(dir.path(), "x", "16M", &["-t", "ext4"], None);
    diorite(&["put", &img, path, "/inner"]).ok();
    let inside = json(&["info", "-d", "--json", &format!("{img}:/inner")]);
    assert_eq!(
        (&inside["size"], &inside["device"]["layers"][0]["engine"]),
        (&((4 << 20) + 100).into(), &"loop".into())
    );
    assert_eq!(json(&["info", "-d", "--json", &img])["size"], 16 << 20);
    diorite(&["info", "-d", "/nowhere"]).failed(1, "No such file");
}
