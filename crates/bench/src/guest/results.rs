//! What all turns found, as tables: one of rates for each pairing, one of ratios, one of costs.

use super::figures::{FIGURES, Figure, Found};
use super::rig::{Carrier, Plan};
use super::{Options, PAIRINGS, Pairing, sides};
use crate::machine::Machine;
use crate::report::{Cell, Group, Plot, Report, Table, add_once};
use crate::{Spread, ratios};

/// Columns of rates: name and digits.
const RATES: [(Figure, &str, usize); 10] = [
    (Figure::Out, "TCP out, Gb/s", 2),
    (Figure::Back, "TCP in, Gb/s", 2),
    (Figure::OutMany, "4 streams out, Gb/s", 2),
    (Figure::BackMany, "4 streams in, Gb/s", 2),
    (Figure::Udp, "64-byte UDP in, kpps", 1),
    (Figure::Requests, "requests/s", 0),
    (Figure::PingMin, "flood ping min, ms", 3),
    (Figure::PingMean, "mean, ms", 3),
    (Figure::PingMax, "max, ms", 3),
    (Figure::PingDeviation, "deviation, ms", 3),
];

/// Columns of costs.
const COSTS: [(Figure, &str); 8] = [
    (Figure::GuestOut, "guest, out"),
    (Figure::BackEndOut, "beside it, out"),
    (Figure::GuestBack, "guest, in"),
    (Figure::BackEndBack, "beside it, in"),
    (Figure::GuestOutMany, "guest, 4 streams out"),
    (Figure::BackEndOutMany, "beside it, 4 streams out"),
    (Figure::GuestBackMany, "guest, 4 streams in"),
    (Figure::BackEndBackMany, "beside it, 4 streams in"),
];

/// Columns of ratios.
const RATIOS: [(Figure, &str); 7] = [
    (Figure::Out, "TCP out"),
    (Figure::Back, "TCP in"),
    (Figure::OutMany, "4 streams out"),
    (Figure::BackMany, "4 streams in"),
    (Figure::Udp, "64-byte UDP in"),
    (Figure::Requests, "requests"),
    (Figure::PingMean, "flood ping, mean (less is better)"),
];

/// All turns of one rig.
#[derive(Debug)]
struct Row {
    plan: Plan,
    /// By figure, then by turn.
    values: [Vec<Option<f64>>; FIGURES],
}

#[derive(Debug)]
pub(super) struct Results {
    machine: Machine,
    date: String,
    rows: Vec<Row>,
    left_out: Vec<String>,
    commands: Vec<String>,
}

impl Results {
    pub fn new(machine: Machine, date: String) -> Self {
        Self { machine, date, rows: Vec::new(), left_out: Vec::new(), commands: Vec::new() }
    }

    /// Says, once, what was not measured.
    pub fn leave_out(&mut self, what: &str) {
        // A console's end can have many lines: the first says what happened.
        add_once(&mut self.left_out, what.lines().next().unwrap_or_default());
    }

    /// Keeps how something was started.
    pub fn add_commands(&mut self, commands: Vec<String>) {
        self.commands.extend(commands);
    }

    /// Adds a turn.
    pub fn add(&mut self, plan: Plan, repeat: usize, found: Found) {
        let Found { values, failures } = found;
        for why in failures {
            self.leave_out(&format!("{}, {}: {why}", plan.pairing.name(), plan.name()));
        }
        let at = self.rows.iter().position(|row| row.plan == plan).unwrap_or_else(|| {
            self.rows.push(Row { plan, values: std::array::from_fn(|_| Vec::new()) });
            self.rows.len() - 1
        });
        for (all, value) in self.rows[at].values.iter_mut().zip(values) {
            all.resize(repeat, None);
            all.push(value);
        }
    }

    /// Everything, to be shown.
    pub fn report(mut self, options: &Options) -> Report {
        // In the order of the plans, whoever was first.
        self.rows.sort_by_key(|row| row.plan.carrier as u8);
        let mut tables = Vec::new();
        for pairing in PAIRINGS {
            let rows: Vec<&Row> =
                self.rows.iter().filter(|row| row.plan.pairing == pairing).collect();
            if !rows.is_empty() {
                tables.push(rates_table(pairing, &rows));
                tables.push(ratios_table(pairing, &rows));
                tables.push(costs_table(pairing, &rows));
            }
        }
        Report {
            title: "ringway bench guest".into(),
            date: self.date,
            command: options.command.clone(),
            machine: self.machine,
            method: method(options),
            left_out: self.left_out,
            commands: self.commands,
            tables,
            plots: plots(&self.rows),
        }
    }
}

impl Row {
    fn all(&self, figure: Figure) -> &[Option<f64>] {
        &self.values[figure as usize]
    }

    fn spread(&self, figure: Figure) -> Option<Spread> {
        Spread::of(self.all(figure).iter().copied().flatten())
    }
}

