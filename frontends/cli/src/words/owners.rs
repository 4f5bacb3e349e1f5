//! Owners in the notation of chown.
//!
//! Input: a word of the command line. Output: [`Owner`]. Invariants: none. Limits: numbers only: the image's names of users are
//! not looked up.

/// `5`, `5:7`, `:7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
}

impl Owner {
    /// Parses an owner.
    pub(crate) fn parse(text: &str) -> Result<Owner, String> {
        let (uid, gid) = text.split_once(':').unwrap_or((text, ""));
        let number = |word: &str| match word {
            "" => Ok(None),
            // `u32::MAX` is not an id: chown takes it for "no change".
            word => match word.parse() {
                Ok(number) if number < u32::MAX => Ok(Some(number)),
                _ => Err(format!(
                    "invalid owner: {text}: owners and groups are given as numbers"
                )),
            },
        };
        Ok(Owner {
            uid: number(uid)?,
            gid: number(gid)?,
        })
    }
}
