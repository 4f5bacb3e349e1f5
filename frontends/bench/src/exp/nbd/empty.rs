//! An NBD server without a device: it answers every read with zeros and every other request with success. Its rate is the most that a
//! client and a socket permit.
//!
//! Input: a path. Output: a listening Unix socket. Invariants: it parses every request and sends every byte of a reply; what one read of
//! the socket brings is answered by one write. Limits: simple replies; its clients are the bench's own.

use super::super::super::failure::Failure;
use super::super::super::peer::Peer;
use super::server::uri;
use diorite_nbd::wire::{
    Command, Framing, Header, Heads, INIT_MAGIC, InfoExport, Mode, OPTION_MAGIC, export_flag,
    handshake, info_export, opt, option_reply, rep,
};
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// Bytes that one read of the socket takes at most.
const TAKEN: usize = 1 << 20;
/// Bytes of a request's data at most.
const MOST: usize = 32 << 20;
const FRAMING: Framing = Framing::Compact;

/// The server as a peer, which runs until the process ends.
pub(super) struct Nothing {
    uri: String,
}

impl Nothing {
    /// Serves exports of `size` bytes, whatever their name, at this path.
    pub(super) fn new(path: &Path, size: u64) -> Result<Nothing, Failure> {
        serve(path, size)?;
        Ok(Nothing { uri: uri(path) })
    }
}

impl Peer for &Nothing {
    type Running = String;

    fn name(&self) -> &'static str {
        "a server that does nothing"
    }

    fn start(&self) -> Result<String, Failure> {
        Ok(self.uri.clone())
    }

    fn stop(&self, _: String) -> Result<(), Failure> {
        Ok(())
    }
}

/// Serves exports of `size` bytes, whatever their name, at this path until the process ends.
fn serve(path: &Path, size: u64) -> Result<(), Failure> {
    let listener = UnixListener::bind(path)
        .map_err(|e| Failure::host(format_args!("cannot listen at {}", path.display()), e))?;
    let accept = move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // A client that ends in the middle of a request is no failure of the server: its own run fails.
            std::thread::spawn(move || client(stream, size));
        }
    };
    std::thread::Builder::new()
        .name("empty nbd".into())
        .spawn(accept)
        .map_err(|e| Failure::host("cannot start a thread", e))?;
    Ok(())
}

fn client(mut stream: UnixStream, size: u64) -> io::Result<()> {
    if greet(&mut stream, size)? {
        answer(&mut stream)
    } else {
        Ok(())
    }
}

fn number<const N: usize>(stream: &mut UnixStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// The handshake; false if the client ended it.
fn greet(stream: &mut UnixStream, size: u64) -> io::Result<bool> {
    let mut hello = Vec::new();
    hello.extend(INIT_MAGIC.to_be_bytes());
    hello.extend(OPTION_MAGIC.to_be_bytes());
    hello.extend((handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES).to_be_bytes());
    stream.write_all(&hello)?;
    number::<4>(stream)?;
    loop {
        number::<8>(stream)?;
        let option = u32::from_be_bytes(number(stream)?);
        let len = u32::from_be_bytes(number(stream)?);
        io::copy(&mut stream.take(u64::from(len)), &mut io::sink())?;
        let mut answer = Vec::new();
        match option {
            opt::GO | opt::INFO => {
                let flags = export_flag::HAS_FLAGS | export_flag::CAN_MULTI_CONN;
                info_export(&mut answer, option, InfoExport { size, flags });
                option_reply(&mut answer, option, rep::ACK, &[]);
            }
            opt::STRUCTURED_REPLY | opt::ABORT => option_reply(&mut answer, option, rep::ACK, &[]),
            _ => option_reply(&mut answer, option, rep::ERR_UNSUP, &[]),
        }
        stream.write_all(&answer)?;
        match option {
            opt::GO => return Ok(true),
            opt::ABORT => return Ok(false),
            _ => {}
        }
    }
}

/// Answers requests until the client disconnects.
fn answer(stream: &mut UnixStream) -> io::Result<()> {
    let (mut input, mut output) = (vec![0; TAKEN + MOST], Vec::with_capacity(TAKEN));
    // Of the input, the bytes that are no whole request yet.
    let mut held = 0;
    loop {
        let got = stream.read(&mut input[held..held + TAKEN])?;
        if got == 0 {
            return Ok(());
        }
        held += got;
        let mut at = 0;
        while held - at >= FRAMING.header_len() {
            let header = Header::parse(FRAMING, &input[at..held]).map_err(io::Error::other)?;
            let len = usize::try_from(header.len).unwrap_or(usize::MAX);
            if header.command == Command::Disconnect || len > MOST {
                return stream.write_all(&output);
            }
            let whole = FRAMING.header_len() + if header.payload > 0 { len } else { 0 };
            if held - at < whole {
                break;
            }
            let heads = Heads {
                mode: Mode::Structured,
                cookie: header.cookie,
                offset: header.offset,
            };
            if header.command == Command::Read {
                heads.data(&mut output, header.offset, len as u32, true);
                output.resize(output.len() + len, 0);
            } else {
                heads.done(&mut output);
            }
            at += whole;
        }
        stream.write_all(&output)?;
        output.clear();
        input.copy_within(at..held, 0);
        held -= at;
    }
}
