//! A Rust file taken apart: as it is, as only its code, and as a syntax tree.
//!
//! How: proc-macro2 finds the tokens. All but names, numbers and punctuation is blanked out, so
//! that words that are left are code; lines stay. syn reads the tree.
//!
//! Limits: of a file that is not Rust there is no tree; it does not compile either.

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::{Attribute, Item};

pub struct Source {
    /// Path from the root of the tree.
    pub name: String,
    pub raw: Vec<String>,
    /// Its lines with comments and literals blanked out.
    pub code: Vec<String>,
    /// How many lines, from the first, are not tests.
    pub production_lines: usize,
    pub items: Vec<Item>,
}

impl Source {
    pub fn new(name: &str, text: &str) -> Self {
        let raw: Vec<String> = text.lines().map(str::to_string).collect();
        let items = syn::parse_file(text).map_or(vec![], |file| file.items);
        let is_test = ["tests", "benches", "fuzz_targets"].iter().any(|folder| {
            name.contains(&format!("/{folder}/")) || name.ends_with(&format!("/{folder}.rs"))
        });
        let production_lines =
            if is_test { 0 } else { first_test_line(&items).unwrap_or(raw.len()) };
        Self { name: name.to_string(), code: blank(&raw, text), raw, production_lines, items }
    }

    pub fn production(&self) -> &[String] {
        let end = self.production_lines.min(self.code.len());
        self.code.get(..end).unwrap_or_default()
    }
}

/// Line and column, from 0, of where it begins.
fn place(span: Span) -> (usize, usize) {
    let start = span.start();
    (start.line.saturating_sub(1), start.column)
}

/// Where `word` stands as a whole word.
pub fn word_positions(line: &str, word: &str) -> Vec<usize> {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    let whole = |&(at, _): &(usize, &str)| {
        let before = line.get(..at).and_then(|text| text.chars().next_back());
        let after = line.get(at + word.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    };
    line.match_indices(word).filter(whole).map(|(at, _)| at).collect()
}

pub fn is_for_tests(attributes: &[Attribute]) -> bool {
    let is_cfg = |attribute: &&Attribute| attribute.path().is_ident("cfg");
    attributes.iter().filter(is_cfg).any(|attribute| {
        let tokens = attribute.meta.require_list().map(|list| list.tokens.to_string());
        tokens.is_ok_and(|tokens| tokens == "test" || tokens.starts_with("all (test"))
    })
}

/// The line where the tests at the end of a file begin.
fn first_test_line(items: &[Item]) -> Option<usize> {
    let line = |item: &Item| match item {
        Item::Mod(module) if module.content.is_some() && is_for_tests(&module.attrs) => {
            let is_mark = |attribute: &&Attribute| attribute.path().is_ident("cfg");
            Some(place(module.attrs.iter().find(is_mark)?.pound_token.span).0)
        }
        _ => None,
    };
    items.iter().find_map(line)
}

/// Replaces comments and literals by blanks; lines stay lines.
fn blank(raw: &[String], text: &str) -> Vec<String> {
    let raw: Vec<Vec<char>> = raw.iter().map(|line| line.chars().collect()).collect();
    let mut code: Vec<Vec<char>> = raw.iter().map(|line| vec![' '; line.len()]).collect();
    show(text.parse().unwrap_or_default(), &raw, &mut code);
    code.iter().map(|line| line.iter().collect()).collect()
}

fn show(tokens: TokenStream, raw: &[Vec<char>], code: &mut [Vec<char>]) {
    for token in tokens {
        let (line, column) = place(token.span());
        let rest = raw.get(line).and_then(|line| line.get(column..)).unwrap_or_default();
        // A comment in front of an item is an attribute to the compiler.
        if rest.starts_with(&['/', '/']) || rest.starts_with(&['/', '*']) {
            continue;
        }
        let text = token.to_string();
        let mut put = |span: Span, text: &str| {
            let (line, column) = place(span);
            let places = code.get_mut(line).and_then(|line| line.get_mut(column..));
            places.into_iter().flatten().zip(text.chars()).for_each(|(to, from)| *to = from);
        };
        match token {
            TokenTree::Group(group) => {
                put(group.span_open(), text.get(..1).unwrap_or_default());
                put(group.span_close(), text.get(text.len() - 1..).unwrap_or_default());
                show(group.stream(), raw, code);
            }
            TokenTree::Literal(_) if !text.starts_with(|first: char| first.is_ascii_digit()) => {}
            other => put(other.span(), &text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_lines_stay() {
        let text = "//! a\n/** b */\na // { b\n/* { /* } */ \n } */ c \"{\\\"}\" 'x' '{' '\\'' \
                    <'a> r#\"{\"#\nb'{' d";
        let code = Source::new("a.rs", text).code;
        assert_eq!(code.len(), text.lines().count());
        let words: Vec<&str> = code.iter().flat_map(|line| line.split_whitespace()).collect();
        assert_eq!(words, ["a", "c", "<'a>", "d"]);
    }

    #[test]
    fn words_that_look_like_literals_stay() {
        let text = "for b in car { crate::b }";
        assert_eq!(Source::new("a.rs", text).code, [text]);
    }

    #[test]
    fn tests_at_the_end_are_not_production() {
        let text = "//! x\n#[cfg(test)]\nuse a;\nfn b() {}\n#[cfg(test)]\nmod tests {\n}\n";
        assert_eq!(Source::new("crates/a/src/lib.rs", text).production_lines, 4);
        assert_eq!(Source::new("crates/a/tests/lib.rs", text).production_lines, 0);
    }
}
