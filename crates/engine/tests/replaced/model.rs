//! Which contents each name refers to over time, and what a power cut may leave of that.
//!
//! Input: operations, each with its place in the device's log, and syncs. Output: what is wrong with the names of an image.
//! Invariants: an operation that was synced before the cut holds; a later one holds or not, for each of its names separately.
//! Limits: contents are compared byte by byte.

/// What a name refers to: an index in the list of contents, or nothing.
pub(crate) type Content = Option<usize>;

/// Names that are replaced, moved and exchanged.
pub(crate) const TARGETS: [&str; 8] = [
    "/a/one", "/a/two", "/a/three", "/a/four", "/b/one", "/b/two", "/b/three", "/b/four",
];

/// Names between which one directory moves, in this order.
pub(crate) const WALKED: [&str; 4] = ["/a/walks", "/b/walks", "/a/walks-on", "/b/walks-on"];

/// What counts as the contents of the moving directory while the file in it is there.
pub(crate) const DIRECTORY: &[u8] = b"a directory";

/// The contents of all fillers: empty.
const EMPTY: usize = 0;

/// The condition of directory blocks in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocks {
    Whole,
    /// Some may be torn: of a move within one block, only the half may be there that removes the old name.
    Torn,
    /// e2fsck has found a block that it cannot read in full or correctly: any name may be missing.
    Unreadable,
}

#[derive(Debug)]
struct Op {
    /// The place in the log at which the operation began.
    at: usize,
    sets: Vec<(usize, Content)>,
    /// In an exchange, contents may be without a name for a moment: no single write changes two blocks.
    exchange: bool,
}

#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) names: Vec<String>,
    contents: Vec<Vec<u8>>,
    first: Vec<Content>,
    pub(crate) now: Vec<Content>,
    ops: Vec<Op>,
    /// For each sync, the place in the log at which it had ended, and the number of operations before it.
    syncs: Vec<(usize, usize)>,
}

impl Model {
    /// A model with this number of fillers in each directory.
    pub(crate) fn new(fillers: usize) -> Model {
        let mut model = Model {
            names: TARGETS.iter().chain(&WALKED).map(|&n| n.into()).collect(),
            contents: vec![Vec::new()],
            first: Vec::new(),
            now: vec![None; TARGETS.len() + WALKED.len()],
            ops: Vec::new(),
            syncs: Vec::new(),
        };
        (0..fillers).for_each(|number| model.more_fillers(number));
        model
    }

    fn more_fillers(&mut self, number: usize) {
        for dir in ["/a", "/b"] {
            let name = format!("{dir}/{}-{number}", "filler".repeat(6 + number % 9));
            self.names.push(name);
            self.now.push(Some(EMPTY));
        }
    }

    /// Everything is durable from here on.
    pub(crate) fn begin(&mut self) {
        self.first = self.now.clone();
    }

    /// Adds the name of a new filler.
    pub(crate) fn new_filler(&mut self) -> usize {
        let number = self.names.len();
        let dir = ["/a", "/b"][number % 2];
        let name = format!("{dir}/{}-new-{number}", "filler".repeat(6 + number % 9));
        self.new_name(name)
    }

    /// Adds a name that does not exist yet.
    pub(crate) fn new_name(&mut self, name: String) -> usize {
        self.names.push(name);
        self.now.push(None);
        self.first.push(None);
        self.names.len() - 1
    }

    pub(crate) fn empty(&self) -> Content {
        Some(EMPTY)
    }

    /// Adds contents that no name has had before.
    pub(crate) fn new_content(&mut self, bytes: Vec<u8>) -> Content {
        self.contents.push(bytes);
        Some(self.contents.len() - 1)
    }

    /// Notes an operation that begins at this place in the log.
    pub(crate) fn op(&mut self, at: usize, sets: Vec<(usize, Content)>, exchange: bool) {
        for (name, content) in &sets {
            self.now[*name] = *content;
        }
        self.ops.push(Op { at, sets, exchange });
    }

    /// Notes a sync that has ended at this place in the log.
    pub(crate) fn synced(&mut self, at: usize) {
        self.syncs.push((at, self.ops.len()));
    }

    /// Returns what is wrong in a state. `renamed` are names that e2fsck has given: of a directory block whose entries were copied to
    /// another one, and that was not written again itself, it renames those that are another file's in the copy.
    pub(crate) fn judge(
        &self,
        cut: usize,
        blocks: Blocks,
        renamed: &[String],
        see: impl Fn(&str) -> Option<Vec<u8>>,
    ) -> Vec<String> {
        let durable = self.syncs.iter().rev().find(|(at, _)| *at < cut);
        let durable = durable.map_or(0, |(_, ops)| *ops);
        let started = self.ops.iter().take_while(|op| op.at < cut).count();
        let mut states = vec![self.state_after(durable)];
        for op in &self.ops[durable..started] {
            let mut next = states.last().unwrap().clone();
            op.sets.iter().for_each(|(name, what)| next[*name] = *what);
            states.push(next);
        }
        let seen: Vec<_> = self.names.iter().map(|name| see(name)).collect();
        let mut wrong: Vec<String> = (0..self.names.len())
            .filter(|name| blocks != Blocks::Unreadable || seen[*name].is_some())
            .filter_map(|name| self.wrong_name(name, &states, seen[name].as_deref()))
            .collect();
        let exchanged = self.ops[durable..started].iter().any(|op| op.exchange);
        let moved = (1..self.contents.len()).filter(|_| !exchanged && blocks == Blocks::Whole);
        let elsewhere: Vec<_> = renamed.iter().filter_map(|name| see(name)).collect();
        let moved = moved.filter(|what| !elsewhere.contains(&self.contents[*what]));
        wrong.extend(moved.filter_map(|what| self.lost(what, &states, &seen)));
        wrong
    }

    fn state_after(&self, ops: usize) -> Vec<Content> {
        let mut state = self.first.clone();
        for (name, what) in self.ops[..ops].iter().flat_map(|op| &op.sets) {
            state[*name] = *what;
        }
        state
    }

    fn wrong_name(
        &self,
        name: usize,
        states: &[Vec<Content>],
        seen: Option<&[u8]>,
    ) -> Option<String> {
        let may = |state: &Vec<Content>| state[name].map(|what| &self.contents[what][..]) == seen;
        if states.iter().any(may) {
            return None;
        }
        let mut allowed: Vec<_> = states.iter().map(|state| state[name]).collect();
        allowed.dedup();
        let is = seen.map(|bytes| self.contents.iter().position(|c| c == bytes));
        let len = seen.map(<[u8]>::len);
        let name = &self.names[name];
        Some(format!(
            "{name}: {is:?} of {len:?} bytes, not one of {allowed:?}"
        ))
    }

    /// Tells if these contents had a name in every possible state, but none of those names has them now.
    fn lost(
        &self,
        what: usize,
        states: &[Vec<Content>],
        seen: &[Option<Vec<u8>>],
    ) -> Option<String> {
        let places = |state: &Vec<Content>| state.iter().position(|c| *c == Some(what));
        let places: Option<Vec<usize>> = states.iter().map(places).collect();
        let there = |name: &usize| seen[*name].as_ref() == Some(&self.contents[what]);
        let lost = places.filter(|places| !places.iter().any(there))?;
        let names: Vec<_> = lost.iter().map(|name| &self.names[*name]).collect();
        Some(format!(
            "content {what} only moved, {names:?}, and is nowhere"
        ))
    }
}
