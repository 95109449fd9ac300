//! The cost of a second worker for the first: nothing. The same traffic on two queue pairs through
//! one worker, and through two with a pair each, counted instruction by instruction and store by
//! store.
//!
//! How: this program runs itself under valgrind. `callgrind` counts the instructions of each
//! thread; a run with more packets less a run with fewer gives those of a packet. `lackey` tells
//! every access to memory, and which thread runs: between two marks, the workers only carry
//! packets.
//!
//! Limits: stores made by the kernel are not seen.

mod common;

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use common::rig::{QUEUE_SIZE, Rig};
use common::without_blocking;
use ringway_net::{HEADER_LEN, MacAddress};

/// How many workers the counted program has, and how many rounds.
const WORKERS_VARIABLE: &str = "RINGWAY_COUNTED_WORKERS";
const ROUNDS_VARIABLE: &str = "RINGWAY_COUNTED_ROUNDS";

const BEGIN: &str = "the count begins";
const END: &str = "the count ends";

/// The number of times that all buffers of each pair go from one guest to the other, to count
/// stores, and in the shorter and the longer run that are compared.
const ROUNDS: u64 = 2;
const ROUNDS_COMPARED: [u64; 2] = [2, 10];

/// Of each guest.
const PAIRS: u16 = 2;

/// Bytes in a cache line.
const LINE_LEN: u64 = 64;

/// A second worker may cost so much of the instructions of a packet: it looks at the rings between
/// the two after every visit of 64 packets, and how often it sleeps differs from run to run.
const MORE_INSTRUCTIONS_MAX: f64 = 0.03;

/// Stores of a thread to a line that are too few to be made for packets.
const STORES_MIN: u64 = ROUNDS * QUEUE_SIZE as u64 / 64;

fn packet(to: MacAddress, from: MacAddress) -> Vec<u8> {
    [&to.0[..], &from.0, &[0x88, 0xb5], &[1; 46]].concat()
}

/// Three ports, so that every packet is learned from and looked up; two of them talk.
fn carry(workers: u16, rounds: u64, say: impl Fn(&str)) {
    let rig = Rig::start(workers);
    let mut sender = rig.attach(0, PAIRS);
    let mut receiver = rig.attach(1, PAIRS);
    let _third = rig.attach(2, PAIRS);
    let packet = packet(receiver.mac, sender.mac);
    // The receiver says where it is: until then its packets would go to the third port too.
    let hello = [&[0xff; 6], &receiver.mac.0[..], &[0x88, 0xb5], &[2; 46]].concat();
    sender.pairs().for_each(|pair| sender.receiveq(pair).post_all());
    receiver.transmitq(0).send_all(&hello);
    receiver.transmitq(0).kick();
    receiver.transmitq(0).wait_all();
    for round in 0..=rounds {
        // The first round warms up.
        if round == 1 {
            say(BEGIN);
        }
        for pair in sender.pairs() {
            receiver.receiveq(pair).post_all();
            sender.transmitq(pair).send_all(&packet);
        }
        // Everything is there before any worker is woken, so that none is woken twice.
        sender.pairs().for_each(|pair| sender.transmitq(pair).kick());
        for pair in sender.pairs() {
            sender.transmitq(pair).wait_all();
            let len = receiver.receiveq(pair).wait_all();
            assert_eq!(len, u64::from(QUEUE_SIZE) * (HEADER_LEN + packet.len()) as u64);
        }
    }
    say(END);
    rig.stop();
}

#[test]
fn every_pair_has_a_worker_that_carries_its_packets() {
    for workers in [1, 2, 3] {
        without_blocking(move || carry(workers, 2, |_| {}));
    }
}

/// The run that is counted, when it is started by the tests below.
#[test]
fn counted() {
    let number = |name| std::env::var(name).ok().and_then(|count| count.parse::<u16>().ok());
    let rounds = number(ROUNDS_VARIABLE).map_or(ROUNDS, u64::from);
    carry(number(WORKERS_VARIABLE).unwrap_or(1), rounds, |mark| println!("{mark}"));
}

/// This program under valgrind, with so many workers and rounds.
fn counted_by(valgrind: &[&str], workers: u16, rounds: u64) -> Command {
    let mut command = Command::new("valgrind");
    command.args(valgrind).arg("--fair-sched=try").arg(std::env::current_exe().expect("us"));
    command.args(["counted", "--exact", "--nocapture", "--test-threads=1"]);
    command.env(WORKERS_VARIABLE, workers.to_string()).env(ROUNDS_VARIABLE, rounds.to_string());
    command.stderr(Stdio::null());
    command
}

