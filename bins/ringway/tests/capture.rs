//! `ringway capture`: what is in the file is what real packets were, byte for byte, and why those
//! that went no further did not.

mod common;
mod shell;

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use common::{Ringway, wait_for};
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::blocks::opt_common::CommonOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use ringway_driver::Sent;
use ringway_net::NetHeader;
use ringway_testkit::{AnyUserGuest, GuestOptions};
use shell::{User, must};

/// A packet of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Packet {
    bytes: Vec<u8>,
    len: u32,
    is_inbound: bool,
    comment: String,
    time: Duration,
}

fn guest(directory: &Path, name: &str) -> AnyUserGuest {
    let socket = directory.join(format!("{name}.sock"));
    wait_for("a guest", || AnyUserGuest::attach(&socket, &GuestOptions::default()).ok())
}

/// A UDP packet from one station to another, with that number in it.
fn frame(from: &AnyUserGuest, to: &AnyUserGuest, number: u8, len: usize) -> Vec<u8> {
    let mut frame = vec![number; len];
    frame[..6].copy_from_slice(&to.mac());
    frame[6..12].copy_from_slice(&from.mac());
    frame[12..14].copy_from_slice(&[8, 0]);
    let ip_len = u16::try_from(len - 14).expect("short");
    let [high, low] = ip_len.to_be_bytes();
    let ip = [0x45, 0, high, low, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    frame[14..34].copy_from_slice(&ip);
    frame[34..38].copy_from_slice(&[0x10, number, 0, 53]);
    frame
}

fn send(guest: &mut AnyUserGuest, frame: &[u8]) {
    wait_for("room", || {
        let sent = guest.send(frame).expect("connected");
        guest.flush();
        matches!(sent, Sent::Done).then_some(())
    });
}

/// Everything that has come to a guest.
fn receive(guest: &mut AnyUserGuest, count: usize) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    wait_for("packets", || {
        while let Some((_, packet)) = guest.receive().expect("connected") {
            all.push(packet);
        }
        guest.flush();
        (all.len() >= count).then_some(())
    });
    all
}

/// The log line of each capture that begins.
const BEGUN: &str = "captured from now on";

fn begin(ringway: &Ringway, arguments: &[&str]) -> Child {
    // That the one before has ended may be told later.
    let begun = || ringway.log().matches(BEGUN).count();
    let before = begun();
    let mut child = Command::new(env!("CARGO_BIN_EXE_ringway"));
    child.arg("capture").arg("--control").arg(ringway.control()).args(arguments);
    let child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    wait_for("the capture", || (begun() > before).then_some(()));
    child
}

/// Whether so many captures have begun that have not ended.
fn is_captured(ringway: &Ringway, count: usize) -> bool {
    let log = ringway.log();
    log.matches(BEGUN).count() >= log.matches("captured no more").count() + count
}

/// Ends it as Ctrl-C does.
fn end(child: Child) -> Output {
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    child.wait_with_output().expect("it ends")
}

fn read(file: &Path) -> Vec<Packet> {
    let mut reader = PcapNgReader::new(File::open(file).expect("a file")).expect("pcapng");
    let mut packets = Vec::new();
    while let Some(block) = reader.next_block() {
        let (block, _) = block.expect("a block");
        let Block::EnhancedPacket(packet) = block else { continue };
        let flags = packet.options.iter().find_map(|option| match option {
            EnhancedPacketOption::Flags(flags) => Some(*flags),
            _ => None,
        });
        let comment = packet.options.iter().find_map(|option| match option {
            EnhancedPacketOption::Common(CommonOption::Comment(text)) => Some(text.to_string()),
            _ => None,
        });
        packets.push(Packet {
            bytes: packet.data.to_vec(),
            len: packet.original_len,
            is_inbound: flags == Some(1),
            comment: comment.expect("a comment"),
            time: packet.timestamp,
        });
    }
    packets
}

/// Ten packets each way.
fn exchange(a: &mut AnyUserGuest, b: &mut AnyUserGuest) {
    for number in 0..10 {
        let (there, back) = (frame(a, b, number, 100), frame(b, a, number, 200));
        send(a, &there);
        receive(b, 1);
        send(b, &back);
        receive(a, 1);
    }
}

