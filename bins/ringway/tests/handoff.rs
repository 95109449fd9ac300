//! A data plane that is killed or replaced: guests go on with the same sockets, memory and rings.

mod common;

use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Ringway, wait_for};
use ringway_driver::Sent;
use ringway_extent::Extent;
use ringway_net::Features;
use ringway_supervisor::watch::ANSWER_WITHIN;
use ringway_testkit::frames::{self, Link, STAMPED_LEN_MIN, Stamp};
use ringway_testkit::{AnyUserGuest, GuestOptions, Traffic};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

/// Bytes of the longest frame in these tests.
const FRAME_LEN_MAX: usize = 1514;

const SPLIT: Features = Features::OFFERED.difference(Features::RING_PACKED);

fn guest(directory: &Path, name: &str, accept: Features) -> AnyUserGuest {
    let socket = directory.join(format!("{name}.sock"));
    let options = GuestOptions { accept, ..GuestOptions::default() };
    wait_for("a guest", || AnyUserGuest::attach(&socket, &options).ok())
}

fn two_guests(directory: &Path, accept: Features) -> (Ringway, [AnyUserGuest; 2], Traffic) {
    let ports = ["--port", "a=vm:a.sock", "--port", "b=vm:b.sock", "--port", "idle=vm:idle.sock"];
    let ringway = Ringway::run(directory, &ports);
    let mut guests = [guest(directory, "a", accept), guest(directory, "b", accept)];
    let mut between = Traffic::new([guests[0].mac(), guests[1].mac()], 1, FRAME_LEN_MAX);
    between.settle(&mut guests).expect("they hear each other");
    (ringway, guests, between)
}

fn plane(ringway: &Ringway) -> Value {
    let stats: Value = serde_json::from_str(&ringway.told(&["stats", "--json"])).expect("JSON");
    stats["data_plane"].clone()
}

/// Kills the data plane, and waits for the next one.
fn kill(ringway: &Ringway) {
    let pid = ringway.data_plane();
    let deaths = plane(ringway)["deaths"].as_u64().expect("a number");
    kill_process(pid, Signal::KILL).expect("it runs");
    wait_for("the next one", || (plane(ringway)["deaths"] == deaths + 1).then_some(()));
    // The next one may serve before the kernel has unmapped everything of this one.
    wait_for("its end", || (ringway.data_plane() != pid).then_some(()));
}

/// Packed rings that are used in order do not show where they stand: the journal does.
#[test]
fn guests_go_on_when_the_data_plane_is_killed() {
    for accept in [SPLIT, Features::OFFERED, Features::OFFERED.difference(Features::IN_ORDER)] {
        let directory = tempfile::tempdir().expect("a directory");
        let (ringway, mut guests, mut between) = two_guests(directory.path(), accept);
        for _ in 0..10 {
            between.exchange(&mut guests, 50).expect("undisturbed");
            kill(&ringway);
            between.exchange(&mut guests, 50).expect("they go on");
        }
        assert_eq!(between.lost(), 0);
        assert!(!ringway.log().contains("front-end gone"), "{}", ringway.log());
    }
}

/// One worker serves the pair that sends, the other one the guest that receives.
#[test]
fn what_workers_hand_over_goes_on_when_the_data_plane_is_killed() {
    for accept in [SPLIT, Features::OFFERED] {
        let directory = tempfile::tempdir().expect("a directory");
        let ports = ["a=vm:a.sock,queues=2", "b=vm:b.sock"];
        let ports = ports.map(|port| ["--port", port]).concat();
        let ringway = Ringway::run(directory.path(), &[&["--workers", "2"], &ports[..]].concat());
        let options = GuestOptions { accept, queue_pairs: 2, ..GuestOptions::default() };
        let socket = directory.path().join("a.sock");
        let mut a = wait_for("a guest", || AnyUserGuest::attach(&socket, &options).ok());
        a.send_on(1);
        let mut guests = [a, guest(directory.path(), "b", accept)];
        let mut between = Traffic::new([guests[0].mac(), guests[1].mac()], 1, FRAME_LEN_MAX);
        between.settle(&mut guests).expect("they hear each other");
        for _ in 0..10 {
            between.exchange(&mut guests, 50).expect("undisturbed");
            kill(&ringway);
        }
        between.exchange(&mut guests, 50).expect("they go on");
        assert_eq!(between.lost(), 0);
        assert!(!ringway.log().contains("front-end gone"), "{}", ringway.log());
    }
}

