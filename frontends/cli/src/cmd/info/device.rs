//! Describes a device, and reads the superblock of a volume that the engine refuses to open.
//!
//! Input: devices. Output: lines, JSON. Invariant: nothing is written. Limits: a refused volume inside another image is not
//! described.

use crate::args::Global;
use diorite_block::device::DeviceReport;
use diorite_block::{Blocking, Buf, Device, Locator, OpenOptions, locator};
use diorite_format::Superblock;
use diorite_format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use serde_json::{Value, json};
use std::sync::Arc;

/// The superblock at a locator, if there is a valid one.
pub(super) fn read_superblock(img: &str, global: &Global) -> Option<(Arc<dyn Device>, Superblock)> {
    let options = OpenOptions::default()
        .read_only(true)
        .io_engine(global.io_engine);
    let device = locator::open(&Locator::parse(img).ok()?, &options).ok()?;
    let logical = u64::from(device.geometry().logical);
    let end = (SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64).next_multiple_of(logical);
    let whole = usize::try_from(end).ok()?;
    let buf = Blocking::new(device.clone())
        .read(0, Buf::zeroed(whole))
        .ok()?;
    let from = usize::try_from(SUPERBLOCK_OFFSET).ok()?;
    let raw = buf
        .as_slice()
        .get(from..from + SUPERBLOCK_SIZE)?
        .try_into()
        .ok()?;
    Some((device, Superblock::parse(raw).ok()?))
}

/// The lines of `info -v`, from the volume's device down to the lowest layer.
pub(super) fn text(device: &dyn Device) -> Vec<String> {
    let g = device.geometry();
    let report = device.report();
    let yes = |b: bool| if b { "yes" } else { "no" };
    let mut lines = vec![
        format!("Name:              {}", device.name()),
        format!("Size:              {} bytes", g.size),
        format!(
            "Logical block:     {}, physical {}, buffer alignment {}",
            g.logical, g.physical, g.dma_align
        ),
        format!("Largest transfer:  {} bytes", g.max_transfer),
        format!(
            "Volatile cache:    {}, FUA {}",
            yes(g.volatile_cache),
            yes(g.fua)
        ),
        format!(
            "Discard:           {}, write-zeroes {}",
            yes(g.discard),
            yes(g.write_zeroes)
        ),
        format!("Opened read-only:  {}", yes(g.read_only)),
    ];
    layers(&report, &mut lines);
    lines
}

/// Adds a line for each layer of a device, from the top to the bottom.
fn layers(report: &DeviceReport, lines: &mut Vec<String>) {
    let mut next = Some(report);
    while let Some(layer) = next {
        let mode = match layer.mode.as_str() {
            "" => String::new(),
            mode => format!(", {mode}"),
        };
        lines.push(format!(
            "I/O engine:        {}, {}{mode}",
            layer.engine,
            way(layer)
        ));
        lines.push(format!(
            "Registered:        {} buffers, {} regions went plain",
            layer.registered, layer.plain
        ));
        lines.extend(
            layer
                .fallbacks
                .iter()
                .map(|f| format!("Fallback:          {f}")),
        );
        next = layer.below.as_deref();
    }
}

fn way(report: &DeviceReport) -> &'static str {
    match (report.direct, report.block_device) {
        (true, true) => "direct, block device",
        (true, false) => "direct",
        (false, true) => "buffered, block device",
        (false, false) => "buffered",
    }
}

/// The `device` object: `name`, `size`, `logical`, `physical`, `dma_align`, `max_transfer`, `volatile_cache`, `fua`, `discard`,
/// `write_zeroes`, `read_only`, and `layers`, from the top to the bottom.
pub(super) fn describe(device: &dyn Device) -> Value {
    let g = device.geometry();
    let report = device.report();
    let (mut layers, mut next) = (Vec::new(), Some(&report));
    while let Some(layer) = next {
        layers.push(json!({
            "engine": layer.engine,
            "mode": layer.mode,
            "direct": layer.direct,
            "block_device": layer.block_device,
            "fallbacks": layer.fallbacks,
            "registered": layer.registered,
            "plain": layer.plain,
            "rewrites": layer.rewrites,
        }));
        next = layer.below.as_deref();
    }
    json!({
        "name": device.name(), "size": g.size, "logical": g.logical, "physical": g.physical, "dma_align": g.dma_align,
        "max_transfer": g.max_transfer, "volatile_cache": g.volatile_cache, "fua": g.fua, "discard": g.discard,
        "write_zeroes": g.write_zeroes, "read_only": g.read_only, "layers": layers,
    })
}
