//! What it is: the judge of a file that is changed by one request at a time.
//! Input: the file's changes up to a cut, and what it holds after recovery. Output: nothing, or why it is in none of the states
//! that it may be in.
//! With a journal, the whole file is in one state: after its last durable change or after a later one, or in an intermediate state
//! of a change that is made in several steps. Data that was acknowledged before a visible change is there, because data is
//! written before transactions, and these are durable in order.
//! Invariant: every sector is judged. Limit: without a journal, changes that are not durable are judged only by `cut_in_two`.

mod cut_in_two;

use super::Expect;
use crate::bed::Mode;
use crate::history::{Action, Start, Usage, What};
use crate::stamp::{Held, SECTOR, held};
use crate::states::{Block, Change, Content, State, States};
use diorite::{OpenFlags, Volume};
use std::ops::Range;

/// A state that the file may be in, possibly an intermediate one.
struct Form {
    state: State,
    /// Each of these sectors may already be zeros.
    zeroed: Range<u64>,
    /// The number of the last durable change.
    base: usize,
}

/// The changes of the file.
struct Changes<'a> {
    list: &'a [&'a Change],
    /// Writes go through the journal, and may be there in parts, from the front on.
    in_parts: bool,
}

/// What the file holds after recovery.
struct Seen {
    /// None if the file does not exist.
    sectors: Option<Vec<Held>>,
}

impl Expect {
    pub(super) fn judge_alone(
        &self,
        volume: &Volume,
        mode: Mode,
        (number, start): (u32, &Start),
        found: &mut Vec<String>,
    ) {
        let path = &start.path;
        let seen = match look(volume, path) {
            Ok(seen) => seen,
            Err(why) => return found.push(format!("{path}: {why}")),
        };
        let changes: Vec<(u32, &Action, &Change)> = self
            .history
            .begun(self.at)
            .filter_map(|(n, action)| match &action.what {
                What::Change { file, change } if *file == number => Some((n, action, change)),
                _ => None,
            })
            .collect();
        let sb = volume.superblock();
        let units = (sb.block_size(), sb.geometry().cluster_ratio());
        let mut states = States::new(start, start.usage == Usage::Alone, units);
        for (n, _, change) in &changes {
            states.apply(*n, change);
        }
        let durable = changes.iter().rposition(|(_, a, _)| self.is_durable(a));
        let durable = durable.map_or(0, |at| at + 1);
        let changes: Vec<&Change> = changes.iter().map(|(_, _, c)| *c).collect();
        let judged = match self.may_lose(number, mode) {
            true => cut_in_two::judge(number, &states, &changes, durable, &seen),
            false => {
                let changes = Changes {
                    list: &changes,
                    in_parts: self.in_parts(number, mode),
                };
                judge_states(number, &states, &changes, durable, &seen)
            }
        };
        if let Err(why) = judged {
            found.push(format!("{path}: {why}"));
        }
    }
}

fn look(volume: &Volume, path: &str) -> Result<Seen, String> {
    let file = match volume.open_path(path, OpenFlags::default()) {
        Err(diorite::Error::NotFound { .. }) => return Ok(Seen { sectors: None }),
        other => other.map_err(|e| e.to_string())?,
    };
    let size = usize::try_from(file.size()).map_err(|e| e.to_string())?;
    let mut bytes = vec![0; size];
    file.read_bytes(0, &mut bytes).map_err(|e| e.to_string())?;
    let sectors = bytes.chunks(SECTOR).map(held).collect();
    Ok(Seen {
        sectors: Some(sectors),
    })
}

fn judge_states(
    number: u32,
    states: &States,
    changes: &Changes<'_>,
    durable: usize,
    seen: &Seen,
) -> Result<(), String> {
    let mut nearest: Option<(u64, String)> = None;
    for at in durable..states.list.len() {
        for form in forms(states, changes, at, durable) {
            match fits(number, states, &form, seen) {
                Ok(()) => return Ok(()),
                Err((sector, why)) if nearest.as_ref().is_none_or(|(s, _)| *s <= sector) => {
                    let change = at.checked_sub(1).and_then(|c| changes.list.get(c));
                    nearest = Some((sector, format!("after {at} changes ({change:?}) {why}")));
                }
                Err(_) => {}
            }
        }
    }
    let count = states.list.len();
    let (_, why) = nearest.unwrap_or_default();
    Err(format!(
        "in none of its states from {durable} on, of {count}: the nearest is {why}"
    ))
}

