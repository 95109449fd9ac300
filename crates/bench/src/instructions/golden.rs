//! Committed numbers, and what has become worse since.

use std::fmt::Write;

use anyhow::Context;

/// One number.
#[derive(Debug, Clone, PartialEq)]
pub struct Count {
    /// Ring format and part.
    pub name: String,
    /// Instructions per packet.
    pub instructions: f64,
}

/// What a number may grow by.
const GROWTH_MAX: f64 = 0.03;

/// Committed numbers: one `format part instructions` in each line.
#[derive(Debug, Clone, PartialEq)]
pub struct Golden(Vec<Count>);

impl Golden {
    /// From a file's text.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let count = |line: &str| {
            let (name, number) = line.rsplit_once(' ').with_context(|| line.to_string())?;
            let instructions = number.parse().with_context(|| line.to_string())?;
            Ok(Count { name: name.trim().to_string(), instructions })
        };
        Ok(Self(lines.map(count).collect::<anyhow::Result<_>>()?))
    }

    /// As a file's text.
    pub fn text(counts: &[Count]) -> String {
        let mut text = "# Instructions per 64-byte packet; see crates/bench/src/instructions.rs.\n\
                        # After an intended change: ringway bench instructions --accept FILE\n"
            .to_string();
        for Count { name, instructions } in counts {
            // Writing to a String does not fail.
            let _ = writeln!(text, "{name} {instructions:.1}");
        }
        text
    }

    /// One sentence for each number that has grown too much, or is new, or is gone.
    pub fn complaints(&self, counts: &[Count]) -> Vec<String> {
        let mut complaints = Vec::new();
        for Count { name, instructions } in counts {
            match self.0.iter().find(|golden| golden.name == *name) {
                Some(golden) if *instructions > golden.instructions * (1.0 + GROWTH_MAX) => {
                    complaints.push(format!(
                        "{name}: {instructions:.1} instructions per packet, {:.1} are committed",
                        golden.instructions
                    ));
                }
                Some(_) => {}
                None => complaints.push(format!("{name}: not committed")),
            }
        }
        let is_gone = |golden: &&Count| counts.iter().all(|count| count.name != golden.name);
        let gone = self.0.iter().filter(is_gone);
        complaints.extend(gone.map(|golden| format!("{}: committed, not counted", golden.name)));
        complaints
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(name: &str, instructions: f64) -> Count {
        Count { name: name.into(), instructions }
    }

    #[test]
    fn what_grew_too_much_is_told() {
        let golden = Golden::parse("# x\nsplit a 100.0\nsplit b 50\n").expect("numbers");
        let fine = [count("split a", 102.9), count("split b", 10.0)];
        assert_eq!(golden.complaints(&fine), Vec::<String>::new());
        let worse = [count("split a", 103.1), count("split c", 1.0)];
        let complaints = golden.complaints(&worse);
        assert_eq!(complaints.len(), 3, "{complaints:?}");
        assert!(complaints[0].contains("split a: 103.1"));
    }

    #[test]
    fn what_was_accepted_is_what_is_read() {
        let counts = [count("packed driver_send", 61.5)];
        let golden = Golden::parse(&Golden::text(&counts)).expect("numbers");
        assert_eq!(golden, Golden(counts.to_vec()));
        assert!(Golden::parse("split a much").is_err());
    }
}
