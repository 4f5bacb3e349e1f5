//! A qcow2 file as a device.
//!
//! Input: a [`FormatRequest`]: the file, open as a device, which holds the locks on it. Output: a device of the disk in it; a new file.
//! Invariants: the header, and the tables of a file that is written, are judged before the file is written to; a backing file is opened
//! only if that is allowed, and a file for the data never; the library opens no file by its name; a flush makes the tables durable with the
//! data; a file that is written is marked as dirty (`mark`), and one that was not closed is repaired first (`counts`). Limits: the file is
//! read and written through the host's page cache.

use crate::chain::{Chain, Layer, unknown_format};
use crate::counts::repair;
use crate::disk::{Disk, Turns};
use crate::header::{Header, NO_QCOW2, check_counts};
use crate::judge::{Judged, judge};
use crate::mark::Mark;
use crate::reader::Reader;
use crate::storage::{Below, Roots};
use diorite_block::device::DeviceErrorKind;
use diorite_block::locator::FormatRequest;
use diorite_block::{
    Bio, CallPool, CallQueue, Device, DeviceError, DeviceQueue, DeviceReport, Geometry,
    MARKED_CORRUPT, QueueOptions, Run, RunsBios, open_storage,
};
use imago::file::File;
use imago::qcow2::Qcow2;
use imago::raw::Raw;
use imago::{
    DenyImplicitOpenGate, FormatAccess, FormatCreateBuilder, FormatDriverBuilder,
    StorageOpenOptions,
};
use rustix::fs::OFlags;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// A disk that was opened: in a file of the library, or in a chain that is only read.
trait Opened: RunsBios {
    fn geometry(&self) -> Geometry;
    fn stored(&self, range: Range<u64>, most: usize) -> io::Result<Vec<Run>>;
    fn rest(&self) -> io::Result<()>;
}

/// The device.
struct Qcow2Device<R> {
    pool: Arc<CallPool<R>>,
    name: String,
    /// Holds the locks on the file; behind the pool, which writes when it ends.
    below: Arc<dyn Device>,
    /// Those of the files behind it.
    _chain: Vec<Arc<dyn Device>>,
    notes: Vec<String>,
}

/// Opens a qcow2 file: for `diorite_block::locator::register_qcow2`.
///
/// # Errors
/// It is no such file, is refused, or needs a file that is not allowed.
pub fn open(request: FormatRequest<'_>) -> Result<Arc<dyn Device>, DeviceError> {
    let refused = |why: String| {
        let help = match why == NO_QCOW2 {
            true => "; '?format=raw' takes its bytes as they are",
            false => "",
        };
        let what = format!("{}: {why}{help}", request.name);
        DeviceError::new(DeviceErrorKind::Unsupported, what)
    };
    let failed = |e: io::Error| DeviceError::host(format!("{}: qcow2: {e}", request.name), e);
    let (mut top, mut header) = Layer::look(request.path).map_err(refused)?;
    top.check_held().map_err(refused)?;
    check_allowed(&header, &request).map_err(refused)?;
    let chain = match request.backing {
        true => Chain::resolve(&top).map_err(refused)?,
        false => Chain::none(),
    };
    let notes = notes(&header, &chain, &request)?;
    let holds = (chain.devices, notes);
    if !request.write {
        top.check_tables(&header).map_err(refused)?;
        if header.is_for_reader() {
            let layers = std::iter::once(top).chain(chain.layers).collect();
            let reader = Reader::new(layers);
            return Ok(device(reader, request, holds));
        }
        let behind = behind(chain.layers).map_err(failed)?;
        let disk = storage(top.file, request.path, false)
            .and_then(|file| disk(file, &header, None, None, behind));
        return Ok(device(disk.map_err(failed)?, request, holds));
    }
    let behind = behind(chain.layers).map_err(failed)?;
    let file = top.for_writing().map_err(refused)?;
    // Everything that can be refused before the file is changed was.
    if header.is_dirty() {
        repair(&file, &header).map_err(failed)?;
        (top, header) = Layer::look(request.path).map_err(refused)?;
        top.check_held().map_err(refused)?;
    }
    let judged = writable(&top.file, &header).map_err(refused)?;
    let mark = match header.features {
        Some(features) => Some(Mark::new(file.try_clone().map_err(failed)?, features)),
        None => None,
    };
    let disk = storage(file, request.path, true)
        .and_then(|file| disk(file, &header, Some(judged), mark, behind));
    Ok(device(disk.map_err(failed)?, request, holds))
}

