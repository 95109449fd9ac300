//! Upgrades to programs that fail or hang, each at another step, and to programs that say anything:
//! the old program goes on, and one line says why.
//!
//! The bad programs are this one: started as `data-plane` it goes as far as the name of its file
//! says, and then ends or hangs. So it has no test harness around it.

mod common;
mod shell;

use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, exit};
use std::time::Duration;

use common::{Ringway, wait_for};
use ringway_extent::Extent;
use ringway_net::Features;
use ringway_supervisor::slots::{Keep, SlotRange};
use ringway_supervisor::wire::{
    Bytes, List, MESSAGE_LEN_MAX, Offence, Text, ToData, ToSupervisor, Versions, WIRE_VERSION_MIN,
};
use ringway_testkit::{
    Answer, AnyUserGuest, GuestOptions, RAW_FEATURES, REGIONS, RawFrontEnd, Rng, Traffic,
};
use ringway_virtq::Format;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

const RINGWAY: &str = env!("CARGO_BIN_EXE_ringway");

/// The last step of a bad program before it goes bad, and the upgrade's answers if it ends, and if
/// it hangs.
const STEPS: [(&str, &str, &str); 7] = [
    ("start", "it ended: exit status 3", "it was not ready within 3s"),
    ("hello", "it ended: exit status 3", "it was not ready within 3s"),
    ("ready", "it ended: exit status 3", "it did not go on within 1s"),
    ("twice", "it ended: the supervisor has killed it", ""),
    ("go", "it ended: exit status 3", "it did not go on within 1s"),
    ("serves", "it has ended", ""),
    ("checks", "the old supervisor goes on: this one cannot", "it did not say within 2s"),
];

const TESTS: [&str; 4] = [
    "rollback",
    "whatever_is_said",
    "the_next_one_is_told_of_changes",
    "a_guest_that_is_migrated_keeps_its_program",
];

/// How many programs say anything, and how many messages each.
const SEEDS: Extent = Extent::new("RINGWAY_ROLLBACK_SEEDS", 12, 300);
const MESSAGES: usize = 64;

/// A program that has everything, and ends when it is told of a change.
const HEEDS: &str = "heeds";

/// The resolvers of this machine change while that program is to be the next data plane.
const CHANGE: &str = r#"
: >/tmp/resolv.conf; mount --bind /tmp/resolv.conf /etc/resolv.conf || exit 9
ringway run --port vm0=vm: --port net=nat: 2>log & pid=$!
ready $pid || { cat log; exit 1; }
(sleep 0.5; echo 'nameserver 198.51.100.2' >/tmp/resolv.conf) &
ringway upgrade /srv/heeds 2>&1
end $pid
"#;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("data-plane") => be_bad(),
        Some("take-over") => {
            eprintln!("this one cannot");
            end();
        }
        _ if arguments.iter().any(|it| it == "--list") => {
            for name in TESTS {
                println!("{name}: test");
            }
        }
        _ if !is_wanted(&arguments) => {
            println!("test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 4 filtered out");
        }
        _ => {
            // All mostly wait.
            std::thread::scope(|scope| {
                scope.spawn(all_steps);
                scope.spawn(whatever_is_said);
                scope.spawn(the_next_one_is_told_of_changes);
                scope.spawn(a_guest_that_is_migrated_keeps_its_program);
            });
            for name in TESTS {
                println!("test {name} ... ok");
            }
            println!("test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
        }
    }
}

/// Whether one of the names that libtest would be given chooses these tests, or there is none.
fn is_wanted(arguments: &[String]) -> bool {
    let mut names = arguments.iter().filter(|it| !it.starts_with('-')).peekable();
    let is_in = |name: &String| TESTS.iter().any(|it| it.contains(&**name));
    names.peek().is_none() || names.any(is_in)
}

/// The file that this program was started from.
fn name() -> String {
    let name = std::env::current_exe().expect("it runs");
    name.file_name().expect("a name").to_string_lossy().into_owned()
}

fn end() -> ! {
    while name().ends_with("-hangs") {
        std::thread::sleep(Duration::from_secs(1));
    }
    exit(3);
}

