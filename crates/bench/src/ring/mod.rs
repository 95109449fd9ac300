//! `ringway bench ring`: drivers and devices, ringway's and DPDK's, in all four pairs, beside the
//! plainest ring that there can be.
//!
//! How: [`method`]. Rows of the same format, direction and length are measured one right after the
//! other, and the limit beside each, because a machine that is shared can be twice as fast a few
//! seconds later; how deep its ring is, is tried before its own row.
//!
//! Limits: one queue pair, two cores, both sides polling; one packet length at a time.

mod device;
pub(crate) mod driver;
pub(crate) mod end;
mod limit;
mod row;
mod run;
pub(crate) mod testpmd;

use std::time::Duration;

use anyhow::{bail, ensure};
use clap::Args;
use ringway_guests::DpdkFiles;
use ringway_virtq::Format;

use crate::options::{self, format, format_name};
use crate::programs;
use crate::progress::in_turns;
use crate::report::{Column, Grid, Report};
use driver::RECEIVE_BUFFER;
use row::{LIMIT, PEERS, PacketDirection, ROWS, Setup};
use run::Throughput;

/// Packet lengths in bytes, if nothing else is asked for.
const PACKET_LENS: [usize; 5] = [64, 256, 1518, 9000, 65_536];

/// Entries of each queue, if nothing else is asked for: as many as drivers have by default.
const QUEUE_SIZE: u16 = 256;

/// The same for packets of [`LONG_MIN`] bytes and more, as long as they lie in at most
/// [`QUEUE_BYTES`]. Of fewer of these most would stay in the cache of the core that writes them,
/// from which the other core gets them slowly; 64 MiB are three times slower again.
const LONG_QUEUE_SIZE: u16 = 1024;
const LONG_MIN: usize = 1024;
const QUEUE_BYTES: usize = 4 * 1024 * 1024;

/// Shortest look at the limit beside a row, unless the row itself is shorter.
const LIMIT_BESIDE_MIN: Duration = Duration::from_millis(100);

const HEADS: [&str; 3] = ["bytes", "driver × device", "entries"];

const THROUGHPUT: [Column; 5] = [
    ("Mpps", 3),
    ("Gb/s", 2),
    ("CPU ns/packet, driver", 1),
    ("CPU ns/packet, device", 1),
    ("× limit", 2),
];

#[derive(Debug, Clone, Args)]
pub struct RingOptions {
    #[command(flatten)]
    pub amount: options::Options,
    /// Packet lengths in bytes, 64 to 65536; with --quick 64 and 1518
    #[arg(long = "sizes", value_delimiter = ',', value_name = "BYTES")]
    #[arg(default_values_t = PACKET_LENS, default_value_if("quick", "true", "64,1518"))]
    packet_lens: Vec<usize>,
    /// Ring formats
    #[arg(long, value_delimiter = ',', value_name = "FORMAT", default_value = "split,packed")]
    #[arg(value_parser = format)]
    formats: Vec<Format>,
    /// Entries of each queue; without, 1024 for long packets that fit the shared cache, else 256
    #[arg(long, value_name = "ENTRIES")]
    queue_size: Option<u16>,
}

/// One number that is to be measured, again and again: its table, by number, and how.
type Task<'a> = (usize, Setup<'a>);

pub fn measure(options: &RingOptions) -> anyhow::Result<Report> {
    check(options)?;
    let mut report = Report::begin("ring", &method(options))?;
    let processors = report.two_processors();
    let dpdk = programs::dpdk()
        .map_err(|why| report.leave_out(&format!("all pairs with DPDK: {why:#}")))
        .ok();
    if dpdk.is_some() {
        report.machine.versions.extend(programs::peer_versions(&[("dpdk", "dpdk-dev")]));
    }
    let (mut tables, tasks) = plan(options, processors, dpdk.as_ref());
    let mut limit_depth = u64::from(QUEUE_SIZE);
    in_turns(options.amount.repeats, &tasks, |round, name, (table, setup), progress| {
        if setup.row == LIMIT {
            limit_depth = beside(setup).fastest_depth()?;
        }
        let setup = Setup { limit_depth, ..*setup };
        match throughput(&setup, &mut report) {
            Ok(values) => tables[*table].add(&cells(&setup), round, &values),
            // A peer that fails is no reason to stop; a failure of our own is.
            Err(why) if setup.row.has_dpdk() => {
                let why = format!("{}: {why:#}", name.join(", "));
                progress.note(&why);
                report.leave_out(&why);
            }
            Err(why) => return Err(why),
        }
        Ok(())
    })?;
    let peers = |row: &[String]| Some(vec![row[0].clone(), PEERS.into(), row[2].clone()]);
    for grid in &tables {
        report.tables.push(grid.table_with(&[("× DPDK × DPDK", 0)], peers));
    }
    Ok(report)
}

