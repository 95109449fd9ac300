//! A Rust file taken apart: as it is, as only its code, as only what people read, and as a syntax
//! tree.
//!
//! How: proc-macro2 finds the tokens. Names, numbers and punctuation are code; in the code all else
//! is blank, and in the prose these are. Lines stay. syn reads the tree.
//!
//! Limits: of a file that is not Rust there is no tree; it does not compile either.

use proc_macro2::{TokenStream, TokenTree};
use syn::{Attribute, Item};

pub struct Source {
    /// Path from the root of the tree.
    pub name: String,
    pub raw: Vec<String>,
    /// Its lines with comments and literals blanked out.
    pub code: Vec<String>,
    /// Its lines with all but these blanked out.
    pub prose: Vec<String>,
    /// How many lines, from the first, are not tests.
    pub production_lines: usize,
    pub items: Vec<Item>,
}

impl Source {
    pub fn new(name: &str, text: &str) -> Self {
        let items = syn::parse_file(text).map_or(vec![], |file| file.items);
        let is_test = ["tests", "benches", "fuzz_targets"].iter().any(|folder| {
            name.contains(&format!("/{folder}/")) || name.ends_with(&format!("/{folder}.rs"))
        });
        let [code, prose] = parts(text);
        let [raw, code, prose] =
            [text, &code, &prose].map(|text| text.lines().map(str::to_string).collect::<Vec<_>>());
        let production_lines =
            if is_test { 0 } else { first_test_line(&items).unwrap_or(raw.len()) };
        Self { name: name.to_string(), raw, code, prose, production_lines, items }
    }

    pub fn production(&self) -> &[String] {
        let end = self.production_lines.min(self.code.len());
        self.code.get(..end).unwrap_or_default()
    }
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

/// The line, from 0, where the tests at the end of a file begin.
fn first_test_line(items: &[Item]) -> Option<usize> {
    let line = |item: &Item| match item {
        Item::Mod(module) if module.content.is_some() && is_for_tests(&module.attrs) => {
            let is_mark = |attribute: &&Attribute| attribute.path().is_ident("cfg");
            let mark = module.attrs.iter().find(is_mark)?.pound_token.span;
            mark.start().line.checked_sub(1)
        }
        _ => None,
    };
    items.iter().find_map(line)
}

/// Code and prose.
fn parts(text: &str) -> [String; 2] {
    let blank = |byte: u8| if byte == b'\n' { byte } else { b' ' };
    let mut code: Vec<u8> = text.bytes().map(blank).collect();
    let mut prose = text.as_bytes().to_vec();
    let mut streams = vec![text.parse::<TokenStream>().unwrap_or_default()];
    while let Some(tokens) = streams.pop() {
        for token in tokens {
            let begins = &text[token.span().byte_range().start..];
            let is_number = begins.starts_with(|it: char| it.is_ascii_digit());
            let is_literal = matches!(token, TokenTree::Literal(_)) && !is_number;
            // A comment in front of an item is an attribute to the compiler.
            if is_literal || begins.starts_with("//") || begins.starts_with("/*") {
                continue;
            }
            let spans = match &token {
                TokenTree::Group(group) => [group.span_open(), group.span_close()],
                _ => [token.span(); 2],
            };
            for range in spans.map(|span| span.byte_range()) {
                code[range.clone()].copy_from_slice(&text.as_bytes()[range.clone()]);
                prose[range].fill(b' ');
            }
            streams.extend(if let TokenTree::Group(it) = token { Some(it.stream()) } else { None });
        }
    }
    [code, prose].map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
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
