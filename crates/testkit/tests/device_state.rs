//! All that ringway knows of a guest goes along when its front-end moves it (vhost-user, "Device
//! state"): sequences as QEMU 10 and Cloud Hypervisor send them, against the whole program, through
//! a pipe and through a Unix socket; states that are none, and files that nothing goes through.
//!
//! Limits: a front-end of single messages, whose guest sends one packet at a time.
#![allow(clippy::cast_possible_truncation, reason = "small numbers that the tests choose")]

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use ringway_testkit::beside::{Outcome, SHOWN_LIMIT, beside_good_guests};
use ringway_testkit::{Answer, RAW_FEATURES, REGIONS, RawFrontEnd, RingwayProcess, Rng, pair};
use ringway_vhost_user::device_state::{DeviceState, Lease, STATE_LEN_MAX};
use ringway_virtq::Format;
use rustix::process::{Pid, Signal, kill_process};

const GET_VRING_BASE: u32 = 11;
const SET_STATUS: u32 = 39;
const GET_STATUS: u32 = 40;
const SET_DEVICE_STATE_FD: u32 = 42;
const CHECK_DEVICE_STATE: u32 = 43;

/// Bit 8: no file descriptor comes back.
const ACCEPTED: Answer = Answer::Number(0x100);
const REFUSED: Answer = Answer::Number(0x101);
const GOOD: Answer = Answer::Number(0);
const BAD: Answer = Answer::Number(1);

/// The time that a transfer has, and the longest until its front-end is answered.
const TRANSFER: Duration = Duration::from_secs(4);
const ANSWERED: Duration = Duration::from_secs(5);

const SAVE: u32 = 0;
const LOAD: u32 = 1;

/// Where a packet to be sent is, where the available ring of a ring is, and where a ring begins.
const PACKET_AT: usize = 0x4_0000;
const AVAILABLE_AT: usize = 0x800;
const RING_LEN: usize = 0x1000;

const MAC: [u8; 6] = [0x52, 0x54, 0, 0, 0, 0x77];
const IP: Ipv4Addr = Ipv4Addr::new(10, 77, 2, 77);
const ROUTER: [&str; 2] = ["--port", "net=nat:,range=10.77.2.0/24,dns=off,uplink=on"];

/// Both ends of a file of each kind that front-ends use: read, and written.
fn files() -> io::Result<[(OwnedFd, OwnedFd); 2]> {
    let (one, other) = UnixStream::pair()?;
    Ok([rustix::pipe::pipe()?, (one.into(), other.into())])
}

/// A front-end that has negotiated what comes before features.
fn arrived(ringway: &RingwayProcess, port: &str) -> io::Result<RawFrontEnd> {
    let mut front_end = RawFrontEnd::connect(&ringway.socket(port))?;
    let Answer::Number(offered) = front_end.request(15, &[], &[])? else {
        return Err(io::Error::other("no protocol features"));
    };
    assert!(offered & 1 << 19 != 0, "DEVICE_STATE is offered");
    assert!(front_end.request(16, &offered.to_le_bytes(), &[])?.is_done());
    Ok(front_end)
}

fn running(ringway: &RingwayProcess, port: &str) -> io::Result<RawFrontEnd> {
    let mut front_end = RawFrontEnd::connect(&ringway.socket(port))?;
    front_end.bring_up(Format::Split)?;
    Ok(front_end)
}

/// As QEMU 10 stops a device.
fn stop(front_end: &mut RawFrontEnd) -> io::Result<()> {
    for index in 0..2 {
        front_end.request(GET_VRING_BASE, &pair(index, 0), &[])?;
    }
    assert!(front_end.request(SET_STATUS, &0_u64.to_le_bytes(), &[])?.is_done());
    Ok(())
}

fn begin(front_end: &mut RawFrontEnd, direction: u32, fd: &OwnedFd) -> io::Result<Answer> {
    front_end.request(SET_DEVICE_STATE_FD, &pair(direction, 0), &[fd.as_fd()])
}

fn check(front_end: &mut RawFrontEnd) -> io::Result<Answer> {
    front_end.request(CHECK_DEVICE_STATE, &[], &[])
}

