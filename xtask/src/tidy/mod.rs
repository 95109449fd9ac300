//! The rules of the tree that neither the compiler nor clippy knows.
//!
//! How: every source file is split into code and comments ([`source`]). The rules that need one
//! file only are in [`rules`] and [`words`], those about several files in [`circles`], [`sizes`]
//! and [`types`], those about crates in [`graph`], those about documents in [`links`]; the way of a
//! packet, `docs/packet-path.md`, is held against the code in [`packet_path`]. All violations are
//! listed, not only the first.
//!
//! Limits: a macro can hide things from it.

mod circles;
mod graph;
mod links;
mod numbers;
mod packet_path;
mod rules;
mod sizes;
mod source;
mod types;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};

use crate::paths::Paths;
use source::Source;

/// Folders below the root that hold what we wrote.
const FOLDERS: [&str; 6] = ["crates", "bins", "xtask", "fuzz", "docs", "examples"];

/// Deepest folder that is looked into: a loop of symbolic links ends here.
const DEPTH_MAX: usize = 12;

/// Prints figures of the tree, and judges none.
pub fn numbers(paths: &Paths) -> anyhow::Result<()> {
    let (_, sources) = read(paths)?;
    numbers::lines(&sources).iter().for_each(|line| println!("{line}"));
    Ok(())
}

pub fn command(paths: &Paths) -> anyhow::Result<()> {
    let (texts, sources) = read(paths)?;
    let mut complaints = Vec::new();
    for (text, name) in &texts {
        complaints.extend(rules::any_file(name, text));
        complaints.extend(rules::columns(name, text));
    }
    complaints.extend(sources.iter().flat_map(rules::rust_file));
    complaints.extend(links::complaints(&paths.root, &texts));
    complaints.extend(plain_words(&paths.root, &texts, &sources));
    complaints.extend(circles::complaints(&sources));
    complaints.extend(sizes::complaints(&sources));
    complaints.extend(types::complaints(&sources));
    complaints.extend(crates(paths)?);
    complaints.extend(packet_path::complaints(&paths.root));
    conclude(&complaints, sources.len())
}

/// A file, and its name.
type Text = (String, String);

/// All files, with their names, and those of Rust taken apart.
fn read(paths: &Paths) -> anyhow::Result<(Vec<Text>, Vec<Source>)> {
    let mut texts = Vec::new();
    for path in files(&paths.root) {
        let name = relative(&paths.root, &path);
        texts.push((fs::read_to_string(&path).with_context(|| name.clone())?, name));
    }
    let rust = |(text, name): &Text| name.ends_with(".rs").then(|| Source::new(name, text));
    let sources: Vec<Source> = texts.iter().filter_map(rust).collect();
    ensure!(!sources.is_empty(), "{}: no source files", paths.root.display());
    Ok((texts, sources))
}

/// Words that are banned from comments, messages and documents.
fn plain_words(root: &Path, texts: &[(String, String)], sources: &[Source]) -> Vec<String> {
    let list = fs::read_to_string(root.join(words::LIST)).unwrap_or_default();
    let banned = match words::read(&list) {
        Ok(banned) => banned,
        Err(complaints) => return complaints,
    };
    let in_code = sources.iter().flat_map(|source| words::rust_file(source, &banned));
    let documents = texts.iter().filter(|(_, name)| name.ends_with(".md"));
    in_code.chain(documents.flat_map(|(text, name)| words::document(name, text, &banned))).collect()
}

fn crates(paths: &Paths) -> anyhow::Result<Vec<String>> {
    let metadata = paths
        .cargo("metadata")
        .args(["--no-deps", "--offline", "--format-version", "1"])
        .output()
        .context("cargo metadata")?;
    Ok(graph::complaints(&serde_json::from_slice(&metadata.stdout)?))
}

fn conclude(complaints: &[String], checked: usize) -> anyhow::Result<()> {
    if complaints.is_empty() {
        println!("tidy: {checked} source files follow the rules");
        return Ok(());
    }
    bail!("tidy: {} violations\n{}", complaints.len(), complaints.join("\n"))
}

fn files(root: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for folder in FOLDERS {
        collect(&root.join(folder), DEPTH_MAX, &mut found);
    }
    let top = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    found.extend(top.filter(|path| path.is_file() && is_ours(path)));
    found.sort();
    found
}

fn collect(directory: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    if depth == 0 {
        return;
    }
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_built = path.file_name().is_some_and(|name| name == "target" || name == "corpus");
        if path.is_dir() && !is_built {
            collect(&path, depth - 1, found);
        } else if path.is_file() && is_ours(&path) {
            found.push(path);
        }
    }
}

fn is_ours(path: &Path) -> bool {
    let known = ["rs", "md", "toml", "sh"];
    match path.extension().and_then(|extension| extension.to_str()) {
        Some(extension) => known.contains(&extension),
        None => path.file_name().is_some_and(|name| name == "x"),
    }
}

fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_tree_is_found() {
        let found = files(&Paths::new().root);
        let has = |end: &str| found.iter().any(|path| path.ends_with(end));
        assert!(has("xtask/src/tidy/mod.rs") && has("README.md") && has("x"));
        assert!(!found.iter().any(|path| path.starts_with(Paths::new().root.join("target"))));
    }

    #[test]
    fn complaints_fail_and_are_listed() {
        assert!(conclude(&[], 3).is_ok());
        let error = conclude(&["a.rs:1: one".to_string(), "b.rs:2: two".to_string()], 3);
        let text = error.err().map_or_else(String::new, |error| error.to_string());
        assert!(text.contains("2 violations") && text.contains("b.rs:2: two"), "{text}");
    }
}
