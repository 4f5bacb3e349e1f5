//! In the place of mke2fs: the command lines of buildroot, Yocto, OpenWrt, genimage and systemd-repart, and configuration files, beside the
//! installed mke2fs.

use super::{clean, path};
use crate::common::{Ran, files, get, run, same, scratch};
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a command line of mke2fs or of who takes its place, with these variables of the environment.
fn ran(program: &Path, line: &str, env: &[(&str, &str)]) -> Ran {
    let mut command = match program.components().count() {
        1 => xtask::run::tool(path(program)),
        _ => Command::new(program),
    };
    let out = command
        .args(line.split_whitespace())
        .env("TZ", "Europe/Berlin")
        .env("LC_ALL", "C.UTF-8")
        .envs(env.iter().copied())
        .output();
    Ran::from(out.unwrap())
}

/// `diorite` under this name.
fn link(dir: &Path, name: &str) -> PathBuf {
    let at = dir.join(name);
    if !at.exists() {
        symlink(env!("CARGO_BIN_EXE_diorite"), &at).unwrap();
    }
    at
}

/// What dumpe2fs says of a volume, without what is random, follows from the order of writes or from other places of the metadata.
fn shown(img: &Path, line: &str) -> Vec<String> {
    let random = [
        "Filesystem UUID",
        "Directory Hash Seed",
        "Filesystem created",
        "Last write time",
        "Last checked",
        "Next check",
        "Lifetime writes",
        "Checksum",
        "Maximum mount count:      2",
        "Maximum mount count:      3",
        "Journal checksum",
        "MMP block number",
        "    mmp_",
    ];
    // Directories of a tree have blocks of their own kind: the original indexes none.
    let of_tree = |l: &&str| !(line.contains("-d ") && l.starts_with("Free blocks"));
    let text = run("dumpe2fs", &["-h", path(img)]);
    let lines = text
        .lines()
        .filter(|l| !random.iter().any(|r| l.starts_with(r)));
    lines.filter(of_tree).map(str::to_owned).collect()
}

/// Makes a file system with the installed program and with ours, on new files of so many MiB (0: they are made), and compares.
fn both(dir: &Path, (name, line): (&str, &str), mib: u64, env: &[(&str, &str)]) -> [PathBuf; 2] {
    [PathBuf::from(name), link(dir, name)].map(|program| {
        let img = dir.join(format!("of{}.img", program.components().count().min(2)));
        let _ = fs::remove_file(&img);
        if mib > 0 {
            File::create(&img).unwrap().set_len(mib << 20).unwrap();
        }
        let line = line.replace("IMG", path(&img));
        let ran = ran(&program, &line, env);
        assert_eq!(
            ran.code,
            Some(0),
            "{} {line}: {}",
            program.display(),
            ran.err
        );
        run("e2fsck", &["-fn", path(&img)]);
        img
    })
}

fn compare(dir: &Path, words: (&str, &str), mib: u64, env: &[(&str, &str)]) -> [PathBuf; 2] {
    let [theirs, ours] = both(dir, words, mib, env);
    assert_eq!(
        shown(&ours, words.1),
        shown(&theirs, words.1),
        "{words:?} {env:?}"
    );
    clean(&ours);
    [theirs, ours]
}

