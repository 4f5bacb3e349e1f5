//! Patterns of names: the part of extended regular expressions that names of attributes need.
//!
//! Input: an expression with `^`, `$`, `.`, `[...]`, `*`, `+`, `?`, `\`, `|`; `-` for all names. Output: whether a name has it. Invariant: an
//! expression that is not understood is refused. Limits: no groups, no counts in braces.
//! Source: man 1 getfattr (-m), man 7 regex.

/// A pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern(Vec<Branch>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Branch {
    from_start: bool,
    to_end: bool,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    what: What,
    least: usize,
    most: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Any,
    Byte(u8),
    Set { is: bool, ranges: Vec<(u8, u8)> },
}

impl Pattern {
    /// Takes an expression apart.
    ///
    /// # Errors
    /// What is not understood.
    pub(crate) fn parse(text: &str) -> Result<Pattern, String> {
        if text == "-" {
            return Ok(Pattern(vec![Branch::default()]));
        }
        let mut branches = vec![Branch::default()];
        let mut rest = text.as_bytes();
        while let Some((byte, after)) = rest.split_first() {
            let branch = branches.last_mut().expect("there is always one");
            rest = after;
            match byte {
                b'|' => branches.push(Branch::default()),
                b'^' if branch.parts.is_empty() => branch.from_start = true,
                b'$' if after.is_empty() || after[0] == b'|' => branch.to_end = true,
                b'*' | b'+' | b'?' => {
                    let part = branch.parts.last_mut().ok_or("nothing to repeat")?;
                    part.least = usize::from(*byte == b'+');
                    part.most = if *byte == b'?' { 1 } else { usize::MAX };
                }
                b'(' | b')' | b'{' | b'}' | b'^' | b'$' => {
                    return Err(format!("'{}' is not understood here", char::from(*byte)));
                }
                b'[' => {
                    let (set, after) = set(rest).ok_or("a set that does not end")?;
                    branch.push(set);
                    rest = after;
                }
                b'\\' => {
                    let (byte, after) = rest.split_first().ok_or("a backslash at the end")?;
                    branch.push(What::Byte(*byte));
                    rest = after;
                }
                b'.' => branch.push(What::Any),
                other => branch.push(What::Byte(*other)),
            }
        }
        Ok(Pattern(branches))
    }

    /// Is it in this name?
    pub(crate) fn matches(&self, name: &[u8]) -> bool {
        self.0.iter().any(|branch| {
            let last = if branch.from_start { 0 } else { name.len() };
            (0..=last).any(|at| here(&branch.parts, &name[at..], branch.to_end))
        })
    }
}

impl Branch {
    fn push(&mut self, what: What) {
        let (least, most) = (1, 1);
        self.parts.push(Part { what, least, most });
    }
}

impl What {
    fn is(&self, byte: u8) -> bool {
        match self {
            What::Any => true,
            What::Byte(one) => *one == byte,
            What::Set { is, ranges } => {
                let inside = ranges.iter().any(|(a, b)| (*a..=*b).contains(&byte));
                inside == *is
            }
        }
    }
}

/// Does the name begin with these parts?
fn here(parts: &[Part], name: &[u8], to_end: bool) -> bool {
    let Some((part, rest)) = parts.split_first() else {
        return !to_end || name.is_empty();
    };
    let run = name
        .iter()
        .take(part.most)
        .take_while(|b| part.what.is(**b))
        .count();
    (part.least..=run)
        .rev()
        .any(|n| here(rest, &name[n..], to_end))
}

/// A set behind its opening bracket, and what comes after it.
fn set(text: &[u8]) -> Option<(What, &[u8])> {
    let is = text.first() != Some(&b'^');
    let from = usize::from(!is);
    // A bracket that comes first is one of the set.
    let end = from + 1 + text.get(from + 1..)?.iter().position(|b| *b == b']')?;
    let (mut inside, mut ranges) = (&text[from..end], Vec::new());
    while let Some((first, rest)) = inside.split_first() {
        match rest {
            [b'-', last, after @ ..] => {
                ranges.push((*first, *last));
                inside = after;
            }
            after => {
                ranges.push((*first, *first));
                inside = after;
            }
        }
    }
    Some((What::Set { is, ranges }, &text[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions() {
        let cases = [
            ("-", "trusted.a", true),
            ("^user\\.", "user.a", true),
            ("^user\\.", "userxa", false),
            ("^user\\.", "trusted.user.a", false),
            ("a$", "user.a", true),
            ("a$", "user.ab", false),
            ("^(", "", false),
            ("^user\\.[ab]+$", "user.abba", true),
            ("^user\\.[^ab]$", "user.a", false),
            ("^user\\.[]x-z]$", "user.y", true),
            ("^user\\.[]x-z]$", "user.]", true),
            ("^trusted|^security", "security.x", true),
            ("^u.*r\\.a?b$", "user.b", true),
            ("", "anything", true),
        ];
        for (text, name, is) in cases {
            match Pattern::parse(text) {
                Ok(pattern) => assert_eq!(pattern.matches(name.as_bytes()), is, "{text} {name}"),
                Err(_) => assert_eq!(text, "^("),
            }
        }
        for wrong in ["*a", "a{2}", "[a", "a\\"] {
            assert!(Pattern::parse(wrong).is_err(), "{wrong}");
        }
    }
}