#[test]
fn guests_go_on_when_the_data_plane_is_upgraded() {
    for accept in [SPLIT, Features::OFFERED, Features::OFFERED.difference(Features::IN_ORDER)] {
        let directory = tempfile::tempdir().expect("a directory");
        let (mut ringway, mut guests, mut between) = two_guests(directory.path(), accept);
        let mut fds = None;
        for round in 0..3 {
            let before = ringway.data_plane();
            let program = directory.path().join(format!("ringway-{round}"));
            std::fs::copy(env!("CARGO_BIN_EXE_ringway"), &program).expect("room");
            let told = ringway.told(&["upgrade", program.to_str().expect("text")]);
            assert!(told.starts_with("upgraded: packets waited "), "{told}");
            assert_ne!(ringway.data_plane(), before);
            // The same process, and the other program.
            for pid in [ringway.pid(), ringway.data_plane()] {
                let link = format!("/proc/{}/exe", pid.as_raw_nonzero());
                assert_eq!(std::fs::read_link(link).expect("it runs"), program);
            }
            between.exchange(&mut guests, 50).expect("they go on");
            kill(&ringway);
            between.exchange(&mut guests, 50).expect("they go on");
            // That of a client that was answered goes a moment later.
            let before = *fds.get_or_insert_with(|| ringway.fds());
            wait_for("as many descriptors", || (ringway.fds() <= before).then_some(()));
        }
        ringway.told(&["port", "add", "c=vm:c.sock"]);
        drop(guest(directory.path(), "c", accept));
        drop(guest(directory.path(), "idle", accept));
        ringway.told(&["port", "remove", "c"]);
        assert_eq!(between.lost(), 0);
        assert_eq!(plane(&ringway)["upgrades"], 3);
        let gone = ["a", "b"].map(|port| format!("front-end gone port=\"{port}\""));
        assert!(!gone.iter().any(|line| ringway.log().contains(line)), "{}", ringway.log());
        ringway.must_end_soon(std::time::Duration::from_secs(5));
        assert!(!ringway.control().exists() && !directory.path().join("a.sock").exists());
    }
}

/// 100,000 packets a second, until it is over: what the second guest has received.
#[derive(Debug)]
struct Stream {
    sent: u64,
    /// The number that is expected next.
    next: u64,
    lost: u64,
    /// Packets whose number had come before.
    again: u64,
    last_at: Instant,
    longest_gap: Duration,
}

impl Stream {
    const EVERY: Duration = Duration::from_micros(10);
    const FLOW: u64 = 77;
    /// Packets on their way: fewer than the receiver has buffers, which would have to be dropped.
    const UNDER_WAY_MAX: u64 = 128;

    /// A sender whose ring is full waits for room, as drivers do.
    fn run(guests: &mut [AnyUserGuest; 2], is_over: &AtomicBool) -> Self {
        let now = Instant::now();
        let (mut stream, mut send_at) = (
            Self { sent: 0, next: 0, lost: 0, again: 0, last_at: now, longest_gap: Duration::ZERO },
            now,
        );
        let link = Link { from: guests[0].mac(), to: guests[1].mac() };
        while !is_over.load(Ordering::Relaxed) {
            while send_at <= Instant::now() && stream.sent - stream.next < Self::UNDER_WAY_MAX {
                let stamp = Stamp { flow: Self::FLOW, sequence: stream.sent };
                let packet = frames::udp(link, stamp, STAMPED_LEN_MIN);
                if guests[0].send(&packet).expect("its device works") == Sent::NoRoom {
                    send_at = Instant::now();
                    break;
                }
                stream.sent += 1;
                send_at += Self::EVERY;
            }
            guests[0].flush();
            stream.receive(&mut guests[1]);
        }
        let until = Instant::now() + Duration::from_secs(5);
        while stream.next < stream.sent && Instant::now() < until {
            stream.receive(&mut guests[1]);
        }
        stream.lost += stream.sent - stream.next;
        stream
    }

