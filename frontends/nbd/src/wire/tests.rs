//! Bytes of the protocol: each form by an example, and anything else by random bytes.

use super::*;
use diorite_block::{BioError, BioErrorKind, Run, Stored};

fn bytes(words: &[&[u8]]) -> Vec<u8> {
    words.concat()
}

#[test]
fn a_compact_header_is_parsed() {
    let mut raw = bytes(&[
        &REQUEST_MAGIC.to_be_bytes(),
        &[0, 1, 0, 1],
        &7u64.to_be_bytes(),
        &4096u64.to_be_bytes(),
        &512u32.to_be_bytes(),
    ]);
    let header = Header::parse(Framing::Compact, &raw).expect("valid");
    assert_eq!((header.command, header.flags), (Command::Write, 1));
    assert_eq!((header.cookie, header.offset), (7, 4096));
    assert_eq!(
        (header.len, header.payload, header.misframed),
        (512, 512, false)
    );
    assert_eq!(raw.len(), Framing::Compact.header_len());
    raw.pop();
    assert_eq!(
        Header::parse(Framing::Compact, &raw),
        Err(WireError::Length)
    );
    raw[0] ^= 1;
    let wrong = Header::parse(Framing::Compact, &raw);
    assert!(matches!(wrong, Err(WireError::Magic { .. })));
}

/// With extended headers a flag says whether the length is that of a payload, whatever the command is.
#[test]
fn an_extended_header_says_itself_what_follows() {
    for (kind, flags, payload, misframed) in [
        (1u16, 1 << 5, 1 << 40, false),
        (1, 0, 0, true),
        (0, 0, 0, false),
        (0, 1 << 5, 1 << 40, true),
        (7, 1 << 5, 1 << 40, true),
    ] {
        let raw = bytes(&[
            &EXTENDED_REQUEST_MAGIC.to_be_bytes(),
            &u16::to_be_bytes(flags),
            &kind.to_be_bytes(),
            &[0; 16],
            &(1u64 << 40).to_be_bytes(),
        ]);
        assert_eq!(raw.len(), Framing::Extended.header_len());
        let header = Header::parse(Framing::Extended, &raw).expect("valid");
        let found = (header.payload, header.misframed, header.flags);
        assert_eq!(found, (payload, misframed, 0), "{kind}");
    }
}

#[test]
fn what_a_client_asks_about_an_export() {
    let data = bytes(&[&[0, 0, 0, 3], b"abc", &[0, 2], &[0, 3, 0, 1]]);
    let ask = parse_ask(&data).expect("valid");
    assert_eq!(ask.name, "abc");
    assert!(ask.wants(info::BLOCK_SIZE) && ask.wants(info::NAME) && !ask.wants(info::EXPORT));
    for end in 0..data.len() {
        assert_eq!(parse_ask(&data[..end]), Err(WireError::Length), "{end}");
    }
    let longer = bytes(&[&data, &[0]]);
    assert_eq!(parse_ask(&longer), Err(WireError::Length));
    assert_eq!(
        parse_ask(&[255, 255, 255, 255, 0, 0]),
        Err(WireError::Length)
    );
    assert_eq!(parse_ask(&[0, 0, 0, 1, 0xff, 0, 0]), Err(WireError::Text));
    let long = bytes(&[&5000u32.to_be_bytes(), &[b'a'; 5000], &[0, 0]]);
    assert_eq!(parse_ask(&long), Err(WireError::Text));
}

#[test]
fn what_a_client_asks_about_contexts() {
    let data = bytes(&[
        &[0, 0, 0, 1],
        b"x",
        &[0, 0, 0, 2],
        &[0, 0, 0, 5],
        b"base:",
        &[0, 0, 0, 0],
    ]);
    let query = parse_meta(&data).expect("valid");
    assert_eq!((query.name, query.count), ("x", 2));
    assert_eq!(query.queries().collect::<Vec<_>>(), ["base:", ""]);
    for end in 0..data.len() {
        assert_eq!(parse_meta(&data[..end]), Err(WireError::Length), "{end}");
    }
    let many = bytes(&[&[0, 0, 0, 0], &[255; 4]]);
    assert_eq!(parse_meta(&many), Err(WireError::Length));
}

type Write<'a> = &'a dyn Fn(&mut Vec<u8>);

/// The length in a header is that of what follows it.
#[test]
fn replies_have_the_length_that_they_say() {
    for mode in [Mode::Structured, Mode::Extended] {
        let heads = Heads {
            mode,
            cookie: 5,
            offset: 4096,
        };
        let (head, at) = if mode == Mode::Extended {
            (32, 24)
        } else {
            (20, 16)
        };
        let run = |len| Run {
            len,
            stored: Stored::Hole,
        };
        let writes: [Write<'_>; 5] = [
            &|out| heads.failed(out, Errno::Io, true),
            &|out| heads.hole(out, 4096, 512, true),
            &|out| heads.end(out),
            &|out| block_status(out, &heads, &[run(1), run(2)]),
            &|out| {
                heads.data(out, 4096, 3, true);
                out.extend([1, 2, 3]);
            },
        ];
        for (number, write) in writes.iter().enumerate() {
            let mut out = Vec::new();
            write(&mut out);
            let said = out[at..head]
                .iter()
                .fold(0, |n, b| n << 8 | usize::from(*b));
            assert_eq!(out.len(), head + said, "{mode:?} {number}");
            assert_eq!(out[5], 1, "the last chunk says so");
        }
    }
    let mut out = Vec::new();
    Heads {
        mode: Mode::Structured,
        cookie: 5,
        offset: 0,
    }
    .failed(&mut out, Errno::NoSpc, false);
    assert_eq!(out.len(), 16, "a write that fails gets a simple reply");
    assert_eq!(out[7], 28);
}

#[test]
fn each_error_of_a_device_has_a_number() {
    for (kind, number) in [
        (BioErrorKind::Io, 5),
        (BioErrorKind::NoSpace, 28),
        (BioErrorKind::WouldBlock, 5),
        (BioErrorKind::Invalid, 22),
        (BioErrorKind::Unsupported, 95),
        (BioErrorKind::ReadOnly, 1),
        (BioErrorKind::Gone, 108),
    ] {
        assert_eq!(Errno::from(BioError::new(kind)).number(), number);
    }
    let others = [Errno::NoMem, Errno::Overflow].map(Errno::number);
    assert_eq!(others, [12, 75]);
}

/// Random bytes are refused or parsed; nothing panics, and nothing refers to bytes that are not there.
#[test]
fn any_bytes_can_be_parsed() {
    let mut random = xtask::rng::Rng::from_env("parsed bytes");
    for _ in 0..100_000 {
        let len = random.below(80) as usize;
        let mut data: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
        if len > 8 && random.below(2) == 0 {
            // Small lengths get further.
            data[..3].fill(0);
            data[3] = random.below(8) as u8;
        }
        if let Ok(ask) = parse_ask(&data) {
            assert!(ask.name.len() + 6 <= len);
        }
        if let Ok(meta) = parse_meta(&data) {
            assert_eq!(meta.queries().count() as u32, meta.count);
        }
        for framing in [Framing::Compact, Framing::Extended] {
            let _ = Header::parse(framing, &data);
        }
    }
}
