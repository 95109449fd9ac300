//! Files of one crate whose imports go round in a circle.
//!
//! How: each file's imports are read from its tree: `use crate::…`, `use super::…`, and such paths
//! in expressions. A name that a module hands on with `pub use` leads to the file it comes from.
//! From each file the shortest way back to itself is looked for.
//!
//! Limits: `mod`, `pub use` and tests do not count, and a module may use the modules below it: it
//! is their front. `use a::*` leads to `a` only.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use syn::visit::{self, Visit};
use syn::{UseTree, Visibility};

use super::source::{Source, is_for_tests};

/// Longest chain of `pub use` that is followed.
const HANDED_ON_MAX: usize = 8;

/// Every circle, as `a -> b -> a`, in the crates that these files belong to.
pub fn complaints(sources: &[Source]) -> Vec<String> {
    let mut crates: BTreeMap<&str, Crate<'_>> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.production_lines > 0) {
        if let Some((root, _)) = source.name.rsplit_once("/src/") {
            crates.entry(root).or_default().add(source);
        }
    }
    crates.values().flat_map(circles).collect()
}

/// The modules of one crate: each is named by its path, the root is `crate`.
#[derive(Default)]
struct Crate<'a> {
    files: BTreeMap<String, (&'a str, Paths)>,
}

impl<'a> Crate<'a> {
    fn add(&mut self, source: &'a Source) {
        let mut paths = Paths::default();
        source.items.iter().for_each(|item| paths.visit_item(item));
        self.files.insert(module_of(&source.name), (&source.name, paths));
    }

    /// The modules that a module imports from, without those below it.
    fn neighbours(&self, module: &str) -> BTreeSet<&str> {
        let used = self.files.get(module).into_iter().flat_map(|(_, paths)| &paths.used);
        let found = used.filter_map(|path| self.resolve(module, path, HANDED_ON_MAX));
        found.filter(|found| !is_within(found, module)).collect()
    }

    /// The module that a path, seen from another module, leads to.
    fn resolve(&self, from: &str, path: &str, handed_on_max: usize) -> Option<&str> {
        let path = self.absolute(from, path)?;
        let (module, (_, paths)) =
            self.files.iter().rev().find(|(module, _)| is_within(&path, module))?;
        let rest = path[module.len()..].trim_start_matches("::");
        let name = rest.split("::").next().unwrap_or_default();
        let further = paths.handed_on.get(name).filter(|_| handed_on_max > 0);
        let further = further.and_then(|path| self.resolve(module, path, handed_on_max - 1));
        further.or(Some(module))
    }

    /// A path from the root; `None`: it leads to another crate.
    fn absolute(&self, from: &str, path: &str) -> Option<String> {
        let (first, rest) = path.split_once("::").unwrap_or((path, ""));
        match first {
            "crate" => Some(path.to_string()),
            "self" => Some(format!("{from}::{rest}")),
            "super" => {
                let above = from.rsplit_once("::")?.0;
                let is_further = rest.starts_with("super");
                if is_further {
                    self.absolute(above, rest)
                } else {
                    Some(format!("{above}::{rest}"))
                }
            }
            _ => {
                let is_below = self.files.contains_key(&format!("{from}::{first}"));
                is_below.then(|| format!("{from}::{path}"))
            }
        }
    }

    /// The shortest way from a module back to itself.
    fn circle<'s>(&'s self, start: &'s str) -> Option<Vec<&'s str>> {
        let mut known = BTreeSet::new();
        let mut ways = VecDeque::from([vec![start]]);
        while let Some(way) = ways.pop_front() {
            for next in self.neighbours(way.last()?) {
                let further = [&way[..], &[next]].concat();
                if next == start {
                    return Some(further);
                }
                if known.insert(next) {
                    ways.push_back(further);
                }
            }
        }
        None
    }
}

fn circles(all: &Crate<'_>) -> Vec<String> {
    let mut known: BTreeSet<BTreeSet<&str>> = BTreeSet::new();
    let mut complaints = Vec::new();
    for (module, (file, _)) in &all.files {
        let Some(circle) = all.circle(module) else { continue };
        if known.insert(circle.iter().copied().collect()) {
            let names = circle.iter().map(|name| name.trim_start_matches("crate::"));
            let names = names.collect::<Vec<_>>().join(" -> ");
            complaints.push(format!("{file}: imports in a circle: {names}"));
        }
    }
    complaints
}

