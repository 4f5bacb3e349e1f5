//! Locators: their meaning, refused ones, and that each is parsed back from its own text.

use super::*;

fn parse(text: &str) -> Locator {
    Locator::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

#[test]
fn every_part_is_understood() {
    let want = FileLocator {
        path: "disk.img".into(),
        offset: 1 << 20,
        size: Some(3 << 30),
        part: Some(2),
        sector: Some(4096),
        ro: true,
        format: Some(ImageFormat::Qcow2),
        backing: true,
        ..FileLocator::default()
    };
    let got = parse("disk.img?offset=1M&size=3G&part=2&sector=4096&ro&format=qcow2&backing");
    assert_eq!(got, Locator::File(want));
    assert_eq!(parse("mem:64M"), Locator::Mem { size: 64 << 20 });
    assert_eq!(parse("mem:64MiB"), Locator::Mem { size: 64 << 20 });
    let sectors = parse("disk.img?offset=2048s&size=0x100000&ro");
    assert_eq!(sectors, parse("disk.img?offset=1M&size=1M&ro"));
    assert_eq!(parse("/dev/sda1"), Locator::file("/dev/sda1"));
    assert_eq!(parse("./mem:64M"), Locator::file("./mem:64M"));
    let nested = parse("disk.img?part=1!/vm/a.img!/etc/passwd");
    let Locator::Inside { outer, path, part } = nested else {
        panic!("it lies inside")
    };
    assert_eq!((path.as_str(), part), ("/etc/passwd", Part::default()));
    assert_eq!(*outer, parse("disk.img?part=1!/vm/a.img"));
}

#[test]
fn what_is_wrong_is_named() {
    let wrong = [
        ("", "names no file"),
        ("?ro", "names no file"),
        ("a?offset", "needs a value"),
        ("a?offset=12Q", "is not a size"),
        ("a?offset=99999999999G", "is not a size"),
        ("a?offset=+1", "is not a size"),
        ("a?part=0", "numbered from 1"),
        ("a?ro=no", "ro takes no value"),
        ("a?ro&ro", "twice"),
        ("a?backing=x", "backing takes no value"),
        ("a?format", "needs a value"),
        ("a?format=vmdk", "raw, qcow2 and auto are known"),
        ("a?speed=9", "unknown parameter \"speed\""),
        ("a?sector=8T", "too large"),
        ("mem:", "is not a size"),
        ("!/x", "names no file"),
        ("nbd://host/x", "nbd:// devices are not supported"),
        ("rbd:pool/image", "rbd: devices are not supported"),
    ];
    for (text, why) in wrong {
        let error = Locator::parse(text).expect_err(text);
        assert!(error.what.contains(why), "{text}: {error}");
    }
    Locator::parse("sim:1M,no-such-thing=1").expect_err("the model knows no such thing");
}

/// `!` needs quotes in a shell: a colon works as well, after an existing file.
#[test]
fn a_colon_behind_a_file_leads_inside() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| format!("{}/{name}", dir.path().display());
    std::fs::write(at("a.img"), "x").expect("the test's own file");
    let inside = |outer: &str, path: &str| Locator::Inside {
        outer: Box::new(parse(&at(outer))),
        path: path.to_owned(),
        part: Part::default(),
    };
    assert_eq!(parse(&at("a.img:/b.img")), inside("a.img", "/b.img"));
    assert_eq!(
        parse(&at("a.img?part=2:/vm/b")),
        inside("a.img?part=2", "/vm/b")
    );
    assert_eq!(
        parse(&at("a.img?part=2:/b?c")),
        inside("a.img?part=2", "/b?c")
    );
    assert_eq!(parse(&at("a.img:/b!/c")), parse(&at("a.img!/b!/c")));
    assert_eq!(parse(&at("a.img!/b:/c")), inside("a.img", "/b:/c"));
    assert_eq!(
        parse(&at("a.img?part=2!/vm/b")),
        inside("a.img?part=2", "/vm/b")
    );
    // To any depth, and in front of `!/`; behind that a colon is part of the name.
    assert_eq!(parse(&at("a.img:/b:/c")), parse(&at("a.img!/b!/c")));
    assert_eq!(
        parse(&at("a.img?part=2:/b:/vm/c:/d?e")),
        parse(&at("a.img?part=2!/b!/vm/c!/d?e"))
    );
    assert_eq!(parse(&at("a.img:/b:/c!/d")), parse(&at("a.img!/b!/c!/d")));
    assert_eq!(parse(&at("a.img:/b:c")), inside("a.img", "/b:c"));
    let shown = parse(&at("a.img:/b.img")).to_string();
    assert_eq!(shown, at("a.img!/b.img"));
    // Other names with a colon remain file names, and so do names after a directory.
    for name in ["nothing:/x", "a.img:x", "a.img?what:/x"] {
        assert!(
            !matches!(Locator::parse(&at(name)), Ok(Locator::Inside { .. })),
            "{name}"
        );
    }
    assert_eq!(parse("/tmp:/x"), Locator::file("/tmp:/x"));
    std::fs::create_dir(at("a.img:")).expect("the test's own");
    std::fs::write(at("a.img:/b.img"), "x").expect("the test's own file");
    assert_eq!(
        parse(&at("a.img:/b.img")),
        Locator::file(at("a.img:/b.img"))
    );
}

