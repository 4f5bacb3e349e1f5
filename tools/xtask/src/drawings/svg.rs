//! A drawing of boxes, arrows and words, and its text as SVG.
//! Input: places in units of a pixel. Output: the text; what does not fit. Invariants: what is drawn later lies above; colours are
//! classes of one style sheet, for light and dark. Limits: no curves; a letter is taken to be as wide as the mean of a sans-serif font.

use std::fmt::Write;

/// What a box shows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Of diorite.
    Ours,
    /// Of the kernel or another program.
    Theirs,
    /// An area that holds other boxes; its words stand at the top.
    Area,
    /// Waiting, or what costs time.
    Wait,
}

impl Kind {
    const fn class(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Theirs => "theirs",
            Self::Area => "area",
            Self::Wait => "wait",
        }
    }
}

/// Where words begin.
#[derive(Clone, Copy)]
pub(super) enum Align {
    Start,
    Middle,
}

enum Shape {
    Block(u32, u32, u32, u32, Kind, Vec<String>),
    Arrow(Vec<(u32, u32)>),
    Words(u32, u32, Align, bool, String),
}

/// A drawing.
pub(super) struct Drawing {
    width: u32,
    height: u32,
    title: String,
    shapes: Vec<Shape>,
}

/// The height of a line of words.
const LINE: u32 = 18;

const STYLE: &str = "\
text{font:13px sans-serif;fill:#1f2328}.head{font-weight:bold}\
.paper{fill:#fff}.ours{fill:#d3ecd9;stroke:#2c7a44}.theirs{fill:#e7eaf0;stroke:#6b7482}\
.area{fill:none;stroke:#98a1ad;stroke-dasharray:5 4}.wait{fill:#fbe3d2;stroke:#b5622a}\
.line{fill:none;stroke:#4b5561;stroke-width:1.5}.tip{fill:#4b5561}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.paper{fill:#0f141b}\
.ours{fill:#1b4129;stroke:#5fb97b}.theirs{fill:#2a313c;stroke:#8a94a3}\
.area{stroke:#67717e}.wait{fill:#4d2f1b;stroke:#d98d57}.line{stroke:#aab4c0}.tip{fill:#aab4c0}}";

impl Drawing {
    pub(super) fn new(width: u32, height: u32, title: &str) -> Self {
        Self {
            width,
            height,
            title: title.to_owned(),
            shapes: Vec::new(),
        }
    }

    /// A box with lines of words.
    pub(super) fn block(
        mut self,
        at: (u32, u32),
        size: (u32, u32),
        kind: Kind,
        words: &[&str],
    ) -> Self {
        let words = words.iter().map(|&w| w.to_owned()).collect();
        self.shapes
            .push(Shape::Block(at.0, at.1, size.0, size.1, kind, words));
        self
    }

    /// An arrow along points.
    pub(super) fn arrow(mut self, points: &[(u32, u32)]) -> Self {
        self.shapes.push(Shape::Arrow(points.to_vec()));
        self
    }

    pub(super) fn words(self, at: (u32, u32), words: &str) -> Self {
        self.put(at, Align::Start, false, words)
    }

    pub(super) fn centred(self, at: (u32, u32), words: &str) -> Self {
        self.put(at, Align::Middle, false, words)
    }

    pub(super) fn heading(self, at: (u32, u32), words: &str) -> Self {
        self.put(at, Align::Start, true, words)
    }

    fn put(mut self, at: (u32, u32), align: Align, bold: bool, words: &str) -> Self {
        let words = words.to_owned();
        self.shapes
            .push(Shape::Words(at.0, at.1, align, bold, words));
        self
    }

    /// Words that are wider than their place, and boxes that leave the paper.
    #[cfg(test)]
    pub(super) fn faults(&self) -> Vec<String> {
        let width = |words: &str| u32::try_from(words.chars().count() * 7).unwrap_or(u32::MAX);
        let mut faults = Vec::new();
        for shape in &self.shapes {
            match shape {
                Shape::Block(x, y, w, h, _, words) => {
                    if x + w > self.width || y + h > self.height {
                        faults.push(format!("the box {words:?} leaves the paper"));
                    }
                    let lines = u32::try_from(words.len()).unwrap_or(u32::MAX);
                    if lines * LINE > *h {
                        faults.push(format!("{words:?} are more lines than their box has"));
                    }
                    let wide = words.iter().filter(|line| width(line) + 4 > *w);
                    faults.extend(wide.map(|line| format!("{line:?} is wider than its box")));
                }
                Shape::Words(x, _, align, _, words) => {
                    let (left, right) = match align {
                        Align::Start => (*x, x + width(words)),
                        Align::Middle => (
                            x.saturating_sub(width(words) / 2),
                            x + width(words).div_ceil(2),
                        ),
                    };
                    if right > self.width || left == 0 {
                        faults.push(format!("{words:?} leaves the paper"));
                    }
                }
                Shape::Arrow(points) => {
                    if points
                        .iter()
                        .any(|&(x, y)| x > self.width || y > self.height)
                    {
                        faults.push(format!("the arrow {points:?} leaves the paper"));
                    }
                }
            }
        }
        faults
    }

    /// The drawing as SVG.
    pub(super) fn text(&self) -> String {
        let (w, h) = (self.width, self.height);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\" role=\"img\">\n\
            <title>{}</title>\n<style>{STYLE}</style>\n\
            <defs><marker id=\"tip\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"8\" markerHeight=\"8\" orient=\"auto\">\
            <path class=\"tip\" d=\"M0 0L10 5L0 10z\"/></marker></defs>\n\
            <rect class=\"paper\" width=\"{w}\" height=\"{h}\" rx=\"8\"/>\n",
            escape(&self.title)
        );
        for shape in &self.shapes {
            match shape {
                Shape::Block(x, y, w, h, kind, words) => {
                    let class = kind.class();
                    add(
                        &mut out,
                        format_args!(
                            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" rx=\"5\"/>\n"
                        ),
                    );
                    let lines = u32::try_from(words.len()).unwrap_or(1);
                    let first = match kind {
                        Kind::Area => y + LINE,
                        _ => (y + h / 2 + 5).saturating_sub((lines.saturating_sub(1)) * LINE / 2),
                    };
                    for (line, words) in (0..).zip(words) {
                        write_words(
                            &mut out,
                            (x + w / 2, first + line * LINE),
                            Align::Middle,
                            *kind == Kind::Area,
                            words,
                        );
                    }
                }
                Shape::Arrow(points) => {
                    let path: Vec<String> =
                        points.iter().map(|(x, y)| format!("{x} {y}")).collect();
                    let path = path.join("L");
                    add(
                        &mut out,
                        format_args!(
                            "<path class=\"line\" d=\"M{path}\" marker-end=\"url(#tip)\"/>\n"
                        ),
                    );
                }
                Shape::Words(x, y, align, bold, words) => {
                    write_words(&mut out, (*x, *y), *align, *bold, words);
                }
            }
        }
        out.push_str("</svg>\n");
        out
    }
}

fn write_words(out: &mut String, at: (u32, u32), align: Align, bold: bool, words: &str) {
    let anchor = match align {
        Align::Start => "",
        Align::Middle => " text-anchor=\"middle\"",
    };
    let class = if bold { " class=\"head\"" } else { "" };
    let (x, y) = at;
    let words = escape(words);
    add(
        out,
        format_args!("<text{class} x=\"{x}\" y=\"{y}\"{anchor}>{words}</text>\n"),
    );
}

fn add(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text)
        .expect("a String takes everything that is written to it");
}

fn escape(words: &str) -> String {
    words
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