/// Each builder's own words, with the tree that it would give. `-N 0` of buildroot was taken for a number and refused.
#[test]
fn command_lines_of_image_builders() {
    let dir = scratch();
    let source = dir.path().join("rootfs");
    let many: Vec<(String, Vec<u8>)> = (0..1500)
        .map(|n| (format!("etc/many/{n}"), n.to_string().into_bytes()))
        .collect();
    let many: Vec<(&str, &[u8])> = many.iter().map(|(p, b)| (&p[..], &b[..])).collect();
    files(&source, &many);
    files(&source, &[("bin/sh", &[7; 300_000]), ("empty", b"")]);
    symlink("bin/sh", source.join("init")).unwrap();
    let from = path(&source);
    let fixed = [("E2FSPROGS_FAKE_TIME", "1700000000")];
    for (name, line, mib, env) in [
        // buildroot: fs/ext2.
        (
            "mkfs.ext4",
            "-d ROOT -r 1 -N 0 -m 5 -L rootfs -I 256 -O ^64bit IMG 60M",
            0,
            &[][..],
        ),
        (
            "mkfs.ext2",
            "-d ROOT -r 1 -N 0 -m 5 -L rootfs -I 256 -O ^64bit IMG 60M",
            0,
            &[],
        ),
        (
            "mkfs.ext3",
            "-d ROOT -r 1 -N 4000 -m 0 -L rootfs -I 128 -O ^64bit IMG 60M",
            0,
            &[],
        ),
        // Yocto: image_types, and wic.
        ("mkfs.ext4", "-F -i 4096 IMG -d ROOT", 48, &[]),
        ("mkfs.ext3", "-F -i 4096 IMG -d ROOT", 48, &[]),
        (
            "mkfs.ext4",
            "-F -i 8192 -L root -U 01234567-89ab-cdef-0123-456789abcdef IMG -d ROOT",
            50,
            &fixed,
        ),
        // OpenWrt: fstools.
        ("mkfs.ext4", "-q -F -L rootfs_data IMG", 40, &[]),
        // genimage 16.
        (
            "mke2fs",
            "-t ext4 -I 256 -E root_owner=0:0,lazy_itable_init=0,lazy_journal_init=0 -O ^large_file -O ^huge_file -d ROOT -L lab IMG \
             40960k",
            0,
            &[],
        ),
        (
            "mke2fs",
            "-t ext2 -I 256 -E root_owner=0:0,lazy_itable_init=0,lazy_journal_init=0 -O ^large_file -O ^huge_file -d ROOT -O \
             ^resize_inode IMG 40960k",
            0,
            &[],
        ),
        // systemd-repart 252.
        (
            "mkfs.ext4",
            "-q -L rr -U e23fa935-5911-428c-b168-a4b761ee82bd -I 256 -O has_journal -m 0 -E discard,lazy_itable_init=1 -T default IMG",
            33,
            &[],
        ),
    ] {
        let line = line.replace("ROOT", from);
        let images = compare(dir.path(), (name, &line), mib, env);
        if line.contains(from) {
            let outs = images.map(|img| {
                let out = img.with_extension("out");
                let _ = fs::remove_dir_all(&out);
                fs::create_dir(&out).unwrap();
                get(path(&img), "/.", &out);
                // What builders run next.
                run("e2fsck", &["-pvfD", path(&img)]);
                clean(&img);
                out
            });
            same(&outs[0], &outs[1]);
        }
    }
}

const BASE: &str = "[defaults]\nbase_features = sparse_super,filetype,resize_inode,dir_index,ext_attr\nblocksize = 4096\n\
    inode_size = 256\ninode_ratio = 16384\n";
const TYPES: &str = "[fs_types]\next4 = {\nfeatures = has_journal,extent\n}\next3 = {\nfeatures = has_journal\ninode_size = 512\n}\n\
    q = {\noptions = stride=16\nblocksize = 1024\nblocksize = 2048\n}\nq = {\ninode_size = 128\n}\n";

const FEW: &str = "[defaults]\nbase_features = filetype,sparse_super\ndefault_features = ^sparse_super,dir_index\n";
const MORE: &str = "[fs_types]\next4 = {\nfeatures = extent\ndefault_features = ^sparse_super\n}\na = {\nfeatures = large_file\n}\n\
    c = {\ndefault_features = ext_attr\n}\n";

/// What neither makes.
#[test]
fn what_mke2fs_refuses() {
    let dir = scratch();
    let config = dir.path().join("mke2fs.conf");
    for (lines, line, why) in [
        ("blocksize = 1024 xyz\n", "", "line"),
        ("}\n", "", "line"),
        (
            "",
            "-r 0 -O extent",
            "features not supported with revision 0",
        ),
        ("", "-r 0 -j", "Journals not supported with revision 0"),
        ("", "-O project -I 128", "128"),
        ("", "-E stride=3x", "Invalid stride parameter: 3x"),
    ] {
        fs::write(&config, format!("{BASE}{lines}")).unwrap();
        let img = dir.path().join("img");
        for program in [PathBuf::from("mke2fs"), link(dir.path(), "mke2fs")] {
            let line = format!("-q -F {line} {} 8M", path(&img));
            let ran = ran(&program, &line, &[("MKE2FS_CONFIG", path(&config))]);
            assert_eq!(ran.code, Some(1), "{} {line} {lines}", program.display());
            let told = format!("{}{}", ran.err, ran.text());
            assert!(told.contains(why), "{line} {lines}: {told}");
        }
    }
}