/// What is to be told of an image that is opened.
///
/// # Errors
/// It is to be written, and somebody writes a file behind it.
fn notes(
    header: &Header,
    chain: &Chain,
    request: &FormatRequest<'_>,
) -> Result<Vec<String>, DeviceError> {
    if let (true, false, Some(writer)) = (request.write, request.force, chain.written.first()) {
        let what = format!(
            "{} cannot be opened for writing: {writer}; end that program first ('?ro' reads the image as it is; --ignore-lock risks its \
             contents)",
            request.name
        );
        return Err(DeviceError::new(DeviceErrorKind::Held, what));
    }
    let mut notes = chain.written.clone();
    let told = "what is read may be wrong; 'qemu-img check' tells more";
    if header.is_corrupt() {
        notes.push(format!("{MARKED_CORRUPT}: {told}"));
    }
    let is_corrupt = |layer: &&Layer| layer.header.as_ref().is_some_and(Header::is_corrupt);
    for layer in chain.layers.iter().filter(is_corrupt) {
        let path = layer.path.display();
        notes.push(format!(
            "{MARKED_CORRUPT}, its backing file \"{path}\": {told}"
        ));
    }
    Ok(notes)
}

fn device<R: Opened>(
    runner: R,
    request: FormatRequest<'_>,
    (chain, notes): (Vec<Arc<dyn Device>>, Vec<String>),
) -> Arc<dyn Device> {
    Arc::new(Qcow2Device {
        pool: Arc::new(CallPool::new("qcow2", runner)),
        name: request.name,
        below: request.below,
        _chain: chain,
        notes,
    })
}

/// The disk in a chain of files, for the library: it would look names up again, and refuses what only a writer has to.
fn behind(layers: Vec<Layer>) -> io::Result<Option<FormatAccess<Below>>> {
    let Some(first) = layers.first() else {
        return Ok(None);
    };
    let file = storage(first.file.try_clone()?, &first.path, false)?;
    let below = Below::behind(Reader::new(layers), file);
    let raw = Raw::<Below>::builder(below).write(false);
    let raw = raw.open(DenyImplicitOpenGate::default())?;
    Ok(Some(FormatAccess::new(raw)))
}

/// The disk in a file whose header was checked. `judged`: if it is written. `behind`: the disk of the files that it names.
pub(crate) fn disk(
    file: File,
    header: &Header,
    judged: Option<Judged>,
    mark: Option<Mark>,
    behind: Option<FormatAccess<Below>>,
) -> io::Result<Disk> {
    let write = judged.is_some();
    let frees = judged.as_ref().is_some_and(|judged| judged.frees);
    let turns = frees.then(|| Turns::new(header.cluster));
    let (counts_at, counts_len) = header.counts;
    let roots = Roots {
        clusters: header.l1,
        counts: (counts_at, counts_len as u64),
    };
    let (below, data) = match judged {
        Some(judged) => {
            let [tables, data] = Below::ordered(file, header.cluster, roots, judged.taken);
            (tables, Some(data))
        }
        None => (Below::plain(file, header.cluster), None),
    };
    let watch = below.watch();
    let builder = Qcow2::<Below>::builder(below).write(write).data_file(data);
    let opened = builder
        .backing(behind)
        .open(DenyImplicitOpenGate::default())?;
    let access = FormatAccess::new(opened);
    let sizes = (header.size, header.cluster);
    Ok(Disk::new(access, sizes, !write, mark, watch, turns))
}

/// Whether a file can be written.
fn writable(file: &std::fs::File, header: &Header) -> Result<Judged, String> {
    let (at, len) = header.counts;
    let mut table = vec![0; len];
    let read = file.read_exact_at(&mut table, at);
    read.map_err(|e| format!("its table of reference counts cannot be read: {e}"))?;
    check_counts(&table)?;
    judge(file, header)
}

