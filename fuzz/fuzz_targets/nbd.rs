//! The bytes of an NBD client: every header, and a whole handshake. It ends when the client has nothing more to say, and what is answered
//! does not grow faster than what is asked, but for a constant per option.
//!
//! The first byte says whether TLS is required; the other bytes are what the client sends.
#![no_main]

use diorite_block::MemDevice;
use diorite_nbd::Export;
use diorite_nbd::negotiate::{Hangup, Outcome, Security, Talk, negotiate};
use diorite_nbd::wire::{Framing, Header, parse_ask, parse_meta};
use libfuzzer_sys::fuzz_target;
use std::sync::{Arc, LazyLock};

static EXPORTS: LazyLock<Vec<Arc<Export>>> = LazyLock::new(|| {
    let export = |name| Arc::new(Export::new(name, Arc::new(MemDevice::new(1 << 20))));
    vec![export("one"), export("two")]
});

struct Script<'a> {
    said: &'a [u8],
    heard: usize,
}

impl Talk for Script<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> Result<(), Hangup> {
        let (now, rest) = self.said.split_at_checked(bytes.len()).ok_or(Hangup::Closed)?;
        bytes.copy_from_slice(now);
        self.said = rest;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Hangup> {
        self.heard += bytes.len();
        Ok(())
    }
}

fuzz_target!(|data: &[u8]| {
    for framing in [Framing::Compact, Framing::Extended] {
        if let Ok(header) = Header::parse(framing, data) {
            assert!(header.payload == 0 || header.payload == header.len);
        }
    }
    let _ = parse_ask(data);
    if let Ok(meta) = parse_meta(data) {
        assert_eq!(meta.queries().count(), meta.count as usize);
    }
    let Some((first, said)) = data.split_first() else { return };
    let security = if first & 1 == 0 { Security::Plain } else { Security::Required };
    let mut peer = Script { said, heard: 0 };
    let outcome = negotiate(&mut peer, &EXPORTS, security);
    if security == Security::Required {
        assert!(!matches!(outcome, Ok(Outcome::Begin(_))), "an export without TLS");
    }
    assert!(peer.heard <= 18 + 512 * (said.len() / 16 + 1));
});
