//! Types that a reader can follow: their methods stand in few files, which do not call each other
//! in a circle, and their names stand for few things.
//!
//! Limits: types of one crate with the same name are one; a call is one of `self`.

use super::numbers::meanings;
use super::numbers::methods::Methods;
use super::source::Source;

/// Files with methods of one type.
const FILES_MAX: usize = 4;

/// Files that call each other's methods, of one type.
const GROUP_MAX: usize = 2;

/// Files that define a type of one name.
const MEANINGS_MAX: usize = 3;

pub fn complaints(sources: &[Source]) -> Vec<String> {
    let production: Vec<&Source> = sources.iter().filter(|it| it.production_lines > 0).collect();
    let methods = Methods::of(&production);
    let over = |all: Vec<(String, usize)>, max: usize, what: &'static str| {
        let large = all.into_iter().filter(move |(_, count)| *count > max);
        large.map(move |(name, count)| format!("{name}: {count} {what}, at most {max}"))
    };
    over(methods.files(), FILES_MAX, "files with its methods")
        .chain(over(methods.groups(), GROUP_MAX, "files that call each other through self"))
        .chain(over(meanings(&production), MEANINGS_MAX, "types of that name"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(name: &str, text: &str) -> Source {
        Source::new(&format!("crates/a/src/{name}.rs"), text)
    }

    #[test]
    fn methods_stand_in_four_files_at_most() {
        let file = |name| source(name, "impl A { fn f(&self) {} }");
        let all: Vec<Source> = ["a", "b", "c", "d", "e"].map(file).into();
        assert!(complaints(&all[..4]).is_empty());
        assert_eq!(complaints(&all), ["A: 5 files with its methods, at most 4"]);
    }

    #[test]
    fn two_files_may_call_each_other_and_three_may_not() {
        let file = |name, calls| {
            source(name, &format!("impl A {{ fn {name}(&self) {{ self.{calls}(); }} }}"))
        };
        assert!(complaints(&[file("a", "b"), file("b", "a")]).is_empty());
        let three = [file("a", "b"), file("b", "c"), file("c", "a")];
        let found = complaints(&three);
        assert_eq!(found, ["A: 3 files that call each other through self, at most 2"]);
    }

    #[test]
    fn a_name_stands_for_three_things_at_most() {
        let file = |name| source(name, "struct State;");
        let all: Vec<Source> = ["a", "b", "c", "d"].map(file).into();
        assert!(complaints(&all[..3]).is_empty());
        assert_eq!(complaints(&all), ["State: 4 types of that name, at most 3"]);
    }
}
