//! All six directory hashes against `debugfs -R "dx_hash ..."`.
#![allow(clippy::unwrap_used)]

mod common;

use common::run;
use diorite_format::dirhash::HashVersion;
use diorite_format::superblock::HashSettings;

/// A UUID as debugfs takes it, and as the four words that the superblock holds.
const SEEDS: [(&str, [u32; 4]); 2] = [
    ("00000000-0000-0000-0000-000000000000", [0; 4]),
    (
        "086f594e-4617-403a-94e6-66f2bbb32639",
        [0x4E59_6F08, 0x3A40_1746, 0xF266_E694, 0x3926_B3BB],
    ),
];

#[test]
fn hashes_are_those_of_debugfs() {
    let versions = [
        HashVersion::Legacy,
        HashVersion::HalfMd4,
        HashVersion::Tea,
        HashVersion::LegacyUnsigned,
        HashVersion::HalfMd4Unsigned,
        HashVersion::TeaUnsigned,
    ];
    let mut names: Vec<String> = (1..80)
        .map(|n| {
            "abcdefghij-\u{e9}\u{fc}\u{4e2d}xyz"
                .chars()
                .cycle()
                .take(n)
                .collect()
        })
        .collect();
    names.push("f".repeat(255));
    names.push("\u{ff}".repeat(127));
    let dir = std::env::temp_dir().join(format!("diorite-hash-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let script = dir.join("script");
    let mut text = String::new();
    for (seed, _) in SEEDS {
        for n in 0..versions.len() {
            names
                .iter()
                .for_each(|name| text.push_str(&format!("dx_hash -h {n} -s {seed} {name}\n")));
        }
    }
    std::fs::write(&script, text).unwrap();
    let out = run("debugfs", &["-f", script.to_str().unwrap()]);
    let _ = std::fs::remove_dir_all(&dir);
    let Some((_, out)) = out else { return };
    let mut lines = out.lines().filter(|l| l.starts_with("Hash of "));
    for (_, seed) in SEEDS {
        for version in versions {
            let settings = HashSettings {
                seed,
                default_version: 1,
                unsigned_chars: false,
            };
            for name in &names {
                let h = version.hash(&settings, name.as_bytes());
                let expected = format!("Hash of {name} is 0x{:x} (minor 0x{:x})", h.major, h.minor);
                assert_eq!(lines.next().unwrap(), expected, "{version:?} {seed:x?}");
            }
        }
    }
}