fn method(options: &Options) -> Vec<String> {
    let Options { seconds, repeats, pings, .. } = options;
    vec![
        format!(
            "Rounds: {repeats}; in each, everything compared takes its turn, {seconds} s for each \
             number. Shown: median (lowest–highest). A flood has {pings} pings."
        ),
        sides::METHOD.into(),
        "Out is from the guest, in is to it. TCP and UDP: iperf3, with default settings; UDP is \
         sent as fast as the sender can, and counted where the guest's program gets it. Requests: \
         one byte there and back over one TCP connection, one at a time."
            .into(),
        "Processor time: of the guest (all processes of QEMU or User Mode Linux) and of what runs \
         beside it, per GiB of TCP payload, in seconds. What a tap costs the kernel counts where \
         the kernel counts it."
            .into(),
    ]
}

fn rates_table(pairing: Pairing, rows: &[&Row]) -> Table {
    let names = RATES.iter().map(|(_, name, _)| (*name).to_string());
    let cells = |row: &&Row| {
        let numbers =
            RATES.iter().map(|(figure, _, digits)| Cell::number(row.spread(*figure), *digits));
        std::iter::once(Cell::text(row.plan.name())).chain(numbers).collect()
    };
    Table {
        title: pairing.name().into(),
        columns: std::iter::once("through".to_string()).chain(names).collect(),
        rows: rows.iter().map(cells).collect(),
    }
}

/// Ringway against each of the others, turn by turn.
fn ratios_table(pairing: Pairing, rows: &[&Row]) -> Table {
    let names = RATIOS.iter().map(|(_, name)| (*name).to_string());
    let ours = rows.iter().find(|row| row.plan.carrier == Carrier::Ringway);
    let others = rows.iter().filter(|row| row.plan.carrier != Carrier::Ringway);
    let cells = |ours: &Row, other: &Row| {
        let numbers = RATIOS.iter().map(|(figure, _)| {
            Cell::number(Spread::of(ratios(ours.all(*figure), other.all(*figure))), 2)
        });
        let name = format!("{} ÷ {}", ours.plan.name(), other.plan.name());
        std::iter::once(Cell::text(name)).chain(numbers).collect()
    };
    Table {
        title: format!("{}: ratios", pairing.name()),
        columns: std::iter::once("of what".to_string()).chain(names).collect(),
        rows: ours.map_or(vec![], |ours| others.map(|other| cells(ours, other)).collect()),
    }
}

fn costs_table(pairing: Pairing, rows: &[&Row]) -> Table {
    let names = COSTS.iter().map(|(_, name)| format!("{name}, s/GiB"));
    let cells = |row: &&Row| {
        let numbers = COSTS.iter().map(|(figure, _)| Cell::number(row.spread(*figure), 2));
        std::iter::once(Cell::text(row.plan.name())).chain(numbers).collect()
    };
    Table {
        title: format!("{}: processor time", pairing.name()),
        columns: std::iter::once("through".to_string()).chain(names).collect(),
        rows: rows.iter().map(cells).collect(),
    }
}

/// TCP of everybody, pairing by pairing.
fn plots(rows: &[Row]) -> Vec<Plot> {
    let plot = |pairing: Pairing| {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.plan.pairing == pairing).collect();
        let figures = [
            (Figure::Out, "out"),
            (Figure::Back, "in"),
            (Figure::OutMany, "4 streams out"),
            (Figure::BackMany, "4 streams in"),
        ];
        let groups = figures.map(|(figure, name)| Group {
            name: name.into(),
            values: rows.iter().map(|row| row.spread(figure)).collect(),
        });
        let plot = Plot {
            title: format!("TCP, {}", pairing.name()),
            unit: "Gb/s".into(),
            series: rows.iter().map(|row| row.plan.name().to_string()).collect(),
            groups: groups.into(),
        };
        (!rows.is_empty()).then_some(plot)
    };
    PAIRINGS.into_iter().filter_map(plot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options {
            seconds: 1,
            repeats: 2,
            pings: 10,
            pairings: PAIRINGS.to_vec(),
            command: "ringway bench guest".into(),
        }
    }

    #[test]
    fn ratios_are_ours_by_theirs_turn_by_turn() {
        let mut results = Results::new(Machine::look(), String::new());
        let plans = Plan::all(Pairing::UmlHost);
        for (repeat, [ours, theirs]) in [[3.0, 1.0], [8.0, 4.0]].into_iter().enumerate() {
            for (plan, value) in plans.iter().zip([ours, theirs]) {
                let mut found = Found::default();
                found.values[Figure::Out as usize] = Some(value);
                found.failures.push("UDP: nothing\nthe end of its console".into());
                results.add(*plan, repeat, found);
            }
        }
        let report = results.report(&options());
        assert_eq!(report.tables.len(), 3);
        assert_eq!(report.tables[0].rows[0][1].show(), "5.50 (3.00–8.00)");
        assert_eq!(report.tables[1].rows[0][1].show(), "2.50 (2.00–3.00)");
        assert_eq!(report.tables[1].rows[0][2], Cell::Missing);
        assert_eq!(report.left_out.len(), 2, "{:?}", report.left_out);
        assert!(report.left_out.iter().all(|line| !line.contains("console")));
        assert_eq!(report.plots.len(), 1);
    }
}