/// Whether this program was started with more than standard input, output and error.
fn has_descriptors() -> bool {
    let numbers = std::fs::read_dir("/proc/self/fd").expect("it runs");
    // And the directory.
    numbers.count() > 4
}

/// A data plane that speaks as it should, up to a step.
fn be_bad() -> ! {
    let name = name();
    let ends_at = |step: &str| {
        if name.starts_with(step) {
            end();
        }
    };
    if name.starts_with("checks") {
        let why = Command::new(RINGWAY).arg0("ringway").arg("data-plane").exec();
        panic!("{why}");
    }
    let supervisor = std::io::stdin();
    let tell = |message: &ToSupervisor| {
        let flags = rustix::net::SendFlags::NOSIGNAL;
        rustix::net::send(&supervisor, &message.encode(), flags).expect("a supervisor");
    };
    ends_at("start");
    // As a program speaks that is older than this one.
    let wire = Versions { first: WIRE_VERSION_MIN, last: WIRE_VERSION_MIN };
    tell(&ToSupervisor::Hello { wire, journal: Versions { first: 0, last: 9 } });
    ends_at("hello");
    let seed = name.strip_prefix("says-").and_then(|seed| seed.parse().ok());
    // Also before it has everything, and before it serves.
    let says_at = |step: u64| {
        if let Some(seed) = seed.filter(|seed| seed % 3 == step) {
            say_anything(&supervisor, seed);
        }
    };
    says_at(0);
    loop {
        let mut bytes = vec![0; MESSAGE_LEN_MAX];
        let flags = rustix::net::RecvFlags::empty();
        let (_, len) = rustix::net::recv(&supervisor, &mut bytes[..], flags).expect("a message");
        match ToData::decode(&bytes[..len]) {
            Ok(ToData::Port { order, .. } | ToData::Link { order, .. }) => {
                let (is_told, is_closing, refusal) = (false, false, None);
                tell(&ToSupervisor::Finished { order, is_told, is_closing, refusal });
            }
            Ok(ToData::Replayed {}) => {
                // It is told of none, and so none must be there.
                if has_descriptors() {
                    exit(4);
                }
                if name == HEEDS {
                    continue;
                }
                tell(&ToSupervisor::Ready { refusal: None });
                ends_at("ready");
                if name.starts_with("twice") {
                    tell(&ToSupervisor::Ready { refusal: None });
                }
                says_at(1);
            }
            Ok(ToData::Go { is_last: true, .. }) => {
                ends_at("go");
                tell(&ToSupervisor::Running {});
                says_at(2);
                std::thread::sleep(Duration::from_millis(300));
                ends_at("serves");
            }
            Ok(ToData::Change { .. }) if name == HEEDS => exit(7),
            Ok(_) => {}
            // The supervisor has ended.
            Err(_) => exit(0),
        }
    }
}

/// Messages of a data plane that has been taken over, by seed: right ones, damaged ones, and bytes.
fn say_anything(supervisor: &std::io::Stdin, seed: u64) -> ! {
    let mut rng = Rng::new(seed);
    for _ in 0..MESSAGES {
        let mut bytes = a_message(&mut rng).encode();
        match rng.below(4) {
            0 => {
                let len = usize::try_from(rng.below(MESSAGE_LEN_MAX as u64)).expect("short");
                bytes = vec![0; len];
                rng.fill(&mut bytes);
            }
            1 => {
                let at = usize::try_from(rng.below(bytes.len() as u64)).expect("its length");
                bytes[at] ^= 1 << rng.below(8);
            }
            _ => {}
        }
        // The supervisor has ended this process, or is about to.
        if rustix::net::send(supervisor, &bytes, rustix::net::SendFlags::NOSIGNAL).is_err() {
            break;
        }
    }
    exit(3);
}

