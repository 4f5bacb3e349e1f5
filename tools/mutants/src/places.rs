//! What it is: the places of a source file that a mutant can change, indexed by the position where they begin.
//! Input: the text of a file. Output: byte ranges of function bodies, operators with their operands, match arms, struct fields.
//! Invariant: ranges refer to the text as given; code in a macro's arguments is not indexed.

use proc_macro2::Span;
use std::collections::HashMap;
use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Line and column, both from 1, as cargo-mutants counts them.
pub(crate) type Spot = (usize, usize);

/// A place that a mutant can be woven into.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// The body of a function, braces included.
    Body(Range<usize>),
    /// Two operands and the operator between them.
    Binary {
        left: Range<usize>,
        right: Range<usize>,
        /// The condition contains `let`, which cannot be an operand of the match that weaving makes.
        lets: bool,
    },
    /// An operand with a prefix operator.
    Unary {
        whole: Range<usize>,
        operand: Range<usize>,
    },
    /// A match arm: its pattern, and its guard.
    Arm {
        pattern: Range<usize>,
        guard: Option<Range<usize>>,
    },
    /// A field of a struct expression, and the expression after its `..`.
    Field {
        value: Range<usize>,
        name: String,
        rest: Range<usize>,
    },
}

/// All places of one text, indexed by the position where the mutant's span begins.
#[derive(Default)]
pub(crate) struct Places {
    by_spot: HashMap<Spot, Vec<Place>>,
}

impl Places {
    /// # Errors
    /// The text is not valid Rust.
    pub(crate) fn of(text: &str) -> syn::Result<Self> {
        let mut places = Self::default();
        places.visit_file(&syn::parse_file(text)?);
        Ok(places)
    }

    /// The first place at this position that `fits`.
    pub(crate) fn at(&self, spot: Spot, fits: impl Fn(&Place) -> bool) -> Option<&Place> {
        self.by_spot.get(&spot)?.iter().find(|place| fits(place))
    }

    fn note(&mut self, span: Span, place: Place) {
        let start = span.start();
        self.by_spot
            .entry((start.line, start.column + 1))
            .or_default()
            .push(place);
    }

    /// A body is indexed by its first statement, and by its brace.
    fn note_body(&mut self, block: &syn::Block) {
        let range = block.span().byte_range();
        self.note(block.span(), Place::Body(range.clone()));
        if let Some(first) = block.stmts.first() {
            self.note(first.span(), Place::Body(range));
        }
    }
}

/// True if one of the operands of `&&` in a condition is a `let`.
fn has_let(expr: &syn::Expr) -> bool {
    match expr {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Places {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.note_body(&item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.note_body(&item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.note_body(block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        let place = Place::Binary {
            left: binary.left.span().byte_range(),
            right: binary.right.span().byte_range(),
            lets: has_let(&binary.left) || has_let(&binary.right),
        };
        self.note(binary.op.span(), place);
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'ast syn::ExprUnary) {
        let whole = unary.span().byte_range();
        let operand = unary.expr.span().byte_range();
        self.note(unary.op.span(), Place::Unary { whole, operand });
        visit::visit_expr_unary(self, unary);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        let pattern = arm.pat.span().byte_range();
        let guard = arm
            .guard
            .as_ref()
            .map(|(_, guard)| guard.span().byte_range());
        let place = Place::Arm { pattern, guard };
        self.note(arm.span(), place.clone());
        if let Some((_, guard)) = &arm.guard {
            self.note(guard.span(), place);
        }
        visit::visit_arm(self, arm);
    }

    fn visit_expr_struct(&mut self, literal: &'ast syn::ExprStruct) {
        if let Some(rest) = &literal.rest {
            for field in &literal.fields {
                if let (syn::Member::Named(name), Some(_)) = (&field.member, &field.colon_token) {
                    let value = field.expr.span().byte_range();
                    let (name, rest) = (name.to_string(), rest.span().byte_range());
                    self.note(field.span(), Place::Field { value, name, rest });
                }
            }
        }
        visit::visit_expr_struct(self, literal);
    }
}
