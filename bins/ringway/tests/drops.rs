//! Why packets go no further: each reason is brought about on a real device, and is named by a
//! capture of the port that drops them and by `ringway why`.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::{self, sleep};
use std::time::Duration;

use common::{Ringway, wait_for};
use ringway_net::{Features, GsoType, HEADER_LEN, NEEDS_CSUM, NetHeader};
use ringway_testkit::hostile::{NEXT, RawDescriptor, WRITE};
use ringway_testkit::{AnyUserGuest, GuestOptions, HostileGuest};
use ringway_virtq::Format;
use rustix::fs::{fstat, ftruncate};
use serde_json::Value;

/// Between two packets of the guest that sends.
const PAUSE: Duration = Duration::from_millis(2);

/// Cases that are tried at the same time; each takes two seconds.
const AT_ONCE: usize = 4;

/// A way to have packets from `a` to `b` dropped, and the name of the reason.
struct Case {
    reason: &'static str,
    /// The first that `why` finds.
    what: &'static str,
    /// The port that drops them.
    at: &'static str,
    /// Of both ports.
    options: [&'static str; 2],
    receiver: Receiver,
    to: To,
    header: NetHeader,
}

#[derive(Clone, Copy)]
enum Receiver {
    /// Takes no packets off its ring.
    Usual,
    /// One buffer, of 100 bytes.
    Short,
    /// Accepts no offloads.
    Plain,
    /// Wants packets for its address only.
    Choosy,
}

#[derive(Clone, Copy)]
enum To {
    Receiver,
    All,
    Unknown,
    Sender,
}

const USUAL: Case = Case {
    reason: "no_room",
    what: "the guest posts no buffers",
    at: "b",
    options: ["", ""],
    receiver: Receiver::Usual,
    to: To::Receiver,
    header: NetHeader::ZERO,
};

fn refused(reason: &'static str, what: &'static str, options: &'static str) -> Case {
    Case { reason, what, at: "a", options: [options, ""], ..USUAL }
}

fn cases() -> [Case; 13] {
    let segments = NetHeader {
        flags: NEEDS_CSUM,
        gso_type: GsoType::TcpV4.raw(),
        gso_size: 100,
        csum_start: 34,
        csum_offset: 16,
        hdr_len: 54,
        ..NetHeader::ZERO
    };
    let outside = NetHeader { csum_start: 400, csum_offset: 400, ..segments };
    let rate = ",packets_to_guest=10,when_full=drop";
    [
        USUAL,
        refused("spoofed_mac", "locked addresses", ",locked_mac=52:54:00:00:00:09"),
        refused("spoofed_ip", "locked addresses", ",locked_ips=10.0.0.9"),
        refused("vlan", "the VLAN", ",trunk=5"),
        refused("isolated", "isolation", ",isolated=on"),
        Case { to: To::All, ..refused("storm", "the storm limit", ",storm=10") },
        Case { header: outside, ..refused("malformed", "packets that make no sense", "") },
        Case { to: To::Sender, ..refused("no_route", "packets that lead nowhere", "") },
        Case {
            reason: "rate_limit",
            what: "the rate limit to the guest",
            options: ["", rate],
            ..USUAL
        },
        Case {
            reason: "link_down",
            what: "the link is down",
            options: ["", ",link=down"],
            ..USUAL
        },
        Case {
            reason: "too_long",
            what: "packets are longer than the guest's buffers",
            receiver: Receiver::Short,
            to: To::All,
            ..USUAL
        },
        Case {
            reason: "offload",
            what: "packets that cannot be completed",
            receiver: Receiver::Plain,
            header: segments,
            ..USUAL
        },
        Case {
            reason: "filtered",
            what: "the guest's own filters",
            receiver: Receiver::Choosy,
            to: To::Unknown,
            ..USUAL
        },
    ]
}

/// The second guest, which stays as long as this does, and its address.
enum Second {
    User(Box<AnyUserGuest>),
    Raw(#[expect(dead_code, reason = "it stays")] Box<HostileGuest>),
}

fn second(socket: &Path, receiver: Receiver) -> Second {
    let accepting = |accept| GuestOptions { accept, ..GuestOptions::default() };
    let options = match receiver {
        Receiver::Usual | Receiver::Choosy => accepting(Features::OFFERED),
        Receiver::Short => accepting(Features::OFFERED.difference(Features::MRG_RXBUF)),
        Receiver::Plain => accepting(Features::VERSION_1 | Features::MAC),
    };
    if matches!(receiver, Receiver::Short) {
        let guest = HostileGuest::attach(socket, &options).expect("a guest");
        let address = guest.scratch().device_address;
        guest.offer(0, &[RawDescriptor { address, len: 100, flags: WRITE, id: 0 }]);
        return Second::Raw(Box::new(guest));
    }
    let mut guest = AnyUserGuest::attach(socket, &options).expect("a guest");
    if matches!(receiver, Receiver::Choosy) {
        // VIRTIO_NET_CTRL_RX_PROMISC: off.
        assert_eq!(guest.command(0, 0, &[0]).expect("connected"), 0);
    }
    Second::User(Box::new(guest))
}

fn packet(from: [u8; 6], to: [u8; 6]) -> Vec<u8> {
    let mut packet = vec![0; 500];
    packet[..6].copy_from_slice(&to);
    packet[6..12].copy_from_slice(&from);
    packet[12..14].copy_from_slice(&[8, 0]);
    let ip = [0x45, 0, 1, 0xe6, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    packet[14..34].copy_from_slice(&ip);
    packet
}

fn command(ringway: &Ringway, words: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
    command.args(words).arg("--control").arg(ringway.control());
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts")
}

/// The packets that were captured, and the finding of `why`, while the first guest sent.
fn dropped(case: &Case) -> (String, Value) {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["a", "b", "c"].map(|name| format!("{name}=vm:{name}.sock"));
    let [a, b, c] = &ports;
    let (a, b) = (format!("{a}{}", case.options[0]), format!("{b}{}", case.options[1]));
    let ringway = Ringway::run(directory.path(), &["--port", &a, "--port", &b, "--port", c]);
    let socket = |name: &str| directory.path().join(format!("{name}.sock"));
    let options = GuestOptions::default();
    let mut a = wait_for("a guest", || AnyUserGuest::attach(&socket("a"), &options).ok());
    let mut b = second(&socket("b"), case.receiver);
    if let Second::User(b) = &mut b {
        // So that the switch knows where it is.
        let _ = b.send(&packet(b.mac(), [0xff; 6])).expect("connected");
        b.flush();
    }
    let to = match (case.to, &b) {
        (To::Receiver, Second::User(b)) => b.mac(),
        (To::Sender, _) => a.mac(),
        (To::Unknown, _) => [2, 9, 9, 9, 9, 9],
        (To::All, _) | (To::Receiver, Second::Raw(_)) => [0xff; 6],
    };
    let packet = packet(a.mac(), to);
    told(&ringway, case.at, || {
        let _ = a.send_with(&case.header, &packet).expect("connected");
        a.flush();
    })
}

/// The packets that were captured at a port, and the finding of `why`, while packets were sent.
fn told(ringway: &Ringway, at: &str, mut send: impl FnMut()) -> (String, Value) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("packets.pcapng");
    let file_name = file.to_str().expect("text");
    let mut capture = command(ringway, &["capture", at, file_name, "--time", "2", "--snap", "64"]);
    let mut why = command(ringway, &["why", at, "--json"]);
    let is_running = |child: &mut Child| child.try_wait().expect("a child").is_none();
    while is_running(&mut capture) | is_running(&mut why) {
        send();
        sleep(PAUSE);
    }
    let captured = String::from_utf8_lossy(&fs::read(&file).expect("a file")).into_owned();
    let told = why.wait_with_output().expect("it has ended").stdout;
    (captured, serde_json::from_slice(&told).expect("JSON"))
}

fn check(case: &Case) {
    let (captured, why) = dropped(case);
    let comment = format!("dropped: {}", case.reason);
    assert!(captured.contains(&comment), "{}: no packet says so", case.reason);
    let first = &why["findings"][0]["what"];
    assert_eq!(first, case.what, "{}: {why}", case.reason);
}

#[test]
fn each_reason_is_named_by_a_capture_and_by_why() {
    for some in cases().chunks(AT_ONCE) {
        thread::scope(|scope| some.iter().for_each(|case| drop(scope.spawn(|| check(case)))));
    }
}

/// The guest takes memory away in which the end of its packet lies: the kernel cannot read that.
#[test]
fn what_the_kernel_refuses_is_named_by_both() {
    const HEAD_LEN: u32 = 300;
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["--port", "a=vm:a.sock", "--port", "up=tap:rwt0"];
    let Some(ringway) = Ringway::run_in_namespace(directory.path(), &ports) else {
        return println!("skipped: no network namespace or no /dev/net/tun here");
    };
    let accept = Features::OFFERED.difference(Features::RING_PACKED);
    let options = GuestOptions { accept, ..GuestOptions::default() };
    let socket = directory.path().join("a.sock");
    let guest = wait_for("a guest", || HostileGuest::attach(&socket, &options).ok());
    let (head, memory) = (guest.scratch(), guest.memory());
    head.memory.write(HEADER_LEN, &packet([2, 1, 1, 1, 1, 1], [0xff; 6]));
    let (address, len) = *memory.ranges().last().expect("a region");
    let len_before = fstat(memory.file()).expect("a file").st_size.cast_unsigned();
    // The region of the rings is far longer than they are.
    ftruncate(memory.file(), len_before - len / 4).expect("ours");
    let pieces = [
        RawDescriptor { address: head.device_address, len: HEAD_LEN, flags: NEXT, id: 1 },
        RawDescriptor { address: address + len - 4096, len: 200, ..RawDescriptor::default() },
    ];
    let queue = guest.queue(1);
    (0..).zip(pieces).for_each(|(at, piece)| queue.set_descriptor(at, Format::Split, piece));
    let mut sent = 0_u16;
    let (captured, why) = told(&ringway, "up", || {
        queue.set_available(sent, 0);
        sent = sent.wrapping_add(1);
        queue.set_available_index(sent);
        queue.kick();
    });
    assert!(captured.contains("dropped: os"), "no packet says so: {}", ringway.log());
    assert_eq!(why["findings"][0]["what"], "the operating system", "{why}");
}