/// Its numbers are small: some of them exist.
fn a_message(rng: &mut Rng) -> ToSupervisor {
    let mut small = || u32::try_from(rng.below(6)).expect("small");
    let (link, number, order, ask) = (small(), small(), small(), small());
    let port = u16::try_from(small()).expect("small");
    let range = SlotRange { first: port, last: port * 300 };
    let drops = List::new(vec![range]).expect("one");
    let why = Text::cut("anything");
    let (yes, no) = (small() > 2, small() > 2);
    let bytes = vec![0x5a; usize::try_from(rng.below(4000)).expect("short")];
    match rng.below(10) {
        0 => ToSupervisor::Finished { order, is_told: yes, is_closing: no, refusal: None },
        1 => {
            let reply = yes.then(|| Bytes::new(bytes).expect("short"));
            let keep = Some(Keep { slot: port * 100, fds: 1 });
            ToSupervisor::Done { link, number, is_closing: no, reply, keep, drops }
        }
        2 => ToSupervisor::Forget { link, drops },
        3 => ToSupervisor::Closed { port },
        4 => ToSupervisor::Ready { refusal: yes.then_some(why) },
        5 => ToSupervisor::Running {},
        6 => {
            let positions = Bytes::new(bytes).expect("short");
            ToSupervisor::Export { is_last: yes, positions }
        }
        7 => {
            let bytes = Bytes::new(bytes).expect("short");
            ToSupervisor::Answer { ask, is_last: yes, bytes }
        }
        8 => ToSupervisor::LetGo { link, offence: yes.then_some(Offence::Blocked), why },
        _ => ToSupervisor::TapGone { port },
    }
}

const SPLIT: Features = Features::OFFERED.difference(Features::RING_PACKED);

fn two_guests(directory: &Path) -> [AnyUserGuest; 2] {
    let options = GuestOptions { accept: SPLIT, ..GuestOptions::default() };
    ["a.sock", "b.sock"].map(|name| {
        let socket = directory.join(name);
        wait_for("a guest", || AnyUserGuest::attach(&socket, &options).ok())
    })
}

/// A data plane may disconnect its front-ends. More it cannot do: the next one serves all.
fn whatever_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway =
        Ringway::run(directory.path(), &["--port", "a=vm:a.sock", "--port", "b=vm:b.sock"]);
    let mut guests = two_guests(directory.path());
    let fds = ringway.fds();
    let mut program = directory.path().join("says");
    std::fs::copy(std::env::current_exe().expect("it runs"), &program).expect("room");
    for seed in 0..SEEDS.announced() {
        let next = directory.path().join(format!("says-{seed}"));
        std::fs::rename(&program, &next).expect("ours");
        program = next;
        let refused = ringway.refused(&["upgrade", program.to_str().expect("text")]);
        assert!(refused.contains("upgraded"), "{seed}: {refused}");
        wait_for("the old program", || (program_of(&ringway) == Path::new(RINGWAY)).then_some(()));
        drop(guests);
        guests = two_guests(directory.path());
        let mut between = Traffic::new([guests[0].mac(), guests[1].mac()], seed, 1514);
        between.settle(&mut guests).expect("they hear each other");
        between.exchange(&mut guests, 20).expect("they go on");
    }
    assert!(ringway.fds() <= fds, "{} fds, {fds} before", ringway.fds());
    assert!(!ringway.log().contains("panicked"), "{}", ringway.log());
    assert_eq!(ringway.names(), ["a", "b"]);
}

fn the_next_one_is_told_of_changes() {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(HEEDS);
    std::fs::copy(std::env::current_exe().expect("it runs"), program).expect("room");
    let output = shell::run(shell::User::Root, CHANGE);
    let output = output.filter(|output| output.status.code() != Some(9));
    let Some(output) = output else {
        // As libtest shows what a test has said.
        let name = TESTS[2];
        println!("successes:\n\n---- {name} stdout ----\nskipped: no such namespaces here\n");
        return println!("\nsuccesses:\n    {name}\n");
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("it ended: exit status 7"), "{said}");
}

