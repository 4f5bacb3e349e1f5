//! Headers of requests, in both forms.
//!
//! Input: the bytes of a header. Output: a [`Header`]. Invariants: how many bytes of payload follow is decided here, from the
//! header alone, so that a refused request leaves the stream in step. Limits: whether the request makes sense for the export is
//! decided elsewhere.

use super::option::{Cursor, WireError};
use super::{EXTENDED_REQUEST_MAGIC, REQUEST_MAGIC, request_flag};

/// What a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read.
    Read,
    /// Write the payload.
    Write,
    /// End the session.
    Disconnect,
    /// Make durable what has been acknowledged.
    Flush,
    /// The contents are not needed any more.
    Trim,
    /// A hint that reads will follow.
    Cache,
    /// Write zeros.
    WriteZeroes,
    /// Describe how a range is stored.
    BlockStatus,
    /// A number that is not known.
    Unknown(u16),
}

impl From<u16> for Command {
    fn from(number: u16) -> Command {
        match number {
            0 => Command::Read,
            1 => Command::Write,
            2 => Command::Disconnect,
            3 => Command::Flush,
            4 => Command::Trim,
            5 => Command::Cache,
            6 => Command::WriteZeroes,
            7 => Command::BlockStatus,
            other => Command::Unknown(other),
        }
    }
}

/// The form of requests on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// 28 bytes, lengths of 32 bits.
    Compact,
    /// 32 bytes, lengths of 64 bits.
    Extended,
}

impl Framing {
    /// The length of a header.
    #[must_use]
    pub fn header_len(self) -> usize {
        match self {
            Framing::Compact => 28,
            Framing::Extended => 32,
        }
    }
}

/// The header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What is requested.
    pub command: Command,
    /// The bits of `request_flag`, without `PAYLOAD_LEN`.
    pub flags: u16,
    /// The client's name for the request.
    pub cookie: u64,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes that the request is about.
    pub len: u64,
    /// The number of bytes that follow the header.
    pub payload: u64,
    /// A payload follows a command that has none, or does not follow one that has.
    pub misframed: bool,
}

impl Header {
    /// Parses a header from the first bytes of `bytes`.
    ///
    /// # Errors
    /// There are too few bytes, or the magic number is wrong.
    #[inline]
    pub fn parse(framing: Framing, bytes: &[u8]) -> Result<Header, WireError> {
        let mut rest = Cursor(bytes);
        let (found, wanted) = (rest.u32()?, magic(framing));
        if found != wanted {
            return Err(WireError::Magic {
                found: u64::from(found),
            });
        }
        let flags = rest.u16()?;
        let command = Command::from(rest.u16()?);
        let (cookie, offset) = (rest.u64()?, rest.u64()?);
        let len = match framing {
            Framing::Compact => u64::from(rest.u32()?),
            Framing::Extended => rest.u64()?,
        };
        let writes = command == Command::Write;
        let carries = match framing {
            Framing::Compact => writes,
            Framing::Extended => flags & request_flag::PAYLOAD_LEN != 0,
        };
        let known = match framing {
            Framing::Compact => flags,
            Framing::Extended => flags & !request_flag::PAYLOAD_LEN,
        };
        Ok(Header {
            command,
            flags: known,
            cookie,
            offset,
            len,
            payload: if carries { len } else { 0 },
            misframed: carries != writes,
        })
    }

    /// Whether a flag is set.
    #[must_use]
    #[inline]
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

fn magic(framing: Framing) -> u32 {
    match framing {
        Framing::Compact => REQUEST_MAGIC,
        Framing::Extended => EXTENDED_REQUEST_MAGIC,
    }
}
