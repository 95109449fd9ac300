//! Committed numbers, and what has become worse since: one `format part instructions` in each line.

use std::collections::BTreeMap;

use anyhow::Context;

/// Instructions per packet, by ring format and part.
pub type Counts = BTreeMap<String, f64>;

/// The share by which a number may grow.
const GROWTH_MAX: f64 = 0.03;

const HEAD: &str = "# Instructions per 64-byte packet; see crates/bench/src/instructions.rs.\n\
                    # After an intended change: ringway bench instructions --accept FILE\n";

pub fn parse(text: &str) -> anyhow::Result<Counts> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let count = |line: &str| {
        let (name, number) = line.rsplit_once(' ').with_context(|| line.to_string())?;
        Ok((name.to_string(), number.parse().with_context(|| line.to_string())?))
    };
    lines.map(count).collect()
}

pub fn text(counts: &Counts) -> String {
    let lines = counts.iter().map(|(name, count)| format!("{name} {count:.1}\n"));
    HEAD.to_string() + &lines.collect::<String>()
}

/// One sentence for each number that has grown too much, or is new, or is gone.
pub fn complaints(golden: &Counts, counts: &Counts) -> Vec<String> {
    let mut complaints = Vec::new();
    for (name, count) in counts {
        match golden.get(name) {
            Some(golden) if *count > golden * (1.0 + GROWTH_MAX) => complaints.push(format!(
                "{name}: {count:.1} instructions per packet, {golden:.1} are committed"
            )),
            Some(_) => {}
            None => complaints.push(format!("{name}: not committed")),
        }
    }
    let gone = golden.keys().filter(|name| !counts.contains_key(*name));
    complaints.extend(gone.map(|name| format!("{name}: committed, not counted")));
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(text: &str) -> Counts {
        parse(text).expect("numbers")
    }

    #[test]
    fn what_was_accepted_is_what_is_read() {
        let found = counts("# x\n\npacked driver_send 61.5\n");
        assert_eq!(counts(&text(&found)), found);
        assert!(parse("split a much").is_err());
    }

    #[test]
    fn what_grew_too_much_is_told() {
        let golden = counts("split a 100.0\nsplit b 50\n");
        let fine = complaints(&golden, &counts("split a 102.9\nsplit b 10.0\n"));
        assert_eq!(fine, Vec::<String>::new());
        let complaints = complaints(&golden, &counts("split a 103.1\nsplit c 1.0\n"));
        assert_eq!(complaints.len(), 3, "{complaints:?}");
        assert!(complaints[0].contains("split a: 103.1"));
    }
}
