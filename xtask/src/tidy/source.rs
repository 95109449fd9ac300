//! A Rust file taken apart: the same text once with only its code, once as it is.
//!
//! How: one pass over the characters blanks out comments, strings and character literals, so that
//! braces and words that are left are code. Line numbers stay.
//!
//! Limits: knows the tokens that can hide braces and quotes, and nothing else of the language.

/// One source file.
#[derive(Debug)]
pub struct Source {
    /// Path from the root of the tree.
    pub name: String,
    /// Its lines as they are.
    pub raw: Vec<String>,
    /// Its lines with comments and literals blanked out.
    pub code: Vec<String>,
    /// How many lines, from the first, are not tests.
    pub production_lines: usize,
}

/// A function of a source file; both lines count from 0 and belong to it.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The line with `fn`.
    pub first: usize,
    /// The line with the closing brace.
    pub last: usize,
}

impl Source {
    /// Takes a file apart.
    pub fn new(name: &str, text: &str) -> Self {
        let raw: Vec<String> = text.lines().map(str::to_string).collect();
        let code: Vec<String> = blank(text).lines().map(str::to_string).collect();
        let is_test = ["tests", "benches", "fuzz_targets"].iter().any(|folder| {
            name.contains(&format!("/{folder}/")) || name.ends_with(&format!("/{folder}.rs"))
        });
        let production_lines = if is_test { 0 } else { first_test_line(&raw) };
        Self { name: name.to_string(), raw, code, production_lines }
    }

    /// The code before the tests.
    pub fn production(&self) -> &[String] {
        let end = self.production_lines.min(self.code.len());
        self.code.get(..end).unwrap_or_default()
    }

    /// Every function with a body.
    pub fn functions(&self) -> Vec<Function> {
        let mut found = Vec::new();
        for (first, line) in self.code.iter().enumerate() {
            for at in word_positions(line, "fn") {
                let name = identifier(line.get(at + 2..).unwrap_or_default().trim_start());
                if let (Some(name), Some(last)) = (name, self.body_end(first, at)) {
                    found.push(Function { name, first, last });
                }
            }
        }
        found
    }

