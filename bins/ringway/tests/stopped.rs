//! A stop of the whole process is nothing that its front-ends have done: they stay.

mod common;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{Ringway, wait_for};
use ringway_testkit::{AnyUserGuest, GuestOptions};
use rustix::process::{Signal, kill_process};

const PORTS: [&str; 4] = ["--port", "a=vm:a.sock", "--port", "b=vm:b.sock"];

/// Enough of it for many calls.
const TRACED: Duration = Duration::from_secs(2);

/// The longest wait for a data plane that is to end.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// All workers sleep after that time without packets.
const QUIET: Duration = Duration::from_millis(100);

fn attach(socket: &Path) -> AnyUserGuest {
    // Each packet brings a call.
    wait_for("a guest", || AnyUserGuest::attach(socket, &GuestOptions::default()).ok())
}

/// Two guests send to each other all the time while `act` does something to ringway.
fn all_stay_while(act: impl FnOnce(&Ringway)) {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &PORTS);
    let mut guests = ["a.sock", "b.sock"].map(|name| attach(&directory.path().join(name)));
    let is_over = AtomicBool::new(false);
    let packets = std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let mut packets = 0;
            while !is_over.load(Ordering::Relaxed) {
                packets += exchange(&mut guests);
            }
            packets
        });
        act(&ringway);
        is_over.store(true, Ordering::Relaxed);
        traffic.join().expect("both guests are served")
    });
    assert!(packets > 0);
    let states = ["a", "b"].map(|port| ringway.state(port).expect("a port"));
    assert_eq!(states, ["running", "running"], "{}", ringway.log());
    assert!(!ringway.log().contains("front-end gone"), "{}", ringway.log());
}

/// One packet each way; how many arrived.
fn exchange(guests: &mut [AnyUserGuest; 2]) -> usize {
    let macs = guests.each_ref().map(AnyUserGuest::mac);
    for (at, guest) in guests.iter_mut().enumerate() {
        let mut packet = [&macs[1 - at][..], &macs[at][..], &[0x88, 0xb5]].concat();
        packet.resize(64, 0);
        let _ = guest.send(&packet).expect("a device");
        guest.flush();
    }
    let mut packets = 0;
    for guest in guests {
        let _ = guest.wait_call(Duration::from_millis(10));
        while guest.receive().expect("a device").is_some() {
            packets += 1;
        }
        guest.flush();
    }
    packets
}

#[test]
fn all_front_ends_stay_while_the_processes_are_stopped() {
    all_stay_while(|ringway| {
        let data_plane = ringway.data_plane();
        let both = |signal| {
            ringway.signal(signal);
            rustix::process::kill_process(data_plane, signal).expect("it runs");
        };
        for stopped_ms in [1000, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20] {
            both(Signal::STOP);
            sleep(Duration::from_millis(stopped_ms));
            both(Signal::CONT);
            sleep(Duration::from_millis(20));
        }
    });
}

/// Its workers sleep, whether they have just done something or nothing for long, and no client asks
/// anything.
#[test]
fn a_data_plane_that_is_stopped_while_it_sleeps_is_replaced() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &PORTS);
    let mut guests = ["a.sock", "b.sock"].map(|name| attach(&directory.path().join(name)));
    for deaths in 1..=2 {
        exchange(&mut guests);
        sleep(QUIET);
        rustix::process::kill_process(ringway.data_plane(), Signal::STOP).expect("it runs");
        wait_for("the next one", || {
            (ringway.log().matches("a new data plane serves").count() == deaths).then_some(())
        });
    }
    wait_for("packets", || (exchange(&mut guests) == 2).then_some(()));
    assert!(!ringway.log().contains("front-end gone"), "{}", ringway.log());
}

#[test]
fn all_front_ends_stay_while_strace_follows_the_process() {
    let version = Command::new("strace").arg("--version").stdout(Stdio::null()).status();
    if !version.is_ok_and(|status| status.success()) {
        return println!("skipped: strace does not run here");
    }
    all_stay_while(|ringway| {
        let pid = ringway.data_plane().as_raw_nonzero().to_string();
        let mut strace = Command::new("strace")
            .args(["--follow-forks", "--summary-only", "--attach", &pid])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("strace starts");
        sleep(TRACED);
        // Then it detaches.
        let tracer = rustix::process::Pid::from_child(&strace);
        rustix::process::kill_process(tracer, Signal::INT).expect("it runs");
        strace.wait().expect("a child");
        sleep(TRACED / 10);
    });
}

/// It may be writing its last words: signals that come meanwhile do not end it sooner.
#[test]
fn a_data_plane_has_its_time_to_end_whatever_signals_come() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut ringway = Ringway::run(directory.path(), &PORTS);
    let (pid, is_over) = (ringway.pid(), AtomicBool::new(false));
    kill_process(ringway.data_plane(), Signal::STOP).expect("it runs");
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) && begun.elapsed() < common::LIMIT {
                let _ = kill_process(pid, Signal::CHILD);
                sleep(Duration::from_millis(20));
            }
        });
        ringway.must_end_soon(common::LIMIT);
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(begun.elapsed() >= LAST_WAIT, "after {:?}", begun.elapsed());
}
