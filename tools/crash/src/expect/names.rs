//! What it is: the judge of the tree of names.
//! Input: the operations up to a cut, and the tree after recovery. Output: nothing, or how the tree differs from the nearest
//! expected one.
//! With a journal, each operation is in one transaction, and transactions are durable in order. So the tree is exactly that after
//! the last durable operation, or after a later one that had begun: never half an operation, and never both or none of the names of
//! a rename.
//! Limit: without a journal nothing is promised about names; that e2fsck finds nothing afterwards is checked elsewhere.

use super::Expect;
use crate::bed::Mode;
use crate::history::What;
use crate::names::{NameOp, Tree};
use diorite::Volume;
use std::collections::BTreeMap;

impl Expect {
    pub(super) fn judge_names(&self, volume: &Volume, mode: Mode, found: &mut Vec<String>) {
        if mode == Mode::None {
            return;
        }
        let seen = match Tree::of(volume) {
            Ok(None) => return,
            Ok(Some(tree)) => tree,
            Err(error) => return found.push(format!("the tree of names: {error}")),
        };
        let ops: Vec<(&NameOp, bool)> = self
            .history
            .begun(self.at)
            .filter_map(|(_, action)| match &action.what {
                What::Names(op) => Some((op, action.durable.is_some_and(|mark| mark < self.at))),
                _ => None,
            })
            .collect();
        let durable = ops.iter().rposition(|(_, durable)| *durable);
        let least = durable.map_or(0, |at| at + 1);
        let (seen, mut tree, mut nearest) = (seen.seen(), Tree::default(), None);
        for done in 0..=ops.len() {
            if done > 0 && !tree.apply(ops[done - 1].0) {
                return found.push(format!("operation {done} of the history cannot be done"));
            }
            if done < least {
                continue;
            }
            let expected = tree.seen();
            if expected == seen {
                return;
            }
            let wrong = difference(&expected, &seen);
            if nearest
                .as_ref()
                .is_none_or(|(count, _)| wrong.len() < *count)
            {
                let last = done.checked_sub(1).map(|at| ops[at].0);
                let why = wrong.first().cloned().unwrap_or_default();
                nearest = Some((wrong.len(), format!("after {done} ({last:?}): {why}")));
            }
        }
        let (count, why) = nearest.unwrap_or_default();
        found.push(format!(
            "the tree of names is none of those after operations {least} to {}: {count} names differ from that {why}",
            ops.len()
        ));
    }
}

fn difference(expected: &BTreeMap<&str, String>, seen: &BTreeMap<&str, String>) -> Vec<String> {
    let missing = expected
        .iter()
        .filter(|(path, what)| seen.get(*path) != Some(*what));
    let missing = missing.map(|(path, what)| {
        let is = seen.get(path).map_or("not there", String::as_str);
        format!("{path} is {is}, not {what}")
    });
    let more = seen
        .iter()
        .filter(|(path, _)| !expected.contains_key(*path));
    missing
        .chain(more.map(|(path, what)| format!("{path} is there: {what}")))
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::bed::Bed;
    use crate::history::{History, Note};
    use crate::names::{How, Make};
    use diorite::OpenOptions;
    use diorite_block::MemDevice;
    use std::sync::Arc;

    /// The findings for an image on which only the first `done` of some operations were made. All operations are noted as
    /// acknowledged, and as durable if `durable` is set.
    fn judged(done: usize, durable: bool) -> Vec<String> {
        let bed = Bed::make(Mode::Ordered, 16, 3).unwrap();
        let device = Arc::new(MemDevice::new(bed.image.len() as u64));
        device.write_at(0, &bed.image);
        let volume = Volume::open_device(device, &OpenOptions::writable()).unwrap();
        let ops = [
            NameOp::Make("/d".into(), Make::Dir),
            NameOp::Make("/f".into(), Make::Temporary),
            NameOp::Link("/f".into(), "/d/second".into()),
            NameOp::Attribute("/f".into(), 0, Some(40)),
            NameOp::Rename("/d".into(), "/e".into(), How::Whiteout),
            NameOp::Rename("/f".into(), "/d".into(), How::Exchange),
        ];
        let mut history = History::new(Vec::new());
        for (number, op) in (1..).zip(&ops) {
            history.note(&Note::Begun(What::Names(op.clone())), 2 * number as usize);
            history.note(&Note::Acked(number), 2 * number as usize + 1);
        }
        if durable {
            history.note(&Note::Begun(What::SyncAll), 50);
            history.note(&Note::Acked(ops.len() as u32 + 1), 51);
        }
        ops[..done].iter().for_each(|op| op.ask(&volume).unwrap());
        let expect = Expect { history, at: 100 };
        let mut found = Vec::new();
        expect.judge_names(&volume, Mode::Ordered, &mut found);
        found
    }

    #[test]
    fn what_is_durable_has_to_be_there() {
        assert_eq!(judged(6, true), [""; 0]);
        assert_eq!(judged(3, false), [""; 0]);
        let found = judged(5, true);
        assert!(found[0].contains("after operations 6 to 6"), "{found:?}");
    }
}