/// Parameters of a file inside: what is behind the last question mark, if all of it is known; else it belongs to the name.
#[test]
fn a_part_of_a_file_inside() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("a.img");
    std::fs::write(&path, "x").expect("the test's own file");
    let at = path.to_str().expect("plain ASCII");
    let part = Part {
        offset: 1 << 20,
        part: Some(2),
        sector: Some(512),
        ro: true,
        ..Part::default()
    };
    let ro = Part {
        ro: true,
        ..Part::default()
    };
    let all = Part::default();
    let cases = [
        ("/b?offset=1M&part=2&sector=512&ro", "/b", part),
        ("/b?ro", "/b", ro),
        ("/b?ro?", "/b?ro", all),
        ("/b?ro?ro", "/b?ro", ro),
        ("/b?", "/b", all),
        ("/b?rw", "/b?rw", all),
        ("/b?part=0", "/b?part=0", all),
        ("/b?ro&ro", "/b?ro&ro", all),
        ("/b?ro/c", "/b?ro/c", all),
        ("/?ro", "/?ro", all),
    ];
    for (text, path, part) in cases {
        for between in ["!", ":"] {
            let got = parse(&format!("{at}{between}{text}"));
            let want = Locator::Inside {
                outer: Box::new(parse(at)),
                path: path.to_owned(),
                part,
            };
            assert_eq!(got, want, "{between}{text}");
            assert_eq!(parse(&got.to_string()), got, "{got}");
        }
    }
    let deep = parse(&format!("{at}?ro:/b?part=1:/c?ro!/d?size=1M"));
    assert_eq!(
        deep.to_string(),
        format!("{at}?ro!/b?part=1!/c?ro!/d?size=1M")
    );
    let Locator::Inside { part, .. } = &deep else {
        panic!("it lies inside")
    };
    assert_eq!(part.size, Some(1 << 20));
}

/// Any text gives a locator or an error; a locator is given back by its text.
#[test]
fn any_text_may_come() {
    let mut rng = crate::rng::Rng::new(11);
    eprintln!("seed 11");
    let words = [
        "!/", ":/", "?", "&", "=", "ro", "offset", "part", "sector", "1M", "0", "/", "a", "mem:",
        "sim:", "é", "\u{0}", "-1",
    ];
    for _ in 0..20_000 {
        let text: String = (0..rng.below(12))
            .map(|_| words[rng.below(words.len() as u64) as usize])
            .collect();
        if let Ok(one) = Locator::parse(&text) {
            assert_eq!(parse(&one.to_string()), one, "{text:?}, then {one}");
        }
    }
}

#[test]
fn a_file_of_that_very_name_wins() {
    let dir = tempfile::tempdir().expect("a folder");
    for name in ["a?ro", "b!", "what?"] {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().expect("it has one")).expect("the test's own");
        std::fs::write(&path, "x").expect("the test's own file");
        let text = path.to_str().expect("plain ASCII");
        assert_eq!(parse(text), Locator::file(text));
        assert_eq!(parse(text).to_string(), text);
    }
    std::fs::create_dir(dir.path().join("c!")).expect("the test's own");
    let path = dir.path().join("c!/d");
    std::fs::write(&path, "x").expect("the test's own file");
    let text = path.to_str().expect("plain ASCII");
    assert_eq!(parse(text), Locator::file(text));
    let read_only = FileLocator {
        path: text.into(),
        ro: true,
        ..FileLocator::default()
    };
    assert_eq!(parse(&format!("{text}?ro")), Locator::File(read_only));
}

