//! What it is: recovers and judges one state.
//! Input: images as a power cut left them, what was requested and acknowledged, the position of the cut. Output: findings.
//! Steps: open the volume for writing, which recovers it, and judge it. If e2fsck is used, too: close it, and e2fsck must find
//! nothing; then replay the journal of the same images with e2fsck and judge the result in the same way. Limits: e2fsck sees the
//! bottom volume only.

use super::bed::Place;
use super::fsck::Scratch;
use super::judge::{Told, judge};
use super::recover::Bench;

/// Judges a state. See the module.
#[must_use]
pub fn judge_state(
    (bench, fsck): (&Bench, Option<&Scratch>),
    place: Place,
    images: &[Vec<u8>],
    (told, cut): (&Told, usize),
) -> Vec<String> {
    let mut found = by_diorite(bench, place, images, (told, cut), fsck);
    let Some(fsck) = fsck else { return found };
    match fsck.replay(place, images) {
        Ok(None) => (),
        Ok(Some(replayed)) => {
            let theirs = by_diorite(bench, place, &replayed, (told, cut), None);
            found.extend(theirs.into_iter().map(|f| format!("after e2fsck: {f}")));
        }
        Err(error) => found.push(format!("e2fsck recovers: {error}")),
    }
    found
}

/// The findings after a recovery by opening for writing.
fn by_diorite(
    bench: &Bench,
    place: Place,
    images: &[Vec<u8>],
    (told, cut): (&Told, usize),
    fsck: Option<&Scratch>,
) -> Vec<String> {
    bench.load(images);
    let stack = match bench.open(place, true) {
        Ok(stack) => stack,
        Err(error) => return vec![format!("it is not opened: {error}")],
    };
    let mut found = judge(&stack.top, told, cut);
    let Some(fsck) = fsck else { return found };
    if let Err(error) = stack.close(|| ()) {
        found.push(format!("it is not closed: {error}"));
    }
    if let Err(error) = fsck.check(place, &bench.save(images)) {
        found.push(format!("e2fsck -fn after our recovery: {error}"));
    }
    found
}