/// Instructions of each worker in a whole run.
fn instructions(workers: u16, rounds: u64) -> Vec<u64> {
    let directory = tempfile::tempdir().expect("a directory");
    let out = format!("--callgrind-out-file={}/out", directory.path().display());
    let tool = ["--tool=callgrind", "--separate-threads=yes", &out];
    let output = counted_by(&tool, workers, rounds).output().expect("valgrind was there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let files = std::fs::read_dir(directory.path()).expect("files").flatten();
    let mut threads: Vec<_> = files.map(|entry| entry.path()).collect();
    // Threads are numbered as they start: the workers are the last ones.
    threads.sort();
    let workers = threads.split_off(threads.len() - usize::from(workers));
    let total = |path: &std::path::PathBuf| {
        let text = std::fs::read_to_string(path).expect("a file");
        let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
        total.and_then(|total| total.trim().parse().ok()).expect("a total")
    };
    workers.iter().map(total).collect()
}

/// Instructions of each worker per packet.
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn instructions_per_packet(workers: u16) -> Vec<f64> {
    let [fewer, more] = ROUNDS_COMPARED.map(|rounds| instructions(workers, rounds));
    let pairs_each = u64::from(PAIRS / workers);
    let packets = (ROUNDS_COMPARED[1] - ROUNDS_COMPARED[0]) * u64::from(QUEUE_SIZE) * pairs_each;
    more.iter().zip(fewer).map(|(more, fewer)| (more - fewer) as f64 / packets as f64).collect()
}

#[test]
fn a_second_worker_costs_no_instructions() {
    if !has_valgrind() {
        return;
    }
    let [one] = instructions_per_packet(1)[..] else { panic!("one worker") };
    let two = instructions_per_packet(2);
    println!("instructions per packet: {one:.1} with one worker, {two:.1?} with two");
    assert!(one > 50.0, "nothing was counted");
    let at_most = one * (1.0 + MORE_INSTRUCTIONS_MAX);
    assert!(two.iter().all(|two| *two < at_most), "{one} with one worker, {two:?} with two");
}

/// Stores by the number of the cache line.
type Stores = HashMap<u64, u64>;

fn note_store(stores: &mut Stores, access: &str) {
    let (address, len) = access.split_once(',').expect("an address and a length");
    let address = u64::from_str_radix(address, 16).expect("an address");
    let last = address + len.parse::<u64>().expect("a length") - 1;
    for line in address / LINE_LEN..=last / LINE_LEN {
        *stores.entry(line).or_default() += 1;
    }
}

/// The stores of each worker between the marks.
fn stores(workers: u16) -> Vec<Stores> {
    let tool = ["--tool=lackey", "--basic-counts=no", "--trace-mem=yes", "--trace-sched=yes"];
    let tool = [&tool[..], &["--log-fd=1"]].concat();
    let child = counted_by(&tool, workers, ROUNDS).stdout(Stdio::piped()).spawn();
    let mut child = child.expect("valgrind was there");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut threads: BTreeMap<String, Stores> = BTreeMap::new();
    let (mut now, mut is_counting, mut saying) = (String::new(), false, String::new());
    for line in lines.map_while(Result::ok) {
        if let Some((_, thread)) = line.split_once("SCHED[").filter(|_| line.contains("acquired")) {
            now = thread.split(']').next().unwrap_or_default().to_string();
        } else if line.ends_with(BEGIN) || line.ends_with(END) {
            (is_counting, saying) = (line.ends_with(BEGIN), now.clone());
        } else if let Some((" S " | " M ", access)) =
            line.split_at_checked(3).filter(|_| is_counting)
        {
            note_store(threads.entry(now.clone()).or_default(), access);
        }
    }
    assert!(child.wait().expect("it ends").success(), "valgrind with {workers} workers");
    // The guests' thread says the marks.
    threads.retain(|thread, _| *thread != saying);
    threads.into_values().collect()
}

#[test]
fn two_workers_store_to_no_common_line() {
    if !has_valgrind() {
        return;
    }
    let threads = stores(2);
    let [first, second] = &threads[..] else { panic!("{} threads", threads.len()) };
    let lines = first.values().filter(|stores| **stores >= STORES_MIN).count();
    let shared = first.iter().filter_map(|(line, stores)| {
        let others = second.get(line)?;
        Some((line * LINE_LEN, *stores, *others))
    });
    let shared: Vec<(u64, u64, u64)> = shared.collect();
    println!("lines that a worker stores to for its packets: {lines}; common: {shared:x?}");
    assert!(lines > 0, "no store was counted");
    let busy = shared.iter().filter(|(_, one, other)| *one.max(other) >= STORES_MIN);
    assert_eq!(busy.count(), 0, "lines, and stores of both: {shared:x?}");
}

fn has_valgrind() -> bool {
    let has = Command::new("valgrind").arg("--version").output().is_ok();
    if !has {
        println!("skipped: no valgrind");
    }
    has
}