    fn receive(&mut self, guest: &mut AnyUserGuest) {
        while let Some((_, packet)) = guest.receive().expect("its device works") {
            let Some(stamp) = frames::read_stamp(&packet).filter(|it| it.flow == Self::FLOW) else {
                continue;
            };
            let now = Instant::now();
            self.longest_gap = self.longest_gap.max(now - self.last_at);
            self.last_at = now;
            self.again += u64::from(stamp.sequence < self.next);
            self.lost += stamp.sequence.saturating_sub(self.next);
            self.next = self.next.max(stamp.sequence + 1);
        }
        guest.flush();
    }
}

/// So that there is load between two crashes.
const BETWEEN_CRASHES: Duration = Duration::from_millis(500);

/// Upgrades, or kills, under load in each of four cases: 10 take half a minute.
const HANDOFFS: Extent = Extent::new("RINGWAY_HANDOFFS", 5, 100);

#[test]
fn nothing_is_lost_under_load() {
    let times = HANDOFFS.announced();
    for (accept, is_upgrade) in
        [(SPLIT, true), (Features::OFFERED, true), (SPLIT, false), (Features::OFFERED, false)]
    {
        let directory = tempfile::tempdir().expect("a directory");
        let (ringway, mut guests, _) = two_guests(directory.path(), accept);
        let is_over = AtomicBool::new(false);
        let stream = thread::scope(|scope| {
            let stream = scope.spawn(|| Stream::run(&mut guests, &is_over));
            for _ in 0..times {
                if is_upgrade {
                    ringway.told(&["upgrade"]);
                } else {
                    kill(&ringway);
                    thread::sleep(BETWEEN_CRASHES);
                }
            }
            is_over.store(true, Ordering::Relaxed);
            stream.join().expect("both guests go on")
        });
        println!("{times} times, upgrade: {is_upgrade}: {stream:?}");
        // One packet of the worker that was killed in a visit may come twice.
        assert!(stream.lost == 0 && stream.again <= if is_upgrade { 0 } else { times });
        assert!(stream.sent > 1_000 * times, "{stream:?}");
    }
}

/// Just before the new program takes the supervisor's place the old one reads nothing.
#[test]
fn a_signal_that_comes_while_the_supervisor_is_replaced_is_heeded() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("ringway.toml");
    std::fs::write(&file, "[port.a]\nvm = 'a.sock'\n").expect("a file");
    let mut ringway = Ringway::run(directory.path(), &["--config", "ringway.toml"]);
    for (round, wait_ms) in [100, 125, 150, 175].into_iter().enumerate() {
        std::thread::scope(|scope| {
            let upgrade = scope.spawn(|| ringway.told(&["upgrade"]));
            let count = |part: &str| ringway.log().matches(part).count();
            wait_for("the upgrade", || (count("upgraded: ") > round).then_some(()));
            std::thread::sleep(Duration::from_millis(wait_ms));
            ringway.signal(Signal::HUP);
            wait_for("a reload", || (count("read again") > round).then_some(()));
            upgrade.join().expect("it is upgraded");
        });
    }
    ringway.must_end_soon(Duration::from_secs(5));
}

/// As by Ctrl-Z and `fg`, while an answer is owed.
#[test]
fn a_stop_of_both_processes_is_no_fault() {
    let directory = tempfile::tempdir().expect("a directory");
    let (ringway, mut guests, mut between) = two_guests(directory.path(), SPLIT);
    let (data_plane, mut client) = (ringway.data_plane(), ringway.connect());
    kill_process(data_plane, Signal::STOP).expect("it runs");
    client.send(b"{\"version\":1,\"command\":\"stats\"}\n").expect("connected");
    thread::sleep(Duration::from_millis(100));
    ringway.signal(Signal::STOP);
    thread::sleep(ANSWER_WITHIN + Duration::from_secs(1));
    ringway.signal(Signal::CONT);
    kill_process(data_plane, Signal::CONT).expect("it runs");
    between.exchange(&mut guests, 50).expect("they go on");
    assert_eq!((plane(&ringway)["deaths"].as_u64(), ringway.data_plane()), (Some(0), data_plane));
}

