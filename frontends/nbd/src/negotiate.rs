//! The handshake: fixed newstyle, from the greeting to the choice of an export.
//!
//! Input: a peer that can be read and written, the exports, whether TLS is required and under way. Output: a [`Session`]; or that
//! TLS has to begin; or the end. Invariants: bytes are read exactly as far as the message goes, so nothing that a client sends
//! before TLS is taken for something inside it; data of an option longer than [`MAX_OPTION`] are skipped in pieces; without TLS,
//! where it is required, nothing is told about exports. Limits: the caller bounds the time.

use crate::export::Export;
use crate::wire::{
    self, BASE_ALLOCATION, Framing, INIT_MAGIC, MAX_OPTION, Mode, OPTION_MAGIC, OptionHeader,
    WireError, handshake, info, opt, rep,
};
use std::sync::Arc;

/// A peer during the handshake. Both calls wait for as long as the implementation permits.
pub trait Talk {
    /// Fills `bytes`.
    ///
    /// # Errors
    /// The peer is gone, or too slow.
    fn read(&mut self, bytes: &mut [u8]) -> Result<(), Hangup>;

    /// Sends all of `bytes`.
    ///
    /// # Errors
    /// The peer is gone, or too slow.
    fn write(&mut self, bytes: &[u8]) -> Result<(), Hangup>;
}

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Hangup {
    /// The client closed it.
    #[error("the client closed the connection")]
    Closed,
    /// The time for the handshake is over.
    #[error("the handshake took too long")]
    Late,
    /// The server ends.
    #[error("the server ends")]
    Draining,
    /// The client sent bytes that are not the protocol.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The client sent something that ends the session by the protocol's rules.
    #[error("{0}")]
    Refused(&'static str),
    /// TLS failed.
    #[error("TLS: {0}")]
    Tls(String),
    /// The host failed.
    #[error(transparent)]
    Host(#[from] std::io::Error),
}

/// How far TLS is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// There is none on this listener.
    Plain,
    /// It has to begin before anything else.
    Required,
    /// The peer speaks it.
    Secured,
}

/// What was agreed on.
#[derive(Clone, Debug)]
pub struct Session {
    /// The export.
    pub export: Arc<Export>,
    /// The form of replies.
    pub mode: Mode,
    /// The client may ask how blocks are stored.
    pub meta: bool,
}

impl Session {
    /// The form of requests.
    #[must_use]
    pub fn framing(&self) -> Framing {
        match self.mode {
            Mode::Extended => Framing::Extended,
            Mode::Simple | Mode::Structured => Framing::Compact,
        }
    }
}

/// How a handshake ends.
#[derive(Debug)]
pub enum Outcome {
    /// Requests follow.
    Begin(Session),
    /// TLS follows, and then options again: see [`resume`].
    StartTls,
    /// The client wants nothing more.
    Ended,
}

/// Runs the handshake from the greeting on.
///
/// # Errors
/// The connection ends.
pub fn negotiate(
    peer: &mut dyn Talk,
    exports: &[Arc<Export>],
    security: Security,
) -> Result<Outcome, Hangup> {
    let flags = handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES;
    let mut greeting = INIT_MAGIC.to_be_bytes().to_vec();
    greeting.extend(OPTION_MAGIC.to_be_bytes());
    greeting.extend(flags.to_be_bytes());
    peer.write(&greeting)?;
    let mut answer = [0; 4];
    peer.read(&mut answer)?;
    let answer = u32::from_be_bytes(answer);
    if answer & !u32::from(flags) != 0 {
        return Err(Hangup::Refused(
            "the client sets flags that were not offered",
        ));
    }
    let zeroes = answer & u32::from(handshake::NO_ZEROES) == 0;
    haggle(peer, exports, security, zeroes)
}

/// Goes on with options after TLS has begun. What was agreed on before is forgotten, but that no padding is wanted: a client that
/// knows TLS knows that flag.
///
/// # Errors
/// The connection ends.
pub fn resume(peer: &mut dyn Talk, exports: &[Arc<Export>]) -> Result<Outcome, Hangup> {
    haggle(peer, exports, Security::Secured, false)
}

fn haggle(
    peer: &mut dyn Talk,
    exports: &[Arc<Export>],
    security: Security,
    zeroes: bool,
) -> Result<Outcome, Hangup> {
    let mut haggle = Haggle {
        exports,
        security,
        zeroes,
        mode: Mode::Simple,
        meta: None,
    };
    let mut out = Vec::new();
    loop {
        let mut header = [0; OptionHeader::LEN];
        peer.read(&mut header)?;
        let header = OptionHeader::parse(&header)?;
        out.clear();
        let next = match read_data(peer, header)? {
            Some(data) => haggle.option(header.option, &data, &mut out)?,
            None if header.option == opt::EXPORT_NAME => {
                return Err(Hangup::Refused("the name of an export is too long"));
            }
            None => haggle.refuse(&mut out, header.option, rep::ERR_TOO_BIG),
        };
        peer.write(&out)?;
        if let Next::Done(outcome) = next {
            return Ok(outcome);
        }
    }
}

/// The data of an option; none if they are too long, after they have been skipped.
fn read_data(peer: &mut dyn Talk, header: OptionHeader) -> Result<Option<Vec<u8>>, Hangup> {
    if header.len <= MAX_OPTION {
        let mut data = vec![0; header.len as usize];
        peer.read(&mut data)?;
        return Ok(Some(data));
    }
    let mut left = header.len;
    let mut piece = [0; 4096];
    while left > 0 {
        let now = left.min(piece.len() as u32);
        peer.read(&mut piece[..now as usize])?;
        left -= now;
    }
    Ok(None)
}

/// What has been agreed on so far.
struct Haggle<'a> {
    exports: &'a [Arc<Export>],
    security: Security,
    zeroes: bool,
    mode: Mode,
    /// The export for which metadata contexts were chosen, as an index.
    meta: Option<usize>,
}