fn save(front_end: &mut RawFrontEnd, file: (OwnedFd, OwnedFd)) -> io::Result<Vec<u8>> {
    let (reads, writes) = file;
    assert_eq!(begin(front_end, SAVE, &writes)?, ACCEPTED);
    drop(writes);
    let mut bytes = Vec::new();
    File::from(reads).read_to_end(&mut bytes)?;
    assert_eq!(check(front_end)?, GOOD);
    Ok(bytes)
}

/// The answer to the check.
fn load(front_end: &mut RawFrontEnd, file: (OwnedFd, OwnedFd), bytes: &[u8]) -> io::Result<Answer> {
    let (reads, writes) = file;
    assert_eq!(begin(front_end, LOAD, &reads)?, ACCEPTED);
    drop(reads);
    // Of too many bytes not all are read.
    let _ = File::from(writes).write_all(bytes);
    check(front_end)
}

/// Sends a frame on the transmitq, as its packet number `number`.
fn send(front_end: &RawFrontEnd, number: u8, frame: &[u8]) -> io::Result<()> {
    let memory = front_end.memory.region(0);
    memory.write(PACKET_AT, &[&[0; 12], frame].concat());
    let address = REGIONS[0].0 + PACKET_AT as u64;
    let len = (12 + frame.len()) as u32;
    let descriptor = [&address.to_le_bytes()[..], &len.to_le_bytes(), &[0; 4]];
    memory.write(RING_LEN, &descriptor.concat());
    memory.write(RING_LEN + AVAILABLE_AT, &[0, 0, number, 0]);
    rustix::io::write(&front_end.kicks[1], &1_u64.to_ne_bytes())?;
    Ok(())
}