fn two_guests(directory: &Path, more: &[&str]) -> (Ringway, AnyUserGuest, AnyUserGuest) {
    let ports = [&["--port", "a=vm:a.sock", "--port", "b=vm:b.sock"], more].concat();
    let ringway = Ringway::run(directory, &ports);
    let (a, b) = (guest(directory, "a"), guest(directory, "b"));
    (ringway, a, b)
}

#[test]
fn a_capture_is_what_the_guests_sent_and_got_byte_for_byte() {
    // A cable, a switch, and workers that hand over to each other.
    for more in [&[][..], &["--port", "c=vm:c.sock"], &["--workers", "2"]] {
        let directory = tempfile::tempdir().expect("a directory");
        let (ringway, mut a, mut b) = two_guests(directory.path(), more);
        let file = directory.path().join("a.pcapng");
        let child = begin(&ringway, &["a", file.to_str().expect("text")]);
        let mut expected = Vec::new();
        for number in 0..50u8 {
            let len = 60 + usize::from(number) * 28;
            let (there, back) = (frame(&a, &b, number, len), frame(&b, &a, number, 1514 - len / 2));
            send(&mut a, &there);
            assert_eq!(receive(&mut b, 1).pop(), Some(there.clone()));
            send(&mut b, &back);
            assert_eq!(receive(&mut a, 1).pop(), Some(back.clone()));
            expected.extend([(there, true), (back, false)]);
        }
        let output = end(child);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said == "a: 100 packets\n", "{said}");
        let packets = read(&file);
        let seen: Vec<_> = packets.iter().map(|it| (it.bytes.clone(), it.is_inbound)).collect();
        assert_eq!(seen, expected, "{more:?}");
        assert_eq!(packets[0].comment, "from guest, transmitq1");
        assert_eq!(packets[1].comment, "to guest, receiveq1");
        assert!(packets.is_sorted_by_key(|packet| packet.time));
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
        assert!(now - packets[0].time < Duration::from_secs(600));
        wait_for("the end", || (!is_captured(&ringway, 1)).then_some(()));
        // And on without.
        let last = frame(&a, &b, 99, 60);
        send(&mut a, &last);
        assert_eq!(receive(&mut b, 1).pop(), Some(last));
    }
}

#[test]
fn filters_directions_and_limits_choose_and_end() {
    let directory = tempfile::tempdir().expect("a directory");
    let (ringway, mut a, mut b) = two_guests(directory.path(), &["--port", "c=vm:c.sock"]);
    let file = |name: &str| directory.path().join(name).to_str().expect("text").to_owned();
    let to_guest = begin(&ringway, &["a", &file("1"), "--direction", "to-guest", "--snap", "64"]);
    exchange(&mut a, &mut b);
    assert!(end(to_guest).status.success());
    let packets = read(Path::new(&file("1")));
    assert_eq!(packets.len(), 10);
    assert!(packets.iter().all(|it| !it.is_inbound && it.bytes.len() == 64 && it.len == 200));
    let filter = "udp src port 4099 and host 10.0.0.2";
    let filtered = begin(&ringway, &["a", &file("2"), "--filter", filter]);
    exchange(&mut a, &mut b);
    end(filtered);
    let packets = read(Path::new(&file("2")));
    assert_eq!(packets.len(), 2);
    assert!(packets.iter().all(|packet| packet.bytes[35] == 3));
    let counted = begin(&ringway, &["b", &file("3"), "--count", "7"]);
    exchange(&mut a, &mut b);
    let output = counted.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "b: 7 packets\n");
    assert_eq!(read(Path::new(&file("3"))).len(), 7);
    std::fs::write(file("4"), [0; 100_000]).expect("written");
    let timed = begin(&ringway, &["b", &file("4"), "--time", "1"]);
    assert!(timed.wait_with_output().expect("it ends").status.success());
    assert_eq!(read(Path::new(&file("4"))).len(), 0, "what was there before is not");
    let bounded = begin(&ringway, &["b", &file("5"), "--bytes", "1500"]);
    exchange(&mut a, &mut b);
    assert!(bounded.wait_with_output().expect("it ends").status.success());
    assert!((2..10).contains(&read(Path::new(&file("5"))).len()));
    assert!(std::fs::metadata(file("5")).expect("a file").len() <= 1500);
    let refused = |arguments: &[&str]| {
        let output = ringway.ask(&[&["capture"], arguments].concat());
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, why) = refused(&["a", &file("6"), "--filter", "prot 80"]);
    assert!(code == Some(2) && why.contains("column 1: \"prot\" is no word"), "{why}");
    std::fs::write(file("6"), "another capture").expect("written");
    let (code, why) = refused(&["d", &file("6")]);
    assert!(code == Some(1) && why.contains("there is no port called \"d\""), "{why}");
    assert_eq!(std::fs::read(file("6")).expect("a file"), b"another capture");
}

