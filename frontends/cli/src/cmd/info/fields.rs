//! The superblock's lines: labels, order and conditions of `dumpe2fs -h`, and the names that scripts use.
//!
//! Input: a checked superblock. Output: [`Field`]s. Invariants: one list makes the text and the JSON, so they agree; a label
//! appears exactly when `dumpe2fs` 1.47 prints it (found by experiment). Limits: names of users and groups are those of
//! the host for root only, else left out; multiple-mount protection's own block is not printed.

mod history;
mod places;
mod volume;

use crate::times::Clock;
use diorite_format::Superblock;
use serde_json::{Value, json};

/// One line.
#[derive(Clone)]
pub(super) struct Field {
    /// As `dumpe2fs` writes it; empty for what only JSON has.
    label: &'static str,
    /// The field's name in JSON; empty for what only the text has.
    pub(super) key: &'static str,
    text: String,
    pub(super) value: Value,
}

impl Field {
    pub(super) fn new(label: &'static str, key: &'static str, text: String, value: Value) -> Field {
        Field {
            label,
            key,
            text,
            value,
        }
    }

    pub(super) fn number(label: &'static str, key: &'static str, n: impl Into<Value>) -> Field {
        let value = n.into();
        Field::new(label, key, value.to_string(), value)
    }

    pub(super) fn text(label: &'static str, key: &'static str, text: &str) -> Field {
        Field::new(label, key, text.to_owned(), json!(text))
    }

    fn hex(label: &'static str, key: &'static str, n: u32) -> Field {
        Field::new(label, key, format!("{n:#010x}"), json!(n))
    }

    /// The line, its value in the 27th column; none for what only JSON has.
    pub(super) fn line(&self) -> Option<String> {
        let label = format!("{}:", self.label);
        (!self.label.is_empty()).then(|| format!("{label:<26}{}", self.text))
    }
}

/// A UUID as text; null if it is all zeros.
pub(super) fn uuid(raw: &[u8; 16]) -> Option<String> {
    if *raw == [0; 16] {
        return None;
    }
    let hex = crate::names::hex(raw);
    Some(
        [
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..],
        ]
        .join("-"),
    )
}

/// All lines of the superblock, in order.
pub(super) fn of(sb: &Superblock, clock: &Clock) -> Vec<Field> {
    let mut fields = volume::identity(sb);
    fields.extend(volume::behaviour(sb));
    fields.extend(volume::counts(sb));
    fields.extend(volume::groups(sb));
    fields.extend(history::history(sb.info(), clock));
    fields.extend(places::inodes(sb));
    fields.extend(places::journal(sb));
    fields.extend(places::hashes(sb));
    fields.extend(history::errors(sb.info(), clock));
    fields.extend(places::extras(sb));
    fields
}

/// The text, or what stands for none.
fn or<'a>(text: &'a str, none: &'a str) -> &'a str {
    if text.is_empty() { none } else { text }
}
