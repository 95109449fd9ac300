//! Files that have methods of one type, and call each other's.
//!
//! Limits: types of one crate, or of one folder of a program, with the same name are one.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Expr, ExprMethodCall, ImplItem, Item, ItemImpl, Type};

use super::super::source::{Source, is_for_tests};

/// Methods of a type in one file, and those that are called on `self` there.
#[derive(Default)]
struct InFile {
    defined: BTreeSet<String>,
    called: BTreeSet<String>,
}

/// By crate and type, and by file.
pub struct Methods<'a>(BTreeMap<(&'a str, String), BTreeMap<&'a str, InFile>>);

impl<'a> Methods<'a> {
    pub fn of(sources: &[&'a Source]) -> Self {
        let mut all = Self(BTreeMap::new());
        for source in sources {
            let place = place(&source.name);
            for item in &source.items {
                if let Item::Impl(item) = item
                    && let Some(owner) = owner(item)
                {
                    let files = all.0.entry((place, owner)).or_default();
                    files.entry(&source.name).or_default().add(item);
                }
            }
        }
        all
    }

    /// How many files have methods of each type.
    pub fn files(&self) -> Vec<(String, usize)> {
        self.0.iter().map(|((_, owner), files)| (owner.clone(), files.len())).collect()
    }

    /// How many of these files lead to each other, of each type.
    pub fn groups(&self) -> Vec<(String, usize)> {
        self.0.iter().map(|((_, owner), files)| (owner.clone(), largest_group(files))).collect()
    }
}

impl InFile {
    fn add(&mut self, item: &ItemImpl) {
        for method in &item.items {
            if let ImplItem::Fn(method) = method {
                self.defined.insert(method.sig.ident.to_string());
                self.visit_block(&method.block);
            }
        }
    }

    fn calls(&self, other: &Self) -> bool {
        self.called.iter().any(|name| other.defined.contains(name))
    }
}

impl<'ast> Visit<'ast> for InFile {
    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        if matches!(&*call.receiver, Expr::Path(path) if path.path.is_ident("self")) {
            self.called.insert(call.method.to_string());
        }
        visit::visit_expr_method_call(self, call);
    }
}

/// The crate, or the folder of a program, that a file is in.
fn place(file: &str) -> &str {
    let Some((crate_name, rest)) = file.split_once("/src/") else { return "" };
    let folder = rest.find('/').filter(|_| file.starts_with("bins/"));
    let len = folder.map_or(crate_name.len(), |len| crate_name.len() + "/src/".len() + len);
    &file[..len]
}

/// The type of a block of its own methods.
fn owner(item: &ItemImpl) -> Option<String> {
    let Type::Path(path) = &*item.self_ty else { return None };
    let is_own = item.trait_.is_none() && !is_for_tests(&item.attrs);
    is_own.then(|| path.path.segments.last().map(|last| last.ident.to_string()))?
}

fn largest_group(files: &BTreeMap<&str, InFile>) -> usize {
    let reached: Vec<BTreeSet<&str>> = files.keys().map(|file| reached(files, file)).collect();
    let leads = |one: usize, other: &str| reached[one].contains(other);
    let group = |(at, file): (usize, &&str)| {
        let back =
            files.keys().enumerate().filter(|(other, name)| leads(at, name) && leads(*other, file));
        back.count()
    };
    files.keys().enumerate().map(group).max().unwrap_or(0)
}

/// The files that calls lead to from a file, which is one of them.
fn reached<'a>(files: &BTreeMap<&'a str, InFile>, from: &'a str) -> BTreeSet<&'a str> {
    let (mut reached, mut next) = (BTreeSet::from([from]), vec![from]);
    while let Some(file) = next.pop() {
        let Some(caller) = files.get(file) else { continue };
        for (name, _) in files.iter().filter(|(_, callee)| caller.calls(callee)) {
            if reached.insert(name) {
                next.push(name);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_of_a_program_have_types_of_their_own() {
        assert_eq!(place("crates/a/src/b/c.rs"), "crates/a");
        assert_eq!(place("bins/a/src/b/c/d.rs"), "bins/a/src/b");
        assert_eq!(place("bins/a/src/b.rs"), "bins/a");
    }

    #[test]
    fn files_that_call_each_other_are_a_group() {
        let source = |name: &str, text: &str| Source::new(&format!("crates/a/src/{name}.rs"), text);
        let all = [
            source("a", "struct A; impl A { fn a(&self) { self.b(); } }"),
            source("b", "impl A { fn b(&self) { let _ = || self.c().d(); } }"),
            source(
                "c",
                "impl A { fn c(&self) { self.a(); } } impl Drop for A { fn drop(&mut self) {} }",
            ),
            source("d", "impl A { fn d(&self) { self.a(); other.d(); } } impl B { fn e() {} }"),
        ];
        let methods = Methods::of(&all.iter().collect::<Vec<_>>());
        let of = |name: &str, size| (name.to_string(), size);
        assert_eq!(methods.files(), [of("A", 4), of("B", 1)]);
        assert_eq!(methods.groups(), [of("A", 3), of("B", 1)]);
    }
}
