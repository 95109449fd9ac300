//! `ringway sflow`: a collector gets samples of real packets, and the counters of ports, as
//! Wireshark's decoder understands them.

mod common;

use std::fs::File;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{Ringway, wait_for};
use pcap_file::pcap::{PcapPacket, PcapWriter};
use ringway_testkit::{AnyUserGuest, GuestOptions};
use rustix::process::{Pid, Signal, kill_process};

/// The fields of each datagram that tshark prints.
const FIELDS: [&str; 10] = [
    "sflow_245.version",
    "sflow_245.agent",
    "eth.dst",
    "ip.src",
    "ip.dst",
    "sflow.flow_sample.sampling_rate",
    "sflow_245.ifindex",
    "sflow_245.ifinpkt",
    "sflow_245.header.frame_length",
    "sflow.flow_sample.output_interface",
];

fn guest(directory: &Path, name: &str) -> AnyUserGuest {
    let socket = directory.join(format!("{name}.sock"));
    wait_for("a guest", || AnyUserGuest::attach(&socket, &GuestOptions::default()).ok())
}

/// A UDP packet to all from the station 10.0.0.`number`.
fn frame(from: &AnyUserGuest, number: u8) -> Vec<u8> {
    let addresses = [&[0xff; 6], &from.mac()[..], &[8, 0]].concat();
    let ip = [0x45, 0, 1, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, number, 10, 0, 0, 255];
    let udp = [0x10, number, 0, 53, 0, 236, 0, 0];
    let mut frame = [&addresses[..], &ip, &udp].concat();
    frame.resize(14 + 256, number);
    frame
}

/// A collector, and what it got.
struct Collector {
    socket: UdpSocket,
    datagrams: Vec<Vec<u8>>,
}

