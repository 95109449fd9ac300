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

/// A module's path below the root of its crate.
type Module = Vec<String>;

/// Longest chain of `pub use` that is followed.
const HANDED_ON_MAX: usize = 8;

/// Every circle, as `a -> b -> a`, in the crates that these files belong to.
pub fn complaints(sources: &[Source]) -> Vec<String> {
    let mut crates: BTreeMap<&str, Vec<&Source>> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.production_lines > 0) {
        if let Some((root, _)) = source.name.rsplit_once("/src/") {
            crates.entry(root).or_default().push(source);
        }
    }
    crates.into_values().flat_map(|files| circles(&Crate::new(&files))).collect()
}

/// The modules of one crate.
struct Crate<'a> {
    files: BTreeMap<Module, &'a str>,
    imports: BTreeMap<Module, Vec<Module>>,
    /// What each module hands on: the name, and where it comes from.
    handed_on: BTreeMap<Module, BTreeMap<String, Module>>,
}

impl<'a> Crate<'a> {
    fn new(sources: &[&'a Source]) -> Self {
        let mut all =
            Self { files: BTreeMap::new(), imports: BTreeMap::new(), handed_on: BTreeMap::new() };
        for source in sources {
            let module = module_of(&source.name);
            let paths = Paths::of(source);
            all.files.insert(module.clone(), &source.name);
            all.imports.insert(module.clone(), paths.used);
            all.handed_on.insert(module, paths.handed_on);
        }
        all
    }

    /// The modules that a module imports from, without those below it.
    fn neighbours(&self, module: &Module) -> BTreeSet<Module> {
        let paths = self.imports.get(module).into_iter().flatten();
        let found = paths.filter_map(|path| self.resolve(module, path, HANDED_ON_MAX));
        found.filter(|found| !found.starts_with(module)).collect()
    }

    /// The module that a path, seen from another module, leads to.
    fn resolve(&self, from: &Module, path: &[String], handed_on_max: usize) -> Option<Module> {
        let (mut module, mut rest) = self.begin(from, path)?;
        while let Some((name, after)) = rest.split_first() {
            let below: Module = module.iter().chain([name]).cloned().collect();
            if !self.files.contains_key(&below) {
                break;
            }
            (module, rest) = (below, after);
        }
        let next = rest.first().and_then(|name| self.handed_on.get(&module)?.get(name));
        let further = next.filter(|_| handed_on_max > 0);
        let further = further.and_then(|path| self.resolve(&module, path, handed_on_max - 1));
        further.or(Some(module))
    }

    /// Where a path begins, and what is left of it; `None`: in another crate.
    fn begin<'p>(&self, from: &Module, path: &'p [String]) -> Option<(Module, &'p [String])> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some((Module::new(), rest)),
            "self" => Some((from.clone(), rest)),
            "super" => {
                let up = path.iter().take_while(|name| *name == "super").count();
                Some((from.get(..from.len().checked_sub(up)?)?.to_vec(), path.get(up..)?))
            }
            name => {
                let below: Module =
                    from.iter().map(String::as_str).chain([name]).map(String::from).collect();
                self.files.contains_key(&below).then_some((below, rest))
            }
        }
    }

    /// The shortest way from a module back to itself.
    fn circle(&self, start: &Module) -> Option<Vec<Module>> {
        let mut came_from: BTreeMap<Module, Module> = BTreeMap::new();
        let mut waiting = VecDeque::from([start.clone()]);
        while let Some(module) = waiting.pop_front() {
            for next in self.neighbours(&module) {
                if next == *start {
                    return Some(way_back(&came_from, start, module));
                }
                if !came_from.contains_key(&next) {
                    came_from.insert(next.clone(), module.clone());
                    waiting.push_back(next);
                }
            }
        }
        None
    }
}

/// From `start` to `last`, and to `start` again.
fn way_back(came_from: &BTreeMap<Module, Module>, start: &Module, last: Module) -> Vec<Module> {
    let mut way = vec![start.clone(), last];
    while way.last() != Some(start) {
        let before = way.last().and_then(|module| came_from.get(module)).unwrap_or(start);
        way.push(before.clone());
    }
    way.reverse();
    way
}

fn circles(all: &Crate<'_>) -> Vec<String> {
    let mut known: BTreeSet<BTreeSet<Module>> = BTreeSet::new();
    let mut complaints = Vec::new();
    for (module, file) in &all.files {
        let Some(circle) = all.circle(module) else { continue };
        if known.insert(circle.iter().cloned().collect()) {
            let names: Vec<String> = circle.iter().map(name_of).collect();
            complaints.push(format!("{file}: imports in a circle: {}", names.join(" -> ")));
        }
    }
    complaints
}

fn name_of(module: &Module) -> String {
    if module.is_empty() { "crate".to_string() } else { module.join("::") }
}

/// `…/src/a/mod.rs` and `…/src/a.rs` are `a`.
fn module_of(name: &str) -> Module {
    let path = name.rsplit_once("/src/").map_or(name, |(_, path)| path);
    let mut parts: Module = path.trim_end_matches(".rs").split('/').map(String::from).collect();
    if parts.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        parts.pop();
    }
    parts
}

/// The paths in one file.
#[derive(Default)]
struct Paths {
    used: Vec<Module>,
    handed_on: BTreeMap<String, Module>,
}

impl Paths {
    fn of(source: &Source) -> Self {
        let mut paths = Self::default();
        source.items.iter().for_each(|item| paths.visit_item(item));
        paths
    }

    /// What a `use` behind `stem` names; with `pub` in front of it, it is handed on.
    fn add(&mut self, mut stem: Module, tree: &UseTree, is_handed_on: bool) {
        let name = match tree {
            UseTree::Path(path) => {
                stem.push(path.ident.to_string());
                return self.add(stem, &path.tree, is_handed_on);
            }
            UseTree::Group(group) => {
                let items = group.items.iter();
                return items.for_each(|tree| self.add(stem.clone(), tree, is_handed_on));
            }
            UseTree::Name(name) => &name.ident,
            UseTree::Rename(rename) => {
                stem.push(rename.ident.to_string());
                &rename.rename
            }
            UseTree::Glob(_) => return self.used.extend((!is_handed_on).then_some(stem)),
        };
        if matches!(tree, UseTree::Name(_)) {
            stem.push(name.to_string());
        }
        if is_handed_on {
            self.handed_on.insert(name.to_string(), stem);
        } else {
            self.used.push(stem);
        }
    }

    /// A path from the root or from above that stands in the code itself.
    fn add_inline(&mut self, path: Module) {
        let is_far = path.first().is_some_and(|first| first == "crate" || first == "super");
        self.used.extend((is_far && path.len() > 1).then_some(path));
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
            let is_handed_on = !matches!(item.vis, Visibility::Inherited);
            self.add(Module::new(), &item.tree, is_handed_on);
        }
    }

    fn visit_path(&mut self, path: &syn::Path) {
        self.add_inline(path.segments.iter().map(|part| part.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    /// Inside of a macro there are only tokens: names with `::` between them.
    fn visit_macro(&mut self, item: &syn::Macro) {
        let text = item.tokens.to_string().replace(" :: ", "::");
        let is_part = |character: char| character.is_alphanumeric() || "_:".contains(character);
        for path in text.split(|character| !is_part(character)) {
            self.add_inline(path.split("::").map(String::from).collect());
        }
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
