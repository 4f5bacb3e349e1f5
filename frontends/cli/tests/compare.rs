//! `diorite compare` against cmp and `qemu-img compare`.

use crate::common::{diorite, image, noise, scratch, skip};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// The exit code and the output of a tool that compares two files.
fn tool(program: &str, args: &[&str]) -> Option<(i32, String)> {
    let out = Command::new(program).args(args).output().ok()?;
    Some((
        out.status.code()?,
        String::from_utf8_lossy(&out.stdout).into_owned(),
    ))
}

/// Files that are the same or not, sparse or not, of one size or not: the exit codes are those of qemu-img, the byte is that of cmp.
#[test]
fn verdicts_are_those_of_cmp_and_qemu_img() {
    let dir = scratch();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    let bytes = noise(5_000_123, 3);
    let mut holes = bytes.clone();
    holes[1 << 20..3 << 20].fill(0);
    let change = |bytes: &[u8], at: usize| {
        let mut changed = bytes.to_vec();
        changed[at] ^= 0x40;
        changed
    };
    let longer = |bytes: &[u8], by: usize, last: u8| {
        let mut longer = bytes.to_vec();
        longer.resize(bytes.len() + by, 0);
        *longer.last_mut().unwrap() = last;
        longer
    };
    let cases = [
        (bytes.clone(), bytes.clone()),
        (bytes.clone(), change(&bytes, 0)),
        (bytes.clone(), change(&bytes, 5_000_122)),
        (bytes.clone(), change(&change(&bytes, 4_000_000), 2_777_777)),
        (holes.clone(), bytes.clone()),
        (holes.clone(), change(&holes, 2 << 20)),
        (bytes.clone(), longer(&bytes, 4000, 0)),
        (bytes.clone(), longer(&bytes, 3, 0)),
        (bytes.clone(), longer(&bytes, 3 << 20, 7)),
        (vec![], vec![0; 100]),
        (vec![], vec![]),
        (vec![1], vec![2]),
    ];
    for (n, (one, other)) in cases.iter().enumerate() {
        fs::write(&a, one).unwrap();
        fs::write(&b, other).unwrap();
        if one == &holes {
            // The same bytes with a hole.
            let file = File::create(&a).unwrap();
            file.write_all_at(&one[..1 << 20], 0).unwrap();
            file.write_all_at(&one[3 << 20..], 3 << 20).unwrap();
        }
        let (a, b) = (text(&a), text(&b));
        for (a, b) in [(&a, &b), (&b, &a)] {
            let ours = diorite(&["compare", a, b]);
            let strict = diorite(&["compare", "-s", a, b]);
            assert_eq!((ours.err.as_str(), strict.err.as_str()), ("", ""), "{n}");
            assert_eq!(strict.code, Some(i32::from(one != other)), "{n}");
            let both = one.len().max(other.len());
            let padded = |bytes: &[u8]| [bytes, &vec![0; both - bytes.len()]].concat();
            let (x, y) = (padded(one), padded(other));
            let first = x.iter().zip(&y).position(|(x, y)| x != y);
            assert_eq!(ours.code, Some(i32::from(first.is_some())), "{n}");
            let want = first.map_or(String::new(), |at| {
                format!("{a} {b} differ: byte {}\n", at + 1)
            });
            assert_eq!(ours.text(), want, "{n}");
            if one.len() == other.len() {
                let (code, said) = tool("cmp", &[a, b]).unwrap();
                assert_eq!(ours.code, Some(code), "{n}");
                let byte = |said: &str| {
                    said.split("byte ")
                        .nth(1)
                        .map(|w| w.split([',', '\n']).next().unwrap().to_owned())
                };
                assert_eq!(byte(&ours.text()), byte(&said), "{n}");
            }
            match tool("qemu-img", &["compare", "-f", "raw", "-F", "raw", a, b]) {
                // It rounds sizes up to sectors, as the devices are.
                Some((code, _)) => assert_eq!(ours.code, Some(code), "{n}"),
                None => skip("qemu-img is not installed"),
            }
            let quiet = diorite(&["compare", "-q", a, b]);
            assert_eq!(
                (quiet.code, quiet.text()),
                (ours.code, String::new()),
                "{n}"
            );
            let json = diorite(&["compare", "--json", a, b]);
            let json: serde_json::Value = serde_json::from_str(&json.text()).unwrap();
            assert_eq!(json["same"], first.is_none(), "{n}");
            assert_eq!(json["offset"].as_u64(), first.map(|at| at as u64), "{n}");
        }
    }
}

#[test]
fn trouble_is_not_a_difference() {
    let dir = scratch();
    let a = dir.path().join("a");
    fs::write(&a, [1; 4096]).unwrap();
    let (a, gone) = (text(&a), text(&dir.path().join("gone")));
    diorite(&["compare", &a, &gone]).failed(2, "No such file");
    diorite(&["compare", &gone, &a]).failed(2, "No such file");
    // What was never written is not read.
    diorite(&["compare", &a, "sim:4K,eio=read:1"]).failed_with_difference();
    let img = image(dir.path(), "v.img", "8M", &["-t", "ext4"], None);
    diorite(&["compare", &a, &format!("{img}:/gone")]).failed(2, "No such file");
    diorite(&["compare", &a, &format!("{img}:/lost+found")]).failed(2, "");
    diorite(&["compare", &a]).failed(2, "");
}

/// Files in images, at any depth, with holes on one side and zeros on the other; nothing is written.
#[test]
fn files_in_images_are_compared() {
    let dir = scratch();
    let img = image(dir.path(), "v.img", "48M", &["-t", "ext4"], None);
    let small = image(dir.path(), "small", "16M", &["-t", "ext4"], None);
    diorite(&["put", &img, &small, "/i"]).ok();
    let before = fs::read(&img).unwrap();
    let inside = format!("{img}:/i");
    diorite(&["compare", "-s", &small, &inside]).ok();
    diorite(&["compare", "-s", &inside, &inside]).ok();
    diorite(&["compare", &small, "mem:16M"]).failed_with_difference();
    diorite(&["compare", "mem:16M", "sim:32M"]).ok();
    diorite(&["compare", "-s", "mem:16M", "sim:32M"]).failed_with_difference();
    assert!(fs::read(&img).unwrap() == before);
}

trait Differs {
    fn failed_with_difference(&self);
}

impl Differs for crate::common::Ran {
    fn failed_with_difference(&self) {
        assert_eq!(
            (self.code, self.err.as_str()),
            (Some(1), ""),
            "{}",
            self.text()
        );
        assert!(self.text().contains(" differ: "), "{}", self.text());
    }
}
