//! The figures of one turn of a rig.
//!
//! Limits: a figure that cannot be had is missing, and the reason is kept; the others are taken
//! nevertheless.

use anyhow::{Context, ensure};
use ringway_guests::iperf::IperfReport;
use ringway_guests::{Side, traffic};

use super::pairing::GuestOptions;
use super::processor_time;
use super::rig::Rig;
use super::turns::{Compared, Figures};
use crate::report::Column;

/// Payload of a UDP packet whose Ethernet frame has 64 bytes.
const UDP_PAYLOAD_LEN: u32 = 22;

const GIB: f64 = (1 << 30) as f64;

/// Options of iperf3 for TCP from the guest that asks and to it, of one stream and of several.
const TCP: [&str; 4] = ["", "-R", "-P 4", "-P 4 -R"];

/// Pings when all is idle: how many, and the seconds in between, in which all goes to sleep.
const COLD_PINGS: &str = "-c 10 -i 0.2";

/// TCP, with what iperf3 is told in [`TCP`]; UDP that the guest's program receives; pings.
pub(super) const RATES: [Column; 10] = [
    ("TCP out, Gb/s", 2),
    ("TCP in, Gb/s", 2),
    ("4 streams out, Gb/s", 2),
    ("4 streams in, Gb/s", 2),
    ("64-byte UDP in, kpps", 1),
    ("flood ping min, ms", 3),
    ("mean, ms", 3),
    ("max, ms", 3),
    ("deviation, ms", 3),
    ("ping after 0.2 s of silence, mean, ms", 3),
];

/// Processor time of the guests and of what is beside them, in the order of [`TCP`].
pub(super) const COSTS: [Column; 8] = [
    ("guest, out, s/GiB", 2),
    ("beside it, out, s/GiB", 2),
    ("guest, in, s/GiB", 2),
    ("beside it, in, s/GiB", 2),
    ("guest, 4 streams out, s/GiB", 2),
    ("beside it, 4 streams out, s/GiB", 2),
    ("guest, 4 streams in, s/GiB", 2),
    ("beside it, 4 streams in, s/GiB", 2),
];

impl Compared for Rig {
    fn commands(&self) -> Vec<String> {
        self.commands()
    }

    fn take(&mut self, options: &GuestOptions) -> Figures {
        let mut figures = Figures::nothing(&RATES, &COSTS);
        let (address, seconds) = (self.address(), options.seconds());
        // Addresses are resolved and the path is warm.
        let warm_up = format!("ping -c 3 -i 0.1 -W 10 {address}");
        let ready = self.work().and_then(|()| self.side().must(&warm_up));
        if figures.note("before anything", ready).is_none() {
            return figures;
        }
        let processes = self.processes();
        let times = || processes.each_ref().map(|programs| processor_time::seconds(programs));
        for (at, words) in TCP.into_iter().enumerate() {
            let stream = tcp(&mut self.side(), &address, seconds, words, times);
            if let Some((rate, seconds, moved)) = figures.note(&format!("TCP {words}"), stream) {
                figures.rates[at] = Some(rate);
                for side in [0, 1] {
                    let cost = seconds[side] / (moved / GIB);
                    figures.costs[2 * at + side] = (!processes[side].is_empty()).then_some(cost);
                }
            }
        }
        let words = format!("-l {UDP_PAYLOAD_LEN} -R");
        let udp = udp(&mut self.side(), &address, seconds, &words);
        figures.rates[4] = figures.note("UDP", udp);
        let flood = pings(&mut self.side(), &flood_of(options.pings()), &address);
        if let Some(times) = figures.note("flood", flood) {
            figures.rates[5..9].copy_from_slice(&times.map(Some));
        }
        let cold = pings(&mut self.side(), &format!("-q {COLD_PINGS}"), &address);
        figures.rates[9] = figures.note("pings", cold).map(|[_, mean, ..]| mean);
        let rest = self.rest();
        figures.note("afterwards", rest);
        figures
    }
}

/// Runs iperf3 with more `words`: the rate of TCP in Gb/s, by how much each of `times` grew
/// meanwhile, and the bytes that arrived.
pub(super) fn tcp(
    side: &mut Side<'_>,
    address: &str,
    seconds: u64,
    words: &str,
    times: impl Fn() -> [f64; 2],
) -> anyhow::Result<(f64, [f64; 2], f64)> {
    let before = times();
    let report = traffic::tcp(side, address, u32::try_from(seconds)?, words)?;
    let after = times();
    let moved = report.bits_per_second * report.seconds / 8.0;
    Ok((report.gigabits(), [0, 1].map(|of| after[of] - before[of]), moved))
}

/// Thousands of packets per second that arrive when the other side sends all it can.
pub(super) fn udp(
    side: &mut Side<'_>,
    address: &str,
    seconds: u64,
    words: &str,
) -> anyhow::Result<f64> {
    let line = format!("iperf3 -J -c {address} -u -b 0 -t {seconds} {words}");
    let report = IperfReport::parse(&traffic::iperf(side, &line)?)?;
    let packets = report.packets.context("iperf3: no packets")?;
    ensure!(report.seconds > 0.0, "iperf3: no time");
    Ok(packets / report.seconds / 1e3)
}

/// Words for so many pings as fast as they come back.
pub(super) fn flood_of(pings: u32) -> String {
    format!("-f -q -w 20 -c {pings}")
}

/// Least, mean, greatest and deviation of round trips, in ms.
pub(super) fn pings(side: &mut Side<'_>, words: &str, to: &str) -> anyhow::Result<[f64; 4]> {
    let (_, text) = side.run(&format!("ping {words} {to}"))?;
    traffic::round_trips_ms(&text).with_context(|| format!("ping: {text}"))
}
