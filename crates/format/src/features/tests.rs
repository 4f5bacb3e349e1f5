//! The verdict table and the refusals.

use super::*;

fn features(compat: u32, incompat: u32, ro: u32) -> Features {
    Features {
        compat: Compat::from_bits(compat),
        incompat: Incompat::from_bits(incompat),
        ro_compat: RoCompat::from_bits(ro),
    }
}

#[test]
fn todays_defaults_are_written() {
    let f = features(0x103C, 0x22C2, 0x46B);
    assert_eq!(f.check(Access::Read), Ok(()));
    assert_eq!(f.check(Access::Write), Ok(()));
}

#[test]
fn unknown_bits_follow_the_contract() {
    assert_eq!(features(0x8000_0000, 0, 0).check(Access::Write), Ok(()));
    assert_eq!(features(0, 0, 0x8000_0000).check(Access::Read), Ok(()));
    let e = features(0, 0, 0x8000_0000)
        .check(Access::Write)
        .unwrap_err();
    assert_eq!(
        (e.feature.as_str(), e.read_only_would_do),
        ("FEATURE_R31", true)
    );
    let e = features(0, 0x2_0000 << 1, 0x100)
        .check(Access::Write)
        .unwrap_err();
    assert_eq!(
        (e.feature.as_str(), e.read_only_would_do),
        ("FEATURE_I18 quota", false)
    );
}

#[test]
fn a_refusal_reads_well() {
    let e = features(0, 0x100, 0).check(Access::Write).unwrap_err();
    let text = e.to_string();
    assert!(
        text.starts_with("unsupported feature: mmp (reading would work"),
        "{text}"
    );
    assert!(text.contains("diorite tune -O ^mmp"), "{text}");
}

#[test]
fn rows_are_single_bits_named_once_and_explained() {
    for (n, row) in verdicts().iter().enumerate() {
        assert_eq!(row.bit.count_ones(), 1, "{}", row.name);
        let limited = row.read != Verdict::Full || row.write != Verdict::Full;
        assert_eq!(limited, !row.help.is_empty(), "{}", row.name);
        assert!(
            verdicts()
                .iter()
                .skip(n + 1)
                .all(|o| o.name != row.name && (o.set, o.bit) != (row.set, row.bit))
        );
    }
}
