//! The bytes of the protocol: numbers, and the translation of bytes into checked values and back.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `option` | the data of an option of the handshake -> a checked value |
//! | `request` | the header of a request -> a checked value |
//! | `reply` | values -> the bytes of replies, in the handshake and after it |
//! | `errno` | errors of devices -> the protocol's error numbers |
//!
//! Input: bytes of a peer, values of the server. Output: values, bytes. Invariants: pure; no length that a peer sends is trusted: it is
//! compared with what is there before anything is read or allocated. Limits: the constants here are all that the server understands.

mod errno;
mod option;
mod reply;
mod request;
#[cfg(test)]
mod tests;

pub use errno::Errno;
pub use option::{Ask, MetaQuery, OptionHeader, WireError, parse_ask, parse_meta};
pub use reply::{
    Chunk, Heads, InfoExport, Mode, block_status, export_name_reply, info_block_size, info_export,
    info_text, meta_context, option_reply, server_entry,
};
pub use request::{Command, Framing, Header};

/// The server's first word.
pub const INIT_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// The server's second word, and the first word of each option.
pub const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// The first word of each reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// The first word of a request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// The first word of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// The first word of a chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;
/// The first word of a request with extended headers.
pub const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
/// The first word of a reply with extended headers.
pub const EXTENDED_REPLY_MAGIC: u32 = 0x6e8a_278c;

/// Flags of the handshake: both sides have the same bits.
pub mod handshake {
    /// Fixed newstyle.
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    /// No padding after the reply to the option that names an export.
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// Options of the handshake.
pub mod opt {
    /// Name an export and begin.
    pub const EXPORT_NAME: u32 = 1;
    /// End the session.
    pub const ABORT: u32 = 2;
    /// List the exports.
    pub const LIST: u32 = 3;
    /// Begin TLS.
    pub const STARTTLS: u32 = 5;
    /// Tell about an export.
    pub const INFO: u32 = 6;
    /// Tell about an export and begin.
    pub const GO: u32 = 7;
    /// Structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// List metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Choose metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
    /// Extended headers.
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Replies to options.
pub mod rep {
    /// Done.
    pub const ACK: u32 = 1;
    /// An export.
    pub const SERVER: u32 = 2;
    /// Something about an export.
    pub const INFO: u32 = 3;
    /// A metadata context.
    pub const META_CONTEXT: u32 = 4;
    const ERROR: u32 = 1 << 31;
    /// The option is not known.
    pub const ERR_UNSUP: u32 = ERROR + 1;
    /// The option is not permitted here.
    pub const ERR_POLICY: u32 = ERROR + 2;
    /// The option's data make no sense.
    pub const ERR_INVALID: u32 = ERROR + 3;
    /// TLS must be begun first.
    pub const ERR_TLS_REQD: u32 = ERROR + 5;
    /// There is no such export.
    pub const ERR_UNKNOWN: u32 = ERROR + 6;
    /// The server ends.
    pub const ERR_SHUTDOWN: u32 = ERROR + 7;
    /// The option's data are too long.
    pub const ERR_TOO_BIG: u32 = ERROR + 9;
    /// Extended headers have been agreed on already.
    pub const ERR_EXT_HEADER_REQD: u32 = ERROR + 10;
}

/// What a client can ask about an export.
pub mod info {
    /// Size and flags.
    pub const EXPORT: u16 = 0;
    /// The canonical name.
    pub const NAME: u16 = 1;
    /// A description.
    pub const DESCRIPTION: u16 = 2;
    /// Sizes of requests.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Flags of an export.
pub mod export_flag {
    /// There are flags.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// Flush is understood.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// The flag FUA is understood.
    pub const SEND_FUA: u16 = 1 << 3;
    /// Trim is understood.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// Write-zeroes is understood.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// The flag DF is understood.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush on one connection covers writes acknowledged on all.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// Cache is understood.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// The flag FAST_ZERO is understood.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Flags of requests.
pub mod request_flag {
    /// Durable before the reply.
    pub const FUA: u16 = 1 << 0;
    /// Keep the space.
    pub const NO_HOLE: u16 = 1 << 1;
    /// One chunk of content.
    pub const DF: u16 = 1 << 2;
    /// One extent.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Fail rather than write zeros.
    pub const FAST_ZERO: u16 = 1 << 4;
    /// With extended headers: the length is that of a payload.
    pub const PAYLOAD_LEN: u16 = 1 << 5;
}

/// Flags of extents in `base:allocation`.
pub mod state {
    /// No space is allocated.
    pub const HOLE: u32 = 1 << 0;
    /// Reads as zeros.
    pub const ZERO: u32 = 1 << 1;
}

/// The one metadata context, and its number.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// See [`BASE_ALLOCATION`].
pub const BASE_ALLOCATION_ID: u32 = 1;

/// The largest payload of a request or reply.
pub const MAX_PAYLOAD: u32 = 32 << 20;
/// The longest name of an export; longer ones are in no list and match nothing.
pub const MAX_NAME: usize = 4096;
/// The longest data of an option that is read into memory.
pub const MAX_OPTION: u32 = 64 << 10;
