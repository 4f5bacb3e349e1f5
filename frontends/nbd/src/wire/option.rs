//! Options of the handshake: their headers, and the data of those that have some.
//!
//! Input: bytes of a client. Output: checked values that borrow from them. Invariants: a length inside the data is compared with
//! the bytes that are left; everything has to be used up. Limits: names and queries are UTF-8 of at most [`MAX_NAME`] bytes.

use super::{MAX_NAME, OPTION_MAGIC};

/// Why bytes are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The first word is not the one that is expected here.
    #[error("the magic number {found:#x} is wrong")]
    Magic {
        /// What was found.
        found: u64,
    },
    /// A length does not fit the data that it is in, or data are left over.
    #[error("a length does not fit the data")]
    Length,
    /// Text that is not UTF-8, or too long.
    #[error("a name is not valid text")]
    Text,
}

/// The header of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHeader {
    /// Which.
    pub option: u32,
    /// The length of the data that follow.
    pub len: u32,
}

impl OptionHeader {
    /// Its length in bytes.
    pub const LEN: usize = 16;

    /// Parses a header.
    ///
    /// # Errors
    /// The magic number is wrong.
    pub fn parse(bytes: &[u8; Self::LEN]) -> Result<OptionHeader, WireError> {
        let mut rest = Cursor(bytes);
        let found = rest.u64()?;
        if found != OPTION_MAGIC {
            return Err(WireError::Magic { found });
        }
        Ok(OptionHeader {
            option: rest.u32()?,
            len: rest.u32()?,
        })
    }
}

/// The data of the options that ask about an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask<'a> {
    /// The export's name.
    pub name: &'a str,
    /// What is asked, as pairs of bytes.
    infos: &'a [u8],
}

impl Ask<'_> {
    /// Whether the client asks for this.
    #[must_use]
    pub fn wants(&self, info: u16) -> bool {
        self.infos
            .as_chunks::<2>()
            .0
            .iter()
            .any(|pair| u16::from_be_bytes(*pair) == info)
    }
}

/// Parses the data of INFO and GO.
///
/// # Errors
/// Lengths that do not fit; a name that is no text.
pub fn parse_ask(data: &[u8]) -> Result<Ask<'_>, WireError> {
    let mut rest = Cursor(data);
    let len = rest.u32()?;
    let name = rest.text(len)?;
    let count = usize::from(rest.u16()?);
    match rest.0.len() == count * 2 {
        true => Ok(Ask {
            name,
            infos: rest.0,
        }),
        false => Err(WireError::Length),
    }
}

/// The data of the options about metadata contexts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaQuery<'a> {
    /// The export's name.
    pub name: &'a str,
    /// The number of queries.
    pub count: u32,
    /// The queries, each with its length, checked.
    queries: &'a [u8],
}

impl<'a> MetaQuery<'a> {
    /// The queries.
    pub fn queries(&self) -> impl Iterator<Item = &'a str> {
        let mut rest = Cursor(self.queries);
        std::iter::from_fn(move || {
            let len = rest.u32().ok()?;
            rest.text(len).ok()
        })
    }
}

/// Parses the data of LIST_META_CONTEXT and SET_META_CONTEXT.
///
/// # Errors
/// Lengths that do not fit; a name or query that is no text.
pub fn parse_meta(data: &[u8]) -> Result<MetaQuery<'_>, WireError> {
    let mut rest = Cursor(data);
    let len = rest.u32()?;
    let name = rest.text(len)?;
    let count = rest.u32()?;
    let queries = rest.0;
    let mut found = 0u32;
    while !rest.0.is_empty() {
        let len = rest.u32()?;
        rest.text(len)?;
        found += 1;
    }
    match found == count {
        true => Ok(MetaQuery {
            name,
            count,
            queries,
        }),
        false => Err(WireError::Length),
    }
}

/// The bytes that are left.
pub(super) struct Cursor<'a>(pub(super) &'a [u8]);

impl<'a> Cursor<'a> {
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(WireError::Length)?;
        self.0 = rest;
        Ok(*head)
    }

    pub(super) fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_be_bytes)
    }

    fn text(&mut self, len: u32) -> Result<&'a str, WireError> {
        let len = usize::try_from(len).map_err(|_| WireError::Length)?;
        let (text, rest) = self.0.split_at_checked(len).ok_or(WireError::Length)?;
        self.0 = rest;
        if len > MAX_NAME {
            return Err(WireError::Text);
        }
        std::str::from_utf8(text).map_err(|_| WireError::Text)
    }
}
