//! What it is: weaves all mutants of a file into its text, each behind a call of the switch (`switch.rs`).
//! Input: a text and its mutants. Output: the mutated text, and which part of it belongs to which mutant.
//! Invariants: with no mutant on, the mutated text behaves like the original; operands are evaluated once, in their order, and are
//! in the mutated text once, so mutants inside them are woven in, too.
//!
//! `a < b` becomes `(match (&(a), &(b)) { (l, r) => if on(7) { *l <= *r } else { *l < *r } })`. As in `assert_eq!`, the match keeps
//! temporaries alive, and the comparison takes references, as the operator does.

use crate::list::{Genre, Mutant};
use crate::places::{Place, Places};
use std::ops::Range;

#[cfg(test)]
mod tests;

/// A text with its mutants woven in.
pub(crate) struct Woven {
    pub(crate) text: String,
    parts: Vec<Part>,
    /// The numbers of the mutants that could not be woven in.
    pub(crate) left_out: Vec<u32>,
}

/// A range of the mutated text, and the mutants that it belongs to.
struct Part {
    range: Range<usize>,
    /// Set for the whole text of one place; none for the branch of one mutant.
    genre: Option<Genre>,
    mutants: Vec<u32>,
}

/// Text to insert at byte `at` of the source, replacing `cut` bytes.
#[derive(Default)]
struct Insertion {
    at: usize,
    cut: usize,
    text: String,
    branches: Vec<(Range<usize>, u32)>,
    /// Order at the same byte: ends before beginnings, inner ends before outer ends, outer beginnings before inner ones.
    order: (bool, isize),
    node: usize,
}

struct Loom<'a> {
    text: &'a str,
    insertions: Vec<Insertion>,
    nodes: Vec<Vec<u32>>,
    genres: Vec<Genre>,
}

/// Weaves `mutants`, all of one file, into its text.
///
/// # Errors
/// The text is not valid Rust.
pub(crate) fn weave(text: &str, mutants: &[&Mutant]) -> syn::Result<Woven> {
    let places = Places::of(text)?;
    let mut loom = Loom {
        text,
        insertions: Vec::new(),
        nodes: Vec::new(),
        genres: Vec::new(),
    };
    let mut left_out = Vec::new();
    let mut rest = mutants;
    while let Some(first) = rest.first() {
        let same = rest
            .iter()
            .take_while(|m| m.spot == first.spot && m.genre == first.genre)
            .count();
        let (here, others) = rest.split_at(same);
        rest = others;
        if !loom.put(&places, first.genre, here) {
            left_out.extend(here.iter().map(|m| m.number));
        }
    }
    Ok(loom.finish(left_out))
}

fn length(range: &Range<usize>) -> isize {
    isize::try_from(range.len()).expect("a source is shorter than half of memory")
}

fn on(number: u32) -> String {
    format!("::diorite_mutant::on({number}u32)")
}

/// A piece of text with the branches of its mutants.
#[derive(Default)]
struct Pieces {
    text: String,
    branches: Vec<(Range<usize>, u32)>,
}

impl Pieces {
    fn of(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            branches: Vec::new(),
        }
    }

    fn add(mut self, text: &str) -> Self {
        self.text.push_str(text);
        self
    }

    /// Adds `if on(N) { body }`, where `body` is the mutated code.
    fn branch(mut self, number: u32, body: &str) -> Self {
        self.text.push_str(&format!("if {} {{ ", on(number)));
        let start = self.text.len();
        self.text.push_str(body);
        self.branches.push((start..self.text.len(), number));
        self.text.push_str(" }");
        self
    }
}