impl Collector {
    fn new() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(20))).expect("set");
        Self { socket, datagrams: Vec::new() }
    }

    fn begin(&self, ringway: &Ringway, more: &[&str]) -> Child {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ringway"));
        child.arg("sflow").arg("--control").arg(ringway.control()).arg("--collector");
        child.arg(self.socket.local_addr().expect("its address").to_string()).args(more);
        child.stderr(Stdio::piped()).spawn().expect("it starts")
    }

    /// Whether one of the datagrams so far has these bytes.
    fn has(&mut self, bytes: &[u8]) -> bool {
        let mut datagram = [0; 2000];
        while let Ok(len) = self.socket.recv(&mut datagram) {
            assert!(len <= 1400 && datagram.starts_with(&[0, 0, 0, 5]), "{len}");
            self.datagrams.push(datagram[..len].to_vec());
        }
        let has = |datagram: &Vec<u8>| datagram.windows(bytes.len()).any(|it| it == bytes);
        self.datagrams.iter().any(has)
    }

    /// Sends until a packet of the guest was sampled.
    fn must_see(&mut self, guest: &mut AnyUserGuest, number: u8) {
        let packet = frame(guest, number);
        self.must_see_packet(guest, &packet);
    }

    fn must_see_packet(&mut self, guest: &mut AnyUserGuest, packet: &[u8]) {
        wait_for("a sample", || {
            let _ = guest.send(packet).expect("connected");
            guest.flush();
            self.has(&packet[..128]).then_some(())
        });
    }

    /// The datagrams as packets of a file, which tshark decodes.
    fn decoded(&self, file: &Path) -> String {
        let mut writer = PcapWriter::new(File::create(file).expect("a file")).expect("written");
        for datagram in &self.datagrams {
            let [len, udp_len] = [28, 8]
                .map(|more| u16::try_from(datagram.len() + more).expect("short").to_be_bytes());
            let ip =
                [0x45, 0, len[0], len[1], 0, 0, 0, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1];
            let udp = [0x20, 0, 0x18, 0xc7, udp_len[0], udp_len[1], 0, 0];
            let bytes = [&[0; 12], &[8, 0][..], &ip, &udp, datagram].concat();
            let len = u32::try_from(bytes.len()).expect("short");
            let packet = PcapPacket::new(Duration::ZERO, len, bytes).expect("a packet");
            writer.write_packet(&packet).expect("written");
        }
        let fields = FIELDS.iter().flat_map(|field| ["-e", field]);
        let mut tshark = Command::new("tshark");
        tshark.arg("-r").arg(file).args(["-d", "udp.port==6343,sflow", "-T", "fields"]);
        let output = tshark.args(fields).output().expect("it starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

fn end(child: Child) -> String {
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_collector_gets_packets_and_counters_whatever_comes_and_goes() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    // The third has failed.
    let ports = ["a=vm:a.sock", "b=vm:b.sock", "f=vm:/none/f.sock"].map(|port| ["--port", port]);
    let ringway = Ringway::run(here, &[&["--keep-going"], ports.as_flattened()].concat());
    let (mut a, _b) = (guest(here, "a"), guest(here, "b"));
    let mut collector = Collector::new();
    let child = collector.begin(&ringway, &["--rate", "1", "--every", "1"]);
    collector.must_see(&mut a, 1);
    wait_for("counters", || collector.has(b"b\0\0\0").then_some(()));
    kill_process(ringway.data_plane(), Signal::KILL).expect("it runs");
    collector.must_see(&mut a, 2);
    ringway.told(&["port", "add", &format!("c=vm:{}", here.join("c.sock").display())]);
    let mut c = guest(here, "c");
    collector.must_see(&mut c, 3);
    ringway.told(&["port", "remove", "b"]);
    collector.must_see(&mut c, 4);
    let told = end(child);
    assert!(told.contains(" packets sampled; 0 were lost"), "{told}");
    if Command::new("tshark").arg("--version").output().is_err() {
        return println!("skipped: there is no tshark: ./x setup installs it");
    }
    let decoded = collector.decoded(&here.join("sflow.pcap"));
    let wanted =
        ["5\t127.0.0.1\t", "10.0.0.1", "10.0.0.3", "10.0.0.255", "ff:ff:ff:ff:ff:ff", "\t274"];
    for text in wanted {
        assert!(decoded.contains(text), "{text} in\n{decoded}");
    }
}

#[test]
fn named_ports_are_sampled_both_ways_and_others_are_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let ports = ["--port", "a=vm:a.sock", "--port", "b=vm:b.sock", "--port", "c=vm:c.sock"];
    let ringway = Ringway::run(here, &ports);
    let (mut a, mut b) = (guest(here, "a"), guest(here, "b"));
    let mut collector = Collector::new();
    let child = collector.begin(&ringway, &["b", "--rate", "1", "--every", "1"]);
    collector.must_see(&mut a, 1);
    collector.must_see(&mut b, 2);
    assert!(!collector.has(b"\x00\x00\x00\x01a\0\0\0"), "the counters of another port");
    end(child);
    let why = ringway.refused(&["sflow", "--collector", "127.0.0.1:6343", "nowhere"]);
    assert!(why.contains("there is no port called \"nowhere\": use one of a b c"), "{why}");
    let why = ringway.refused(&["sflow", "--collector", "collector.example:6343"]);
    assert!(
        why.contains("write an address or a name, and a port, such as 192.0.2.1:6343"),
        "{why}"
    );
}

#[test]
fn a_sample_says_to_which_port_or_to_how_many_it_went() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let ports = ["--port", "a=vm:a.sock", "--port", "b=vm:b.sock", "--port", "c=vm:c.sock"];
    let ringway = Ringway::run(here, &ports);
    let [mut a, mut b, _c] = ["a", "b", "c"].map(|name| guest(here, name));
    let mut collector = Collector::new();
    let child = collector.begin(&ringway, &["--rate", "1", "--every", "1"]);
    collector.must_see(&mut b, 1);
    // To the one that the switch knows now.
    let mut packet = frame(&a, 2);
    packet[..6].copy_from_slice(&b.mac());
    collector.must_see_packet(&mut a, &packet);
    end(child);
    if Command::new("tshark").arg("--version").output().is_err() {
        return println!("skipped: there is no tshark: ./x setup installs it");
    }
    let decoded = collector.decoded(&here.join("sflow.pcap"));
    let outputs = decoded.lines().filter_map(|line| line.split('\t').nth(9));
    let outputs: Vec<&str> = outputs.flat_map(|text| text.split(',')).collect();
    // Of b, two ports; of a, the second.
    for wanted in ["0x80000002", "0x00000002"] {
        assert!(outputs.contains(&wanted), "{wanted} in\n{decoded}");
    }
}
