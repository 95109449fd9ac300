//! Files of one crate whose imports go round in a circle.
//!
//! How: each file's imports are read from its code: `use crate::…`, `use super::…`, and such paths
//! in expressions. A name that a module hands on with `pub use` leads to the file it comes from.
//! From each file the shortest way back to itself is looked for.
//!
//! Limits: `mod`, `pub use` and tests do not count, and a module may use the modules below it: it
//! is their front. `use a::*` leads to `a` only.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::source::{Source, word_positions};

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
        let mut import = String::new();
        let mut for_tests = false;
        for line in source.production() {
            let begins = import.is_empty();
            if begins && !is_import(line) {
                if !for_tests {
                    paths.used.extend(inline_paths(line));
                }
                for_tests = line.trim_start().starts_with("#[cfg(test)]");
                continue;
            }
            import.push_str(line);
            import.push(' ');
            if line.contains(';') {
                if !for_tests {
                    paths.add(&import);
                }
                import.clear();
                for_tests = false;
            }
        }
        paths
    }

    /// One `use`, or `pub use`, up to its semicolon.
    fn add(&mut self, import: &str) {
        let is_handed_on = import.trim_start().starts_with("pub");
        let tree = import.split_once("use ").map_or("", |(_, tree)| tree);
        for path in branches(tree.split(';').next().unwrap_or_default()) {
            let (path, name) = match path.split_once(" as ") {
                Some((path, name)) => (split(path), Some(name.trim().to_string())),
                None => (split(&path), None),
            };
            if !is_handed_on {
                self.used.push(path);
            } else if let Some(name) = name.or_else(|| path.last().cloned()) {
                self.handed_on.insert(name, path);
            }
        }
    }
}

fn is_import(line: &str) -> bool {
    let line = line.trim_start();
    let visibility = line.starts_with("pub").then(|| line.split_once("use ")).flatten();
    let is_pub_use = visibility.is_some_and(|(before, _)| {
        let before = before.trim();
        before == "pub" || before.starts_with("pub(") && before.ends_with(')')
    });
    line.starts_with("use ") || is_pub_use
}

/// `a::{b, c::{d, e}}` is `a::b`, `a::c::d` and `a::c::e`.
fn branches(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((stem, rest)) = tree.split_once('{') else { return vec![tree.to_string()] };
    let body = rest.rsplit_once('}').map_or(rest, |(body, _)| body);
    let mut parts = vec![String::new()];
    let mut depth = 0_i32;
    for character in body.chars() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if character == ',' && depth == 0 {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(character);
        }
    }
    let parts = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty());
    parts.flat_map(|part| branches(&format!("{stem}{part}"))).collect()
}

fn split(path: &str) -> Module {
    path.split("::").map(|name| name.trim().to_string()).filter(|name| !name.is_empty()).collect()
}

/// Paths from the root or from above that stand in the code itself.
fn inline_paths(line: &str) -> Vec<Module> {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    let mut found = Vec::new();
    for word in ["crate", "super"] {
        for at in word_positions(line, word) {
            let rest = line.get(at..).unwrap_or_default();
            let len = rest.find(|character| !is_part(character) && character != ':');
            let path = rest.get(..len.unwrap_or(rest.len())).unwrap_or_default();
            let continues = line.get(..at).is_some_and(|before| before.ends_with("::"));
            if path.contains("::") && !continues {
                found.push(split(path));
            }
        }
    }
    found
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