/// The property: parse(text of x) == x, for random x.
#[test]
fn each_is_given_back_by_its_text() {
    let mut rng = crate::rng::Rng::new(7);
    eprintln!("seed 7");
    let names = [
        "/x",
        "/x/y?z",
        "/x?ro",
        "/x?",
        "/x?ro?",
        "/?ro",
        "/:/?part=1&ro",
        "/x?ro&ro",
    ];
    for _ in 0..2000 {
        let name: String = (0..6)
            .filter_map(|_| "abc?&=.K/!".chars().nth(rng.below(10) as usize))
            .collect();
        let file = Locator::File(FileLocator {
            path: format!("n{}", name.replace('/', "")).into(),
            offset: rng.next() >> rng.below(64),
            size: some(&mut rng, 1 << 40).map(|s| s << 10),
            part: some(&mut rng, 200).map(|p| p as u32 + 1),
            sector: some(&mut rng, 8).map(|s| 512 << s),
            ro: rng.below(2) == 0,
            format: [
                None,
                Some(ImageFormat::Raw),
                Some(ImageFormat::Qcow2),
                Some(ImageFormat::Auto),
            ][rng.below(4) as usize],
            backing: rng.below(2) == 0,
            ..FileLocator::default()
        });
        let one = match rng.below(4) {
            0 => Locator::Mem {
                size: rng.next() >> rng.below(64),
            },
            1 => parse("sim:1M,latency=5us"),
            2 => Locator::Inside {
                outer: Box::new(file),
                path: names[rng.below(names.len() as u64) as usize].into(),
                part: Part {
                    offset: rng.below(2) * 4096,
                    size: some(&mut rng, 1 << 40),
                    part: some(&mut rng, 200).map(|p| p as u32 + 1),
                    sector: some(&mut rng, 8).map(|s| 512 << s),
                    ro: rng.below(2) == 0,
                    // There, raw is the same as nothing.
                    format: (rng.below(2) == 0).then_some(ImageFormat::Qcow2),
                    backing: rng.below(2) == 0,
                },
            },
            _ => file,
        };
        assert_eq!(parse(&one.to_string()), one, "{one}");
    }
}

fn some(rng: &mut crate::rng::Rng, limit: u64) -> Option<u64> {
    (rng.below(2) == 0).then(|| rng.below(limit))
}

/// Defect: each level was a recursive call in parsing, printing and dropping, and forty thousand levels overflowed the stack.
#[test]
fn volumes_inside_each_other_are_bounded() {
    let inside = |n: usize| format!("disk.img{}", "!/a".repeat(n));
    assert_eq!(parse(&inside(16)).to_string(), inside(16));
    let refused = |text: &str| {
        let error = Locator::parse(text).expect_err("too many");
        assert_eq!(error.kind, DeviceErrorKind::Locator);
        let said = error.to_string();
        assert!(said.contains("more than 16 volumes inside"), "{said}");
    };
    refused(&inside(17));
    refused(&inside(40_000));
    // So with colons, and with both.
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("disk.img");
    std::fs::write(&path, "x").expect("the test's own file");
    let at = path.to_str().expect("plain ASCII");
    let mixed = |colons: usize, marks: usize| {
        format!("{at}{}{}", ":/a".repeat(colons), "!/a".repeat(marks))
    };
    for (colons, marks) in [(16, 0), (7, 9)] {
        let named = parse(&mixed(colons, marks)).to_string();
        assert_eq!(named, mixed(0, 16));
    }
    for (colons, marks) in [(17, 0), (40_000, 0), (8, 9), (1, 16)] {
        refused(&mixed(colons, marks));
    }
}

#[test]
fn what_lies_inside_is_the_engines() {
    let error = open(&parse("disk.img!/a"), &OpenOptions::default()).map(drop);
    let error = error.expect_err("only the engine opens those");
    assert_eq!(error.kind, DeviceErrorKind::Unsupported);
}

#[test]
fn every_kind_is_opened() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("image");
    std::fs::write(&path, vec![0; 1 << 20]).expect("the test's own file");
    let file = format!("{}?offset=4K&size=8K&ro", path.display());
    for (text, size) in [
        ("mem:1M", 1 << 20),
        ("sim:2M,latency=0us", 2 << 20),
        (&file, 8 << 10),
    ] {
        let device = open(&parse(text), &OpenOptions::default());
        let device = device.unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(device.geometry().size, size, "{text}");
        assert_eq!(device.geometry().read_only, text.ends_with("ro"));
    }
}

/// The defect: each question read the file again, so two who asked while it was written were told different things.
#[test]
fn first_bytes_are_asked_for_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("disk");
    let text = format!("{}?format=auto", path.display());
    let write = |bytes: &[u8]| std::fs::write(&path, bytes).expect("the test's own file");
    let Locator::File(file) = parse(&text) else {
        panic!("a file");
    };
    let clone = file.clone();
    // A file that is not there has said nothing.
    assert!(!file.is_qcow2());
    assert_eq!(file.format_of_new(), ImageFormat::Raw);
    write(b"QFI\xfb and more");
    assert!(file.is_qcow2());
    write(b"something else");
    assert!(file.is_qcow2() && clone.is_qcow2());
    let Locator::File(later) = parse(&text) else {
        panic!("a file");
    };
    assert!(!later.is_qcow2());
    write(b"QFI\xfb and more");
    assert!(!later.is_qcow2());
    assert_eq!(later, file);
}
