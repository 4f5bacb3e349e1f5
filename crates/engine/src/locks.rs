//! The lock classes of the engine, in the lock order: a thread takes locks downwards in this list only.
//!
//! Input: each module that has a lock names the lock's class here. Output: the order that debug builds check at every acquisition, and the
//! names under which statistics are printed. Invariants: lower ranks are taken first; all locks of a volume come before those of the
//! volumes below it in a stack. Limits: no lock of these classes is held while data I/O is in flight.

use diorite_block::sync::LockClass;

/// Held by calls that change the volume as a whole: its size, its parameters. They may do under it what any other call does, so it comes
/// before all else.
pub static RESIZING: LockClass = LockClass::new("resizing", 80);
/// The volume's list of idle queues for blocking calls.
pub static SYNC_POOL: LockClass = LockClass::new("sync-pool", 100);
/// The thread of a volume that writes dirty pages back.
pub static FLUSHER: LockClass = LockClass::new("flusher", 107);
/// Who appends to a file through the page cache.
pub static APPENDS: LockClass = LockClass::new("appends", 90);
/// The read-ahead of one open file.
pub static READ_AHEAD: LockClass = LockClass::new("read-ahead", 92);
/// The volume's list of open queues.
pub static QUEUES: LockClass = LockClass::new("queues", 110);
/// The files of a volume that are devices opened for writing.
pub static DEVICES: LockClass = LockClass::new("devices", 112);
/// A queue: its slots, the bios that have yet to go down, its finished requests.
pub static QUEUE: LockClass = LockClass::new("queue", 200);
/// Held while a directory moves to another parent: one such rename at a time in a volume.
pub static RENAMES: LockClass = LockClass::new("renames", 290);
/// The inode lock. Of files: direct writes hold it shared while they map; a policy may make it exclusive, and make reads take it. Of
/// directories: shared by lookups, exclusive for changes of names. A thread that needs several takes them in ascending order of the
/// inodes' numbers.
pub static INODE: LockClass = LockClass::new("inode", 300);
/// An inode's gate: which operation has the exclusive turn, which requests are parked.
pub static GATE: LockClass = LockClass::new("gate", 310);
/// An inode's cached pages.
pub static PAGES: LockClass = LockClass::new("pages", 312);
/// An inode's pending map.
pub static PENDING: LockClass = LockClass::new("pending", 315);
/// Held by the thread that commits. A commit waits for the open handles, so its thread may hold no lock that an open handle needs.
pub static JOURNAL: LockClass = LockClass::new("journal", 320);
/// Serialises changes of one inode's extent map.
pub static MAP: LockClass = LockClass::new("map", 400);
/// The volume's list of orphans.
pub static ORPHANS: LockClass = LockClass::new("orphans", 402);
/// Orphans that have no user any more and are to be deleted.
pub static DOOMED: LockClass = LockClass::new("doomed", 429);
/// The window of blocks that a file has claimed ahead of its writes.
pub static CLAIMS: LockClass = LockClass::new("claims", 406);
/// The old blocks of atomic writes that requests in flight may know.
pub static SWAPPED: LockClass = LockClass::new("swapped", 404);
/// The in-memory state of one inode's slot in the inode table.
pub static INODE_STATE: LockClass = LockClass::new("inode-state", 405);
/// Attribute blocks that other inodes may share. Held while such a block gains or loses a user.
pub static EQUAL_BLOCKS: LockClass = LockClass::new("equal-blocks", 407);
/// One block group: which of its blocks and inodes are free, claimed, or wait for a commit.
pub static ALLOC_GROUP: LockClass = LockClass::new("alloc-group", 408);
/// The volume's table of in-core inodes.
pub static INODES: LockClass = LockClass::new("inodes", 410);
/// Directories that were loaded lately.
pub static RECENT: LockClass = LockClass::new("recent", 411);
/// What a file has reserved for its dirty pages.
pub static DELAYED: LockClass = LockClass::new("delayed", 412);
/// The table of inodes that a frontend refers to by number.
pub static KNOWN: LockClass = LockClass::new("known", 413);
/// One shard of the metadata cache.
pub static CACHE: LockClass = LockClass::new("cache", 420);
/// The running transaction: its open handles and the blocks that they change.
pub static JOURNAL_STATE: LockClass = LockClass::new("journal-state", 425);
/// The record of a failure that has yet to be written into the superblock.
pub static FAILURE: LockClass = LockClass::new("failure", 427);
/// The list of inodes with cached pages.
pub static CACHED_INODES: LockClass = LockClass::new("cached-inodes", 432);
/// Counts changes of an inode's cached pages, for those who wait for one.
pub static PAGES_CHANGED: LockClass = LockClass::new("pages-changed", 433);
/// The folios of a budget, in the order in which they go.
pub static PAGE_BUDGET: LockClass = LockClass::new("page-budget", 435);
/// Inodes whose times have changed in memory and are not in the inode table yet.
pub static DIRTY_TIMES: LockClass = LockClass::new("dirty-times", 428);
/// The queues that have noted times of writes of one file.
pub static WRITTEN: LockClass = LockClass::new("written", 431);
/// The latest view of one extent map; taken only to fetch a view that has changed.
pub static MAP_VIEW: LockClass = LockClass::new("map-view", 430);
/// A queue's inbox: messages of other threads about its requests.
pub static INBOX: LockClass = LockClass::new("inbox", 500);
/// The work list of one class of workers.
pub static WORKERS: LockClass = LockClass::new("workers", 510);

/// The classes of the engine, in order.
pub static CLASSES: [&LockClass; 37] = [
    &RESIZING,
    &APPENDS,
    &READ_AHEAD,
    &SYNC_POOL,
    &FLUSHER,
    &QUEUES,
    &DEVICES,
    &QUEUE,
    &RENAMES,
    &INODE,
    &GATE,
    &PAGES,
    &PENDING,
    &JOURNAL,
    &MAP,
    &ORPHANS,
    &SWAPPED,
    &INODE_STATE,
    &CLAIMS,
    &EQUAL_BLOCKS,
    &ALLOC_GROUP,
    &INODES,
    &RECENT,
    &DELAYED,
    &KNOWN,
    &CACHE,
    &JOURNAL_STATE,
    &FAILURE,
    &DIRTY_TIMES,
    &DOOMED,
    &MAP_VIEW,
    &WRITTEN,
    &CACHED_INODES,
    &PAGES_CHANGED,
    &PAGE_BUDGET,
    &INBOX,
    &WORKERS,
];
