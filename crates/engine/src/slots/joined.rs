//! Writes of neighbouring blocks that go to the device as one request: as for many small files whose blocks were allocated one after the
//! other.
//!
//! Input: bios on their way down; bios that came back. Output: fewer bios; those that went in, with their own memory and tokens, and the
//! members of a joined one that failed, to be tried alone. Invariants: only plain writes are joined, each with the one in front of it in
//! the list; every bio comes back once, with its own result: what fails for its neighbours fails for it only if it fails alone. Limits:
//! [`MOST`] bytes and [`MOST_PARTS`] pieces of memory in one request.

use diorite_block::{Bio, BioErrorKind, BioFlags, BioOp, Buf};

/// A flag in the token of a joined bio: the 32 bits below are its number here.
const JOINED: u64 = 0x2_0000_0000;
/// A flag in the token of a bio that was joined and failed: it goes down alone. Nobody else looks at it.
const ALONE: u64 = 0x4_0000_0000;

/// The longest request, in bytes, and the most pieces of memory in it.
const MOST: u64 = 1 << 20;
const MOST_PARTS: usize = 256;

/// What went into a joined bio: tokens and lengths.
type Members = Vec<(u64, usize)>;

/// The joined bios of a queue.
#[derive(Debug, Default)]
pub(crate) struct Joined {
    /// By their numbers; those that are not under way are empty.
    under_way: Vec<Members>,
}

impl Joined {
    /// Joins neighbours in the list, up to the device's longest request.
    pub(crate) fn join(&mut self, bios: &mut Vec<Bio>, max_transfer: u32) {
        if bios.len() < 2 {
            return;
        }
        let most = MOST.min(u64::from(max_transfer));
        let list = std::mem::take(bios);
        let (mut parts, mut members): (Vec<Buf>, Members) = (Vec::new(), Vec::new());
        let mut last: Option<Bio> = None;
        let (mut len, mut pieces) = (0, 0);
        for mut bio in list {
            let count = bio.buf.parts().count();
            let fits = pieces + count <= MOST_PARTS && len + bio.len <= most;
            match &mut last {
                Some(front) if fits && may_join(front, &bio, len) => {
                    if members.is_empty() {
                        members.push((front.token, front.buf.len()));
                        parts.push(std::mem::replace(&mut front.buf, Buf::empty()));
                    }
                    members.push((bio.token, bio.buf.len()));
                    parts.push(std::mem::replace(&mut bio.buf, Buf::empty()));
                    (len, pieces) = (len + bio.len, pieces + count);
                }
                _ => {
                    bios.extend(self.whole(last.take(), &mut parts, &mut members));
                    (len, pieces) = (bio.len, count);
                    last = Some(bio);
                }
            }
        }
        bios.extend(self.whole(last, &mut parts, &mut members));
    }

    /// The bio that begins with `front`, with everything that was joined to it.
    fn whole(
        &mut self,
        front: Option<Bio>,
        parts: &mut Vec<Buf>,
        members: &mut Members,
    ) -> Option<Bio> {
        let mut bio = front?;
        if members.is_empty() {
            return Some(bio);
        }
        bio.buf = Buf::from_parts(std::mem::take(parts));
        bio.len = bio.buf.len() as u64;
        let members = std::mem::take(members);
        let free = self.under_way.iter().position(Vec::is_empty);
        let number = free.unwrap_or(self.under_way.len());
        match free {
            Some(n) => self.under_way[n] = members,
            None => self.under_way.push(members),
        }
        bio.token = JOINED | number as u64;
        bio.flags.polled = false;
        Some(bio)
    }

    /// Is it one that was joined?
    pub(crate) fn has(bio: &Bio) -> bool {
        bio.token & JOINED != 0
    }

    /// Takes joined bios apart again. The members of those that have failed go to `again`.
    #[inline]
    pub(crate) fn part(&mut self, bios: &mut Vec<Bio>, again: &mut Vec<Bio>) {
        if bios.iter().any(Joined::has) {
            self.part_some(bios, again);
        }
    }

    #[inline(never)]
    fn part_some(&mut self, bios: &mut Vec<Bio>, again: &mut Vec<Bio>) {
        for bio in std::mem::take(bios) {
            if !Joined::has(&bio) {
                bios.push(bio);
                continue;
            }
            // A device that had lost it, and gives it back nevertheless, gives back nothing that anybody waits for.
            let number = (bio.token & !JOINED) as usize;
            let members = self.under_way.get_mut(number).map(std::mem::take);
            let retried = bio.result.is_err_and(|e| e.kind != BioErrorKind::Gone);
            let (mut rest, mut at) = (bio.buf, bio.pos);
            for (token, len) in members.unwrap_or_default() {
                let behind = rest.split_off(len);
                let mut member = Bio::write(at, std::mem::replace(&mut rest, behind), token);
                at += len as u64;
                if retried {
                    member.token |= ALONE;
                    again.push(member);
                } else {
                    member.result = bio.result;
                    bios.push(member);
                }
            }
        }
    }

    /// Forgets everything: the device has lost it.
    pub(crate) fn forget(&mut self) {
        *self = Joined::default();
    }
}