/// A pipe waits for a writer, for ever.
#[test]
fn what_is_no_program_keeps_nothing_waiting() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &["--port", "a=vm:a.sock"]);
    let pipe = directory.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
    for no_program in [pipe.as_path(), directory.path(), Path::new("/dev/zero")] {
        let refused = ringway.refused(&["upgrade", no_program.to_str().expect("text")]);
        assert!(refused.contains("no program: name a file that can be started"), "{refused}");
    }
    assert_eq!(ringway.names(), ["a"]);
}

/// Programs that are no data plane: one that ends at once, one that says nothing, one that is no
/// program, and one that is not there.
#[test]
fn the_old_one_goes_on_when_the_new_program_does_not_work() {
    let directory = tempfile::tempdir().expect("a directory");
    let (ringway, mut guests, mut between) = two_guests(directory.path(), SPLIT);
    let before = ringway.data_plane();
    let cases = [
        ("/bin/true", "it ended: exit status 0"),
        ("/bin/cat", "it"),
        ("/etc/hostname", "starting the data plane: "),
        ("/nowhere/ringway", "No such file or directory"),
    ];
    for (program, why) in cases {
        let refused = ringway.refused(&["upgrade", program]);
        assert!(refused.contains(why) && refused.lines().count() == 1, "{program}: {refused}");
        assert_eq!(ringway.data_plane(), before, "{program}");
        between.exchange(&mut guests, 50).expect("undisturbed");
    }
    assert_eq!(between.lost(), 0);
}

/// Ports that change between two deaths are there afterwards, as they were changed.
#[test]
fn ports_that_come_and_go_are_there_for_the_next_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &["--port", "a=vm:a.sock"]);
    ringway.told(&["port", "add", "b=vm:b.sock"]);
    kill(&ringway);
    ringway.told(&["port", "add", "c=vm:c.sock"]);
    ringway.told(&["port", "remove", "b"]);
    ringway.told(&["port", "set", "a", "link=down"]);
    kill(&ringway);
    assert_eq!(ringway.names(), ["a", "c"]);
    let mut guests = [guest(directory.path(), "a", SPLIT), guest(directory.path(), "c", SPLIT)];
    assert!(!guests[0].config().expect("connected").link_up);
    ringway.told(&["port", "set", "a", "link=up"]);
    let mut between = Traffic::new([guests[0].mac(), guests[1].mac()], 1, FRAME_LEN_MAX);
    between.settle(&mut guests).expect("they hear each other");
}

/// Data planes that are killed one after the other: 40 take half a minute.
const DEATHS: Extent = Extent::new("RINGWAY_DEATHS", 20, 200);

/// Nothing of a data plane that has ended stays behind: descriptors, mappings, memory.
#[test]
fn deaths_leave_the_supervisor_as_it_was() {
    let directory = tempfile::tempdir().expect("a directory");
    let (ringway, mut guests, mut between) = two_guests(directory.path(), SPLIT);
    let deaths = DEATHS.announced();
    let die = |_| {
        kill(&ringway);
        // The pause is so long that those that are killed are not taken for a row.
        thread::sleep(Duration::from_millis(400));
    };
    // The first ones take what the allocator keeps.
    (0..20).for_each(die);
    let before = (ringway.supervisor_fds(), ringway.supervisor_memory());
    (0..deaths).for_each(die);
    between.exchange(&mut guests, 50).expect("they go on");
    wait_for("as many descriptors", || (ringway.supervisor_fds() <= before.0).then_some(()));
    let (memory, after) = (before.1, ringway.supervisor_memory());
    println!("{deaths} deaths: {memory:?}, then {after:?}");
    assert!(after.others <= memory.others + 2 && after.files <= memory.files, "{after:?}");
    assert!(after.resident_kib <= memory.resident_kib + 512, "{memory:?}, then {after:?}");
}

