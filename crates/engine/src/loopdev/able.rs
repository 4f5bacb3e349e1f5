//! What the file of a loop device can do with ranges, as far as it is known: what it has refused once is not asked of it again.
//!
//! Input: the kind of the file's map; operations that it has refused. Output: [`Abilities`]. Invariants: an ability that is lost stays
//! lost (rule L5). Limits: none.

use super::words::{Abilities, ZERO};
use crate::op::{Fallocate, Op};
use diorite_format::MapKind;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[derive(Debug)]
pub(super) struct Able {
    punch: AtomicBool,
    zero: AtomicBool,
}

impl Able {
    pub(super) fn of_map(kind: MapKind) -> Able {
        Able {
            punch: AtomicBool::new(matches!(kind, MapKind::Extents | MapKind::Indirect)),
            zero: AtomicBool::new(kind == MapKind::Extents),
        }
    }

    pub(super) fn now(&self) -> Abilities {
        Abilities {
            punch: self.punch.load(Relaxed),
            zero: self.zero.load(Relaxed),
        }
    }

    /// Notes that the file has refused what was asked of it, for good.
    pub(super) fn note_refused(&self, asked: Op) {
        match asked {
            Op::Fallocate(Fallocate::PunchHole) => self.punch.store(false, Relaxed),
            Op::Fallocate(mode) if mode == ZERO => self.zero.store(false, Relaxed),
            _ => {}
        }
    }
}
