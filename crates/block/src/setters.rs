//! Setters of options: a chain instead of a literal, so that options get fields without breaking programs.
//!
//! Input: the fields of a type, each with its type. Output: a method for each field, of its name. Invariant: no field is left out, or it
//! does not compile. Limits: where a program
//! wrote `Options { a: 1, ..Options::default() }` it writes `Options::default().a(1)`.

/// Writes a setter for each of these fields. Behind `option` a field takes its value or None; those of `const` are constant functions.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    ($name:ident { $($field:ident: $type:ty),* $(,)? } option { $($maybe:ident: $inner:ty),* $(,)? }) => {
        const _: fn($name) = |$name { $($field: _,)* $($maybe: _,)* }| ();
        impl $name {
            $(
                #[doc = concat!(
                    "With this value of [`", stringify!($name), "::", stringify!($field),
                    "`](field@", stringify!($name), "::", stringify!($field), ").",
                )]
                #[must_use]
                pub fn $field(mut self, $field: $type) -> $name {
                    self.$field = $field;
                    self
                }
            )*
            $(
                #[doc = concat!(
                    "With this value, or None, of [`", stringify!($name), "::", stringify!($maybe),
                    "`](field@", stringify!($name), "::", stringify!($maybe), ").",
                )]
                #[must_use]
                pub fn $maybe(mut self, $maybe: impl Into<Option<$inner>>) -> $name {
                    self.$maybe = $maybe.into();
                    self
                }
            )*
        }
    };
    (const $name:ident { $($field:ident: $type:ty),* $(,)? }) => {
        const _: fn($name) = |$name { $($field: _,)* }| ();
        impl $name {
            $(
                #[doc = concat!(
                    "With this value of [`", stringify!($name), "::", stringify!($field),
                    "`](field@", stringify!($name), "::", stringify!($field), ").",
                )]
                #[must_use]
                #[inline]
                pub const fn $field(mut self, $field: $type) -> $name {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}
