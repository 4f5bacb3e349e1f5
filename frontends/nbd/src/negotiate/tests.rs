//! The handshake with a peer whose words are written down beforehand.

use super::*;
use diorite_block::MemDevice;

/// A peer that has said everything already.
struct Script {
    said: Vec<u8>,
    at: usize,
    heard: Vec<u8>,
}

impl Talk for Script {
    fn read(&mut self, bytes: &mut [u8]) -> Result<(), Hangup> {
        let end = self.at + bytes.len();
        let said = self.said.get(self.at..end).ok_or(Hangup::Closed)?;
        bytes.copy_from_slice(said);
        self.at = end;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Hangup> {
        self.heard.extend(bytes);
        Ok(())
    }
}

fn option(kind: u32, data: &[u8]) -> Vec<u8> {
    let len = data.len() as u32;
    [
        &OPTION_MAGIC.to_be_bytes()[..],
        &kind.to_be_bytes(),
        &len.to_be_bytes(),
        data,
    ]
    .concat()
}

/// The data of GO and INFO.
fn ask(name: &str, infos: &[u16]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend((infos.len() as u16).to_be_bytes());
    data.extend(infos.iter().flat_map(|i| i.to_be_bytes()));
    data
}

fn meta(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend((queries.len() as u32).to_be_bytes());
    for query in queries {
        data.extend((query.len() as u32).to_be_bytes());
        data.extend(query.as_bytes());
    }
    data
}

fn exports() -> Vec<Arc<Export>> {
    ["first", "second"]
        .map(|name| Arc::new(Export::new(name, Arc::new(MemDevice::new(1 << 20)))))
        .to_vec()
}

/// Kinds and data of replies.
type Replies = Vec<(u32, Vec<u8>)>;

/// Runs a handshake; the kinds of the replies to options, with their data, and its end.
fn run(security: Security, options: &[Vec<u8>]) -> (Replies, Result<Outcome, Hangup>) {
    let mut said = 3u32.to_be_bytes().to_vec();
    said.extend(options.concat());
    let mut script = Script {
        said,
        at: 0,
        heard: Vec::new(),
    };
    let outcome = negotiate(&mut script, &exports(), security);
    let greeting = script.heard.drain(..18).collect::<Vec<u8>>();
    assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
    let mut replies = Vec::new();
    let mut rest = &script.heard[..];
    while let Some((head, behind)) = rest.split_first_chunk::<20>() {
        if head[..8] != crate::wire::OPTION_REPLY_MAGIC.to_be_bytes() {
            break;
        }
        let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four"));
        let (data, behind) = behind.split_at(word(16) as usize);
        replies.push((word(12), data.to_vec()));
        rest = behind;
    }
    (replies, outcome)
}

fn kinds(replies: &[(u32, Vec<u8>)]) -> Vec<u32> {
    replies.iter().map(|(kind, _)| *kind).collect()
}

#[test]
fn a_client_asks_and_begins() {
    let all = [info::NAME, info::DESCRIPTION, info::BLOCK_SIZE, 999];
    let (replies, outcome) = run(
        Security::Plain,
        &[
            option(opt::LIST, &[]),
            option(opt::STRUCTURED_REPLY, &[]),
            option(opt::LIST_META_CONTEXT, &meta("second", &[])),
            option(
                opt::SET_META_CONTEXT,
                &meta("second", &["base:allocation", "x:y"]),
            ),
            option(opt::INFO, &ask("nobody", &[])),
            option(opt::GO, &ask("second", &all)),
        ],
    );
    let expected = [
        rep::SERVER,
        rep::SERVER,
        rep::ACK,
        rep::ACK,
        rep::META_CONTEXT,
        rep::ACK,
        rep::META_CONTEXT,
        rep::ACK,
        rep::ERR_UNKNOWN,
        rep::INFO,
        rep::INFO,
        rep::INFO,
        rep::INFO,
        rep::ACK,
    ];
    assert_eq!(kinds(&replies), expected);
    assert_eq!(replies[9].1[2..10], (1u64 << 20).to_be_bytes());
    assert_eq!(replies[12].1[2..6], 512u32.to_be_bytes());
    let Ok(Outcome::Begin(session)) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(session.export.name(), "second");
    assert!(session.meta && session.mode == Mode::Structured);
}

/// A choice of contexts is for one export, and the next choice replaces it.
#[test]
fn contexts_are_those_of_the_export_that_they_were_chosen_for() {
    for (chosen, begun, there) in [
        ("first", "first", true),
        ("first", "", true),
        ("first", "second", false),
    ] {
        let set = option(opt::SET_META_CONTEXT, &meta(chosen, &["base:allocation"]));
        let go = option(opt::GO, &ask(begun, &[]));
        let structured = option(opt::STRUCTURED_REPLY, &[]);
        let (_, outcome) = run(
            Security::Plain,
            &[structured.clone(), set.clone(), go.clone()],
        );
        assert!(matches!(outcome, Ok(Outcome::Begin(s)) if s.meta == there));
        let none = option(opt::SET_META_CONTEXT, &meta(chosen, &["base:"]));
        let (_, outcome) = run(Security::Plain, &[structured, set, none, go]);
        assert!(matches!(outcome, Ok(Outcome::Begin(s)) if !s.meta));
    }
}

#[test]
fn options_that_make_no_sense_are_answered() {
    let (replies, outcome) = run(
        Security::Plain,
        &[
            option(77, b"what"),
            option(opt::STARTTLS, &[]),
            option(opt::LIST, b"data"),
            option(opt::GO, b"short"),
            option(opt::SET_META_CONTEXT, &meta("first", &["base:allocation"])),
            option(99, &vec![1; MAX_OPTION as usize + 1]),
            option(opt::EXTENDED_HEADERS, &[]),
            option(opt::STRUCTURED_REPLY, &[]),
            option(opt::ABORT, b"bye"),
        ],
    );
    let expected = [
        rep::ERR_UNSUP,
        rep::ERR_POLICY,
        rep::ERR_INVALID,
        rep::ERR_INVALID,
        rep::ERR_INVALID,
        rep::ERR_TOO_BIG,
        rep::ACK,
        rep::ERR_EXT_HEADER_REQD,
        rep::ACK,
    ];
    assert_eq!(kinds(&replies), expected);
    assert!(matches!(outcome, Ok(Outcome::Ended)));
}

/// Where TLS is required, nothing is told about exports before it.
#[test]
fn without_tls_nothing_is_told() {
    let (replies, outcome) = run(
        Security::Required,
        &[
            option(opt::LIST, &[]),
            option(opt::INFO, &ask("first", &[])),
            option(opt::GO, &ask("", &[])),
            option(opt::STRUCTURED_REPLY, &[]),
            option(opt::LIST_META_CONTEXT, &meta("first", &[])),
            option(77, &[]),
            option(opt::STARTTLS, b"x"),
            option(opt::STARTTLS, &[]),
        ],
    );
    let mut expected = vec![rep::ERR_TLS_REQD; 6];
    expected.extend([rep::ERR_INVALID, rep::ACK]);
    assert_eq!(kinds(&replies), expected);
    assert!(matches!(outcome, Ok(Outcome::StartTls)));
    let (_, outcome) = run(Security::Required, &[option(opt::EXPORT_NAME, b"first")]);
    assert!(matches!(outcome, Err(Hangup::Refused(_))));
}

#[test]
fn the_old_way_to_name_an_export_still_works() {
    let name = |name: &[u8]| option(opt::EXPORT_NAME, name);
    let (_, outcome) = run(Security::Plain, &[name(b"second")]);
    assert!(matches!(outcome, Ok(Outcome::Begin(s)) if s.export.name() == "second"));
    let (_, outcome) = run(Security::Plain, &[name(b"")]);
    assert!(matches!(outcome, Ok(Outcome::Begin(s)) if s.export.name() == "first"));
    for wrong in [
        vec![name(b"third")],
        vec![name(&[0xff])],
        vec![name(&[b'a'; 70_000])],
    ] {
        let (_, outcome) = run(Security::Plain, &wrong);
        assert!(outcome.is_err());
    }
    let extended = option(opt::EXTENDED_HEADERS, &[]);
    let (_, outcome) = run(Security::Plain, &[extended, name(b"first")]);
    assert!(matches!(outcome, Err(Hangup::Refused(_))));
}

/// Whatever a client says, the handshake ends when it has nothing more to say.
#[test]
fn any_words_are_answered_or_refused() {
    let mut random = xtask::rng::Rng::from_env("negotiations");
    for _ in 0..5_000 {
        let count = random.below(12);
        let options: Vec<Vec<u8>> = (0..count)
            .map(|_| {
                let len = random.below(40) as usize;
                let mut data: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
                if len > 6 && random.below(2) == 0 {
                    data[..6].copy_from_slice(&[0, 0, 0, 0, 0, random.below(4) as u8]);
                }
                let mut raw = option(random.below(14) as u32, &data);
                if random.below(20) == 0 {
                    let at = random.below(raw.len() as u64) as usize;
                    raw[at] ^= 1 << random.below(8);
                }
                raw
            })
            .collect();
        for security in [Security::Plain, Security::Required] {
            let _ = run(security, &options);
        }
    }
}
