//! An NBD server without a device: it answers every read with zeros and every other request with success. Its rate is the most that a
//! client and a socket permit.
//!
//! Input: a path. Output: a listening Unix socket. Invariants: it parses every request and sends every byte of a reply; what one read of
//! the socket brings is answered by one write. Limits: simple replies; its clients are the bench's own.

use super::super::super::failure::Failure;
use diorite_nbd::wire::{
    INIT_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, handshake, opt, rep,
};
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// The header of a request: magic, flags, type, cookie, offset, length.
const HEADER: usize = 28;
/// Where the cookie is in it.
const COOKIE: std::ops::Range<usize> = 8..16;
/// Where the offset is.
const OFFSET: std::ops::Range<usize> = 16..24;
/// The flag of a reply's last chunk, and the types of chunks.
const DONE: u16 = 1;
const NONE: u16 = 0;
const OFFSET_DATA: u16 = 1;
const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
/// Flags of the export: flags are sent, several connections see the same.
const EXPORT_FLAGS: u16 = 1 << 0 | 1 << 8;
/// Bytes that one read of the socket takes at most.
const TAKEN: usize = 1 << 20;
/// Bytes of a request's data at most.
const MOST: usize = 32 << 20;

/// Serves exports of `size` bytes, whatever their name, at this path until the process ends.
pub(super) fn serve(path: &Path, size: u64) -> Result<(), Failure> {
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
        match option {
            opt::GO | opt::INFO => {
                let mut info = vec![0, 0];
                info.extend(size.to_be_bytes());
                info.extend(EXPORT_FLAGS.to_be_bytes());
                reply(stream, option, rep::INFO, &info)?;
                reply(stream, option, rep::ACK, &[])?;
                if option == opt::GO {
                    return Ok(true);
                }
            }
            opt::STRUCTURED_REPLY => reply(stream, option, rep::ACK, &[])?,
            opt::ABORT => {
                reply(stream, option, rep::ACK, &[])?;
                return Ok(false);
            }
            _ => reply(stream, option, rep::ERR_UNSUP, &[])?,
        }
    }
}

fn reply(stream: &mut UnixStream, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    let mut bytes = Vec::new();
    bytes.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    bytes.extend(option.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    stream.write_all(&bytes)
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
        while let Some(header) = input[at..held].first_chunk::<HEADER>() {
            let kind = u16::from_be_bytes([header[6], header[7]]);
            let len = u32::from_be_bytes([header[24], header[25], header[26], header[27]]) as usize;
            let data = if kind == WRITE { len } else { 0 };
            if kind == DISCONNECT || len > MOST {
                return stream.write_all(&output);
            }
            if held - at < HEADER + data {
                break;
            }
            let (chunk, length) = match kind {
                READ => (OFFSET_DATA, OFFSET.len() + len),
                _ => (NONE, 0),
            };
            output.extend(STRUCTURED_REPLY_MAGIC.to_be_bytes());
            output.extend(DONE.to_be_bytes());
            output.extend(chunk.to_be_bytes());
            output.extend(&header[COOKIE]);
            output.extend((length as u32).to_be_bytes());
            if kind == READ {
                output.extend(&header[OFFSET]);
                output.resize(output.len() + len, 0);
            }
            at += HEADER + data;
        }
        stream.write_all(&output)?;
        output.clear();
        input.copy_within(at..held, 0);
        held -= at;
    }
}