/// Whether a path is this module or something in it.
fn is_within(path: &str, module: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// `…/src/a/mod.rs` and `…/src/a.rs` are `crate::a`.
fn module_of(name: &str) -> String {
    let path = name.rsplit_once("/src/").map_or(name, |(_, path)| path);
    let mut parts: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
    if parts.last().is_some_and(|last| ["mod", "lib", "main"].contains(last)) {
        parts.pop();
    }
    [&["crate"], &parts[..]].concat().join("::")
}

/// The paths in one file: what it uses, and by which name it hands on what.
#[derive(Default)]
struct Paths {
    used: Vec<String>,
    handed_on: BTreeMap<String, String>,
}

impl Paths {
    /// The names of a `use` behind `stem`; with `pub` in front of it, they are handed on.
    fn add(&mut self, stem: &str, tree: &UseTree, is_handed_on: bool) {
        let below = |name: &syn::Ident| format!("{stem}{name}");
        let (path, name) = match tree {
            UseTree::Path(path) => {
                let stem = format!("{stem}{}::", path.ident);
                return self.add(&stem, &path.tree, is_handed_on);
            }
            UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.add(stem, tree, is_handed_on));
            }
            UseTree::Name(name) => (below(&name.ident), name.ident.to_string()),
            UseTree::Rename(rename) => (below(&rename.ident), rename.rename.to_string()),
            UseTree::Glob(_) => (stem.to_string(), "*".to_string()),
        };
        if is_handed_on {
            self.handed_on.insert(name, path);
        } else {
            self.used.push(path);
        }
    }

    /// A path from the root or from above that stands in the code itself.
    fn add_inline(&mut self, path: &str) {
        let is_far = ["crate::", "super::"].iter().any(|start| path.starts_with(start));
        self.used.extend(is_far.then(|| path.to_string()));
    }
}

impl Visit<'_> for Paths {
    fn visit_item_mod(&mut self, item: &syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &syn::ItemUse) {
        if !is_for_tests(&item.attrs) {
            self.add("", &item.tree, !matches!(item.vis, Visibility::Inherited));
        }
    }

    fn visit_path(&mut self, path: &syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        self.add_inline(&parts.join("::"));
        visit::visit_path(self, path);
    }

    /// Inside of a macro there are only tokens: names with `::` between them.
    fn visit_macro(&mut self, item: &syn::Macro) {
        let text = item.tokens.to_string().replace(" :: ", "::");
        let is_part = |character: char| character.is_alphanumeric() || "_:".contains(character);
        text.split(|character| !is_part(character)).for_each(|path| self.add_inline(path));
        visit::visit_path(self, &item.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> = files
            .iter()
            .map(|(name, text)| Source::new(&format!("crates/c/src/{name}"), text))
            .collect();
        complaints(&sources)
    }

    #[test]
    fn circles_are_found_and_drawn() {
        let files = [
            ("a.rs", "use crate::b::B;\n"),
            ("b.rs", "use super::c::{\n    C,\n};\n"),
            ("c.rs", "fn f() { crate::a::g() }\n"),
        ];
        let expected = ["crates/c/src/a.rs: imports in a circle: a -> b -> c -> a"];
        assert_eq!(found(&files), expected);
        assert!(found(&files[..2]).is_empty());
    }

    #[test]
    fn names_that_are_handed_on_lead_to_their_file() {
        let root = ("lib.rs", "mod a;\nmod b;\npub use a::{A, x as y};\npub(crate) use b::B;\n");
        let a = ("a.rs", "use crate::{B, other};\n");
        assert_eq!(found(&[root, a, ("b.rs", "use crate::A;\n")]).len(), 1);
        assert_eq!(found(&[root, a, ("b.rs", "use crate::y;\n")]).len(), 1);
        assert!(found(&[root, a, ("b.rs", "use crate::other;\n")]).is_empty());
    }

    #[test]
    fn a_module_is_the_front_of_those_below_it() {
        let files = [
            ("a/mod.rs", "mod b;\nuse b::B;\nfn f() { b::g(); crate::a::b::h() }\n"),
            ("a/b.rs", "use super::A;\n"),
        ];
        assert!(found(&files).is_empty());
        let around = [("a.rs", "use crate::c::C;\n"), files[1], ("c.rs", "use crate::a::b::B;\n")];
        assert_eq!(found(&around).len(), 1, "from b through a and c to b");
    }

    #[test]
    fn tests_comments_and_re_exports_are_no_imports() {
        let files = [
            ("a.rs", "use crate::b::B;\n"),
            (
                "b.rs",
                "// crate::a::A\npub use crate::a::A;\n#[cfg(test)]\nuse crate::a::C;\n\
                 const T: &str = \"crate::a\";\n\
                 #[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n",
            ),
        ];
        assert!(found(&files).is_empty(), "{:?}", found(&files));
        assert_eq!(found(&[files[0], ("b.rs", "mod t;\nuse crate::a::A;\n")]).len(), 1);
    }
}
