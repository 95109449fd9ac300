//! The features of a port's guest, for people.

use super::PortStats;

impl PortStats {
    /// The ring format and some features that were negotiated.
    pub fn negotiated(&self) -> String {
        let Some(format) = &self.format else { return "–".to_string() };
        let has = |name: &str| self.features.iter().any(|feature| feature == name);
        let words = [
            (has("MRG_RXBUF"), "mergeable"),
            (has("HOST_TSO4") || has("HOST_TSO6"), "TSO out"),
            (has("GUEST_TSO4") || has("GUEST_TSO6"), "TSO in"),
            (has("CSUM"), "checksum out"),
            (has("GUEST_CSUM"), "checksum in"),
            (has("EVENT_IDX"), "event index"),
            (has("INDIRECT_DESC"), "indirect"),
            (has("IN_ORDER"), "in order"),
        ];
        let words = words.iter().filter(|(is_there, _)| *is_there).map(|&(_, word)| word);
        let words: Vec<&str> = std::iter::once(format.as_str()).chain(words).collect();
        // Three to a line keep the column narrow.
        words.chunks(3).map(|line| line.join(", ")).collect::<Vec<_>>().join(",\n")
    }
}
