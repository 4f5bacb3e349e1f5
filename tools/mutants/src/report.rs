//! What it is: the verdicts as a table, and the survivors without a documented reason.
//! Input: mutants, verdicts, docs/mutants.md. Output: text on standard output.
//! Invariant: a survivor is explained if docs/mutants.md contains its name without line and column.

use crate::error::{Error, Result};
use crate::judge::{Fate, Verdict};
use crate::list::Mutant;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Prints the table; returns the number of survivors without a reason.
///
/// # Errors
/// docs/mutants.md cannot be read.
pub(crate) fn report(root: &Path, mutants: &[Mutant], verdicts: &[Verdict]) -> Result<usize> {
    let doc = root.join("docs/mutants.md");
    let reasons = std::fs::read_to_string(&doc).map_err(Error::io(doc.display()))?;
    // Vertical bars are escaped in the cells of a Markdown table.
    let reasons = reasons.replace(r"\|", "|");
    let fates: HashMap<_, _> = verdicts.iter().map(|v| (v.name.as_str(), v.fate)).collect();
    let mut table: BTreeMap<&Path, [usize; 6]> = BTreeMap::new();
    let mut unexplained = 0;
    for mutant in mutants {
        let row = table.entry(&mutant.file).or_default();
        let Some(fate) = fates.get(mutant.name.as_str()) else {
            continue;
        };
        row[*fate as usize] += 1;
        if matches!(fate, Fate::Survived | Fate::NotReached | Fate::NoPlace)
            && !reasons.contains(&lasting_name(mutant))
        {
            unexplained += 1;
            println!("{fate:?}, no reason given: {}", mutant.name);
        }
    }
    println!("file | killed | hung | survived | not reached | unviable | no place");
    for (file, row) in table {
        let row: Vec<_> = row.iter().map(usize::to_string).collect();
        println!("{} | {}", file.display(), row.join(" | "));
    }
    Ok(unexplained)
}

/// The name without line and column, so that it stays valid when other code of the file changes: `file: what`.
fn lasting_name(mutant: &Mutant) -> String {
    let what = mutant.name.splitn(4, ':').nth(3).unwrap_or_default();
    format!("{}:{what}", mutant.file.display())
}
