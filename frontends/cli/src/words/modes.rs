//! Permissions in chmod's notation: an octal number, or letters that change the present permissions.
//!
//! Input: a word of the command line. Output: a [`ModeChange`]. Invariant: a change does not depend on a file until it is
//! applied. Limits: no umask is used: without one of the letters u, g, o, a change applies to all.

/// What `chmod` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ModeChange {
    /// Set exactly these bits.
    Exactly(u16),
    /// Apply these changes one after the other.
    Steps(Vec<Step>),
}

/// One symbolic change, such as `go-w`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The bits of the classes that the change applies to, set-uid, set-gid and sticky included.
    who: u16,
    how: char,
    bits: u16,
    /// `X`: execute permission only for directories and for files that have an execute bit already.
    careful: bool,
    /// Copy the bits of a class, given as its shift: 6 for the user, 3 for the group, 0 for others.
    copied: Option<u32>,
}

const ALL: u16 = 0o7777;

/// What the names of the attributes begin with that hold ACLs, which would contradict a changed mode.
pub(crate) const ACL: &[u8] = b"system.posix_acl_";

impl ModeChange {
    /// Reads `755`, `u+x`, `go-w,a=rX`, `+t`.
    pub(crate) fn parse(text: &str) -> Result<ModeChange, String> {
        let wrong = || format!("invalid mode: {text}");
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            let bits = u16::from_str_radix(text, 8).ok().filter(|b| *b <= ALL);
            return bits.map(ModeChange::Exactly).ok_or_else(wrong);
        }
        let mut steps = Vec::new();
        for clause in text.split(',') {
            let at = clause.find(['+', '-', '=']).ok_or_else(wrong)?;
            let (who, mut rest) = clause.split_at(at);
            let who = mask_of(who).ok_or_else(wrong)?;
            while let Some(how) = rest.chars().next() {
                rest = &rest[1..];
                let end = rest.find(['+', '-', '=']).unwrap_or(rest.len());
                let (letters, next) = rest.split_at(end);
                steps.push(step(who, how, letters).ok_or_else(wrong)?);
                rest = next;
            }
        }
        Ok(ModeChange::Steps(steps))
    }

    /// The permissions after the change.
    pub(crate) fn of(&self, before: u16, is_dir: bool) -> u16 {
        let steps = match self {
            // A directory keeps set-uid and set-gid unless the octal number names special bits.
            ModeChange::Exactly(bits) if is_dir && *bits <= 0o777 => {
                return bits | before & 0o6000;
            }
            ModeChange::Exactly(bits) => return *bits,
            ModeChange::Steps(steps) => steps,
        };
        steps.iter().fold(before & ALL, |mode, s| {
            let mut bits = match s.copied {
                Some(shift) => (mode >> shift & 7) * 0o111,
                None => s.bits,
            };
            if s.careful && (is_dir || mode & 0o111 != 0) {
                bits |= 0o111;
            }
            bits &= s.who;
            match s.how {
                '+' => mode | bits,
                '-' => mode & !bits,
                _ if is_dir => mode & !(s.who & !0o6000) | bits,
                _ => mode & !s.who | bits,
            }
        })
    }
}

/// The mode bits of these classes; the sticky bit belongs to `o`.
fn mask_of(who: &str) -> Option<u16> {
    if who.is_empty() {
        return Some(ALL);
    }
    who.chars().try_fold(0, |mask, c| {
        Some(
            mask | match c {
                'u' => 0o4700,
                'g' => 0o2070,
                'o' => 0o1007,
                'a' => ALL,
                _ => return None,
            },
        )
    })
}

fn step(who: u16, how: char, letters: &str) -> Option<Step> {
    let mut step = Step {
        who,
        how,
        bits: 0,
        careful: false,
        copied: None,
    };
    let copied = match letters {
        "u" => Some(6),
        "g" => Some(3),
        "o" => Some(0),
        _ => None,
    };
    if copied.is_some() {
        return Some(Step { copied, ..step });
    }
    for c in letters.chars() {
        step.bits |= match c {
            'r' => 0o444,
            'w' => 0o222,
            'x' => 0o111,
            's' => 0o6000,
            't' => 0o1000,
            'X' => {
                step.careful = true;
                0
            }
            _ => return None,
        };
    }
    // `t` applies to the sticky bit whichever classes are named.
    if step.bits & 0o1000 != 0 {
        step.who |= 0o1000;
    }
    Some(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_chmod_has_it() {
        for (word, before, is_dir, after) in [
            ("640", 0o7777, false, 0o640),
            ("755", 0o2700, true, 0o2755),
            ("u+x", 0o644, false, 0o744),
            ("go-w,a+X", 0o666, false, 0o644),
            ("a+X", 0o644, true, 0o755),
            ("+t", 0o777, true, 0o1777),
            ("u=rwx,g=u,o=", 0o604, false, 0o770),
            ("ug+s", 0o755, false, 0o6755),
            ("u=r-x+w", 0o700, false, 0o600),
        ] {
            let change = ModeChange::parse(word).expect("a mode");
            assert_eq!(change.of(before, is_dir), after, "{word}");
        }
        for wrong in ["", "8", "10000", "u", "u+y", "z+x"] {
            assert!(ModeChange::parse(wrong).is_err(), "{wrong}");
        }
    }
}
