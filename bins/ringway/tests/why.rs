//! `ringway why`: each thing that can hold a port back is brought about on a real device, and is
//! what the command names first.

mod common;

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::sleep;
use std::time::Duration;

use common::{Ringway, wait_for};
use ringway_driver::Sent;
use ringway_net::Features;
use ringway_testkit::hostile::{RawDescriptor, WRITE};
use ringway_testkit::{AnyUserGuest, GuestOptions, HostileGuest, RawFrontEnd};
use ringway_virtq::Format;
use serde_json::Value;

/// Between two packets of a guest that keeps sending.
const PAUSE: Duration = Duration::from_millis(2);

/// How often something is asked that takes a while to come about.
const QUESTIONS_MAX: usize = 20;

fn guest(directory: &Path, name: &str) -> AnyUserGuest {
    let socket = directory.join(format!("{name}.sock"));
    wait_for("a guest", || AnyUserGuest::attach(&socket, &GuestOptions::default()).ok())
}

fn frame(from: [u8; 6], to: [u8; 6], len: usize) -> Vec<u8> {
    let mut frame = vec![0; len];
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    frame[12..14].copy_from_slice(&[8, 0]);
    let ip_len = u16::try_from(len - 14).expect("short").to_be_bytes();
    let ip = [0x45, 0, ip_len[0], ip_len[1], 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    frame[14..34].copy_from_slice(&ip);
    frame
}

/// The findings, the weightiest first, while `guest` sends this packet again and again.
fn found(ringway: &Ringway, port: &str, sending: Option<(&mut AnyUserGuest, &[u8])>) -> Vec<Value> {
    let told = std::thread::scope(|scope| {
        let told = scope.spawn(|| ringway.told(&["why", port, "--json"]));
        if let Some((guest, frame)) = sending {
            while !told.is_finished() {
                let _: Sent = guest.send(frame).expect("connected");
                guest.flush();
                sleep(PAUSE);
            }
        }
        told.join().expect("it ends")
    });
    let reply: Value = serde_json::from_str(&told).expect("JSON");
    reply["findings"].as_array().expect("a list").clone()
}

fn first(found: &[Value]) -> &str {
    found.first().and_then(|finding| finding["what"].as_str()).unwrap_or("nothing")
}

/// A switch with these ports, and the guests of the first two.
fn scene(options: [&str; 2]) -> (tempfile::TempDir, Ringway, [AnyUserGuest; 2]) {
    let directory = tempfile::tempdir().expect("a directory");
    let port = |name: &str, options: &str| format!("{name}=vm:{name}.sock{options}");
    let ports = [port("a", options[0]), port("b", options[1]), port("c", "")];
    let arguments: Vec<&str> = ports.iter().flat_map(|port| ["--port", port]).collect();
    let ringway = Ringway::run(directory.path(), &arguments);
    let guests = [guest(directory.path(), "a"), guest(directory.path(), "b")];
    (directory, ringway, guests)
}

/// The first finding at port `port`, while a guest sends so.
fn first_while_sending(options: [&str; 2], port: &str, to: Option<[u8; 6]>, len: usize) -> String {
    let (_directory, ringway, [mut a, b]) = scene(options);
    // So that the switch knows where the other one is.
    let mut b = b;
    let hello = frame(b.mac(), [0xff; 6], 60);
    let _: Sent = b.send(&hello).expect("connected");
    b.flush();
    let packet = frame(a.mac(), to.unwrap_or(b.mac()), len);
    let found = found(&ringway, port, Some((&mut a, &packet)));
    first(&found).to_owned()
}

#[test]
fn a_port_without_trouble_is_said_to_be_fine() {
    let (_directory, ringway, _guests) = scene(["", ""]);
    assert!(found(&ringway, "a", None).is_empty());
    let text = ringway.told(&["why", "a"]);
    assert!(text.starts_with("a: nothing holds it back (0 b/s to the guest"), "{text}");
    let why = ringway.refused(&["why", "d"]);
    assert!(why.contains("there is no port called \"d\""), "{why}");
}

#[test]
fn a_port_that_waits_and_one_whose_link_is_down_are_told() {
    let (directory, ringway, _guests) = scene(["", ",link=down"]);
    let waits = found(&ringway, "c", None);
    assert_eq!(first(&waits), "no front-end is connected");
    assert_eq!(waits[0]["weight"], 100);
    let advice = waits[0]["advice"].as_str().expect("text");
    assert!(advice.ends_with("ringway attach c"), "{advice}");
    assert_eq!(first(&found(&ringway, "b", None)), "the link is down");
    let stream = std::os::unix::net::UnixStream::connect(directory.path().join("c.sock"));
    let _stream = stream.expect("a socket");
    wait_for("a front-end", || (ringway.state("c")? == "connected").then_some(()));
    assert_eq!(first(&found(&ringway, "c", None)), "the guest has not started its queues");
}

#[test]
fn a_guest_without_buffers_is_told() {
    assert_eq!(first_while_sending(["", ""], "b", None, 60), "the guest posts no buffers");
}

#[test]
fn rate_limits_are_told_in_both_directions() {
    let options = ["", ",packets_to_guest=10,when_full=drop"];
    assert_eq!(first_while_sending(options, "b", None, 60), "the rate limit to the guest");
    let options = [",packets_from_guest=50", ""];
    assert_eq!(first_while_sending(options, "a", None, 60), "the rate limit from the guest");
}

#[test]
fn what_policies_refuse_is_told() {
    let to_all = Some([0xff; 6]);
    let of_a = |options: &str, to| first_while_sending([options, ""], "a", to, 60);
    assert_eq!(of_a(",storm=10", to_all), "the storm limit");
    assert_eq!(of_a(",locked_ips=10.0.0.9", None), "locked addresses");
    assert_eq!(of_a(",locked_mac=52:54:00:00:00:09", None), "locked addresses");
    assert_eq!(of_a(",isolated=on", None), "isolation");
    assert_eq!(of_a(",trunk=5", None), "the VLAN");
}

#[test]
fn two_ports_with_one_address_and_mtus_that_differ_are_told() {
    let (_directory, ringway, [a, mut b]) = scene(["", ""]);
    let mac = a.mac();
    // VIRTIO_NET_CTRL_MAC_ADDR_SET: a guest may choose its address.
    let done = match &mut b {
        AnyUserGuest::Packed(guest) => guest.command(1, 1, &mac),
        AnyUserGuest::Split(guest) => guest.command(1, 1, &mac),
    };
    assert_eq!(done.expect("connected"), 0);
    let found_first = found(&ringway, "a", None);
    assert_eq!(first(&found_first), "another port has the same MAC address");
    let figure = found_first[0]["figure"].as_str().expect("text");
    assert!(figure.ends_with(" at b as well"), "{figure}");
    let (_directory, ringway, _guests) = scene([",mtu=9000", ",mtu=1500"]);
    assert_eq!(first(&found(&ringway, "a", None)), "the MTUs differ");
    ringway.told(&["port", "set", "b", "vlan=7"]);
    assert!(found(&ringway, "a", None).is_empty(), "they do not reach each other");
}

/// The guest of the third port, with rings to write into by hand.
fn raw_guest(directory: &Path, without: Features) -> HostileGuest {
    let accept = Features::OFFERED.difference(without);
    let options = GuestOptions { accept, ..GuestOptions::default() };
    HostileGuest::attach(&directory.join("c.sock"), &options).expect("a guest")
}

#[test]
fn packets_that_fit_no_buffer_are_told() {
    let (directory, ringway, [mut a, _b]) = scene(["", ""]);
    let c = raw_guest(directory.path(), Features::MRG_RXBUF);
    let short =
        RawDescriptor { address: c.scratch().device_address, len: 100, flags: WRITE, id: 0 };
    c.offer(0, &[short]);
    let packet = frame(a.mac(), [0xff; 6], 500);
    let found = found(&ringway, "c", Some((&mut a, &packet)));
    assert_eq!(first(&found), "packets are longer than the guest's buffers");
}

#[test]
fn a_ring_that_a_guest_broke_is_told() {
    let (directory, ringway, _guests) = scene(["", ""]);
    let c = raw_guest(directory.path(), Features::empty());
    let empty = RawDescriptor { address: c.scratch().device_address, ..RawDescriptor::default() };
    c.offer(1, &[empty]);
    wait_for("the end of it", || (ringway.state("c")? == "broken").then_some(()));
    let found = found(&ringway, "c", None);
    assert_eq!(first(&found), "a ring is broken");
    assert!(found[0]["figure"].as_str().expect("text").starts_with("transmitq1: "));
}

/// Three guests say to all others more than one worker can carry. What waits in their rings keeps
/// it busy for longer than they may wait for a processor themselves.
#[test]
fn a_worker_that_always_has_something_to_do_is_told() {
    const SILENT: u8 = 240;
    let directory = tempfile::tempdir().expect("a directory");
    let senders = ["s0", "s1", "s2"];
    let silent = (0..SILENT).map(|number| format!("p{number}"));
    let names = senders.map(str::to_owned).into_iter().chain(silent);
    let ports: Vec<String> =
        names.flat_map(|name| ["--port".into(), format!("{name}=vm:{name}.sock")]).collect();
    let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
    let ringway = Ringway::run(directory.path(), &ports);
    let options = GuestOptions { queue_size: 1024, ..GuestOptions::default() };
    let attach = |name: &str| {
        let socket = directory.path().join(format!("{name}.sock"));
        wait_for("a guest", || AnyUserGuest::attach(&socket, &options).ok())
    };
    let guests = senders.map(attach);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for mut guest in guests {
            let is_over = &is_over;
            scope.spawn(move || {
                let packet = frame(guest.mac(), [0xff; 6], 60);
                while !is_over.load(Relaxed) {
                    if guest.send(&packet).expect("connected") == Sent::NoRoom {
                        guest.flush();
                        sleep(PAUSE);
                    }
                }
            });
        }
        let what = |found: &Value| found["what"] == "a worker is saturated";
        let is_told = (0..QUESTIONS_MAX).any(|_| found(&ringway, "p0", None).iter().any(what));
        is_over.store(true, Relaxed);
        assert!(is_told);
    });
}