/// An older program would write into the guest's memory and mark nothing.
fn a_guest_that_is_migrated_keeps_its_program() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["--port", "a=vm:a.sock", "--port", "b=vm:b.sock"];
    let ringway = Ringway::run(directory.path(), &ports);
    let socket = directory.path().join("a.sock");
    let mut front_end = RawFrontEnd::connect(&socket).expect("it listens");
    front_end.bring_up(Format::Split).expect("a good device");
    let program = directory.path().join("ready-ends");
    std::fs::copy(std::env::current_exe().expect("it runs"), &program).expect("room");
    let older = ["upgrade", program.to_str().expect("text")];
    for _ in 0..2 {
        log(&mut front_end, true);
        let refused = ringway.refused(&older);
        let parts = ["port a is being migrated", "cannot mark", "migrate_cancel", "version 1"];
        assert!(parts.iter().all(|part| refused.contains(part)), "{refused}");
        assert_eq!(refused.lines().count(), 1, "{refused}");
        let before = ringway.data_plane();
        ringway.told(&["upgrade"]);
        assert_ne!(ringway.data_plane(), before, "this one marks pages");
        assert_eq!(ringway.state("a").as_deref(), Some("migrating"));
        log(&mut front_end, false);
        let refused = ringway.refused(&older);
        assert!(refused.contains("it ended: exit status 3"), "{refused}");
        wait_for("this one", || (program_of(&ringway) == Path::new(RINGWAY)).then_some(()));
    }
    assert!(!ringway.log().contains("front-end gone"), "{}", ringway.log());
}

/// Pages that are written are to be marked, or are not any more.
fn log(front_end: &mut RawFrontEnd, is_on: bool) {
    const SET_LOG_BASE: u32 = 6;
    const SET_FEATURES: u32 = 2;
    const LOG_LEN: u64 = (REGIONS[1].0 + REGIONS[1].1) / (8 * 4096);
    if is_on {
        let log = memfd_create("log", MemfdFlags::CLOEXEC).expect("a file");
        ftruncate(&log, LOG_LEN).expect("room");
        let payload = [LOG_LEN, 0].map(u64::to_le_bytes).concat();
        let answer = front_end.request(SET_LOG_BASE, &payload, &[log.as_fd()]);
        assert_eq!(answer.expect("a good device"), Answer::Bytes(payload));
    }
    let features = RAW_FEATURES | u64::from(is_on) << 26;
    let answer = front_end.request(SET_FEATURES, &features.to_le_bytes(), &[]);
    assert!(answer.expect("a good device").is_done());
}

fn all_steps() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["--port", "a=vm:a.sock", "--port", "b=vm:b.sock", "--port", "idle=vm:idle.sock"];
    let ringway = Ringway::run(directory.path(), &ports);
    let mut guests = two_guests(directory.path());
    let mut between = Traffic::new([guests[0].mac(), guests[1].mac()], 1, 1514);
    between.settle(&mut guests).expect("they hear each other");
    for (step, ends, hangs) in STEPS {
        for (how, why) in [("ends", ends), ("hangs", hangs)] {
            if why.is_empty() {
                continue;
            }
            let before = between.lost();
            let program = directory.path().join(format!("{step}-{how}"));
            std::fs::copy(std::env::current_exe().expect("it runs"), &program).expect("room");
            let refused = ringway.refused(&["upgrade", program.to_str().expect("text")]);
            assert!(refused.contains(why), "{step} {how}: {refused}");
            assert_eq!(refused.lines().count(), 1, "{step} {how}: {refused}");
            ringway.assert_logged(why);
            wait_for("the old program", || {
                (program_of(&ringway) == Path::new(RINGWAY)).then_some(())
            });
            between.exchange(&mut guests, 50).expect("they go on");
            // Packets that it had been given when it ended are lost.
            assert!(between.lost() - before == 0 || step == "serves", "{step} {how}");
            println!("{step} {how}: {}", refused.trim());
        }
    }
    assert!(!ringway.log().contains("front-end gone"), "{}", ringway.log());
    let exe = format!("/proc/{}/exe", ringway.pid().as_raw_nonzero());
    assert_eq!(std::fs::read_link(exe).expect("it runs"), Path::new(RINGWAY));
}

/// The program of the data plane.
fn program_of(ringway: &Ringway) -> std::path::PathBuf {
    let pid = ringway.data_plane().as_raw_nonzero();
    std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default()
}