/// Lines of mke2fs.conf(5) that were refused or read over, and files that leave to mke2fs what they do not say.
#[test]
fn configuration_files_are_read_as_mke2fs_reads_them() {
    let dir = scratch();
    let config = dir.path().join("mke2fs.conf");
    for (defaults, types, line) in [
        // What is compiled in.
        ("", TYPES, "-t ext4"),
        ("", TYPES, ""),
        ("", TYPES, "-j"),
        ("", TYPES, "-t ext2 -b 1024"),
        ("", TYPES, "-T q"),
        (BASE, TYPES, "-t ext4"),
        (BASE, TYPES, "-t ext3 -T q"),
        (BASE, TYPES, "-T q -E discard"),
        ("+fs_type = ext4\n", TYPES, ""),
        ("+fs_type = ext4\n", TYPES, "-j"),
        ("+default_mntopts = ^acl\n", "", ""),
        ("+default_mntopts = acl,journal_data,^acl\n", "", ""),
        ("+default_mntopts =\n", "", ""),
        ("+enable_periodic_fsck = true\n", "", ""),
        ("+enable_periodic_fsck = nil\n", "", ""),
        ("+creator_os = hurd\n", "", ""),
        ("+blocksize = 1024\n", "", ""),
        ("+[defaults]\nblocksize = 1024\nerrors = panic\n", "", ""),
        ("+reserved_ratio = 10\nhash_alg = tea\n", "", ""),
        ("+flex_bg_size = 8\n", "", "-O flex_bg,extent"),
        ("+options = stride=8\n", "", ""),
        // Comments, quotes, marks, and lines outside of sections.
        ("+blocksize = 1024 # c\n", "", ""),
        ("+errors = panic ; x\nhash_alg=tea#x\n", "", ""),
        ("+errors = \"panic\" x\nreserved_ratio = # x\n", "", ""),
        ("+errors* = panic\n", TYPES, "-T q"),
        (
            "}\nx\nerrors = panic\n[defaults] # c\nerrors = continue\n",
            "",
            "",
        ),
        (
            "+",
            "[fs_types]\nq = { # c\nblocksize=1024\n} # c\nr = {\nerrors = panic\n",
            "-T q,r",
        ),
        // default_features: the last type's, or those of all; -O takes their place.
        (FEW, "", ""),
        (FEW, "", "-O ^filetype"),
        (FEW, "", "-O dir_index"),
        (FEW, "", "-O none,extent"),
        (FEW, "", "-j"),
        (FEW, MORE, "-t ext4"),
        (FEW, MORE, "-t ext4 -O ext_attr"),
        (FEW, MORE, "-t ext4 -T a,c"),
        (FEW, MORE, "-t ext4 -T c,a"),
        (FEW, MORE, "-T a"),
        // Numbers that do not do.
        ("+flex_bg_size = 3\n", "", "-O flex_bg,extent"),
        ("+flex_bg_size = 0\n", "", "-O flex_bg,extent"),
        ("+flex_bg_size = -1\n", "", "-O flex_bg,extent"),
        (FEW, "", "-O project"),
        (
            "[defaults]\ninode_size = 128\n",
            "",
            "-O quota -E quotatype=prjquota",
        ),
        (
            "[defaults]\ninode_size = 128\n",
            "",
            "-I 0 -g 0 -E stride=-1",
        ),
        ("", "", "-E stride=70000,stripe_width=-5"),
        ("", "", "-E stride=0x10,stripe_width=010"),
        ("", "", "-r 0 -O ^filetype -I 256"),
    ] {
        let defaults = match defaults.strip_prefix('+') {
            Some(more) => format!("{BASE}{more}"),
            None => defaults.to_owned(),
        };
        fs::write(&config, format!("{defaults}{types}")).unwrap();
        let env = [("MKE2FS_CONFIG", path(&config))];
        let line = format!("-q -F {line} IMG 64M");
        compare(dir.path(), ("mke2fs", &line), 0, &env);
    }
    // A file that is not there is as none; its features are newer here.
    let env = [("MKE2FS_CONFIG", "/nonexistent/mke2fs.conf")];
    compare(dir.path(), ("mkfs.ext3", "-q IMG 64M"), 0, &env);
    fs::write(&config, format!("{BASE}default_mntopts = nothing\n")).unwrap();
    let env = [("MKE2FS_CONFIG", path(&config))];
    for program in [PathBuf::from("mke2fs"), link(dir.path(), "mke2fs")] {
        let line = format!("-q -F {} 8M", path(&dir.path().join("img")));
        let ran = ran(&program, &line, &env);
        assert_eq!(ran.code, Some(1), "{}", program.display());
        let told = format!("{}{}", ran.err, ran.text());
        assert!(told.contains("Invalid mount option set: nothing"), "{told}");
    }
}

