//! The keys there are, as the tables of `docs/configuration.md`; a test compares the two.

use std::fmt::Write as _;

use super::options::OPTIONS;
use super::settings::SETTINGS;

/// All settings and all options of ports, in Markdown.
pub fn tables() -> String {
    let mut text = String::from("### `[ringway]`\n\n| key | value | default | what it does |\n");
    text.push_str("|---|---|---|---|\n");
    for setting in SETTINGS {
        let row = [&format!("`{}`", setting.key), setting.value, setting.default, setting.about];
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text.push_str("\n### `[port.NAME]`\n\n");
    text.push_str("| key | value | default | ports | a change is felt | what it does |\n");
    text.push_str("|---|---|---|---|---|---|\n");
    for option in OPTIONS {
        let row = [
            &format!("`{}`", option.key),
            option.value,
            option.default,
            option.ports.name(),
            option.effect.name(),
            option.about,
        ];
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}
