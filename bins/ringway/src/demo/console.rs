//! A guest's console, captured in a file: lines that begin with a marker are its messages to us.

use std::fs;
use std::path::PathBuf;

/// Begins every message of a guest.
const MARKER: &str = "RINGWAY ";

/// Most bytes of a console that are looked at: a healthy guest writes some ten thousand.
const CONSOLE_LEN_MAX: usize = 4 << 20;

/// The console of one guest.
pub struct Console {
    file: PathBuf,
}

/// What a guest said: a word, and what belongs to it.
#[derive(Debug, PartialEq, Eq)]
pub struct Message {
    /// What it is about.
    pub word: String,
    /// The rest of the line.
    pub text: String,
}

impl Console {
    /// The console that is captured in `file`.
    pub fn new(file: PathBuf) -> Self {
        Self { file }
    }

    /// The first message about `word`, or the guest's failure if it told one.
    pub fn message(&self, word: &str) -> Option<Message> {
        let bytes = fs::read(&self.file).ok()?;
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(CONSOLE_LEN_MAX)]);
        messages(&text).find(|message| message.word == word || message.is_failure())
    }
}

impl Message {
    /// Whether the guest gave up.
    pub fn is_failure(&self) -> bool {
        self.word == "failed"
    }
}

/// Complete lines only: the last one may still be in the writing.
fn messages(text: &str) -> impl Iterator<Item = Message> {
    let lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    lines.filter_map(|line| {
        // A line of the kernel may stand in front of it.
        let (_, message) = line.trim_end().split_once(MARKER)?;
        let (word, text) = message.split_once(' ').unwrap_or((message, ""));
        Some(Message { word: word.to_string(), text: text.to_string() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_between_other_lines() {
        let text = "Core dump limits\r\nRINGWAY ready\r\n[ 1.0] x: RINGWAY speed {\"a\": 1}\r\n";
        let found: Vec<Message> = messages(text).collect();
        let message = |word: &str, text: &str| Message { word: word.into(), text: text.into() };
        assert_eq!(found, [message("ready", ""), message("speed", "{\"a\": 1}")]);
    }

    #[test]
    fn a_line_in_the_writing_is_no_message_yet() {
        assert_eq!(messages("RINGWAY rea").count(), 0);
        assert_eq!(messages("").count(), 0);
    }

    #[test]
    fn a_failure_answers_every_question() {
        let directory = tempfile::tempdir().expect("directory");
        let file = directory.path().join("console");
        let console = Console::new(file.clone());
        assert_eq!(console.message("ready"), None);
        fs::write(&file, "RINGWAY failed no device\r\n").expect("write");
        let message = console.message("ready").expect("message");
        assert!(message.is_failure());
        assert_eq!(message.text, "no device");
    }
}
