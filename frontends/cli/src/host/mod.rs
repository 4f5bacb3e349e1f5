//! The process and its host: limits, memory, signals, the sandbox, pid files, new files.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `process` | limits and signals -> settings of the process; whether a signal has ended it |
//! | `memory` | the host's memory and limits -> the budget of cached pages |
//! | `new_file` | a path -> a file that gets its name when it is whole and durable |
//! | `service` | options of commands that serve clients -> signals, the pid file, the ready descriptor |
//! | `sandbox` | the files that a command needs -> a process that reaches nothing else |
//!
//! Input: settings of the host, paths. Output: settings of the process, files of the host. Invariant: no image is opened here. Limits:
//! Linux.

pub(crate) mod memory;
pub(crate) mod new_file;
pub(crate) mod process;
pub(crate) mod sandbox;
pub(crate) mod service;