/// make_hugefiles and its family were read over: the file system had none of these files.
#[test]
fn huge_files_are_made() {
    let dir = scratch();
    let config = dir.path().join("mke2fs.conf");
    for (lines, at) in [
        (
            "num_hugefiles = 3\nhugefiles_size = 1M\nhugefiles_name = big\n",
            "/",
        ),
        ("num_hugefiles = 1\nhugefiles_size = 2000\n", "/"),
        ("hugefiles_size = 5M\n", "/"),
        ("num_hugefiles = 2\n", "/"),
        ("hugefiles_slack = 20M\n", "/"),
        ("", "/"),
        (
            "num_hugefiles = 3\nhugefiles_size = 1M\nhugefiles_dir = /a/b\nhugefiles_uid = 7\nhugefiles_gid = 8\n\
             hugefiles_umask = 027\nhugefiles_digits = 4\n",
            "/a/b",
        ),
    ] {
        let text = format!("{BASE}[fs_types]\nhuge = {{\nmake_hugefiles = true\n{lines}}}\n");
        fs::write(&config, text).unwrap();
        let env = [
            ("MKE2FS_CONFIG", path(&config)),
            ("E2FSPROGS_FAKE_TIME", "1700000000"),
        ];
        let line = "-q -F -T huge -O extent IMG 64M";
        let images = compare(dir.path(), ("mke2fs", line), 0, &env);
        let listed = images.map(|img| {
            let text = run("debugfs", &["-R", &format!("ls -l {at}"), path(&img)]);
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        });
        assert_eq!(listed[0], listed[1], "{lines}");
    }
    fs::write(
        &config,
        format!("{BASE}make_hugefiles = 1\nnum_hugefiles = 1\nhugefiles_size = 1M\n"),
    )
    .unwrap();
    let env = [("MKE2FS_CONFIG", path(&config))];
    compare(dir.path(), ("mke2fs", "-q -F -O extent IMG 64M"), 0, &env);
}

/// Words that were refused, or meant something else.
#[test]
fn words_of_mke2fs() {
    let dir = scratch();
    for line in [
        "-t ext2 -N 0",
        "-t ext2 -E packed_meta_blocks=1",
        "-t ext4 -E desc_size=128",
        "-t ext4 -b 4096 -E desc-size=1024",
        "-t ext2 -r 0",
        "-o hurd",
        "-t ext4 -o hurd",
    ] {
        compare(
            dir.path(),
            ("mke2fs", &format!("-q -F {line} IMG")),
            64,
            &[],
        );
    }
    // Who has it open last is named: the host, and the device as far as there is room.
    let [theirs, ours] = compare(dir.path(), ("mke2fs", "-q -F -t ext4 -O mmp IMG"), 64, &[]);
    let names = |img: &Path| {
        let text = run("dumpe2fs", &["-h", path(img)]);
        let name = |key: &str| {
            let line = text.lines().find_map(|l| l.trim().strip_prefix(key));
            line.unwrap().trim().to_owned()
        };
        (name("mmp_node_name:"), name("mmp_device_name:"))
    };
    assert_eq!(names(&ours).0, names(&theirs).0);
    for img in [&ours, &theirs] {
        let device = names(img).1;
        assert!(
            !device.is_empty() && path(img).starts_with(&device),
            "{device}"
        );
    }
    // Sectors of a device that has larger ones than the blocks that are usual for its size.
    for sector in ["2048", "4096"] {
        let env = [("MKE2FS_DEVICE_SECTSIZE", sector)];
        compare(dir.path(), ("mkfs.ext2", "-q IMG"), 40, &env);
    }
    for (line, why) in [
        ("-O ^64bit -E desc_size=64", "64bit"),
        ("-E desc_size=96", "96"),
        (
            "-o hurd -O filetype",
            "The HURD does not support the filetype feature",
        ),
        ("-E revision=2", "2"),
    ] {
        let line = format!(
            "-q -F -t ext4 {line} {} 64M",
            path(&dir.path().join("none"))
        );
        let ran = ran(&link(dir.path(), "mke2fs"), &line, &[]);
        assert_eq!(ran.code, Some(1), "{line}");
        assert!(ran.err.contains(why), "{line}: {}", ran.err);
    }
    let img = dir.path().join("labelled");
    let line = format!(
        "-q -t ext4 -E root_selinux=system_u:object_r:root_t:s0,revision=1 {} 16M",
        path(&img)
    );
    assert_eq!(ran(&link(dir.path(), "mke2fs"), &line, &[]).code, Some(0));
    clean(&img);
    let label = run(
        "debugfs",
        &["-R", "ea_get -V / security.selinux", path(&img)],
    );
    assert_eq!(
        label.trim_end_matches(['\0', '\n']),
        "system_u:object_r:root_t:s0"
    );
    let line = format!("-q -F -t ext4 -E revision=0 {} 16M", path(&img));
    assert_eq!(ran(&link(dir.path(), "mke2fs"), &line, &[]).code, Some(0));
    assert!(run("dumpe2fs", &["-h", path(&img)]).contains("revision #:    0 (original)"));
}

