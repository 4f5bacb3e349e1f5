use super::*;

fn sample() -> Vec<u8> {
    let mut b = vec![0u8; 1024];
    for (at, v) in [
        (0, MAGIC),
        (4, 4),
        (0xC, 1024),
        (0x10, 4096),
        (0x14, 1),
        (0x18, 7),
    ] {
        b[at..at + 4].copy_from_slice(&u32::to_be_bytes(v));
    }
    b
}

fn with(at: usize, v: u32) -> Result<JournalSuper> {
    let mut b = sample();
    b[at..at + 4].copy_from_slice(&v.to_be_bytes());
    JournalSuper::parse(&b, 1024, 4096)
}

#[test]
fn fields() {
    let j = with(0x1C, 9).unwrap();
    assert_eq!(
        (j.is_empty(), j.start, j.sequence, j.log_end()),
        (false, 9, Tid::new(7), 4096)
    );
    let j = with(0x28, 0x21).unwrap();
    assert_eq!(
        (j.is_empty(), j.log_end(), j.fast_commit_blocks()),
        (true, 3840, 256)
    );
}

#[test]
fn damage_is_refused() {
    for (at, v) in [
        (0, 1),
        (4, 1),
        (0xC, 4096),
        (0x10, 4097),
        (0x10, 0),
        (0x14, 0),
        (0x14, 4096),
        (0x1C, 4096),
        (0x28, 0x40),
        (0x28, 0x18),
        (0x28, 0x10),
    ] {
        assert!(with(at, v).is_err(), "{at:#x} = {v}");
    }
}

fn form(checksum: JournalChecksum, is_64bit: bool) -> LogForm {
    LogForm {
        block_size: 1024,
        is_64bit,
        checksum,
        seed: 7,
    }
}

const FORMS: [JournalChecksum; 4] = [
    JournalChecksum::None,
    JournalChecksum::V1,
    JournalChecksum::V2,
    JournalChecksum::V3,
];

#[test]
fn headers() {
    let mut b = [0u8; 1024];
    assert_eq!(LogHeader::parse(&b), None);
    b[..4].copy_from_slice(&MAGIC.to_be_bytes());
    b[8..12].copy_from_slice(&9u32.to_be_bytes());
    for (n, kind) in [
        (1, LogBlockKind::Descriptor),
        (2, LogBlockKind::Commit),
        (4, LogBlockKind::Other(4)),
        (5, LogBlockKind::Revoke),
    ] {
        b[7] = n;
        let sequence = Tid::new(9);
        assert_eq!(LogHeader::parse(&b), Some(LogHeader { kind, sequence }));
    }
    assert_eq!(LogHeader::parse(&b[..3]), None);
}

/// Without a last tag the block's end ends the list, and the checksum is not a tag.
#[test]
fn tags_stay_inside_the_block() {
    let counts = [[126, 84], [126, 84], [100, 72], [63, 63]];
    for (checksum, counts) in FORMS.into_iter().zip(counts) {
        for (is_64bit, count) in [false, true].into_iter().zip(counts) {
            let form = form(checksum, is_64bit);
            // All ones but the last-tag bit: every flag set elsewhere, no UUIDs.
            let tags = form.tags(&[0xF7; 1024]).unwrap();
            let room = form.entries_end() - 12;
            assert_eq!(tags.len(), count.min(room), "{form:?}");
            assert!(tags.iter().all(|t| t.escaped && t.deleted));
            assert_eq!(form.tags(&[0xFF; 1024]).unwrap().len(), 1);
            // No flags: a UUID after every tag.
            let with_uuids = form.tags(&[0; 1024]).unwrap().len();
            assert!(with_uuids >= room / 32 && with_uuids < count, "{form:?}");
            assert!(form.tags(&[0; 1023]).is_err());
        }
    }
}

#[test]
fn revocations_are_counted_in_bytes() {
    for is_64bit in [false, true] {
        let form = form(JournalChecksum::None, is_64bit);
        let mut b = [0u8; 1024];
        b[12..16].copy_from_slice(&33u32.to_be_bytes());
        b[23] = 5;
        let (want, n) = if is_64bit {
            (vec![5, 0], 2)
        } else {
            (vec![0, 5, 0, 0], 4)
        };
        let got: Vec<u64> = form
            .revoked(1, &b)
            .unwrap()
            .iter()
            .map(|b| b.get())
            .collect();
        assert_eq!((got.len(), got), (n, want));
        for (bytes, ok) in [
            (0u32, true),
            (16, true),
            (1024, true),
            (1025, false),
            (!0, false),
        ] {
            b[12..16].copy_from_slice(&bytes.to_be_bytes());
            assert_eq!(form.revoked(1, &b).is_ok(), ok, "{bytes}");
        }
    }
    let mut b = [0u8; 1024];
    b[12..16].copy_from_slice(&1024u32.to_be_bytes());
    let form = form(JournalChecksum::V3, true);
    let (_, sum) = form.tail_sums(&b).unwrap();
    assert!(form.revoked(1, &b).is_err());
    b[1020..].copy_from_slice(&sum.to_be_bytes());
    let refused = form.revoked(3, &b).unwrap_err();
    let what = Corrupt::JournalRevokeCount {
        at: 3,
        bytes: 1024,
        max: 1020,
    };
    assert_eq!(refused, FormatError::Corrupt(what));
}

#[test]
fn commits_of_version_1_may_go_without_a_sum() {
    let form = form(JournalChecksum::V1, false);
    let sum = TransactionSum::default().with(b"1234").with(b"56789");
    let mut b = [0u8; 1024];
    assert_eq!(form.commit(&b, sum).unwrap().sum, CommitSum::None);
    b[0x10..0x14].copy_from_slice(&0x0376_E6E7u32.to_be_bytes());
    assert!(matches!(
        form.commit(&b, sum).unwrap().sum,
        CommitSum::Bad { .. }
    ));
    b[0xC..0xE].copy_from_slice(&[1, 4]);
    assert_eq!(form.commit(&b, sum).unwrap().sum, CommitSum::Good);
    assert!(form.commit(&b[..512], sum).is_err());
}