/// May `bio` be joined to a bio that begins with `front` and has `len` bytes already?
fn may_join(front: &Bio, bio: &Bio, len: u64) -> bool {
    // A mark for a ring that is polled is no reason: one request of many is worth more, and only single ones of one buffer go there.
    let has_flags = |bio: &Bio| {
        let plain = BioFlags::default().polled(bio.flags.polled);
        bio.flags != plain
    };
    let plain = |bio: &Bio| {
        let is_write = bio.op == BioOp::Write && bio.len > 0;
        is_write && !has_flags(bio) && bio.token & (JOINED | ALONE) == 0
    };
    plain(front) && plain(bio) && front.pos.checked_add(len) == Some(bio.pos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_block::{BioError, Shared};

    const TRANSFER: u32 = 1 << 30;

    fn write(pos: u64, len: usize, token: u64) -> Bio {
        let memory = Shared::try_zeroed(len).unwrap();
        Bio::write(pos, memory.lend(0..len), token)
    }

    fn places(bios: &[Bio]) -> Vec<(u64, u64)> {
        bios.iter().map(|bio| (bio.pos, bio.len)).collect()
    }

    #[test]
    fn neighbours_go_together_and_come_back_apart() {
        let mut joined = Joined::default();
        let mut bios = vec![
            write(4096, 4096, 1),
            write(8192, 8192, 2),
            write(16_384, 4096, 3),
            // Behind a hole, then in front of it.
            write(24_576, 4096, 4),
            write(20_480, 4096, 5),
        ];
        let addresses: Vec<_> = bios.iter().map(|bio| bio.buf.contiguous()).collect();
        joined.join(&mut bios, TRANSFER);
        assert_eq!(
            places(&bios),
            [(4096, 16_384), (24_576, 4096), (20_480, 4096)]
        );
        assert_eq!((bios[0].buf.len(), bios[1].token), (16_384, 4));
        // They come back in another order.
        bios.rotate_left(1);
        joined.part(&mut bios, &mut Vec::new());
        bios.sort_by_key(|bio| bio.token);
        assert_eq!(
            places(&bios),
            [
                (4096, 4096),
                (8192, 8192),
                (16_384, 4096),
                (24_576, 4096),
                (20_480, 4096)
            ]
        );
        let back: Vec<_> = bios.iter().map(|bio| bio.buf.contiguous()).collect();
        assert_eq!(back, addresses, "each has its own memory again");
    }

    /// Of a joined bio that fails each member is tried alone; none is if the device is gone.
    #[test]
    fn what_fails_together_is_tried_alone() {
        for (kind, alone) in [(BioErrorKind::Io, 2), (BioErrorKind::Gone, 0)] {
            let mut joined = Joined::default();
            let mut bios = vec![
                write(0, 4096, 1),
                write(4096, 4096, 2),
                write(65_536, 4096, 3),
            ];
            joined.join(&mut bios, TRANSFER);
            bios[0].result = Err(BioError::new(kind));
            let mut again = Vec::new();
            joined.part(&mut bios, &mut again);
            assert_eq!((bios.len(), again.len()), (3 - alone, alone));
            let failed = bios.iter().filter(|bio| bio.result.is_err()).count();
            assert_eq!(failed, 2 - alone);
            let tokens: Vec<u32> = again.iter().map(|bio| bio.token as u32).collect();
            assert_eq!(tokens, [1, 2][..alone]);
            let before = places(&again);
            joined.join(&mut again, TRANSFER);
            assert_eq!(places(&again), before, "they are not joined again");
            assert!(again.iter().all(|bio| bio.result.is_ok()));
        }
    }

    /// What was forgotten and comes back nevertheless is nobody's.
    #[test]
    fn what_was_forgotten_is_dropped() {
        let mut joined = Joined::default();
        let mut bios = vec![write(0, 4096, 1), write(4096, 4096, 2)];
        joined.join(&mut bios, TRANSFER);
        joined.forget();
        joined.part(&mut bios, &mut Vec::new());
        assert!(bios.is_empty());
    }

    #[test]
    fn only_plain_writes_are_joined() {
        let mut durable = write(4096, 4096, 2);
        durable.flags.fua = true;
        let mut bios = vec![
            write(0, 4096, 1),
            durable,
            Bio::read(8192, Buf::zeroed(4096), 3),
            Bio::range(BioOp::WriteZeroes, 12_288, 4096, 4),
            write(16_384, 4096, 5),
        ];
        let before = places(&bios);
        Joined::default().join(&mut bios, TRANSFER);
        assert_eq!(places(&bios), before);
    }

    /// Bios that were marked to be polled were never joined, although polling was off long since.
    #[test]
    fn marked_neighbours_are_joined_and_not_polled() {
        let mut joined = Joined::default();
        let mut bios = vec![
            write(0, 4096, 1),
            write(4096, 4096, 2),
            write(8192, 4096, 3),
        ];
        bios[0].flags.polled = true;
        bios[2].flags.polled = true;
        joined.join(&mut bios, TRANSFER);
        assert_eq!(places(&bios), [(0, 12_288)]);
        assert!(!bios[0].flags.polled, "it has several parts");
        joined.part(&mut bios, &mut Vec::new());
        assert_eq!(bios.len(), 3);
    }

    #[test]
    fn a_request_has_a_most_length() {
        let mut joined = Joined::default();
        let all = |len: usize, count: u64| -> Vec<Bio> {
            (0..count).map(|n| write(n * len as u64, len, n)).collect()
        };
        let mut bios = all(4096, 5);
        joined.join(&mut bios, 8192);
        assert_eq!(places(&bios), [(0, 8192), (8192, 8192), (16_384, 4096)]);
        let mut many = all(512, 600);
        joined.join(&mut many, TRANSFER);
        let lengths: Vec<u64> = many.iter().map(|bio| bio.len / 512).collect();
        assert_eq!(lengths, [256, 256, 88]);
        let mut long = all(1 << 19, 3);
        joined.join(&mut long, TRANSFER);
        assert_eq!(places(&long), [(0, 1 << 20), (1 << 20, 1 << 19)]);
        // A list that the device has not taken is not joined again: both parts are there.
        bios.extend(many);
        joined.join(&mut bios, TRANSFER);
        joined.part(&mut bios, &mut Vec::new());
        assert_eq!(bios.len(), 605);
    }
}