/// The data plane may open sockets only if there was a router when it started.
#[test]
fn the_first_router_brings_a_data_plane_that_may_open_sockets() {
    let directory = tempfile::tempdir().expect("a directory");
    let (ringway, mut guests, mut between) = two_guests(directory.path(), SPLIT);
    let before = ringway.data_plane();
    ringway.told(&["port", "add", "net=nat:"]);
    let told = ringway.told(&["upgrade"]);
    assert!(told.starts_with("upgraded: packets waited "), "at once: {told}");
    wait_for("the router", || (ringway.state("net")? == "running").then_some(()));
    let plane_of_router = ringway.data_plane();
    assert_ne!(plane_of_router, before);
    between.exchange(&mut guests, 50).expect("they go on");
    ringway.told(&["port", "add", "net2=nat:,vlan=7"]);
    assert_eq!(ringway.data_plane(), plane_of_router, "it may open sockets already");
    kill(&ringway);
    wait_for("the routers", || (ringway.state("net2")? == "running").then_some(()));
    between.exchange(&mut guests, 50).expect("they go on");
    assert!(!ringway.log().contains("front-end gone"), "{}", ringway.log());
}

/// One that was taken over can do so again and again: the program that mends it takes its place.
#[test]
fn a_data_plane_that_destroys_the_journal_is_upgraded() {
    let directory = tempfile::tempdir().expect("a directory");
    let (ringway, mut guests, mut between) = two_guests(directory.path(), SPLIT);
    let (journal, is_over) = (ringway.journal(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                journal.write_all_at(&[0xff; JOURNAL_HEAD_LEN], 0).expect("room");
            }
        });
        let upgraded = ringway.ask(&["upgrade"]);
        is_over.store(true, Ordering::Relaxed);
        assert!(upgraded.status.success(), "{upgraded:?}\n{}", ringway.log());
    });
    ringway.assert_logged("the new supervisor goes on");
    between.exchange(&mut guests, 50).expect("they go on");
    journal.write_all_at(&[0xff; JOURNAL_HEAD_LEN], 0).expect("room");
    ringway.told(&["upgrade"]);
    between.exchange(&mut guests, 50).expect("they go on");
    // A data plane that finds the head destroyed once more goes on without a journal, and says so.
    assert_eq!(plane(&ringway)["deaths"], 0);
}

/// Bytes of the head that say what is where.
const JOURNAL_HEAD_LEN: usize = 24;

/// Where worker 0 notes which port it serves: bit 63, and the port in bits 16 to 31; and into which
/// one it delivers: bit 62, and the port in bits 32 to 47.
const BUSY_AT: u64 = 64 + 16;

/// A visit of a port.
const fn visits(port: u64) -> u64 {
    1 << 63 | port << 16
}

/// A visit of a port in which something is delivered into another one.
const fn delivers(port: u64, into: u64) -> u64 {
    visits(port) | 1 << 62 | into << 32
}

/// Ends the data plane by a fault, as if a worker had been serving that port.
fn fault(ringway: &Ringway, port: u64) {
    fault_in(ringway, visits(port));
}

/// The same in the midst of that.
fn fault_in(ringway: &Ringway, busy: u64) {
    let pid = ringway.data_plane();
    let deaths = plane(ringway)["deaths"].as_u64().expect("a number");
    ringway.journal().write_all_at(&busy.to_le_bytes(), BUSY_AT).expect("room");
    kill_process(pid, Signal::ABORT).expect("it runs");
    wait_for("the next one", || (plane(ringway)["deaths"] == deaths + 1).then_some(()));
    wait_for("the next one", || (!plane(ringway)["pid"].is_null()).then_some(()));
}

/// The port that was served in three faults in a row is served no more; all others are.
#[test]
fn a_port_that_ends_the_data_plane_is_quarantined() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["--sandbox", "off", "--port", "a=vm:a.sock", "--port", "b=vm:b.sock"];
    let ringway =
        Ringway::run(directory.path(), &[&ports[..], &["--port", "bad=vm:c.sock"]].concat());
    let mut guests = [guest(directory.path(), "a", SPLIT), guest(directory.path(), "b", SPLIT)];
    let _bad = guest(directory.path(), "c", SPLIT);
    let mut between = Traffic::new([guests[0].mac(), guests[1].mac()], 1, FRAME_LEN_MAX);
    between.settle(&mut guests).expect("they hear each other");
    for _ in 0..2 {
        fault(&ringway, 2);
        between.exchange(&mut guests, 50).expect("they go on");
        assert_eq!(state(&ringway, "bad"), "running");
    }
    fault(&ringway, 2);
    between.exchange(&mut guests, 50).expect("they go on");
    assert_eq!(between.lost(), 0);
    assert_eq!(state(&ringway, "bad"), "quarantined");
    assert!(ringway.told(&["stats"]).contains("3 packets may have come twice"));
    ringway.assert_logged("link=up");
    ringway.told(&["port", "set", "bad", "link=up"]);
    let _again = guest(directory.path(), "c", SPLIT);
    wait_for("the port", || (state(&ringway, "bad") == "running").then_some(()));
}

