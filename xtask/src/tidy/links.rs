//! Links between documents lead somewhere, and every document is in the book.
//!
//! How: targets of `[text](target)` are files beside the document, and what is behind `#` is one of
//! the file's headings, in the form that GitHub and mdBook give it.
//!
//! Limits: links to other places are not followed; a link is on one line, or its text is cut.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

const SUMMARY: &str = "docs/SUMMARY.md";

pub fn complaints(root: &Path, texts: &[(String, String)]) -> Vec<String> {
    let documents = || texts.iter().filter(|(_, name)| name.ends_with(".md"));
    let mut found: Vec<String> = documents()
        .flat_map(|(text, name)| targets(text).filter_map(|it| broken(root, texts, name, it)))
        .collect();
    let summary = documents().find(|(_, name)| name == SUMMARY);
    let listed: BTreeSet<PathBuf> = summary
        .iter()
        .flat_map(|(text, _)| targets(text).map(|target| beside(SUMMARY, target)))
        .collect();
    let is_page = |name: &str| name.starts_with("docs/") && name != SUMMARY;
    let pages = documents().filter(|(_, name)| is_page(name));
    let lost = pages.filter(|(_, name)| !listed.contains(Path::new(name)));
    found.extend(lost.map(|(_, name)| format!("{name}: is not in {SUMMARY}")));
    found
}

fn targets(text: &str) -> impl Iterator<Item = &str> {
    let ends = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let is_ours = |target: &&str| !target.contains("://") && !target.starts_with("mailto:");
    ends.map(|(target, _)| target).filter(is_ours)
}

fn broken(root: &Path, texts: &[(String, String)], name: &str, target: &str) -> Option<String> {
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() { PathBuf::from(name) } else { beside(name, file) };
    if !root.join(&path).exists() {
        return Some(format!("{name}: {target}: there is no such file"));
    }
    let text = texts.iter().find(|(_, name)| Path::new(name) == path);
    let is_there = |(text, _): &(String, String)| headings(text).any(|it| it == heading);
    let is_lost = !heading.is_empty() && !text.is_some_and(is_there);
    is_lost.then(|| format!("{name}: {target}: there is no such heading"))
}

/// A path that a document names, from the root of the tree.
fn beside(name: &str, target: &str) -> PathBuf {
    let mut path = Path::new(name).parent().unwrap_or(Path::new("")).to_path_buf();
    for part in Path::new(target).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::Normal(part) => path.push(part),
            _ => {}
        }
    }
    path
}

/// The headings of a document, as links name them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let is_kept = |letter: &char| letter.is_alphanumeric() || ['-', '_', ' '].contains(letter);
    let titles = text.lines().filter(|line| line.starts_with('#'));
    titles.map(move |line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        title.chars().filter(is_kept).map(|it| if it == ' ' { '-' } else { it }).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(texts: &[(&str, &str)]) -> Vec<String> {
        let texts: Vec<(String, String)> =
            texts.iter().map(|(name, text)| ((*text).into(), (*name).into())).collect();
        // Only files that this tree has exist.
        complaints(&crate::paths::Paths::new().root, &texts)
    }

    #[test]
    fn links_that_lead_nowhere_are_named() {
        let summary = (SUMMARY, "- [Nat](nat.md)\n");
        let text = "# A b, `c`\n[1](../README.md) [2](#a-b-c) [3](https://x/y) [4](adr/none.md)\n";
        let found = said(&[summary, ("docs/nat.md", text)]);
        assert_eq!(found, ["docs/nat.md: adr/none.md: there is no such file"]);
        let found = said(&[summary, ("docs/nat.md", "[1](#b)"), ("docs/switch.md", "")]);
        let heading = "docs/nat.md: #b: there is no such heading";
        assert_eq!(found, [heading, "docs/switch.md: is not in docs/SUMMARY.md"]);
    }
}