fn throughput(
    setup: &Setup<'_>,
    report: &mut Report,
) -> anyhow::Result<[Option<f64>; THROUGHPUT.len()]> {
    let limit = || {
        let rate = (setup.row != LIMIT).then(|| beside(setup).throughput());
        anyhow::Ok(rate.transpose()?.map(|found| found.per_second))
    };
    let before = limit()?;
    let Throughput { per_second, cost_ns, commands } = setup.throughput()?;
    let after = limit()?;
    commands.iter().for_each(|command| report.add_command(command));
    let limit = before.zip(after).map(|(before, after)| f64::midpoint(before, after));
    let bits = 8.0 * f64::from(u32::try_from(setup.packet_len)?);
    let [driver, device] = cost_ns;
    let [millions, gigabits] = [per_second / 1e6, per_second * bits / 1e9].map(Some);
    Ok([millions, gigabits, driver, device, limit.map(|limit| per_second / limit)])
}

/// A shorter look at the limit under the same conditions.
fn beside<'a>(setup: &Setup<'a>) -> Setup<'a> {
    let duration = (setup.duration / 4).max(setup.duration.min(LIMIT_BESIDE_MIN));
    Setup { row: LIMIT, duration, ..*setup }
}

fn check(options: &RingOptions) -> anyhow::Result<()> {
    options.amount.ensure_measurable()?;
    if let Some(len) = options.packet_lens.iter().find(|len| !(64..=65_536).contains(*len)) {
        bail!("{len}: a packet has 64 to 65536 bytes");
    }
    let is_possible = |size: u16| size.is_power_of_two() && (8..=1024).contains(&size);
    if let Some(size) = options.queue_size.filter(|size| !is_possible(*size)) {
        bail!("{size}: a queue has 8, 16, 32, … 1024 entries");
    }
    let is_empty = options.packet_lens.is_empty() || options.formats.is_empty();
    ensure!(!is_empty, "nothing to measure");
    Ok(())
}