#[test]
fn one_packet_in_so_many_is_captured() {
    let directory = tempfile::tempdir().expect("a directory");
    let (ringway, mut a, mut b) = two_guests(directory.path(), &[]);
    let file = directory.path().join("b.pcapng");
    let arguments = ["b", file.to_str().expect("text"), "--sample", "5", "--count", "20"];
    let mut child = begin(&ringway, &arguments);
    let mut sent = 0;
    while child.try_wait().expect("it is ours").is_none() {
        let packet = frame(&a, &b, 1, 100);
        send(&mut a, &packet);
        sent += receive(&mut b, 1).len();
    }
    assert_eq!(read(&file).len(), 20);
    // A hundred on average.
    assert!(sent > 50, "{sent}");
}

#[test]
fn a_packet_that_goes_no_further_says_why() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["--port", "c=vm:c.sock,isolated=on"];
    let (ringway, mut a, b) = two_guests(directory.path(), &ports);
    let c = guest(directory.path(), "c");
    assert_eq!(ringway.told(&["port", "set", "a", "locked_ips=10.0.0.1"]), "a: changed\n");
    let file = directory.path().join("a.pcapng");
    let child = begin(&ringway, &["a", file.to_str().expect("text")]);
    let mut spoofed = frame(&a, &b, 1, 60);
    spoofed[29] = 9;
    send(&mut a, &spoofed);
    let mut hello = frame(&c, &a, 2, 60);
    send(&mut { c }, &hello);
    assert_eq!(
        ringway.told(&["port", "set", "b", "link=down"]),
        "b: changed, and its guest was told\n"
    );
    hello = frame(&a, &b, 3, 60);
    send(&mut a, &hello);
    wait_for("all of them", || (ringway.told(&["stats"]).contains("link_down")).then_some(()));
    end(child);
    let comments: Vec<String> = read(&file).into_iter().map(|packet| packet.comment).collect();
    assert!(comments[0].ends_with("transmitq1, dropped: spoofed_ip"), "{comments:?}");
    let last = comments.last().expect("some");
    assert!(last.ends_with("dropped by its receiver: link_down"), "{comments:?}");
}

#[test]
fn what_a_sender_left_undone_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let (ringway, mut a, mut b) = two_guests(directory.path(), &[]);
    let file = directory.path().join("b.pcapng");
    let child = begin(&ringway, &["b", file.to_str().expect("text")]);
    let header = NetHeader {
        flags: ringway_net::NEEDS_CSUM,
        csum_start: 34,
        csum_offset: 6,
        ..NetHeader::default()
    };
    let packet = frame(&a, &b, 1, 100);
    let _ = a.send_with(&header, &packet).expect("sent");
    a.flush();
    receive(&mut b, 1);
    end(child);
    assert_eq!(read(&file)[0].comment, "to guest, receiveq1, checksum at 34+6");
}

#[test]
fn tcpdump_reads_what_is_piped_into_it() {
    if Command::new("tcpdump").arg("--version").output().is_err() {
        return println!("skipped: there is no tcpdump");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let (ringway, mut a, mut b) = two_guests(directory.path(), &[]);
    let mut child = begin(&ringway, &["a"]);
    let piped = child.stdout.take().expect("a pipe");
    let tcpdump = Command::new("tcpdump")
        .args(["-c", "3", "-nr", "-"])
        .stdin(piped)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    for number in 0..3 {
        let packet = frame(&a, &b, number, 100);
        send(&mut a, &packet);
        receive(&mut b, 1);
    }
    let output = tcpdump.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.matches("IP 10.0.0.1").count() == 3, "{text}{why}");
    // Its reader has gone: the next packet ends it.
    let packet = frame(&a, &b, 4, 100);
    send(&mut a, &packet);
    assert!(child.wait_with_output().expect("it ends").status.success());
}

