//! The cost of a death and of an upgrade of the data plane with many guests.

mod common;

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use common::{Ringway, wait_for};
use ringway_testkit::{AnyUserGuest, GuestOptions};
use rustix::process::{Signal, kill_process};

/// Between two deaths: of those that follow each other sooner the second one has to wait.
const PAUSE: Duration = Duration::from_millis(450);

fn attach_all(directory: &Path, count: usize) -> (Ringway, Vec<AnyUserGuest>) {
    let ports: Vec<String> = (0..count).map(|at| format!("g{at}=vm:{at}.sock")).collect();
    let arguments: Vec<&str> = ports.iter().flat_map(|port| ["--port", port]).collect();
    let ringway = Ringway::run(directory, &arguments);
    let options = GuestOptions { queue_size: 64, ..GuestOptions::default() };
    let attach = |at| {
        let socket = directory.join(format!("{at}.sock"));
        wait_for("a guest", || AnyUserGuest::attach(&socket, &options).ok())
    };
    (ringway, (0..count).map(attach).collect())
}

/// Kills the data plane; the log's next line with that text.
fn kill(ringway: &Ringway) -> String {
    let before = ringway.log().matches(SERVES).count();
    kill_process(ringway.data_plane(), Signal::KILL).expect("it runs");
    wait_for("the next one", || {
        let log = ringway.log();
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(SERVES)).collect();
        (lines.len() > before).then(|| lines[before].to_owned())
    })
}

const SERVES: &str = "a new data plane serves, ";
const WAITED: &str = "upgraded: packets waited ";

/// The number behind that text, in ms.
fn milliseconds(line: &str, behind: &str) -> f64 {
    let rest = line.split_once(behind).expect("that text").1;
    let number: String = rest.chars().take_while(|it| it.is_ascii_digit() || *it == '.').collect();
    let factor = if rest[number.len()..].starts_with("µs") { 0.001 } else { 1.0 };
    number.parse::<f64>().expect("a number") * factor
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Two guests and one round show that there are numbers; with `RINGWAY_ROUNDS` it measures, and
/// with `RINGWAY_GUESTS` so many only.
#[test]
fn how_long_guests_wait() {
    let number = |name| std::env::var(name).ok().and_then(|it| it.parse::<usize>().ok());
    let rounds = number("RINGWAY_ROUNDS");
    let all = if rounds.is_some() { vec![2, 16, 64, 128, 256] } else { vec![2] };
    let rounds = rounds.unwrap_or(1);
    for count in number("RINGWAY_GUESTS").map_or(all, |count| vec![count]) {
        let directory = tempfile::tempdir().expect("a directory");
        let (ringway, _guests) = attach_all(directory.path(), count);
        let killed = (0..rounds).map(|_| {
            sleep(PAUSE);
            milliseconds(&kill(&ringway), SERVES)
        });
        let killed = median(killed.collect());
        let upgraded = (0..rounds.min(5)).map(|_| {
            ringway.told(&["upgrade"]);
            let log = ringway.log();
            milliseconds(log.lines().rfind(|line| line.contains(WAITED)).expect("a line"), WAITED)
        });
        let upgraded = median(upgraded.collect());
        println!("{count} guests: {killed:.0} ms after a kill, {upgraded:.1} ms in an upgrade");
    }
}