    /// The last line of the body that follows a `fn` at this place; `None`: it has none.
    fn body_end(&self, first: usize, at: usize) -> Option<usize> {
        let mut brackets = 0_i32;
        let mut braces = 0_i32;
        for (number, line) in self.code.iter().enumerate().skip(first) {
            let from = if number == first { at } else { 0 };
            for character in line.get(from..)?.chars() {
                match character {
                    '(' | '[' => brackets += 1,
                    ')' | ']' => brackets -= 1,
                    '{' if brackets == 0 || braces > 0 => braces += 1,
                    '}' if braces == 1 => return Some(number),
                    '}' if braces > 1 => braces -= 1,
                    ';' if brackets == 0 && braces == 0 => return None,
                    _ => {}
                }
            }
        }
        None
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

fn identifier(text: &str) -> Option<String> {
    let name: String = text
        .chars()
        .take_while(|character| character.is_alphanumeric() || *character == '_')
        .collect();
    (!name.is_empty()).then_some(name)
}

/// The line where the tests at the end of a file begin, or the number of its lines.
fn first_test_line(raw: &[String]) -> usize {
    let is_module = |line: &String| {
        let line = line.trim_start_matches("pub").trim_start_matches("(crate)").trim_start();
        line.starts_with("mod ") && line.ends_with('{')
    };
    let begins = |at: &usize| {
        let is_marked = raw.get(*at).is_some_and(|line| {
            line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test")
        });
        let mut rest = raw.iter().skip(at + 1).skip_while(|line| line.starts_with("#["));
        is_marked && rest.next().is_some_and(is_module)
    };
    (0..raw.len()).find(begins).unwrap_or(raw.len())
}

/// Replaces comments and literals by blanks; lines stay lines.
fn blank(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(&character) = characters.get(at) {
        let rest = characters.get(at..).unwrap_or_default();
        let after_word = code.ends_with(|last: char| last.is_alphanumeric() || last == '_');
        let len = match character {
            '/' if rest.starts_with(&['/', '/']) => line_comment_len(rest),
            '/' if rest.starts_with(&['/', '*']) => block_comment_len(rest),
            '"' => 1 + quoted_len(rest.get(1..).unwrap_or_default(), '"'),
            'r' | 'b' | 'c' if !after_word => literal_len(rest),
            '\'' => character_len(rest),
            _ => 0,
        };
        let blanks = rest.get(..len).unwrap_or(rest);
        code.extend(blanks.iter().map(|&hidden| if hidden == '\n' { '\n' } else { ' ' }));
        if len == 0 {
            code.push(character);
        }
        at += len.max(1);
    }
    code
}

fn line_comment_len(rest: &[char]) -> usize {
    rest.iter().position(|&character| character == '\n').unwrap_or(rest.len())
}

fn block_comment_len(rest: &[char]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(pair) = rest.get(at..at + 2) {
        match pair {
            ['/', '*'] => depth += 1,
            ['*', '/'] => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// Characters up to and including the closing quote.
fn quoted_len(rest: &[char], quote: char) -> usize {
    let mut escaped = false;
    for (at, &character) in rest.iter().enumerate() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if character == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Length of a literal with a prefix (`b"…"`, `r#"…"#`, `b'x'`), or 0 if it is a word.
fn literal_len(rest: &[char]) -> usize {
    let prefix = rest.iter().take_while(|character| matches!(character, 'r' | 'b' | 'c')).count();
    let is_raw = rest.get(..prefix).is_some_and(|prefix| prefix.contains(&'r'));
    let hashes = rest.iter().skip(prefix).take_while(|&&character| character == '#').count();
    let open = prefix + hashes;
    match rest.get(open) {
        Some('"') if is_raw => {
            let body = rest.get(open + 1..).unwrap_or_default();
            let closes = |at: &usize| {
                let end = body.get(*at..at + 1 + hashes).unwrap_or_default();
                end.first() == Some(&'"') && end.iter().skip(1).all(|&character| character == '#')
            };
            let end = (0..body.len()).find(closes).unwrap_or(body.len());
            (open + 1 + end + 1 + hashes).min(rest.len())
        }
        Some('"') if hashes == 0 => {
            open + 1 + quoted_len(rest.get(open + 1..).unwrap_or_default(), '"')
        }
        Some('\'') if hashes == 0 && prefix == 1 => {
            open + 1 + quoted_len(rest.get(open + 1..).unwrap_or_default(), '\'')
        }
        _ => 0,
    }
}

/// Length of a character literal, or 0 if the quote begins a lifetime.
fn character_len(rest: &[char]) -> usize {
    match (rest.get(1), rest.get(2)) {
        (Some('\\'), _) => 1 + quoted_len(rest.get(1..).unwrap_or_default(), '\''),
        (Some(_), Some('\'')) => 3,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_lines_stay() {
        let text =
            "a // { b\n/* { /* } */ \n } */ c \"{\\\"}\" 'x' '{' '\\'' <'a> r#\"{\"#\nb'{' d";
        let code = blank(text);
        assert_eq!(code.lines().count(), text.lines().count());
        let words: Vec<&str> = code.split_whitespace().collect();
        assert_eq!(words, ["a", "c", "<'a>", "d"]);
    }

    #[test]
    fn words_that_look_like_literals_stay() {
        assert_eq!(blank("for b in car { crate::b }"), "for b in car { crate::b }");
    }

    #[test]
    fn functions_have_their_lines() {
        let text = "fn one() {\n    let a = [0; 3];\n}\ntrait T { fn none(&self); }\n\
                    fn two(\n    a: [u8; 4],\n) -> u8\nwhere\n    u8: Copy,\n{\n    { 1 }\n}\n";
        let functions = Source::new("crates/a/src/lib.rs", text).functions();
        let expected = [("one", 0, 2), ("two", 4, 11)];
        let found: Vec<_> = functions
            .iter()
            .map(|function| (&*function.name, function.first, function.last))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn tests_at_the_end_are_not_production() {
        let text = "//! x\n#[cfg(test)]\nuse a;\nfn b() {}\n#[cfg(test)]\nmod tests {\n}\n";
        assert_eq!(Source::new("crates/a/src/lib.rs", text).production_lines, 4);
        assert_eq!(Source::new("crates/a/tests/lib.rs", text).production_lines, 0);
    }
}
