//! The lock classes of the engine, in the lock order: a thread takes locks downwards in this list only.
//!
//! Input: every room that needs a lock names its class here. Output: the order that debug builds check and the names
//! that statistics are printed under. Invariant: lower rank first; a volume's locks all come before those of the volumes
//! below it in a stack. Limits: none of these is ever held while data I/O is in flight.

use diorite_block::sync::LockClass;

/// The volume's list of idle queues for blocking calls.
pub static SYNC_POOL: LockClass = LockClass::new("sync-pool", 100);
/// The inodes that a frontend knows by their numbers.
pub static KNOWN: LockClass = LockClass::new("known", 105);
/// The volume's list of open queues.
pub static QUEUES: LockClass = LockClass::new("queues", 110);
/// A queue: its slots, its bios on their way down, its finished requests.
pub static QUEUE: LockClass = LockClass::new("queue", 200);
/// Held while a directory gets another parent: one at a time in a volume.
pub static RENAMES: LockClass = LockClass::new("renames", 290);
/// The inode lock: shared by direct writes while they map, exclusive under the exclusive presets; of directories, shared by who reads
/// names, exclusive for who changes them. Who needs several takes them in the order of the inodes' numbers.
pub static INODE: LockClass = LockClass::new("inode", 300);
/// An inode's gate: who holds it, who is parked before it.
pub static GATE: LockClass = LockClass::new("gate", 310);
/// An inode's pending map.
pub static PENDING: LockClass = LockClass::new("pending", 315);
/// Held by whoever commits. Nothing above it may be held: a commit waits for open handles, and what they need is below.
pub static JOURNAL: LockClass = LockClass::new("journal", 320);
/// Serialises changes of one inode's extent map.
pub static MAP: LockClass = LockClass::new("map", 400);
/// The volume's list of orphans.
pub static ORPHANS: LockClass = LockClass::new("orphans", 402);
/// Orphans that nobody uses any more.
pub static DOOMED: LockClass = LockClass::new("doomed", 429);
/// The blocks that a file keeps ahead.
pub static CLAIMS: LockClass = LockClass::new("claims", 406);
/// What one inode's place in the inode table holds.
pub static INODE_STATE: LockClass = LockClass::new("inode-state", 405);
/// The blocks of attributes that may get another user; held while one gets or loses one.
pub static EQUAL_BLOCKS: LockClass = LockClass::new("equal-blocks", 407);
/// One block group: which of its blocks and inodes are free.
pub static ALLOC_GROUP: LockClass = LockClass::new("alloc-group", 408);
/// The volume's table of in-core inodes.
pub static INODES: LockClass = LockClass::new("inodes", 410);
/// Directories that came into memory lately.
pub static RECENT: LockClass = LockClass::new("recent", 411);
/// One shard of the metadata cache.
pub static CACHE: LockClass = LockClass::new("cache", 420);
/// The running transaction: who is in it and what it changes.
pub static JOURNAL_STATE: LockClass = LockClass::new("journal-state", 425);
/// What failed, until it is written down.
pub static FAILURE: LockClass = LockClass::new("failure", 427);
/// Inodes whose times go with the next commit.
pub static DIRTY_TIMES: LockClass = LockClass::new("dirty-times", 428);
/// The latest view of one extent map, taken only to fetch a changed view.
pub static MAP_VIEW: LockClass = LockClass::new("map-view", 430);
/// A queue's inbox: what other threads finished or released for it.
pub static INBOX: LockClass = LockClass::new("inbox", 500);
/// The work list of one class of workers.
pub static WORKERS: LockClass = LockClass::new("workers", 510);

/// The classes of the engine, in order.
pub static CLASSES: [&LockClass; 25] = [
    &SYNC_POOL,
    &KNOWN,
    &QUEUES,
    &QUEUE,
    &RENAMES,
    &INODE,
    &GATE,
    &PENDING,
    &JOURNAL,
    &MAP,
    &ORPHANS,
    &INODE_STATE,
    &CLAIMS,
    &EQUAL_BLOCKS,
    &ALLOC_GROUP,
    &INODES,
    &RECENT,
    &CACHE,
    &JOURNAL_STATE,
    &FAILURE,
    &DIRTY_TIMES,
    &DOOMED,
    &MAP_VIEW,
    &INBOX,
    &WORKERS,
];
