//! The result of the demonstration: a table for people, or JSON.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use comfy_table::Table;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use ringway_control::protocol::PortStats;
use ringway_control::units;
use ringway_guests::traffic;
use serde_json::json;

/// Starts a switch, and a guest on its first port: two lines to go on with.
const NEXT: &str = include_str!("next.txt");

#[derive(Debug)]
pub struct DemoReport {
    pub figures: DemoFigures,
    pub elapsed: Duration,
    /// Where ringway is.
    pub program: PathBuf,
}

/// The figures of the guests and of ringway.
#[derive(Debug)]
pub struct DemoFigures {
    /// The guests' system, with its version.
    pub guests: String,
    /// TCP payload from a to b, and from b to a.
    pub bits_per_second: [f64; 2],
    pub round_trip: RoundTrip,
    /// The counts of ringway, while both guests were connected.
    pub ports: Vec<PortStats>,
}

/// Echo requests and how long their answers took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoundTrip {
    pub sent: u64,
    pub received: u64,
    /// Shortest, mean and longest.
    pub times_ms: [f64; 3],
}

impl RoundTrip {
    /// Reads what `ping -q` prints.
    pub fn from_ping(text: &str) -> Option<Self> {
        let counted = text.lines().find(|line| line.contains(" packets transmitted"))?;
        let mut counts = counted.split(", ").map(|part| part.split(' ').next()?.parse().ok());
        let (sent, received) = (counts.next()??, counts.next()??);
        let [shortest, mean, longest, _] = traffic::round_trips_ms(text)?;
        Some(Self { sent, received, times_ms: [shortest, mean, longest] })
    }
}

impl DemoReport {
    /// One line of JSON.
    pub fn json(&self) -> String {
        let DemoFigures { guests, bits_per_second: [a_to_b, b_to_a], round_trip, ports } =
            &self.figures;
        let RoundTrip { sent, received, times_ms: [min_ms, mean_ms, max_ms] } = round_trip;
        let [ringway, qemu] = self.next();
        let report = json!({
            "guests": guests,
            "a_to_b_bits_per_second": a_to_b,
            "b_to_a_bits_per_second": b_to_a,
            "round_trip": {
                "sent": sent, "received": received,
                "min_ms": min_ms, "mean_ms": mean_ms, "max_ms": max_ms,
            },
            "ports": ports,
            "elapsed_ms": u64::try_from(self.elapsed.as_millis()).unwrap_or(u64::MAX),
            "attach": { "ringway": ringway, "qemu": qemu },
        });
        format!("{report}\n")
    }

    /// A table, and what to do next.
    pub fn text(&self) -> String {
        let DemoFigures { guests, round_trip, .. } = &self.figures;
        let RoundTrip { sent, received, times_ms: [shortest, mean, longest] } = round_trip;
        let [ringway, qemu] = self.next();
        let mut text = format!("Two guests, {guests}, through ringway:\n{}\n", self.table());
        let lost = sent.saturating_sub(*received);
        let _ = write!(
            text,
            "Round trip: {shortest:.3} ms shortest, {mean:.3} ms mean, {longest:.3} ms longest; \
             {lost} of {sent} lost.\n\
             It took {:.1} s and left nothing behind.\n\n\
             To attach a QEMU guest of your own, with the internet, without root:\n  \
             {ringway}\n  {qemu}\n",
            self.elapsed.as_secs_f64()
        );
        text
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        table.set_header(["guest", "negotiated", "sends TCP", "packets sent", "dropped"]);
        for (port, rate) in self.figures.ports.iter().zip(self.figures.bits_per_second) {
            let sent = &port.from_guest;
            let drops = units::total(port.to_guest.drops.values().chain(sent.drops.values()));
            table.add_row([
                port.name.clone(),
                port.negotiated(),
                units::bits_per_second(rate),
                format!("{}\n{}", units::count(sent.packets), units::bytes(sent.bytes)),
                units::count(drops),
            ]);
        }
        table
    }

    fn next(&self) -> [String; 2] {
        let program = self.program.display().to_string();
        let mut lines = NEXT.lines().map(|line| line.replace("PROGRAM", &program));
        std::array::from_fn(|_| lines.next().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_control::protocol::examples::example;
    use serde_json::Value;

    fn report() -> DemoReport {
        let port = example().ports.remove(0);
        let other = PortStats { name: "other".to_string(), ..port.clone() };
        let figures = DemoFigures {
            guests: "Linux 6.1".to_string(),
            bits_per_second: [9.7e9, 2.5e9],
            round_trip: RoundTrip { sent: 200, received: 199, times_ms: [0.05, 0.1, 0.5] },
            ports: vec![port, other],
        };
        let elapsed = Duration::from_millis(12_300);
        DemoReport { figures, elapsed, program: "/opt/ringway".into() }
    }

    #[test]
    fn ping_is_understood() {
        let text = "PING 10.0.0.1 (10.0.0.1) 56(84) bytes of data.\n\n\
                    --- 10.0.0.1 ping statistics ---\n\
                    100 packets transmitted, 99 received, 1% packet loss, time 77ms\n\
                    rtt min/avg/max/mdev = 0.048/0.104/0.173/0.055 ms\n";
        let right = RoundTrip { sent: 100, received: 99, times_ms: [0.048, 0.104, 0.173] };
        assert_eq!(RoundTrip::from_ping(text), Some(right));
        let nothing = "3 packets transmitted, 0 received, 100% packet loss, time 20ms";
        assert_eq!(RoundTrip::from_ping(nothing), None);
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
            "\n  /opt/ringway run --port vm0=vm: --port vm1=vm:",
            "\"$(/opt/ringway attach vm0 --for qemu)\"\n",
        ];
        for words in wanted {
            assert!(text.contains(words), "{words} in\n{text}");
        }
    }

    #[test]
    fn the_json_is_one_line_with_the_same_figures() {
        let json = report().json();
        assert_eq!(json.lines().count(), 1);
        let value: Value = serde_json::from_str(&json).expect("json");
        assert_eq!(value["a_to_b_bits_per_second"], 9.7e9);
        assert_eq!(value["round_trip"]["mean_ms"], 0.1);
        assert_eq!(value["ports"][0]["name"], "vm0");
        assert!(value["attach"]["qemu"].as_str().is_some_and(|text| !text.contains('\n')));
    }
}