/// Makes an empty disk of `size` bytes in a file, whose contents are lost.
///
/// # Errors
/// The host's.
pub fn create(path: &Path, size: u64) -> io::Result<()> {
    if !size.is_multiple_of(512) {
        return Err(io::Error::other(format!(
            "a disk of {size} bytes is no multiple of 512"
        )));
    }
    let file = open_storage(path, OFlags::RDWR)?;
    let file = storage(file.into(), path, true)?;
    Qcow2::<File>::create_builder(file).size(size).create()
}

fn storage(file: std::fs::File, path: &Path, write: bool) -> io::Result<File> {
    let options = StorageOpenOptions::new().write(write).filename(path);
    File::from_open_file(file, options)
}

fn check_allowed(header: &Header, request: &FormatRequest<'_>) -> Result<(), String> {
    if let (true, Some(why)) = (request.write, header.needs_reader()) {
        return Err(format!("{why}; '?ro' opens it for reading"));
    }
    if request.write && header.is_corrupt() {
        return Err(
            "it is marked as corrupt, so it is only read ('?ro'): 'diorite copy' makes a new image of what can be read, 'qemu-img check \
             -r all' may repair it"
                .to_owned(),
        );
    }
    if let (true, Some(named)) = (request.write, &header.backing)
        && std::str::from_utf8(&named.name).is_err()
    {
        return Err(format!(
            "the name of its backing file, \"{}\", is no UTF-8, so it is only read ('?ro'): 'diorite copy' makes one image of both, \
             'qemu-img rebase -u' gives the file another name",
            named.shown()
        ));
    }
    if request.write && header.snapshots > 0 {
        return Err(format!(
            "it has internal snapshots ({}), so it is only read ('?ro'): 'diorite copy' makes a copy without them, 'qemu-img snapshot -d' \
             deletes them",
            header.snapshots
        ));
    }
    if let (Some(named), true) = (&header.backing, request.backing)
        && named.format.is_none()
    {
        return Err(unknown_format(named));
    }
    match &header.backing {
        Some(named) if !request.backing => Err(format!(
            "it has the backing file \"{}\": '?backing' opens what an image names, if you trust whoever made it",
            named.shown()
        )),
        _ => Ok(()),
    }
}

impl Opened for Disk {
    fn geometry(&self) -> Geometry {
        Disk::geometry(self)
    }

    fn stored(&self, range: Range<u64>, most: usize) -> io::Result<Vec<Run>> {
        Disk::stored(self, range, most)
    }

    fn rest(&self) -> io::Result<()> {
        Disk::rest(self)
    }
}

impl Opened for Reader {
    fn geometry(&self) -> Geometry {
        Reader::geometry(self)
    }

    fn stored(&self, range: Range<u64>, most: usize) -> io::Result<Vec<Run>> {
        Reader::stored(self, range, most)
    }

    fn rest(&self) -> io::Result<()> {
        Ok(())
    }
}

impl<R: Opened> Device for Qcow2Device<R> {
    fn below(&self) -> Option<&dyn Device> {
        None
    }

    fn geometry(&self) -> Geometry {
        self.pool.runner().geometry()
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn report(&self) -> DeviceReport {
        DeviceReport {
            engine: "threads".to_owned(),
            mode: "qcow2".to_owned(),
            below: Some(Box::new(self.below.report())),
            fallbacks: self.notes.clone(),
            ..DeviceReport::default()
        }
    }

    fn stored(&self, range: Range<u64>, most: usize) -> Result<Vec<Run>, DeviceError> {
        // It also checks the range.
        self.all_data(range.clone(), most)?;
        let runs = self.pool.runner().stored(range, most);
        runs.map_err(|e| DeviceError::host(format!("{}: qcow2: {e}", self.name), e))
    }

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        let queue = CallQueue::new(self.pool.clone(), options);
        let queue = queue.map_err(|e| DeviceError::host(format!("{}: no thread", self.name), e))?;
        Ok(Box::new(queue))
    }

    fn rest(&self) -> Result<(), DeviceError> {
        let rested = self.pool.runner().rest();
        rested.map_err(|e| DeviceError::host(format!("{}: qcow2: {e}", self.name), e))
    }

    fn run_here(&self, mut bio: Bio) -> Result<Bio, Bio> {
        self.pool.runner().run(&mut bio);
        Ok(bio)
    }
}