/// One guest sends, and two receive.
#[test]
fn a_port_that_ends_the_data_plane_by_what_it_receives_is_quarantined_and_not_who_sends() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["a=vm:a.sock", "bad=vm:c.sock", "b=vm:b.sock"].map(|port| ["--port", port]);
    let ringway =
        Ringway::run(directory.path(), &[&["--sandbox", "off"], ports.as_flattened()].concat());
    let mut guests = [guest(directory.path(), "a", SPLIT), guest(directory.path(), "b", SPLIT)];
    let bad = guest(directory.path(), "c", SPLIT);
    let mut between = Traffic::new([guests[0].mac(), guests[1].mac()], 1, FRAME_LEN_MAX);
    between.settle(&mut guests).expect("they hear each other");
    let to_bad = [&bad.mac()[..], &guests[0].mac(), &[0x88, 0xb5], &[0; 1400]].concat();
    let (journal, mut word) = (ringway.journal(), [0; 8]);
    wait_for("a delivery", || {
        for _ in 0..64 {
            let _ = guests[0].send(&to_bad).expect("a device");
        }
        guests[0].flush();
        for _ in 0..1000 {
            journal.read_exact_at(&mut word, BUSY_AT).expect("a word");
            if u64::from_le_bytes(word) == delivers(0, 1) {
                return Some(());
            }
        }
        None
    });
    (0..3).for_each(|_| fault_in(&ringway, delivers(0, 1)));
    assert_eq!(
        ["a", "b", "bad"].map(|port| state(&ringway, port)),
        ["running", "running", "quarantined"]
    );
    // Packets to one that is not known any more come to all, and take their buffers.
    for _ in 0..20 {
        while guests[1].receive().expect("a device").is_some() {}
        guests[1].flush();
        std::thread::sleep(Duration::from_millis(5));
    }
    between.exchange(&mut guests, 50).expect("they go on");
}

/// Two ports by turns, so that none of them is blamed.
#[test]
fn after_many_faults_their_ports_wait_and_all_others_are_served_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["a", "b", "x", "y"].map(|name| format!("{name}=vm:{name}.sock"));
    let ports: Vec<&str> = ports.iter().flat_map(|port| ["--port", port]).collect();
    let ringway = Ringway::run(directory.path(), &[&["--sandbox", "off"], &ports[..]].concat());
    let mut guests = ["a", "b"].map(|name| guest(directory.path(), name, SPLIT));
    let mut others = ["x", "y"].map(|name| guest(directory.path(), name, SPLIT));
    let pair = |guests: &[AnyUserGuest; 2], flow| {
        Traffic::new(guests.each_ref().map(AnyUserGuest::mac), flow, FRAME_LEN_MAX)
    };
    let (mut between, mut beside) = (pair(&guests, 1), pair(&others, 2));
    between.settle(&mut guests).expect("they hear each other");
    beside.settle(&mut others).expect("they hear each other");
    for port in [2, 3, 2, 3, 2] {
        fault(&ringway, port);
        between.exchange(&mut guests, 20).expect("they go on");
    }
    let log = ringway.log();
    assert!(!log.contains("is started in 1s") && !log.contains("is started in 5s"), "{log}");
    for name in ["x", "y"] {
        let port = format!("port=\"{name}\"");
        let waits = |line: &str| line.contains("waits a few seconds") && line.contains(&port);
        assert!(log.lines().any(waits), "{log}");
    }
    wait_for("the others", || beside.settle(&mut others).ok());
    beside.exchange(&mut others, 20).expect("they go on");
    between.exchange(&mut guests, 20).expect("undisturbed");
    assert_eq!((between.lost(), ringway.log().matches("front-end gone").count()), (0, 0));
}