/// Descriptors and what is kept for them take three quarters of a group at most. Beyond that they are spread over the volume: it was
/// refused.
#[test]
fn many_descriptors_are_spread() {
    let dir = scratch();
    // Groups of 1 MiB, so that there are many in a small volume.
    for (line, mib) in [
        ("-t ext4", 8192),
        ("-t ext4", 8193),
        ("-t ext4 -O sparse_super2", 8193),
        ("-t ext4 -O ^resize_inode", 12_288),
        ("-t ext4 -O ^resize_inode", 12_289),
        ("-t ext3", 16_385),
    ] {
        let line = format!("-q -F {line} -b 1024 -g 1024 -T largefile4 -E lazy_itable_init=1 IMG");
        let images = both(dir.path(), ("mke2fs", &line), mib, &[]);
        let features = images.map(|img| {
            let text = run("dumpe2fs", &["-h", path(&img)]);
            ["Filesystem features", "Reserved GDT", "Block count"].map(|field| {
                text.lines()
                    .find(|l| l.starts_with(field))
                    .map(str::to_owned)
            })
        });
        assert_eq!(features[0], features[1], "{line} {mib}");
    }
}

/// A file system that takes all of a device ends with a whole page; one of a size that was asked for does not have to.
#[test]
fn whole_pages_without_a_size() {
    let dir = scratch();
    for more in [1, 1023, 1024, 2048, 3073, 4096, 5120] {
        for line in ["-b 1024", "-b 2048", "-b 1024 -O bigalloc,extent"] {
            let blocks = [PathBuf::from("mke2fs"), link(dir.path(), "mke2fs")].map(|program| {
                let img = dir.path().join("img");
                File::create(&img)
                    .unwrap()
                    .set_len((10 << 20) + more)
                    .unwrap();
                let line = format!("-q -F {line} {}", path(&img));
                assert_eq!(ran(&program, &line, &[]).code, Some(0), "{line}");
                let shown = run("dumpe2fs", &["-h", path(&img)]);
                let count = shown.lines().find(|l| l.starts_with("Block count"));
                count.unwrap().to_owned()
            });
            assert_eq!(blocks[0], blocks[1], "{line}, {more} bytes more");
        }
    }
}

/// Without flex_bg the bitmaps of groups lie on different disks of an array.
#[test]
fn bitmaps_are_staggered_by_the_stride() {
    let dir = scratch();
    for (line, mib) in [
        ("-t ext2 -b 1024 -E stride=4", 64),
        ("-t ext2 -b 1024 -E stride=1000", 64),
        ("-t ext2 -b 1024 -E stride=5000", 61),
        ("-t ext2 -b 1024 -E stride=8191", 64),
        ("-t ext2 -b 1024 -E stride=20000", 64),
        ("-t ext3 -b 4096 -E stride=16", 600),
        ("-t ext4 -O ^flex_bg -E stride=16", 64),
    ] {
        let images = both(
            dir.path(),
            ("mke2fs", &format!("-q -F {line} IMG")),
            mib,
            &[],
        );
        let places = images.map(|img| {
            let text = run("dumpe2fs", &[path(&img)]);
            let of_groups = |l: &&str| l.contains("itmap at") || l.contains("Inode table at");
            let place = |l: &str| l.split(" (").next().unwrap().to_owned();
            text.lines()
                .filter(of_groups)
                .map(place)
                .collect::<Vec<_>>()
        });
        assert_eq!(places[0], places[1], "{line}");
    }
}