/// A question for the gateway's address, from that station.
fn arp(mac: [u8; 6], ip: Ipv4Addr) -> Vec<u8> {
    let mut frame = [&[0xff; 6], &mac[..], &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
    frame.extend([&mac[..], &ip.octets(), &[0; 6], &[10, 77, 2, 2]].concat());
    frame.resize(60, 0);
    frame
}

/// Waits until the router shows that.
fn wait_for(ringway: &RingwayProcess, text: &str) -> io::Result<String> {
    let deadline = Instant::now() + SHOWN_LIMIT;
    loop {
        let shown = ringway.port(&["show", "net"])?;
        if shown.contains(text) {
            return Ok(shown);
        }
        if Instant::now() > deadline {
            return Err(io::Error::other(format!("not {text}: {shown}\n{}", ringway.log())));
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn leased(ip: Ipv4Addr, left_s: u32) -> DeviceState {
    let lease = Lease { mac: MAC, ip: Some(ip), left_s, name: "a".into(), others: vec![] };
    DeviceState { leases: vec![lease], control: vec![] }
}

#[test]
fn a_state_goes_from_one_to_another_as_front_ends_send_it() -> Outcome {
    let source = RingwayProcess::start_with(&[("a", "")], &ROUTER)?;
    let target = RingwayProcess::start_with(&[("b", ""), ("c", "")], &ROUTER)?;
    for (round, (saved, loaded)) in files()?.into_iter().zip(files()?).enumerate() {
        let ip = Ipv4Addr::new(10, 77, 2, 77 + round as u8);
        let mut leaves = running(&source, "a")?;
        send(&leaves, 1, &arp(MAC, ip))?;
        wait_for(&source, &ip.to_string())?;
        stop(&mut leaves)?;
        let bytes = save(&mut leaves, saved)?;
        let state = DeviceState::decode(&bytes)?;
        assert!(bytes.starts_with(b"ringwayS\x01\0"));
        let is_it = |lease: &&Lease| lease.mac == MAC && lease.others.contains(&IpAddr::V4(ip));
        assert_eq!(state.leases.iter().filter(is_it).count(), 1, "{state:?}");
        // Before features, memory and rings; it is taken when the device starts.
        let mut comes = arrived(&target, "b")?;
        assert_eq!(load(&mut comes, loaded, &bytes)?, GOOD);
        assert!(!target.port(&["show", "net"])?.contains(&ip.to_string()));
        comes.bring_up(Format::Split)?;
        let shown = wait_for(&target, &ip.to_string())?;
        assert!(shown.contains("52:54:00:00:00:77"), "{shown}");
        assert_eq!(target.port_stats("b")?.queues.len(), 2);
    }
    Ok(())
}

/// The guest gives its card the address `MAC`, by the controlq.
fn set_address(front_end: &RawFrontEnd) -> Outcome {
    let (memory, ring) = (front_end.memory.region(0), 2 * RING_LEN);
    memory.write(PACKET_AT, &[&[1, 1][..], &MAC, &[0xff]].concat());
    let at = REGIONS[0].0 + PACKET_AT as u64;
    let command = [&at.to_le_bytes()[..], &[8, 0, 0, 0, 1, 0, 1, 0]].concat();
    let answer = [&(at + 8).to_le_bytes()[..], &[1, 0, 0, 0, 2, 0, 0, 0]].concat();
    memory.write(ring, &[command, answer].concat());
    memory.write(ring + AVAILABLE_AT, &[0, 0, 1, 0]);
    rustix::io::write(&front_end.kicks[0], &1_u64.to_ne_bytes())?;
    let deadline = Instant::now() + SHOWN_LIMIT;
    let mut answered = [0xff];
    while answered == [0xff] {
        memory.read(PACKET_AT + 8, &mut answered);
        assert!(Instant::now() < deadline, "no answer");
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(answered, [0]);
    Ok(())
}

/// Also behind a reset, and as often as the guest moves.
#[test]
fn what_a_guest_has_set_by_its_controlq_goes_along() -> Outcome {
    // CTRL_VQ, CTRL_MAC_ADDR.
    let features = RAW_FEATURES | 1 << 17 | 1 << 23;
    let ringway = RingwayProcess::start(&[("a", ""), ("b", ""), ("c", "")])?;
    let mut leaves = RawFrontEnd::connect(&ringway.socket("a"))?;
    leaves.bring_up_with(features, 3)?;
    let [nothing_set, saved] = files()?;
    let [loaded, saved_again] = files()?;
    stop(&mut leaves)?;
    assert_eq!(DeviceState::decode(&save(&mut leaves, nothing_set)?)?, DeviceState::default());
    leaves.bring_up_with(features, 3)?;
    set_address(&leaves)?;
    stop(&mut leaves)?;
    let bytes = save(&mut leaves, saved)?;
    let control = DeviceState::decode(&bytes)?.control;
    assert!(control.windows(MAC.len()).any(|window| window == MAC), "{control:?}");
    let mut comes = arrived(&ringway, "b")?;
    assert_eq!(load(&mut comes, loaded, &bytes)?, GOOD);
    comes.bring_up_with(features, 3)?;
    stop(&mut comes)?;
    assert_eq!(save(&mut comes, saved_again)?, bytes);
    Ok(())
}

#[test]
fn a_lease_goes_along_unless_it_is_another_guests() -> Outcome {
    let target = RingwayProcess::start_with(&[("a", ""), ("b", "")], &ROUTER)?;
    let mut comes = arrived(&target, "a")?;
    let [pipe, socket] = files()?;
    assert_eq!(load(&mut comes, pipe, &leased(IP, 1000).encode())?, GOOD);
    comes.bring_up(Format::Split)?;
    wait_for(&target, &IP.to_string())?;
    // The same address, and another station.
    let mut another = leased(IP, 1000);
    another.leases[0].mac[5] = 0x78;
    let mut refused = arrived(&target, "b")?;
    assert_eq!(load(&mut refused, socket, &another.encode())?, BAD);
    let log = target.log();
    assert!(log.contains("10.77.2.77 is another guest's: a"), "{log}");
    // It stays where it is also while the other one stands still, and nothing is taken at a start.
    stop(&mut comes)?;
    let [pipe, socket] = files()?;
    assert_eq!(load(&mut refused, pipe, &another.encode())?, BAD);
    refused.bring_up(Format::Split)?;
    let shown = target.port(&["show", "net"])?;
    assert!(shown.contains(":77") && !shown.contains(":78"), "{shown}");
    // An address of no network here.
    stop(&mut refused)?;
    let outside = leased(Ipv4Addr::new(192, 168, 7, 7), 9);
    assert_eq!(load(&mut refused, socket, &outside.encode())?, BAD);
    assert!(target.log().contains("192.168.7.7 is in no router's network"), "{}", target.log());
    Ok(())
}

/// The port that it leaves is one of the same ringway.
#[test]
fn a_guest_may_move_to_another_port_of_its_ringway() -> Outcome {
    let ringway = RingwayProcess::start_with(&[("a", ""), ("b", "")], &ROUTER)?;
    let mut leaves = arrived(&ringway, "a")?;
    let [first, saved] = files()?;
    let [loaded, _] = files()?;
    let [early, _] = files()?;
    assert_eq!(load(&mut leaves, first, &leased(IP, 1000).encode())?, GOOD);
    leaves.bring_up(Format::Split)?;
    wait_for(&ringway, &IP.to_string())?;
    let mut comes = arrived(&ringway, "b")?;
    let state = leased(IP, 1000).encode();
    assert_eq!(load(&mut comes, early, &state)?, BAD, "the other one runs");
    stop(&mut leaves)?;
    let bytes = save(&mut leaves, saved)?;
    assert_eq!(DeviceState::decode(&bytes)?.leases[0].ip, Some(IP));
    assert_eq!(load(&mut comes, loaded, &bytes)?, GOOD, "{}", ringway.log());
    comes.bring_up(Format::Split)?;
    Ok(())
}

#[test]
fn what_is_no_state_is_refused_and_the_log_says_why() -> Outcome {
    beside_good_guests(false, |ringway| {
        let mut rng = Rng::new(7);
        let mut newer = DeviceState::default().encode();
        newer.extend([&[1, 0, 3, 0][..], &0_u32.to_le_bytes()].concat());
        let mut long = DeviceState::default().encode();
        long.extend([&[9, 0, 1, 0][..], &(STATE_LEN_MAX as u32).to_le_bytes()].concat());
        long.resize(STATE_LEN_MAX + 1, 0);
        let random = (0..9999).map(|_| rng.below(256) as u8).collect();
        let cut = leased(IP, 7).encode()[..20].to_vec();
        let bad: [(Vec<u8>, &str); 5] = [
            (random, "it does not begin as a state of ringway does"),
            (vec![], "it does not begin as a state of ringway does"),
            (newer, "INFO its device's state is refused: item `lease`, version 3: this program"),
            (long, "it has more than 1048576 bytes"),
            (cut, "it ends within an item"),
        ];
        let mut front_end = arrived(ringway, "h")?;
        assert_eq!(check(&mut front_end)?, BAD, "nothing was transferred");
        for (bytes, why) in bad {
            for file in files()? {
                assert_eq!(load(&mut front_end, file, &bytes)?, BAD, "{why}");
            }
            let log = ringway.log();
            let words: Vec<&str> = why.splitn(2, ' ').collect();
            let is_said = |line: &str| words.iter().all(|word| line.contains(word));
            assert!(log.lines().any(is_said), "{why}: {log}");
        }
        // It goes on, and with a good one.
        let [file, _] = files()?;
        assert_eq!(load(&mut front_end, file, &DeviceState::default().encode())?, GOOD);
        front_end.bring_up(Format::Split)?;
        Ok(())
    })
}

#[test]
fn transfers_that_make_no_sense_are_refused_at_once() -> Outcome {
    beside_good_guests(false, |ringway| {
        let mut front_end = running(ringway, "h")?;
        let (reads, writes) = rustix::pipe::pipe()?;
        for direction in [SAVE, LOAD] {
            assert_eq!(begin(&mut front_end, direction, &writes)?, REFUSED, "rings run");
        }
        stop(&mut front_end)?;
        let others: [OwnedFd; 4] = [
            File::open("/proc/self/exe")?.into(),
            File::open("/dev/null")?.into(),
            std::os::unix::net::UnixDatagram::unbound()?.into(),
            rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?,
        ];
        for other in &others {
            assert_eq!(begin(&mut front_end, LOAD, other)?, REFUSED, "neither pipe nor socket");
        }
        let wrong: [(&[u8], &[BorrowedFd<'_>]); 5] = [
            (&pair(LOAD, 0), &[]),
            (&pair(2, 0), &[reads.as_fd()]),
            (&pair(SAVE, 1), &[reads.as_fd()]),
            (&pair(u32::MAX, u32::MAX), &[reads.as_fd()]),
            (&[0; 4], &[reads.as_fd()]),
        ];
        for (payload, fds) in wrong {
            assert_eq!(front_end.request(SET_DEVICE_STATE_FD, payload, fds)?, REFUSED);
        }
        assert_eq!(begin(&mut front_end, LOAD, &reads)?, ACCEPTED);
        for direction in [SAVE, LOAD] {
            assert_eq!(begin(&mut front_end, direction, &reads)?, REFUSED, "one is under way");
        }
        drop(reads);
        File::from(writes).write_all(&DeviceState::default().encode())?;
        assert_eq!(check(&mut front_end)?, GOOD);
        Ok(())
    })
}

/// Nothing goes through them: not read, not written, and full.
fn stuck_files() -> io::Result<Vec<(u32, OwnedFd, OwnedFd)>> {
    let mut stuck = Vec::new();
    for (reads, writes) in files()? {
        stuck.push((LOAD, reads, writes));
    }
    for (reads, writes) in files()? {
        rustix::io::ioctl_fionbio(&writes, true)?;
        while rustix::io::write(&writes, &[0; 4096]).is_ok() {}
        rustix::io::ioctl_fionbio(&writes, false)?;
        stuck.push((SAVE, writes, reads));
    }
    Ok(stuck)
}

/// Its front-end waits for its own answer; others are answered meanwhile.
#[test]
fn a_transfer_that_stands_still_ends_in_time_and_keeps_no_other_waiting() -> Outcome {
    beside_good_guests(false, |ringway| {
        let mut other = arrived(ringway, "p")?;
        for (direction, fd, _far_end) in stuck_files()? {
            let mut front_end = arrived(ringway, "h")?;
            let begun = Instant::now();
            assert_eq!(begin(&mut front_end, direction, &fd)?, ACCEPTED);
            assert!(begun.elapsed() < Duration::from_secs(1), "at once");
            let waits = thread::spawn(move || (check(&mut front_end), front_end));
            let mut times = Vec::new();
            while begun.elapsed() < TRANSFER - Duration::from_millis(100) {
                let asked = Instant::now();
                assert_eq!(other.request(GET_STATUS, &[], &[])?, GOOD);
                times.push(asked.elapsed());
                thread::sleep(Duration::from_millis(20));
            }
            assert!(!waits.is_finished(), "its time is not over");
            let (answer, _) = waits.join().map_err(|_| "the other thread")?;
            assert_eq!((answer?, begun.elapsed() < ANSWERED), (BAD, true));
            times.sort();
            let (middle, longest) = (times[times.len() / 2], times[times.len() - 1]);
            println!("others were answered within {middle:?}, {longest:?} at most");
            assert!(middle < Duration::from_millis(10), "{middle:?}");
            assert!(longest < Duration::from_secs(1), "{longest:?}");
        }
        // The last line may come a little after the answer.
        let deadline = Instant::now() + ANSWERED;
        while ringway.log().matches("timed out").count() < 4 {
            assert!(Instant::now() < deadline, "{}", ringway.log());
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    })
}

/// It is not waited for, and nothing of it is left.
#[test]
fn a_front_end_that_goes_leaves_nothing() -> Outcome {
    let ringway = RingwayProcess::start_with(&[("a", "")], &ROUTER)?;
    for (direction, fd, _far_end) in stuck_files()? {
        let begun = Instant::now();
        let mut front_end = arrived(&ringway, "a")?;
        assert_eq!(begin(&mut front_end, direction, &fd)?, ACCEPTED);
        drop(front_end);
        drop(arrived(&ringway, "a")?);
        assert!(begun.elapsed() < TRANSFER / 2, "the next one has waited");
    }
    // The state of a guest that never started is not the next one's.
    let mut front_end = arrived(&ringway, "a")?;
    let [file, _] = files()?;
    assert_eq!(load(&mut front_end, file, &leased(IP, 1000).encode())?, GOOD);
    drop(front_end);
    let mut next = arrived(&ringway, "a")?;
    assert_eq!(check(&mut next)?, BAD);
    next.bring_up(Format::Split)?;
    send(&next, 1, &arp(MAC, Ipv4Addr::new(10, 77, 2, 9)))?;
    let shown = wait_for(&ringway, "10.77.2.9")?;
    assert!(!shown.contains(&IP.to_string()), "{shown}");
    Ok(())
}

/// The one that serves: those before it may still be ending.
fn data_plane(ringway: &RingwayProcess) -> io::Result<Pid> {
    let pid = ringway.pid();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    let pid = children.split_whitespace().next_back().and_then(|child| child.parse().ok());
    pid.and_then(Pid::from_raw).ok_or_else(|| io::Error::other("no data plane"))
}

/// Whatever was under way has failed, for the next data plane as well; and nothing is loaded twice.
#[test]
fn a_data_plane_that_ends_fails_what_it_transferred() -> Outcome {
    let ringway = RingwayProcess::start(&[("a", ""), ("b", "")])?;
    for is_asked_before in [true, false] {
        for (direction, fd, _far_end) in stuck_files()? {
            let mut front_end = arrived(&ringway, "a")?;
            assert_eq!(begin(&mut front_end, direction, &fd)?, ACCEPTED);
            let plane = data_plane(&ringway)?;
            let asks = move || {
                let begun = Instant::now();
                (check(&mut front_end), begun.elapsed(), front_end)
            };
            let (answer, waited, mut front_end) = if is_asked_before {
                let asks = thread::spawn(asks);
                thread::sleep(Duration::from_millis(100));
                kill_process(plane, Signal::KILL)?;
                asks.join().map_err(|_| "the other thread")?
            } else {
                kill_process(plane, Signal::KILL)?;
                asks()
            };
            assert_eq!(answer?, BAD);
            assert!(waited < TRANSFER, "{waited:?}");
            // The next transfer is as good as any.
            let [file, _] = files()?;
            let good = load(&mut front_end, file, &DeviceState::default().encode())?;
            assert_eq!(good, GOOD, "{}", ringway.log());
        }
    }
    Ok(())
}

/// It neither waits for a transfer that stands still, nor fails.
#[test]
fn an_upgrade_ends_transfers() -> Outcome {
    let ringway = RingwayProcess::start(&[("a", ""), ("b", "")])?;
    let program = fs::read_link(format!("/proc/{}/exe", ringway.pid()))?;
    for (direction, fd, _far_end) in stuck_files()?.into_iter().skip(1).step_by(2) {
        let mut front_end = arrived(&ringway, "a")?;
        assert_eq!(begin(&mut front_end, direction, &fd)?, ACCEPTED);
        let begun = Instant::now();
        let asks = thread::spawn(move || (check(&mut front_end), begun.elapsed(), front_end));
        thread::sleep(Duration::from_millis(100));
        let mut upgrade = Command::new(&program);
        upgrade.args(["upgrade", "--control"]).arg(ringway.control());
        let output = upgrade.output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}: {}", ringway.log());
        let (answer, waited, mut front_end) = asks.join().map_err(|_| "the other thread")?;
        assert_eq!(answer?, BAD);
        assert!(waited < TRANSFER / 2, "{waited:?}");
        let [file, _] = files()?;
        assert_eq!(load(&mut front_end, file, &DeviceState::default().encode())?, GOOD);
    }
    Ok(())
}

#[test]
fn a_port_may_offer_none() -> Outcome {
    let ringway = RingwayProcess::start(&[("a", "device_state=off")])?;
    let mut front_end = RawFrontEnd::connect(&ringway.socket("a"))?;
    let Answer::Number(offered) = front_end.request(15, &[], &[])? else {
        return Err("no protocol features".into());
    };
    assert_eq!(offered & 1 << 19, 0);
    front_end.bring_up(Format::Split)?;
    stop(&mut front_end)?;
    let (reads, _writes) = rustix::pipe::pipe()?;
    assert_eq!(begin(&mut front_end, LOAD, &reads)?, REFUSED);
    assert_eq!(check(&mut front_end)?, BAD);
    Ok(())
}
