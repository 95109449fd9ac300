//! Upgrades to programs that fail or hang, each at another step: the old program goes on, and one
//! line says why.
//!
//! The bad programs are this one: started as `data-plane` it goes as far as the name of its file
//! says, and then ends or hangs. So it has no test harness around it.

mod common;

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, exit};
use std::time::Duration;

use common::{Ringway, wait_for};
use ringway_net::Features;
use ringway_supervisor::wire::{MESSAGE_LEN_MAX, ToData, ToSupervisor, Versions, WIRE_VERSION};
use ringway_testkit::{AnyUserGuest, GuestOptions, Traffic};

const RINGWAY: &str = env!("CARGO_BIN_EXE_ringway");

/// What a bad program has done when it goes bad, and what the upgrade is answered if it ends, and
/// if it hangs.
const STEPS: [(&str, &str, &str); 6] = [
    ("start", "it ended: exit status 3", "it was not ready within 3s"),
    ("hello", "it ended: exit status 3", "it was not ready within 3s"),
    ("ready", "it ended: exit status 3", "it did not go on within 1s"),
    ("go", "it ended: exit status 3", "it did not go on within 1s"),
    ("serves", "it has ended", ""),
    ("checks", "the old supervisor goes on: this one cannot", "it did not say within 2s"),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("data-plane") => be_bad(),
        Some("take-over") => {
            eprintln!("this one cannot");
            end();
        }
        Some(filter) if !filter.starts_with('-') && !"rollback".contains(filter) => {}
        _ => {
            all_steps();
            println!("test rollback ... ok");
            println!("test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
        }
    }
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
    let wire = Versions { first: WIRE_VERSION, last: WIRE_VERSION };
    tell(&ToSupervisor::Hello { wire, journal: Versions { first: 0, last: 9 } });
    ends_at("hello");
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
                tell(&ToSupervisor::Ready { refusal: None });
                ends_at("ready");
            }
            Ok(ToData::Go { is_last: true, .. }) => {
                ends_at("go");
                tell(&ToSupervisor::Running {});
                std::thread::sleep(Duration::from_millis(300));
                ends_at("serves");
            }
            Ok(_) => {}
            // The supervisor has ended.
            Err(_) => exit(0),
        }
    }
}

fn all_steps() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["--port", "a=vm:a.sock", "--port", "b=vm:b.sock", "--port", "idle=vm:idle.sock"];
    let ringway = Ringway::run(directory.path(), &ports);
    let accept = Features::OFFERED.difference(Features::RING_PACKED);
    let options = GuestOptions { accept, ..GuestOptions::default() };
    let guest = |name: &str| {
        let socket = directory.path().join(name);
        wait_for("a guest", || AnyUserGuest::attach(&socket, &options).ok())
    };
    let mut guests = [guest("a.sock"), guest("b.sock")];
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
            assert!(ringway.log().contains(why), "{step} {how}: {}", ringway.log());
            wait_for("the old program", || {
                (program_of(&ringway) == Path::new(RINGWAY)).then_some(())
            });
            between.exchange(&mut guests, 50).expect("they go on");
            // What it had been given when it ended is lost.
            assert!(between.lost() - before == 0 || step == "serves", "{step} {how}");
            println!("{step} {how}: {}", refused.trim());
        }
    }
    assert!(!ringway.log().contains("front-end gone"), "{}", ringway.log());
    let exe = format!("/proc/{}/exe", ringway.pid().as_raw_nonzero());
    assert_eq!(std::fs::read_link(exe).expect("it runs"), Path::new(RINGWAY));
}

/// What the data plane is.
fn program_of(ringway: &Ringway) -> std::path::PathBuf {
    let pid = ringway.data_plane().as_raw_nonzero();
    std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default()
}
