//! The result of a demonstration: a table for people, or JSON.

use std::fmt::Write as _;

use comfy_table::Table;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use serde::Serialize;

use super::measured::Measured;
use crate::control::PortStats;
use crate::stats_view;
use crate::units;

/// Everything there is to say in the end.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Why the guests are not Linux, if they are not.
    pub note: Option<String>,
    /// What the guests measured.
    #[serde(flatten)]
    pub measured: Measured,
    /// What ringway counted, while both guests were connected.
    pub ports: Vec<PortStats>,
    /// How long it all took, in milliseconds.
    pub elapsed_ms: u64,
    /// Command lines to go on with.
    pub attach: Attach,
}

/// How to attach a guest of one's own.
#[derive(Debug, Serialize)]
pub struct Attach {
    /// Starts the switch.
    pub ringway: String,
    /// Starts a guest on its first port; the address of each port is another one.
    pub qemu: String,
}

/// Command lines to attach a QEMU guest to this very program.
pub fn attach() -> Attach {
    let program = std::env::current_exe().ok();
    let program = program.map_or("ringway".to_string(), |path| path.display().to_string());
    Attach {
        ringway: format!("{program} run --port vm0=vm: --port vm1=vm: --port net=nat:"),
        qemu: format!("eval qemu-system-x86_64 DISK-IMAGE \"$({program} attach vm0 --for qemu)\""),
    }
}

impl Report {
    /// As one line of JSON.
    ///
    /// # Errors
    /// A figure has no JSON form.
    pub fn json(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string(self)? + "\n")
    }

    /// As a table and what to do next.
    pub fn text(&self) -> String {
        let Measured { guests, round_trip, .. } = &self.measured;
        let mut text = format!("Two guests, {guests}, through ringway:\n{}\n", self.table());
        let seconds = units::approximate(self.elapsed_ms) / 1000.0;
        let lost = round_trip.sent.saturating_sub(round_trip.received);
        let _ = writeln!(
            text,
            "Round trip: {:.3} ms shortest, {:.3} ms mean, {:.3} ms longest; {lost} of {} lost.",
            round_trip.min_ms, round_trip.mean_ms, round_trip.max_ms, round_trip.sent
        );
        if let Some(note) = &self.note {
            let _ = writeln!(text, "Embedded guests were used: {note}.");
        }
        let _ = writeln!(text, "It took {seconds:.1} s and left nothing behind.\n");
        let Attach { ringway, qemu } = &self.attach;
        text.push_str("To attach a QEMU guest of your own, with the internet, without root:\n");
        let _ = writeln!(text, "  {ringway}\n  {qemu}");
        text
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        table.set_header(["guest", "negotiated", "sends TCP", "packets sent", "dropped"]);
        let rates = [self.measured.a_to_b_bits_per_second, self.measured.b_to_a_bits_per_second];
        for (port, rate) in self.ports.iter().zip(rates) {
            let sent = &port.from_guest;
            let drops: u64 = port.to_guest.drops.values().chain(sent.drops.values()).sum();
            let packets = units::count(sent.packets);
            table.add_row([
                port.name.clone(),
                stats_view::negotiated(port),
                units::bits_per_second(rate),
                format!("{packets}\n{}", units::bytes(sent.bytes)),
                units::count(drops),
            ]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::examples::example;
    use crate::demo::measured::RoundTrip;

    fn report() -> Report {
        let port = example().ports.remove(0);
        let other = PortStats { name: "other".to_string(), ..port.clone() };
        let round_trip =
            RoundTrip { sent: 200, received: 199, min_ms: 0.05, mean_ms: 0.1, max_ms: 0.5 };
        let measured = Measured {
            guests: "Linux 6.1".to_string(),
            a_to_b_bits_per_second: 9.7e9,
            b_to_a_bits_per_second: 2.5e9,
            round_trip,
        };
        let ports = vec![port, other];
        Report { note: None, measured, ports, elapsed_ms: 12_300, attach: attach() }
    }

    #[test]
    fn the_text_has_every_figure_and_the_way_on() {
        let text = report().text();
        let wanted = [
            "Linux 6.1",
            "9.70 Gb/s",
            "2.50 Gb/s",
            "packed, mergeable",
            "0.100 ms mean",
            "1 of 200 lost",
            "12.3 s",
            " run --port vm0=vm: --port vm1=vm:",
            " attach vm0 --for qemu)\"",
        ];
        for words in wanted {
            assert!(text.contains(words), "{words} in\n{text}");
        }
        assert!(!text.contains("Embedded"));
        let embedded = Report { note: Some("linux.uml not found".to_string()), ..report() };
        assert!(embedded.text().contains("Embedded guests were used: linux.uml not found."));
    }

    #[test]
    fn the_json_is_one_line_with_the_same_figures() {
        let json = report().json().expect("json");
        assert_eq!(json.lines().count(), 1);
        let value: serde_json::Value = serde_json::from_str(&json).expect("json");
        assert_eq!(value["a_to_b_bits_per_second"], 9.7e9);
        assert_eq!(value["round_trip"]["mean_ms"], 0.1);
        assert_eq!(value["ports"][0]["name"], "vm0");
        assert!(value["attach"]["qemu"].as_str().is_some_and(|text| !text.contains('\n')));
    }
}