/// A guest that connects again may be the one that ends the data plane.
#[test]
fn who_connects_to_a_port_that_is_held_back_waits_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["x=vm:x.sock", "y=vm:y.sock"].map(|port| ["--port", port]);
    let ringway =
        Ringway::run(directory.path(), &[&["--sandbox", "off"], ports.as_flattened()].concat());
    [0, 1, 0, 1].into_iter().for_each(|port| fault(&ringway, port));
    let mut newcomer = UnixStream::connect(directory.path().join("y.sock")).expect("it listens");
    newcomer.write_all(&GET_FEATURES).expect("connected");
    ringway.assert_logged("waits a few seconds");
    newcomer.set_read_timeout(Some(common::LIMIT)).expect("a timeout");
    newcomer.read_exact(&mut [0; 20]).expect("an answer");
}

/// Its number is free when the port is removed, and with it the blame.
#[test]
fn a_port_in_the_place_of_a_quarantined_one_is_not_blamed() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["--sandbox", "off", "--port", "a=vm:a.sock", "--port", "bad=vm:bad.sock"];
    let ringway = Ringway::run(directory.path(), &ports);
    let _bad = guest(directory.path(), "bad", SPLIT);
    (0..3).for_each(|_| fault(&ringway, 1));
    assert_eq!(state(&ringway, "bad"), "quarantined");
    ringway.told(&["port", "remove", "bad"]);
    ringway.told(&["port", "add", "good=vm:good.sock"]);
    let _good = guest(directory.path(), "good", SPLIT);
    ringway.told(&["upgrade"]);
    assert_eq!(state(&ringway, "good"), "running", "{}", ringway.log());
}

/// After a fault the data plane gets requests one by one, and one of them ends with its front-end.
#[test]
fn a_front_end_does_not_wait_for_the_request_of_one_that_has_gone() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["--port", "a=vm:a.sock", "--port", "b=vm:b.sock"];
    let ringway = Ringway::run(directory.path(), &ports);
    let connect = |name: &str| {
        let stream = UnixStream::connect(directory.path().join(name)).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(3))).expect("a timeout");
        stream
    };
    let [mut first, mut second] = ["a.sock", "b.sock"].map(connect);
    let ask = |stream: &mut UnixStream| {
        stream.write_all(&GET_FEATURES).expect("connected");
        thread::sleep(NOTICED);
    };
    let signal = |signal| kill_process(ringway.data_plane(), signal).expect("it is there");
    signal(Signal::STOP);
    ask(&mut first);
    signal(Signal::ABORT);
    signal(Signal::CONT);
    wait_for("the next one", || (plane(&ringway)["deaths"] == 1).then_some(()));
    wait_for("the next one", || (!plane(&ringway)["pid"].is_null()).then_some(()));
    first.read_exact(&mut [0; 20]).expect("an answer");
    signal(Signal::STOP);
    ask(&mut first);
    ask(&mut second);
    drop(first);
    thread::sleep(NOTICED);
    signal(Signal::CONT);
    second.read_exact(&mut [0; 20]).expect("an answer");
}

/// A request of vhost-user without a payload; the answer has 20 bytes.
const GET_FEATURES: [u8; 12] = [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];

/// The time after which the supervisor has something that was sent.
const NOTICED: Duration = Duration::from_millis(100);

fn state(ringway: &Ringway, port: &str) -> String {
    let stats: Value = serde_json::from_str(&ringway.told(&["stats", "--json"])).expect("JSON");
    let ports = stats["ports"].as_array().expect("ports");
    let port = ports.iter().find(|it| it["name"] == port).expect("that port");
    port["state"].as_str().expect("text").to_owned()
}

/// As nohup(1) starts it: SIGHUP is ignored, and stays so.
#[test]
fn a_ringway_that_ignores_hang_ups_is_upgraded() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = std::process::Command::new("nohup");
    command.arg(env!("CARGO_BIN_EXE_ringway"));
    let ringway = Ringway::run_by(command, directory.path(), &["--port", "a=vm:a.sock"]);
    for upgrades in 1..=2 {
        ringway.told(&["upgrade"]);
        let goes_on = |log: &str| log.matches("the new supervisor goes on").count() == upgrades;
        wait_for("the new supervisor", || goes_on(&ringway.log()).then_some(()));
    }
    assert_eq!(ringway.names(), ["a"]);
}