impl Loom<'_> {
    /// Weaves in the mutants of one place; false if no place fits.
    fn put(&mut self, places: &Places, genre: Genre, mutants: &[&Mutant]) -> bool {
        let fits = |place: &Place| {
            matches!(
                (genre, place),
                (Genre::FnValue, Place::Body(_))
                    | (Genre::BinaryOperator, Place::Binary { lets: false, .. })
                    | (Genre::UnaryOperator, Place::Unary { .. })
                    | (Genre::MatchArm, Place::Arm { .. })
                    | (Genre::MatchArmGuard, Place::Arm { guard: Some(_), .. })
                    | (Genre::StructField, Place::Field { .. })
            )
        };
        let Some(place) = places.at(mutants[0].spot, fits) else {
            return false;
        };
        self.nodes.push(mutants.iter().map(|m| m.number).collect());
        self.genres.push(genre);
        match place {
            Place::Body(range) => self.body(range, mutants),
            Place::Binary { left, right, .. } => self.binary(left, right, mutants),
            Place::Unary { whole, operand } => self.unary(whole, operand, mutants),
            Place::Arm { pattern, guard } => self.arm(pattern, guard.as_ref(), genre, mutants),
            Place::Field { value, name, rest } => self.field(value, name, rest, mutants),
        }
        true
    }

    fn body(&mut self, range: &Range<usize>, mutants: &[&Mutant]) {
        let mut pieces = Pieces::of(" ");
        for mutant in mutants {
            pieces = pieces
                .branch(mutant.number, &format!("return {};", mutant.replacement))
                .add(" ");
        }
        self.insert(range.start + 1, 0, pieces, (true, isize::MIN));
    }

    fn binary(&mut self, left: &Range<usize>, right: &Range<usize>, mutants: &[&Mutant]) {
        let between = &self.text[left.end..right.start];
        let op = operator(between);
        if op.ends_with('=') && !matches!(op, "==" | "!=" | "<=" | ">=") {
            return self.assign(left, right, op, mutants);
        }
        if let "&&" | "||" = op {
            return self.lazy(left, right, op == "&&", mutants);
        }
        let compares = matches!(op, "==" | "!=" | "<" | ">" | "<=" | ">=");
        let (reference, star) = if compares { ("&", "*") } else { ("", "") };
        let mut pieces = Pieces::of(")) { (__l, __r) => ");
        for mutant in mutants {
            let body = format!("{star}__l {} {star}__r", mutant.replacement);
            pieces = pieces.branch(mutant.number, &body).add(" else ");
        }
        let pieces = pieces.add(&format!("{{ {star}__l {op} {star}__r }} }})"));
        let length = length(&(left.start..right.end));
        let head = Pieces::of(format!("(match ({reference}("));
        self.insert(left.start, 0, head, (true, -length));
        let middle = Pieces::of(format!("), {reference}("));
        self.insert(
            left.end,
            right.start - left.end,
            middle,
            (false, isize::MAX),
        );
        self.insert(right.end, 0, pieces, (false, length));
    }

    /// `a && b` evaluates `b` if `a` is true, `a || b` if `a` is false. The only mutant is the other operator, which inverts that
    /// condition.
    fn lazy(&mut self, left: &Range<usize>, right: &Range<usize>, and: bool, mutants: &[&Mutant]) {
        let not = if and { "" } else { "!" };
        let middle = format!(") {{ __l => if __l ^ {not}{} {{ ", on(mutants[0].number));
        let length = length(&(left.start..right.end));
        self.insert(left.start, 0, Pieces::of("(match ("), (true, -length));
        self.insert(
            left.end,
            right.start - left.end,
            Pieces::of(middle),
            (false, isize::MAX),
        );
        self.insert(
            right.end,
            0,
            Pieces::of(" } else { __l } })"),
            (false, length),
        );
    }

    /// The right side is evaluated first, as Rust does for numbers.
    fn assign(&mut self, left: &Range<usize>, right: &Range<usize>, op: &str, mutants: &[&Mutant]) {
        let target = &self.text[left.clone()];
        let mut pieces = Pieces::of(") { __r => ");
        for mutant in mutants {
            let body = format!("{target} {} __r", mutant.replacement);
            pieces = pieces.branch(mutant.number, &body).add(" else ");
        }
        let pieces = pieces.add(&format!("{{ {target} {op} __r }} }})"));
        let length = length(&(left.start..right.end));
        self.insert(
            left.start,
            right.start - left.start,
            Pieces::of("(match ("),
            (true, -length),
        );
        self.insert(right.end, 0, pieces, (false, length));
    }

    fn unary(&mut self, whole: &Range<usize>, operand: &Range<usize>, mutants: &[&Mutant]) {
        let sign = self.text[whole.start..operand.start].trim();
        let tail = Pieces::of(") { __v => ").branch(mutants[0].number, "__v");
        let tail = tail.add(&format!(" else {{ {sign}__v }} }})"));
        let length = length(whole);
        self.insert(
            whole.start,
            operand.start - whole.start,
            Pieces::of("(match ("),
            (true, -length),
        );
        self.insert(whole.end, 0, tail, (false, length));
    }

    fn arm(
        &mut self,
        pattern: &Range<usize>,
        guard: Option<&Range<usize>>,
        genre: Genre,
        mutants: &[&Mutant],
    ) {
        let delete = genre == Genre::MatchArm;
        let Some(guard) = guard else {
            let text = format!(" if !{}", on(mutants[0].number));
            return self.insert(pattern.end, 0, Pieces::of(text), (false, isize::MAX));
        };
        let mut head = String::new();
        for mutant in mutants {
            match mutant.replacement.as_str() {
                "true" => head.insert_str(0, &format!("{} || ", on(mutant.number))),
                _ => head.push_str(&format!("!{} && ", on(mutant.number))),
            }
        }
        let outer = length(guard) + 1 + isize::from(delete);
        self.insert(
            guard.start,
            0,
            Pieces::of(format!("({head}(")),
            (true, -outer),
        );
        self.insert(guard.end, 0, Pieces::of("))"), (false, outer));
    }

    fn field(
        &mut self,
        value: &Range<usize>,
        name: &str,
        rest: &Range<usize>,
        mutants: &[&Mutant],
    ) {
        let rest = format!("({}).{name}", &self.text[rest.clone()]);
        let head = Pieces::of("(")
            .branch(mutants[0].number, &rest)
            .add(" else { ");
        let length = length(value) + 1;
        self.insert(value.start, 0, head, (true, -length));
        self.insert(value.end, 0, Pieces::of(" })"), (false, length));
    }

    fn insert(&mut self, at: usize, cut: usize, pieces: Pieces, order: (bool, isize)) {
        let Pieces { text, branches } = pieces;
        let node = self.nodes.len() - 1;
        self.insertions.push(Insertion {
            at,
            cut,
            text,
            branches,
            order,
            node,
        });
    }

    fn finish(mut self, left_out: Vec<u32>) -> Woven {
        self.insertions.sort_by_key(|i| (i.at, i.order));
        let mut woven = Woven {
            text: String::new(),
            parts: Vec::new(),
            left_out,
        };
        let mut whole: Vec<Option<Range<usize>>> = vec![None; self.nodes.len()];
        let mut done = 0;
        for insertion in &self.insertions {
            // This insertion is inside the target of an assignment, which is repeated in the mutated text; mutants in there are
            // left out.
            if insertion.at < done {
                continue;
            }
            woven.text.push_str(&self.text[done..insertion.at]);
            done = insertion.at + insertion.cut;
            let start = woven.text.len();
            woven.text.push_str(&insertion.text);
            let range = whole[insertion.node].get_or_insert(start..start);
            range.end = woven.text.len();
            for (branch, number) in &insertion.branches {
                let range = start + branch.start..start + branch.end;
                woven.parts.push(Part {
                    range,
                    genre: None,
                    mutants: vec![*number],
                });
            }
        }
        woven.text.push_str(&self.text[done..]);
        for ((range, mutants), genre) in whole.into_iter().zip(self.nodes).zip(self.genres) {
            match range {
                Some(range) => woven.parts.push(Part {
                    range,
                    genre: Some(genre),
                    mutants,
                }),
                None => woven.left_out.extend(mutants),
            }
        }
        woven
    }
}

