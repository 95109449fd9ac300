//! Figures of the tree that show where it grows: `./x tidy --numbers`.
//!
//! How: each line is a figure of [`lines`]; nothing is judged. Limits: tests do not count, but for
//! comments.

pub mod methods;

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{FnArg, Item, ItemMod, Pat, Signature};

use super::source::{Source, is_for_tests};
use methods::Methods;

const PROGRAM: &str = "bins/ringway/";
const SUPERVISOR: &str = "bins/ringway/src/supervisor";

/// A name with so many meanings says little.
const MEANINGS_MIN: usize = 4;

/// Of each figure the largest are shown.
const SHOWN: usize = 5;

/// Beginnings of comments that leave out their subject.
const WHAT: [&str; 1] = ["What "];
const WHICH: [&str; 4] = ["So many", "Of which", "By which", "Which"];

pub fn lines(sources: &[Source]) -> Vec<String> {
    let production: Vec<&Source> = sources.iter().filter(|it| it.production_lines > 0).collect();
    let count = |place: &str| -> usize {
        let there = production.iter().filter(|source| source.name.starts_with(place));
        there.map(|source| source.production_lines).sum()
    };
    let methods = Methods::of(&production);
    let meanings = meanings(&production);
    let many = || meanings.iter().filter(|(_, count)| *count >= MEANINGS_MIN);
    let (all, what) = comments(sources, &WHAT);
    let (_, which) = comments(sources, &WHICH);
    vec![
        format!("production lines: {}, in {PROGRAM} {}", count(""), count(PROGRAM)),
        format!("files with methods of one type: {}", largest(methods.files())),
        format!("files that call each other through self: {}", largest(methods.groups())),
        format!("fields: {}", largest(fields(&production))),
        format!("files in a folder of the supervisor: {}", largest(folders(&production))),
        format!(
            "names of {MEANINGS_MIN} types or more: {}; {}",
            many().count(),
            largest(meanings.clone())
        ),
        format!("comments: {all}; begin with What: {what}; with Which and the like: {which}"),
        format!("tuples in place of parameters: {}", tuples(&production)),
    ]
}

/// The first ones by size, with their sizes.
fn largest(mut all: Vec<(String, usize)>) -> String {
    all.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
    let shown = all.iter().take(SHOWN).map(|(name, size)| format!("{name} {size}"));
    shown.collect::<Vec<_>>().join(", ")
}

fn fields(sources: &[&Source]) -> Vec<(String, usize)> {
    let items = sources.iter().flat_map(|source| &source.items);
    let of = |item: &Item| match item {
        Item::Struct(item) => Some((item.ident.to_string(), item.fields.len())),
        _ => None,
    };
    items.filter_map(of).collect()
}

fn folders(sources: &[&Source]) -> Vec<(String, usize)> {
    let mut folders: BTreeMap<String, usize> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.name.starts_with(SUPERVISOR)) {
        let folder = source.name.rsplit_once('/').map_or("", |(folder, _)| folder);
        *folders.entry(folder.trim_start_matches("bins/ringway/src/").to_string()).or_default() +=
            1;
    }
    folders.into_iter().collect()
}

/// In how many files a type of that name is defined.
pub fn meanings(sources: &[&Source]) -> Vec<(String, usize)> {
    let mut files: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for source in sources {
        let name = |item: &Item| match item {
            Item::Struct(item) => Some(item.ident.to_string()),
            Item::Enum(item) => Some(item.ident.to_string()),
            _ => None,
        };
        for name in source.items.iter().filter_map(name) {
            files.entry(name).or_default().insert(&source.name);
        }
    }
    files.into_iter().map(|(name, files)| (name, files.len())).collect()
}

/// How many comments there are, and how many of them begin so.
fn comments(sources: &[Source], beginnings: &[&str]) -> (usize, usize) {
    let (mut all, mut found) = (0, 0);
    for source in sources {
        let mut is_inside = false;
        for line in &source.prose {
            let text = line.trim_start();
            let begins = text.starts_with("//") && !is_inside;
            is_inside = text.starts_with("//");
            if begins {
                let text = text.trim_start_matches(['/', '!']).trim_start();
                all += 1;
                found += usize::from(beginnings.iter().any(|it| text.starts_with(it)));
            }
        }
    }
    (all, found)
}

/// Parameters such as `(a, b): (A, B)`.
fn tuples(sources: &[&Source]) -> usize {
    #[derive(Default)]
    struct Tuples(usize);
    impl<'ast> Visit<'ast> for Tuples {
        fn visit_item_mod(&mut self, module: &'ast ItemMod) {
            if !is_for_tests(&module.attrs) {
                visit::visit_item_mod(self, module);
            }
        }

        fn visit_signature(&mut self, signature: &'ast Signature) {
            let is_tuple = |input: &&FnArg| {
                let FnArg::Typed(typed) = input else { return false };
                matches!(*typed.pat, Pat::Tuple(_))
            };
            self.0 += signature.inputs.iter().filter(is_tuple).count();
            visit::visit_signature(self, signature);
        }
    }
    let mut tuples = Tuples::default();
    sources.iter().flat_map(|source| &source.items).for_each(|item| tuples.visit_item(item));
    tuples.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_is_counted() {
        let a = "//! What a is.\n\n/// Which b.\nstruct B { a: u8, b: u8 }\n\
                 fn f((a, b): (u8, u8), c: u8) {}\n#[cfg(test)]\n\
                 mod tests { fn g((a, b): (u8, u8)) {} }\n";
        let all: Vec<Source> = ["a", "b", "c", "d"]
            .map(|name| Source::new(&format!("bins/ringway/src/supervisor/{name}.rs"), a))
            .into();
        let text = lines(&all).join("\n");
        for wanted in [
            "production lines: 20, in bins/ringway/ 20",
            "fields: B 2,",
            "supervisor: supervisor 4",
            "types or more: 1; B 4",
            "comments: 8; begin with What: 4; with Which and the like: 4",
            "parameters: 4",
        ] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
    }
}