/// The tables, and everything once, in the order in which it is measured. Rows change fastest.
fn plan<'a>(
    options: &RingOptions,
    processors: [usize; 2],
    dpdk: Option<&'a DpdkFiles>,
) -> (Vec<Grid>, Vec<(Vec<String>, Task<'a>)>) {
    let (mut tables, mut tasks) = (Vec::new(), Vec::new());
    for &format in &options.formats {
        for direction in [PacketDirection::GuestToHost, PacketDirection::HostToGuest] {
            for &packet_len in &options.packet_lens {
                let has_dpdk = dpdk.is_some() && packet_len <= testpmd::PACKET_LEN_MAX;
                for row in ROWS.into_iter().filter(|row| has_dpdk || !row.has_dpdk()) {
                    let queue_size = options.queue_size_for(direction, packet_len);
                    let (duration, limit_depth) = (options.amount.duration, queue_size.into());
                    let setup = Setup {
                        row,
                        direction,
                        format,
                        packet_len,
                        queue_size,
                        limit_depth,
                        processors,
                        duration,
                        dpdk,
                    };
                    let (direction, format) = (direction.name(), format_name(format));
                    let names = [direction, format].map(String::from);
                    let bytes = format!("{packet_len} bytes");
                    let name = [&[row.name()][..], &names, &[bytes]].concat();
                    tasks.push((name, (tables.len(), setup)));
                }
            }
            let title = format!("{}, {} ring", direction.name(), format_name(format));
            tables.push(Grid::new(title, &HEADS, &THROUGHPUT).plotted("Gb/s", &[1]));
        }
    }
    (tables, tasks)
}

/// Under [`HEADS`]. The limit's entries are another number in each round.
fn cells(setup: &Setup<'_>) -> [String; 3] {
    let size = setup.queue_size.to_string();
    let entries = if setup.row == LIMIT { "–".to_string() } else { size };
    [setup.packet_len.to_string(), setup.row.name(), entries]
}

impl RingOptions {
    /// Entries of each queue for packets of that many bytes, the same for all rows.
    fn queue_size_for(&self, direction: PacketDirection, packet_len: usize) -> u16 {
        let buffer_len = match direction {
            PacketDirection::HostToGuest => packet_len.min(RECEIVE_BUFFER),
            PacketDirection::GuestToHost => packet_len,
        };
        let all = usize::from(LONG_QUEUE_SIZE) * buffer_len;
        let suits_long = packet_len >= LONG_MIN && all <= QUEUE_BYTES;
        self.queue_size.unwrap_or(if suits_long { LONG_QUEUE_SIZE } else { QUEUE_SIZE })
    }
}

fn method(options: &RingOptions) -> [String; 7] {
    [
        options.amount.rounds(),
        "A row names driver × device. Two processors, one for each side, both polling; no side is \
         kicked or called. Packets are without the virtio header; Gb/s counts their bytes."
            .into(),
        "The limit is a plain ring between the same two processors: one copy in, one copy out, no \
         descriptors, no header. It is measured right before and right after each row, for a \
         quarter of the time or 0.1 s, and has as many packets or 4 MiB on their way, as is faster."
            .into(),
        "Without --queue-size queues have 1,024 entries for packets of 1,024 bytes and more whose \
         memory then is 4 MiB at most, else 256. ringway's driver receives in buffers of 4,096 \
         bytes, or of a length that it chooses where a packet does not fit."
            .into(),
        "ringway copies each packet from and to memory of its own. DPDK's programs (testpmd txonly \
         and rxonly, --no-huge) write 42 bytes of a packet that they send, and leave what they \
         receive where it is; so does ringway's driver in place."
            .into(),
        "Logged, the device marks the pages that it writes, as while a guest is migrated; every \
         10 ms all marks are taken."
            .into(),
        "CPU ns per packet: how long rounds that moved packets took, by the packets. Of ringway's \
         sides the median; of testpmd the mean."
            .into(),
    ]
}

#[cfg(test)]
mod tests {
    use ringway_guests::dpdk_files;

    use super::*;

    fn options() -> RingOptions {
        let duration = Duration::from_millis(20);
        RingOptions {
            amount: options::Options { duration, repeats: 2, ..Default::default() },
            packet_lens: vec![64, 65_536],
            formats: vec![Format::Split, Format::Packed],
            queue_size: None,
        }
    }

    #[test]
    fn neighbours_in_time_differ_in_the_row_only() {
        let directory = tempfile::tempdir().expect("a directory");
        let libraries = dpdk_files::libraries(directory.path());
        std::fs::create_dir_all(&libraries).expect("created");
        for driver in dpdk_files::DRIVERS {
            std::fs::write(libraries.join(format!("{driver}.so.1")), "").expect("written");
        }
        let dpdk = DpdkFiles::unpacked(directory.path()).expect("all of it");
        let (tables, tasks) = plan(&options(), [0, 1], Some(&dpdk));
        for ((_, (table, task)), (_, (next, other))) in tasks.iter().zip(&tasks[1..]) {
            let same = table == next && task.packet_len == other.packet_len;
            assert!(same || other.row == LIMIT, "{task:?} {other:?}");
        }
        assert_eq!((tables.len(), tasks.len()), (4, 2 * 2 * (7 + 3)));
        assert!(plan(&options(), [0, 1], None).1.iter().all(|(_, (_, it))| !it.row.has_dpdk()));
        let names = ROWS.map(row::Row::name);
        assert!(names.windows(2).any(|pair| pair == [PEERS, "ringway in place × DPDK"]));
    }

    #[test]
    fn queues_are_long_for_long_packets_that_fit_the_shared_cache() {
        let sizes = |options: &RingOptions, direction| {
            PACKET_LENS.map(|len| options.queue_size_for(direction, len))
        };
        let usual = options();
        assert_eq!(sizes(&usual, PacketDirection::GuestToHost), [256, 256, 1024, 256, 256]);
        assert_eq!(sizes(&usual, PacketDirection::HostToGuest), [256, 256, 1024, 1024, 1024]);
        let asked = RingOptions { queue_size: Some(512), ..usual };
        assert_eq!(sizes(&asked, PacketDirection::GuestToHost), [512; 5]);
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        assert!(check(&options()).is_ok());
        let wrong = |change: fn(&mut RingOptions)| {
            let mut options = options();
            change(&mut options);
            check(&options).is_err()
        };
        assert!(wrong(|options| options.packet_lens.push(63)));
        assert!(wrong(|options| options.queue_size = Some(100)));
        assert!(wrong(|options| options.amount.repeats = 0));
        assert!(wrong(|options| options.amount.duration = Duration::ZERO));
    }
}