/// The operator in the text between two operands, without comments.
fn operator(between: &str) -> &str {
    let is_code = |line: &&str| !line.is_empty() && !line.starts_with("//");
    let words = between
        .lines()
        .map(str::trim)
        .find(is_code)
        .unwrap_or_default();
    words.split_whitespace().next().unwrap_or_default()
}

impl Woven {
    /// The mutants that an error at these bytes belongs to: those of the smallest part that contains it, else of all parts that it
    /// touches. With `beside_return` it is instead the value mutants of the function before it, whose type its body does not fit.
    pub(crate) fn owners(&self, error: &Range<usize>, beside_return: bool) -> Vec<u32> {
        let around = |part: &&Part| part.range.start <= error.start && error.end <= part.range.end;
        if let Some(part) = self
            .parts
            .iter()
            .filter(around)
            .min_by_key(|part| part.range.len())
        {
            return part.mutants.clone();
        }
        if beside_return {
            let before =
                |part: &&Part| part.genre == Some(Genre::FnValue) && part.range.end <= error.start;
            let last = self
                .parts
                .iter()
                .filter(before)
                .max_by_key(|part| part.range.end);
            return last.map(|part| part.mutants.clone()).unwrap_or_default();
        }
        let touched = |part: &&Part| part.range.start < error.end && error.start < part.range.end;
        self.parts
            .iter()
            .filter(touched)
            .flat_map(|part| part.mutants.clone())
            .collect()
    }
}

impl Woven {
    /// The arm mutants in the block that begins after this byte: a match.
    pub(crate) fn arms_behind(&self, at: usize) -> Vec<u32> {
        let mut depth = 0;
        let is_end = |byte: u8| {
            depth += i32::from(byte == b'{') - i32::from(byte == b'}');
            byte == b'}' && depth == 0
        };
        let end = at + self.text.bytes().skip(at).position(is_end).unwrap_or(0);
        let inside = |part: &&Part| {
            part.genre == Some(Genre::MatchArm) && (at..end).contains(&part.range.start)
        };
        self.parts
            .iter()
            .filter(inside)
            .flat_map(|part| part.mutants.clone())
            .collect()
    }
}
