//! The rules of the tree that neither the compiler nor clippy knows.
//!
//! How: every source file is split into code and comments ([`source`]), the rules that need one
//! file only are in [`rules`], those about crates in [`graph`], and `docs/packet-path.md` is held
//! against the code in [`packet_path`]. All violations are listed, not only the first.
//!
//! Limits: it reads text, not syntax trees; a macro can hide things from it.

mod graph;
mod packet_path;
mod rules;
mod source;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::check::cargo;
use crate::paths::Paths;
use source::Source;

/// Folders below the root that hold what we wrote.
const FOLDERS: [&str; 6] = ["crates", "bins", "xtask", "fuzz", "docs", "examples"];

/// Deepest folder that is looked into: a loop of symbolic links ends here.
const DEPTH_MAX: usize = 12;

/// `cargo xtask tidy`
///
/// # Errors
/// The list of violations.
pub fn command(paths: &Paths) -> anyhow::Result<()> {
    let mut complaints = Vec::new();
    let mut checked = 0;
    for path in files(&paths.root) {
        let name = relative(&paths.root, &path);
        let text = fs::read_to_string(&path).with_context(|| name.clone())?;
        complaints.extend(rules::any_file(&name, &text));
        if path.extension().is_some_and(|extension| extension == "rs") {
            complaints.extend(rules::rust_file(&Source::new(&name, &text)));
            checked += 1;
        }
    }
    if checked == 0 {
        bail!("{}: no source files", paths.root.display());
    }
    let metadata = cargo(paths, "metadata")
        .args(["--no-deps", "--offline", "--format-version", "1"])
        .output()
        .context("cargo metadata")?;
    complaints.extend(graph::complaints(&serde_json::from_slice(&metadata.stdout)?));
    complaints.extend(packet_path::complaints(&paths.root));
    conclude(&complaints, checked)
}

fn conclude(complaints: &[String], checked: usize) -> anyhow::Result<()> {
    if complaints.is_empty() {
        println!("tidy: {checked} source files follow the rules");
        return Ok(());
    }
    bail!("tidy: {} violations\n{}", complaints.len(), complaints.join("\n"))
}

/// Everything that is ours, in a fixed order.
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