#[test]
fn a_reader_that_is_stuck_keeps_no_capture_from_its_end() {
    let directory = tempfile::tempdir().expect("a directory");
    let (ringway, mut a, mut b) = two_guests(directory.path(), &[]);
    let mut child = begin(&ringway, &["a"]);
    let _unread = child.stdout.take();
    for number in 0..100 {
        let packet = frame(&a, &b, number, 1514);
        send(&mut a, &packet);
        receive(&mut b, 1);
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    wait_for("its end", || child.try_wait().expect("it is ours"));
    let why = child.wait_with_output().expect("it ends").stderr;
    let why = String::from_utf8_lossy(&why);
    assert!(why.contains("standard output: its reader takes nothing: the capture ends"), "{why}");
}

#[test]
fn a_client_that_is_killed_and_a_port_that_goes_end_the_capture() {
    let directory = tempfile::tempdir().expect("a directory");
    let (ringway, _a, _b) = two_guests(directory.path(), &["--port", "c=vm:c.sock"]);
    let file = directory.path().join("pcapng").to_str().expect("text").to_owned();
    let mut child = begin(&ringway, &["a", &file]);
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    wait_for("the end", || (!is_captured(&ringway, 1)).then_some(()));
    let child = begin(&ringway, &["c", &file]);
    assert_eq!(ringway.told(&["port", "remove", "c"]), "c: removed\n");
    let output = child.wait_with_output().expect("it ends");
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && why.contains("is gone: the capture ends"), "{why}");
    assert_eq!(read(Path::new(&file)).len(), 0);
    let five: Vec<Child> = (0..4).map(|_| begin_unseen(&ringway, &file)).collect();
    wait_for("four", || is_captured(&ringway, 4).then_some(()));
    let why = ringway.refused(&["capture", "a", &file]);
    assert!(why.contains("4 captures run"), "{why}");
    five.into_iter().for_each(|child| drop(end(child)));
}

fn begin_unseen(ringway: &Ringway, file: &str) -> Child {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ringway"));
    child.arg("capture").arg("--control").arg(ringway.control()).args(["a", file]);
    child.stderr(Stdio::null()).spawn().expect("it starts")
}

/// Where the shells of tests have a file that is below cargo's directory for those.
fn in_shell(path: &Path) -> String {
    let inside = path.strip_prefix(env!("CARGO_TARGET_TMPDIR")).expect("a file of tests");
    format!("/srv/{}", inside.display())
}

/// On a file system with room for a few packets.
#[test]
fn a_full_disk_ends_it_and_the_file_is_readable() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let (ringway, mut a, mut b) = two_guests(directory.path(), &[]);
    let kept = directory.path().join("kept.pcapng");
    let script = format!(
        "mkdir disk; mount -t tmpfs -o size=16k none disk\n\
         ringway capture a disk/a.pcapng --control {} 2>why && exit 1 || [ $? = 1 ]\n\
         cat disk/a.pcapng > {}; chmod 644 {}; cat why\n",
        in_shell(&ringway.control()),
        in_shell(&kept),
        in_shell(&kept),
    );
    let said = std::thread::scope(|scope| {
        let said = scope.spawn(|| must(User::Root, &script));
        while !said.is_finished() {
            let packet = frame(&a, &b, 1, 1000);
            send(&mut a, &packet);
            receive(&mut b, 1);
        }
        said.join().expect("it ends")
    });
    let Some(said) = said else { return println!("skipped: no mount namespaces here") };
    assert!(said.contains("No space left on device"), "{said}");
    assert!(said.contains("the capture ends; a: ") && said.contains("all readable"), "{said}");
    let packets = read(&kept);
    assert!((5..17).contains(&packets.len()), "{}", packets.len());
    let counted = format!("a: {} packets", packets.len());
    assert!(said.contains(&counted), "{said}");
}