/// As a monitor does that pauses its guest, sets its link off, or resets it.
#[test]
fn queues_that_were_stopped_are_told_from_those_that_never_ran() {
    const GET_VRING_BASE: u32 = 11;
    let (directory, ringway, _guests) = scene(["", ""]);
    let mut front_end = RawFrontEnd::connect(&directory.path().join("c.sock")).expect("it listens");
    wait_for("a front-end", || (ringway.state("c")? == "connected").then_some(()));
    assert_eq!(first(&found(&ringway, "c", None)), "the guest has not started its queues");
    front_end.bring_up(Format::Split).expect("a good device");
    assert_eq!(ringway.state("c").as_deref(), Some("running"));
    for index in 0..2 {
        let queue = ringway_testkit::pair(index, 0);
        front_end.request(GET_VRING_BASE, &queue, &[]).expect("a good device");
    }
    let stopped = found(&ringway, "c", None);
    assert_eq!(first(&stopped), "the guest's queues were stopped");
    let figure = stopped[0]["figure"].as_str().expect("text");
    assert!(figure.ends_with("s ago by the monitor (paused, link off or reset)"), "{figure}");
    for index in 0..2 {
        front_end.start_queue(index).expect("a good device");
    }
    assert_ne!(first(&found(&ringway, "c", None)), "the guest's queues were stopped");
}