/// What follows an option.
enum Next {
    Option,
    Done(Outcome),
}

impl Haggle<'_> {
    fn option(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Result<Next, Hangup> {
        let open = matches!(option, opt::ABORT | opt::STARTTLS);
        if self.security == Security::Required && !open {
            return match option {
                opt::EXPORT_NAME => Err(Hangup::Refused("the client did not begin TLS")),
                _ => Ok(self.refuse(out, option, rep::ERR_TLS_REQD)),
            };
        }
        let bare = matches!(
            option,
            opt::LIST | opt::STARTTLS | opt::STRUCTURED_REPLY | opt::EXTENDED_HEADERS
        );
        if bare && !data.is_empty() {
            return Ok(self.refuse(out, option, rep::ERR_INVALID));
        }
        Ok(match option {
            opt::EXPORT_NAME => return self.export_name(data, out),
            opt::ABORT => {
                wire::option_reply(out, option, rep::ACK, &[]);
                Next::Done(Outcome::Ended)
            }
            opt::LIST => {
                for export in self.exports {
                    wire::server_entry(out, option, export.name());
                }
                self.acknowledge(out, option)
            }
            opt::STARTTLS => self.start_tls(out),
            opt::INFO | opt::GO => self.about(option, data, out),
            opt::STRUCTURED_REPLY if self.mode == Mode::Extended => {
                self.refuse(out, option, rep::ERR_EXT_HEADER_REQD)
            }
            opt::STRUCTURED_REPLY => {
                self.mode = Mode::Structured;
                self.acknowledge(out, option)
            }
            opt::EXTENDED_HEADERS => {
                self.mode = Mode::Extended;
                self.acknowledge(out, option)
            }
            opt::LIST_META_CONTEXT | opt::SET_META_CONTEXT => self.contexts(option, data, out),
            _ => self.refuse(out, option, rep::ERR_UNSUP),
        })
    }

    fn refuse(&self, out: &mut Vec<u8>, option: u32, error: u32) -> Next {
        wire::option_reply(out, option, error, &[]);
        Next::Option
    }

    fn acknowledge(&self, out: &mut Vec<u8>, option: u32) -> Next {
        wire::option_reply(out, option, rep::ACK, &[]);
        Next::Option
    }

    fn start_tls(&self, out: &mut Vec<u8>) -> Next {
        match self.security {
            Security::Plain => self.refuse(out, opt::STARTTLS, rep::ERR_POLICY),
            Security::Secured => self.refuse(out, opt::STARTTLS, rep::ERR_INVALID),
            Security::Required => {
                wire::option_reply(out, opt::STARTTLS, rep::ACK, &[]);
                Next::Done(Outcome::StartTls)
            }
        }
    }

    /// The index of the export with this name. The first one is also the default, which has no name.
    fn find(&self, name: &str) -> Option<usize> {
        let named = self.exports.iter().position(|e| e.name() == name);
        named.or_else(|| (name.is_empty() && !self.exports.is_empty()).then_some(0))
    }

    fn begin(&self, index: usize) -> Next {
        Next::Done(Outcome::Begin(Session {
            export: self.exports[index].clone(),
            mode: self.mode,
            meta: self.meta == Some(index),
        }))
    }

    fn export_name(&self, data: &[u8], out: &mut Vec<u8>) -> Result<Next, Hangup> {
        if self.mode == Mode::Extended {
            return Err(Hangup::Refused(
                "an export is named in the old way after extended headers were agreed on",
            ));
        }
        let name = std::str::from_utf8(data).map_err(|_| WireError::Text)?;
        let Some(index) = self.find(name) else {
            return Err(Hangup::Refused("there is no export of that name"));
        };
        let export = &self.exports[index];
        export.look_again();
        wire::export_name_reply(out, export.info(self.mode), self.zeroes);
        Ok(self.begin(index))
    }

    fn about(&self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Next {
        let Ok(ask) = wire::parse_ask(data) else {
            return self.refuse(out, option, rep::ERR_INVALID);
        };
        let Some(index) = self.find(ask.name) else {
            return self.refuse(out, option, rep::ERR_UNKNOWN);
        };
        let export = &self.exports[index];
        export.look_again();
        wire::info_export(out, option, export.info(self.mode));
        if ask.wants(info::NAME) {
            wire::info_text(out, option, info::NAME, export.name());
        }
        if ask.wants(info::DESCRIPTION) {
            wire::info_text(out, option, info::DESCRIPTION, export.description());
        }
        if ask.wants(info::BLOCK_SIZE) {
            wire::info_block_size(out, option, export.block_sizes());
        }
        wire::option_reply(out, option, rep::ACK, &[]);
        match option {
            opt::GO => self.begin(index),
            _ => Next::Option,
        }
    }

    fn contexts(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Next {
        let sets = option == opt::SET_META_CONTEXT;
        if sets {
            // Whatever becomes of this one: an earlier choice is void.
            self.meta = None;
        }
        let query = wire::parse_meta(data).ok();
        let Some(query) = query.filter(|_| !sets || self.mode != Mode::Simple) else {
            return self.refuse(out, option, rep::ERR_INVALID);
        };
        let Some(index) = self.find(query.name) else {
            return self.refuse(out, option, rep::ERR_UNKNOWN);
        };
        let all = !sets && query.count == 0;
        let matches = |q: &str| q == BASE_ALLOCATION || (!sets && q == "base:");
        if all || query.queries().any(matches) {
            wire::meta_context(out, option);
            self.meta = if sets { Some(index) } else { self.meta };
        }
        self.acknowledge(out, option)
    }
}

#[cfg(test)]
mod tests;
