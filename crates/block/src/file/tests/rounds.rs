//! The meaning of the host's results: every result for every kind of request, without a host that returns it.

use super::super::round::{Round, apply_result, plan};
use super::super::slots::{HostOp, Slots};
use super::*;

/// Gives a bio these results one after another; returns how it ended, and where the next round would have begun.
fn answer(bio: Bio, answers: &[i64]) -> (Option<Bio>, u64) {
    let image = Image::new("/dev/shm", 65536).expect("tmpfs");
    let device = image.open(IoEngine::Threads);
    let (slots, mut taker, _) = Slots::new(1);
    let index = slots.take(&mut taker).expect("it is free");
    // SAFETY: the slot was taken a line above.
    let slot = unsafe { slots.slot(index) };
    let op = plan(&device.target, &bio);
    slot.fill(bio, op);
    for (i, answer) in answers.iter().enumerate() {
        if apply_result(&device.target, slot, *answer) == Round::Ended {
            assert_eq!(i + 1, answers.len(), "it ended early: {:?}", slot.bio);
            return (slot.bio.take(), slot.done);
        }
    }
    (None, slot.done)
}

fn ended(bio: Bio, answers: &[i64]) -> Result<(), BioError> {
    answer(bio, answers).0.expect("it has ended").result
}

fn read(len: usize) -> Bio {
    Bio::read(0, Buf::zeroed(len), 0)
}

fn write(len: usize) -> Bio {
    Bio::write(0, Buf::zeroed(len), 0)
}

const fn no(errno: i32) -> i64 {
    -(errno as i64)
}

/// Rules L2, L3: short transfers continue.
#[test]
fn short_transfers_go_on() {
    assert_eq!(ended(read(8192), &[512, 7680]), Ok(()));
    assert_eq!(ended(write(8192), &[4096, 512, 3584]), Ok(()));
    assert_eq!(answer(write(8192), &[4096]).1, 4096);
    // Neither at a block boundary nor at the end of the file: the block is requested again.
    assert_eq!(answer(read(8192), &[1000]).1, 512);
    assert_eq!(answer(write(8192), &[1000]).1, 512);
}

/// Rule G11: EAGAIN without NOWAIT is retried.
#[test]
fn interruptions_are_asked_again() {
    let storm = [no(libc::EINTR), no(libc::EAGAIN), no(libc::ECANCELED), 4096];
    assert_eq!(ended(read(4096), &storm), Ok(()));
    assert_eq!(ended(write(4096), &storm), Ok(()));
    assert_eq!(ended(Bio::flush(0), &[no(libc::EINTR), 0]), Ok(()));
}

#[test]
fn a_storm_without_end_is_an_error_and_not_a_hang() {
    let storm = vec![no(libc::EAGAIN); 10_001];
    let error = ended(read(4096), &storm).expect_err("no progress");
    assert_eq!(error.kind, BioErrorKind::Io);
    let nothing = vec![0; 10_001];
    ended(write(4096), &nothing).expect_err("no progress");
}

#[test]
fn nowait_is_told_that_it_would_block() {
    let mut bio = read(4096);
    bio.flags.nowait = true;
    let error = ended(bio, &[no(libc::EAGAIN)]).expect_err("it would block");
    assert_eq!(error.kind, BioErrorKind::WouldBlock);
    // A file system without NOWAIT is asked again without it.
    let mut bio = write(4096);
    bio.flags.nowait = true;
    assert_eq!(ended(bio, &[no(libc::EOPNOTSUPP), 4096]), Ok(()));
}

#[test]
fn errors_keep_their_kind_and_number() {
    let cases = [
        (libc::EIO, BioErrorKind::Io),
        (libc::ENOSPC, BioErrorKind::NoSpace),
        (libc::EDQUOT, BioErrorKind::NoSpace),
        (libc::EINVAL, BioErrorKind::Invalid),
        (libc::ENODEV, BioErrorKind::Gone),
        (libc::EILSEQ, BioErrorKind::Io),
    ];
    for (errno, kind) in cases {
        let want = BioError {
            kind,
            os: errno as u16,
        };
        assert_eq!(ended(write(4096), &[no(errno)]), Err(want));
        assert_eq!(
            ended(write(8192), &[4096, no(errno)]),
            Err(want),
            "after a part"
        );
        assert_eq!(ended(Bio::flush(0), &[no(errno)]), Err(want));
    }
}

#[test]
fn a_host_without_holes_turns_the_feature_off() {
    let range = |op| Bio::range(op, 0, 4096, 0);
    let refused = no(libc::EOPNOTSUPP);
    assert_eq!(
        ended(range(BioOp::Discard), &[refused]),
        Ok(()),
        "only a hint"
    );
    let unmap = range(BioOp::WriteZeroesUnmap);
    assert_eq!(ended(unmap, &[refused, 0]), Ok(()), "zeroed instead");
    let unmap = range(BioOp::WriteZeroesUnmap);
    let error = ended(unmap, &[refused, refused]).expect_err("neither");
    assert_eq!(error.kind, BioErrorKind::Unsupported);
    let error = ended(range(BioOp::WriteZeroes), &[no(libc::EIO)]).expect_err("a real error");
    assert_eq!(error.kind, BioErrorKind::Io);
}

#[test]
fn what_is_known_before_is_not_asked() {
    let image = Image::new("/dev/shm", 65536).expect("tmpfs");
    let device = FileDevice::open(&FileOptions {
        read_only: true,
        ..options(&image.path, IoEngine::Threads)
    })
    .expect("it can be read");
    assert_eq!(plan(&device.target, &Bio::flush(0)), Ok(HostOp::Nothing));
    assert_eq!(plan(&device.target, &read(0)), Ok(HostOp::Nothing));
    assert!(plan(&device.target, &write(512)).is_err());
}