#[test]
fn an_address_that_is_not_the_ports_is_told() {
    let (_directory, ringway, [mut a, _b]) = scene([",mac=52:54:00:00:00:01", ""]);
    let said = "the guest uses 52:54:00:00:00:09, the port has 52:54:00:00:00:01";
    let other = frame([0x52, 0x54, 0, 0, 0, 9], [0xff; 6], 60);
    let own = frame([0x52, 0x54, 0, 0, 0, 1], [0xff; 6], 60);
    let is_told = |ringway: &Ringway| {
        let told = ringway.told(&["stats", "a"]).split_whitespace().collect::<Vec<_>>().join(" ");
        (told.contains("the guest uses 52:54:00:00:00:09"), ringway.told(&["why", "a"]))
    };
    assert!(!is_told(&ringway).0);
    let _: Sent = a.send(&other).expect("connected");
    a.flush();
    wait_for("the other address", || is_told(&ringway).0.then_some(()));
    let (_, why) = is_told(&ringway);
    assert!(why.contains(said), "{why}");
    // A guest with a bridge in it uses both.
    let _: Sent = a.send(&own).expect("connected");
    a.flush();
    wait_for("its own address", || (!is_told(&ringway).0).then_some(()));
    assert!(!is_told(&ringway).1.contains(said));
}

#[test]
fn a_station_that_never_answers_is_told() {
    let (_directory, ringway, [mut a, mut b]) = scene(["", ""]);
    let hello = frame(b.mac(), [0xff; 6], 60);
    let _: Sent = b.send(&hello).expect("connected");
    b.flush();
    let known = frame(a.mac(), b.mac(), 60);
    assert_eq!(first(&found(&ringway, "a", Some((&mut a, &known)))), "nothing");
    let unknown = frame(a.mac(), [0x52, 0x54, 0, 0, 0, 0x77], 60);
    let silent = found(&ringway, "a", Some((&mut a, &unknown)));
    assert_eq!(first(&silent), "no station answers");
    let figure = "all that it sends to 52:54:00:00:00:77 is flooded: no packet has come from there";
    assert_eq!(silent[0]["figure"], figure);
}
