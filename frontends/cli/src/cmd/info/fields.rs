//! The fields of the superblock: labels, order and conditions of `dumpe2fs -h`, and the names of the JSON fields.
//!
//! Input: a checked superblock. Output: [`Field`]s. Invariants: the text and the JSON are made from one list, so they agree; a
//! label appears exactly when `dumpe2fs` 1.47 prints it (found by experiment). Limits: the name of a user or group is printed
//! only for root; other ids are printed as numbers; multiple-mount protection's own block is not printed.

mod history;
mod places;
mod volume;

use crate::words::times::Clock;
use diorite_format::Superblock;
use serde_json::{Value, json};

/// One field, which is a line of text and an entry in JSON.
#[derive(Clone)]
pub(super) struct Field {
    /// The label of `dumpe2fs`; empty for a field that only JSON has.
    label: &'static str,
    /// The name in JSON; empty for a field that only the text has.
    pub(super) key: &'static str,
    text: String,
    pub(super) value: Value,
}

impl Field {
    /// The line, with its value in the 27th column; none for a field that only JSON has.
    pub(super) fn line(&self) -> Option<String> {
        const COLUMNS: &str = "                          ";
        // A formatter writes such spaces one by one.
        let spaces = COLUMNS.get(self.label.len() + 1..).unwrap_or_default();
        (!self.label.is_empty()).then(|| [self.label, ":", spaces, &self.text].concat())
    }
}

/// A list of fields under construction.
#[derive(Default)]
pub(super) struct List(pub(super) Vec<Field>);

impl List {
    /// Adds a field whose text differs from its JSON value.
    pub(super) fn field(
        &mut self,
        label: &'static str,
        key: &'static str,
        text: &str,
        value: Value,
    ) {
        let text = text.to_owned();
        self.0.push(Field {
            label,
            key,
            text,
            value,
        });
    }

    pub(super) fn number(&mut self, label: &'static str, key: &'static str, n: impl Into<Value>) {
        let value = n.into();
        self.field(label, key, &value.to_string(), value);
    }

    /// Adds a number unless it is 0.
    pub(super) fn number_if(&mut self, label: &'static str, key: &'static str, n: impl Into<u64>) {
        match n.into() {
            0 => {}
            n => self.number(label, key, n),
        }
    }

    pub(super) fn text(&mut self, label: &'static str, key: &'static str, text: &str) {
        self.field(label, key, text, json!(text));
    }

    pub(super) fn hex(&mut self, label: &'static str, key: &'static str, n: u32) {
        self.field(label, key, &format!("{n:#010x}"), json!(n));
    }
}

/// All fields of the superblock, in order.
pub(super) fn of(sb: &Superblock, clock: &Clock) -> Vec<Field> {
    let mut list = List::default();
    volume::identity(sb, &mut list);
    volume::behaviour(sb, &mut list);
    volume::counts(sb, &mut list);
    volume::groups(sb, &mut list);
    history::times(sb.info(), clock, &mut list);
    history::owners(sb.info(), &mut list);
    places::inodes(sb, &mut list);
    places::journal(sb, &mut list);
    places::hashes(sb, &mut list);
    history::errors(sb.info(), clock, &mut list);
    places::mmp_and_quota(sb, &mut list);
    places::checksums(sb, &mut list);
    list.0
}

/// The text, or `none` if it is empty.
fn or<'a>(text: &'a str, none: &'a str) -> &'a str {
    if text.is_empty() { none } else { text }
}