#[test]
fn wireshark_is_told_the_ports_and_gets_their_packets() {
    let directory = tempfile::tempdir().expect("a directory");
    let (ringway, mut a, mut b) = two_guests(directory.path(), &[]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/ringway-extcap");
    let binary = Path::new(env!("CARGO_BIN_EXE_ringway")).parent().expect("a directory");
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
    let extcap = |arguments: &[&str]| {
        let mut command = Command::new(&script);
        command.args(arguments).env("PATH", &path).env("RINGWAY_CONTROL", ringway.control());
        command
    };
    let told = |arguments: &[&str]| {
        let output = extcap(arguments).output().expect("it starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let list = told(&["--extcap-interfaces", "--extcap-version=4.2"]);
    let lines: Vec<&str> = list.lines().skip(1).collect();
    let line =
        |name: &str| format!("interface {{value=ringway-{name}}}{{display=ringway port {name}}}");
    assert_eq!(lines, [line("a"), line("b")]);
    assert!(told(&["--extcap-dlts", "--extcap-interface", "ringway-a"]).contains("{number=1}"));
    assert!(told(&["--extcap-config", "--extcap-interface", "ringway-a"]).contains("--direction"));
    let fifo = directory.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("it starts").success());
    let place = fifo.to_str().expect("text");
    let capture = ["--capture", "--extcap-interface", "ringway-a", "--fifo", place];
    let filter = ["--extcap-capture-filter", "udp", "--direction", "from-guest"];
    let child = extcap(&[&capture[..], &filter].concat()).stderr(Stdio::piped()).spawn();
    let child = child.expect("it starts");
    let reader = std::thread::spawn(move || read(&fifo));
    wait_for("the capture", || is_captured(&ringway, 1).then_some(()));
    let (there, back) = (frame(&a, &b, 1, 60), frame(&b, &a, 2, 60));
    send(&mut a, &there);
    receive(&mut b, 1);
    send(&mut b, &back);
    receive(&mut a, 1);
    assert!(end(child).status.success());
    let packets = reader.join().expect("packets");
    assert_eq!(packets.into_iter().map(|it| it.bytes).collect::<Vec<_>>(), [there]);
}

/// The talkers of a port, and how much each of them talks.
#[test]
fn flows_of_a_port_are_listed_the_largest_first() {
    let directory = tempfile::tempdir().expect("a directory");
    let (ringway, mut a, mut b) = two_guests(directory.path(), &[]);
    let arguments = ["flows", "a", "--time", "2", "--sample", "1", "--most", "2", "--json"];
    let told = std::thread::scope(|scope| {
        let told = scope.spawn(|| ringway.told(&arguments));
        while !told.is_finished() {
            let (small, large) = (frame(&a, &b, 1, 100), frame(&a, &b, 2, 1400));
            let back = frame(&b, &a, 3, 60);
            for packet in [&small, &large] {
                let _: Sent = a.send(packet).expect("connected");
            }
            let _: Sent = b.send(&back).expect("connected");
            a.flush();
            b.flush();
            std::thread::sleep(Duration::from_millis(5));
        }
        told.join().expect("it ends")
    });
    let reply: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    let flows = reply["flows"].as_array().expect("a list");
    assert_eq!(flows.len(), 2, "{told}");
    let of = |at: usize, key: &str| flows[at][key].clone();
    assert_eq!((of(0, "from"), of(0, "to")), ("10.0.0.1:4098".into(), "10.0.0.2:53".into()));
    assert_eq!((of(0, "protocol"), of(0, "direction")), ("udp".into(), "from_guest".into()));
    assert_eq!(of(1, "from"), "10.0.0.1:4097");
    let packets = of(0, "packets").as_u64().expect("a number");
    assert!(packets > 0 && of(0, "bytes") == packets * 1400, "{told}");
    let text = ringway.told(&["flows", "a", "--time", "0.1"]);
    assert!(text.starts_with("a: ") && text.contains("one packet in 100 on average"), "{text}");
}

fn interfaces(file: &Path) -> (Vec<String>, Vec<u32>) {
    let mut reader = PcapNgReader::new(File::open(file).expect("a file")).expect("pcapng");
    let (mut names, mut packets) = (Vec::new(), Vec::new());
    while let Some(block) = reader.next_block() {
        match block.expect("a block").0 {
            Block::InterfaceDescription(it) => {
                names.extend(it.options.iter().find_map(|option| match option {
                    InterfaceDescriptionOption::IfName(name) => Some(name.to_string()),
                    _ => None,
                }));
            }
            Block::EnhancedPacket(packet) => packets.push(packet.interface_id),
            _ => {}
        }
    }
    (names, packets)
}

#[test]
fn several_ports_are_interfaces_of_one_file_which_goes_on_without_those_that_go() {
    let directory = tempfile::tempdir().expect("a directory");
    let (ringway, mut a, mut b) = two_guests(directory.path(), &["--port", "c=vm:c.sock"]);
    let file = |name: &str| directory.path().join(name).display().to_string();
    let both = begin(&ringway, &["b", "a", &file("both")]);
    let all = begin(&ringway, &["--all", &file("all")]);
    exchange(&mut a, &mut b);
    wait_for("packets in both", || {
        let len = |name: &str| std::fs::metadata(file(name)).map_or(0, |it| it.len());
        (len("both") > 2000 && len("all") > 2000).then_some(())
    });
    ringway.told(&["port", "remove", "c"]);
    // The other ports are captured on; what passed meanwhile is not there.
    wait_for("the next one", || {
        ringway.log().contains("captured from now on port=\"a, b\"").then_some(())
    });
    exchange(&mut a, &mut b);
    let said = |child| String::from_utf8_lossy(&end(child).stderr).into_owned();
    assert!(said(both).starts_with("2 ports: "));
    assert!(said(all).starts_with("3 ports: "));
    let (names, packets) = interfaces(Path::new(&file("both")));
    assert_eq!(names, ["b", "a"]);
    assert!([0, 1].iter().all(|number| packets.contains(number)), "{packets:?}");
    let (names, packets) = interfaces(Path::new(&file("all")));
    assert_eq!(names, ["a", "b", "c"]);
    assert!([0, 1].iter().all(|number| packets.contains(number)), "{packets:?}");
    let refused = |words: &[&str]| ringway.refused(&[&["capture"], words].concat());
    assert!(refused(&["a", "a"]).contains("named twice"));
    assert!(refused(&["a", "x", "b"]).contains("there is no port called \"x\""));
    assert!(refused(&["--all", "a"]).contains("--all is for all ports"));
    assert!(refused(&["a", "--files", "2", "--file-bytes", "100k"]).contains("name of a file"));
}

#[test]
fn only_what_was_dropped_is_captured_and_a_ring_of_files_keeps_the_last() {
    let directory = tempfile::tempdir().expect("a directory");
    let isolated = ["--port", "c=vm:c.sock,isolated=on"];
    let (ringway, mut a, mut b) = two_guests(directory.path(), &isolated);
    let mut c = guest(directory.path(), "c");
    let file = |name: &str| directory.path().join(name);
    let path = |name: &str| file(name).display().to_string();
    let dropped = begin(&ringway, &["--all", &path("dropped"), "--dropped"]);
    let vlans = begin(&ringway, &["--all", &path("vlans"), "--dropped=vlan"]);
    let words = [&path("ring.pcapng"), "--files", "2", "--file-bytes", "100k"];
    let ring = begin(&ringway, &[&["a"][..], &words[..]].concat());
    exchange(&mut a, &mut b);
    let refused = frame(&c, &a, 9, 60);
    send(&mut c, &refused);
    // Some 300 kB: three files and a bit.
    for number in 0..220 {
        let packet = frame(&a, &b, number, 1400);
        send(&mut a, &packet);
        receive(&mut b, 1);
    }
    for child in [dropped, vlans, ring] {
        assert!(end(child).status.success());
    }
    let dropped = read(&file("dropped"));
    assert!(!dropped.is_empty() && dropped.iter().all(|it| it.comment.contains("dropped")));
    assert!(dropped.iter().any(|it| it.bytes == refused && it.comment.ends_with("isolated")));
    assert_eq!(read(&file("vlans")).len(), 0);
    let files = ["ring.1.pcapng", "ring.2.pcapng"].map(&file);
    let lens = files.each_ref().map(|it| std::fs::metadata(it).expect("a file").len());
    assert!(lens.iter().all(|len| *len <= 100_000), "{lens:?}");
    assert!(!file("ring.3.pcapng").exists() && !file("ring.pcapng").exists());
    let kept: Vec<u8> = files.iter().flat_map(|it| read(it)).map(|it| it.bytes[50]).collect();
    assert!(kept.contains(&219) && !kept.contains(&0), "the oldest are gone: {kept:?}");
}