/// The state after change `at`, and the intermediate states of that change.
fn forms(states: &States, changes: &Changes<'_>, at: usize, durable: usize) -> Vec<Form> {
    let whole = |state: &State, base| Form {
        state: state.clone(),
        zeroed: 0..0,
        base,
    };
    // A change that is not visible does not show that what came before it is durable.
    let visible = |upto: usize| (1..=upto).rfind(|n| states.list[*n] != states.list[*n - 1]);
    let base_of = |upto: usize| durable.max(visible(upto).unwrap_or(0));
    let mut forms = vec![whole(&states.list[at], base_of(at))];
    let Some(before) = at.checked_sub(1).filter(|before| *before >= durable) else {
        return forms;
    };
    let (previous, base) = (&states.list[before], base_of(before));
    let partly = |sectors: &Range<u64>| Form {
        zeroed: sectors.clone(),
        ..whole(previous, base)
    };
    match changes.list[before] {
        Change::Write(sectors) if changes.in_parts => {
            let (parts, after) = (states.blocks(sectors), &states.list[at]);
            forms.extend((parts.start + 1..parts.end).map(|end| {
                let state = previous.clone().written(after, end, states.per_block());
                whole(&state, base)
            }));
        }
        Change::Punch(sectors) | Change::Zero(sectors, _) => forms.push(partly(sectors)),
        Change::Collapse(sectors) => {
            let out = states.blocks(sectors);
            forms.push(partly(sectors));
            let all = previous.sectors.div_ceil(states.per_block());
            let moved = previous.clone().without(out.clone());
            forms.extend((out.start..all).map(|hole| {
                let state = moved.clone().with_hole(hole, out.end - out.start);
                whole(&state, base)
            }));
        }
        Change::Insert(sectors) => {
            let new = states.blocks(sectors);
            let all = states.list[at].sectors.div_ceil(states.per_block());
            forms.extend((new.start..all).map(|hole| {
                let mut state = previous.clone().with_hole(hole, new.end - new.start);
                state.sectors = states.list[at].sectors;
                whole(&state, base)
            }));
        }
        _ => {}
    }
    forms
}

/// Fails with the first sector that does not fit, and why.
fn fits(number: u32, states: &States, form: &Form, seen: &Seen) -> Result<(), (u64, String)> {
    let Some(sectors) = &seen.sectors else {
        let there = form.state.there;
        return (!there).then_some(()).ok_or((0, "not gone".into()));
    };
    if !form.state.there || form.state.sectors != sectors.len() as u64 {
        let (there, expected) = (form.state.there, form.state.sectors);
        let why = format!(
            "there: {there}, {expected} sectors; it has {}",
            sectors.len()
        );
        return Err((0, why));
    }
    let (per, last) = (states.per_block(), states.list.len() - 1);
    for (sector, seen) in (0u64..).zip(sectors) {
        let block = usize::try_from(sector / per).ok();
        let block = block.and_then(|b| form.state.blocks.get(b));
        let mut may = match block {
            Some(Block::Written(cell)) => {
                let cell = cell + usize::try_from(sector % per).unwrap_or(0);
                states.may_hold(cell, form.base, last)
            }
            _ => vec![Content::Zeros],
        };
        if form.zeroed.contains(&sector) {
            may.push(Content::Zeros);
        }
        if !may.iter().any(|content| is(number, *content, seen)) {
            let why = format!("sector {sector} holds {seen:?}; it may hold {may:?}");
            return Err((sector + 1, why));
        }
    }
    Ok(())
}

fn is(number: u32, content: Content, seen: &Held) -> bool {
    match (content, seen) {
        (Content::Zeros, Held::Zeros) => true,
        (Content::Stamp { sector, write }, Held::Stamp(stamp)) => {
            (stamp.file, stamp.sector, stamp.write) == (number, sector, write)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
