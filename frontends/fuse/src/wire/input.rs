//! Requests: a header and the fields behind it.
//!
//! Input: the bytes of one request. Output: fields. Invariants: a field that is not there is an error, and so is a name without its end;
//! a name is 1 to 255 bytes, the protocol's own limit is longer. Limits: none.

use rustix::io::Errno;

/// The length of a request's header.
pub const HEADER: usize = 40;

/// What every request begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the request.
    pub len: u32,
    /// The operation.
    pub op: u32,
    /// What the reply is found by.
    pub unique: u64,
    /// The inode, as the kernel numbers it.
    pub node: u64,
    /// The caller's user.
    pub uid: u32,
    /// The caller's group.
    pub gid: u32,
    /// The caller's process.
    pub pid: u32,
    /// Extensions at the end of the request, in bytes.
    pub extensions: usize,
}

impl Header {
    /// Parses a header.
    ///
    /// # Errors
    /// EIO: too few bytes.
    pub fn parse(bytes: &[u8]) -> Result<Header, Errno> {
        let mut body = Body::new(bytes);
        Ok(Header {
            len: body.u32()?,
            op: body.u32()?,
            unique: body.u64()?,
            node: body.u64()?,
            uid: body.u32()?,
            gid: body.u32()?,
            pid: body.u32()?,
            extensions: usize::from(body.u16()?) * 8,
        })
    }
}

/// The fields of a request behind its header, in order.
#[derive(Clone, Copy, Debug)]
pub struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    /// The fields of these bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Body<'a> {
        Body(bytes)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Errno> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(Errno::IO)?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Errno> {
        let (head, rest) = self.0.split_first_chunk().ok_or(Errno::IO)?;
        self.0 = rest;
        Ok(*head)
    }

    /// A field of 16 bits.
    ///
    /// # Errors
    /// EIO: there is none.
    pub fn u16(&mut self) -> Result<u16, Errno> {
        self.array().map(u16::from_ne_bytes)
    }

    /// A field of 32 bits.
    ///
    /// # Errors
    /// EIO: there is none.
    pub fn u32(&mut self) -> Result<u32, Errno> {
        self.array().map(u32::from_ne_bytes)
    }

    /// A field of 64 bits.
    ///
    /// # Errors
    /// EIO: there is none.
    pub fn u64(&mut self) -> Result<u64, Errno> {
        self.array().map(u64::from_ne_bytes)
    }

    /// Passes over bytes without meaning.
    ///
    /// # Errors
    /// EIO: there are fewer.
    pub fn skip(&mut self, len: usize) -> Result<(), Errno> {
        self.take(len).map(drop)
    }

    /// So many bytes.
    ///
    /// # Errors
    /// EIO: there are fewer.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], Errno> {
        self.take(len)
    }

    /// Bytes up to a NUL, which is passed over.
    ///
    /// # Errors
    /// EIO: there is no NUL.
    pub fn text(&mut self) -> Result<&'a [u8], Errno> {
        let end = self.0.iter().position(|b| *b == 0).ok_or(Errno::IO)?;
        let text = self.take(end)?;
        self.skip(1)?;
        Ok(text)
    }

    /// The name of a directory entry.
    ///
    /// # Errors
    /// EIO: there is none; ENAMETOOLONG.
    pub fn name(&mut self) -> Result<&'a [u8], Errno> {
        match self.text()? {
            [] => Err(Errno::IO),
            long if long.len() > 255 => Err(Errno::NAMETOOLONG),
            name => Ok(name),
        }
    }
}

/// The groups of the caller that the extensions of a request name: with the group of the header all that matter for what is created.
#[must_use]
pub fn groups(extensions: &[u8]) -> Vec<u32> {
    let mut all = Body::new(extensions);
    let mut found = Vec::new();
    while let (Ok(size), Ok(kind)) = (all.u32(), all.u32()) {
        let len = (size as usize).saturating_sub(8);
        let Ok(bytes) = all.bytes(len) else {
            break;
        };
        if kind != super::EXT_GROUPS {
            continue;
        }
        let mut body = Body::new(bytes);
        let count = body.u32().unwrap_or(0);
        found.extend((0..count).map_while(|_| body.u32().ok()));
    }
    found
}
