//! Datagrams that go together: what a guest leaves to be cut, the kernel brings as one message to
//! another guest's socket, and each guest gets what it takes.

mod common;
#[path = "common/nat_guest.rs"]
mod nat_guest;

use std::path::Path;

use common::{Ringway, wait_for};
use nat_guest::{Guest, UDP, datagram, socket, word};
use ringway_net::{Features, GsoType, NEEDS_CSUM, NetHeader};
use ringway_testkit::GuestOptions;
use ringway_testkit::beside::accepting;

/// Where the IP header ends, and the UDP header.
const UDP_AT: usize = 34;
const DATA_AT: usize = 42;

/// A server behind `a`, and a client behind `b` that reaches it through a port of this machine.
struct Pair {
    server: Guest,
    client: Guest,
    /// Of the client, as the server sees it.
    port: u16,
    _ringway: Ringway,
}

impl Pair {
    fn start(directory: &Path, client: Features) -> Self {
        let (_, at) = socket();
        let router = format!("net=nat:,host=10.0.2.2,forward=udp:{at}:a:53");
        let ports = ["--port", "a=vm:a.sock", "--port", "b=vm:b.sock", "--port", &router];
        let ringway = Ringway::run(directory, &ports);
        let mut server = Guest::new(directory, "a", &GuestOptions::default());
        let mac = [2, 0x72, 0x77, 0, 0, 2];
        let mut client = Guest::new(directory, "b", &GuestOptions { mac, ..accepting(client) });
        client.tell(UDP, &datagram([4000, at.port()], b"hello"));
        let hello = server.receive(UDP, |payload| payload[2..4] == [0, 53]);
        Self { server, client, port: word(&hello, 20), _ringway: ringway }
    }

    /// The server sends these bytes, `each` in a datagram, as one packet.
    fn send(&mut self, bytes: &[u8], each: u16) {
        self.post(bytes, each);
        self.server.nic.flush();
    }

    /// The same, together with what it sends next.
    fn post(&mut self, bytes: &[u8], each: u16) {
        let header = NetHeader {
            flags: NEEDS_CSUM,
            gso_type: GsoType::UdpL4.raw(),
            gso_size: each,
            hdr_len: 42,
            csum_start: 34,
            csum_offset: 6,
            ..NetHeader::default()
        };
        self.server.post_with(&header, UDP, &datagram([53, self.port], bytes));
    }

    /// The frames that the client gets, with headers, until it has so many bytes.
    fn receive(&mut self, len: usize) -> Vec<(NetHeader, Vec<u8>)> {
        let (mut frames, mut left) = (Vec::new(), len);
        while left > 0 {
            let (header, frame) = wait_for("a datagram", || {
                let found = self.client.nic.receive().expect("a good device")?;
                (found.1.len() > UDP_AT && found.1[23] == UDP).then_some(found)
            });
            let is_first = word(&frame, 20) & 0x1fff == 0;
            let data_at = if is_first { DATA_AT } else { UDP_AT };
            left -= usize::from(word(&frame, 16)) + 14 - data_at;
            frames.push((header, frame));
            self.client.nic.flush();
        }
        frames
    }
}

fn data(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| ((at * 7 + seed) % 251).to_le_bytes()[0]).collect()
}

/// The first ones come while none are expected, the others while some are.
#[test]
fn several_datagrams_come_together_to_a_guest_that_takes_them_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut pair = Pair::start(directory.path(), Features::OFFERED);
    for (round, count) in [12_300, 60_000, 4_700, 60_000].into_iter().enumerate() {
        let sent = data(count, round);
        pair.send(&sent, 1000);
        let frames = pair.receive(count);
        assert_eq!(frames.len(), 1, "round {round}");
        let (header, frame) = &frames[0];
        assert_eq!((header.gso(), header.gso_size), (Some(GsoType::UdpL4), 1000));
        assert!(frame[DATA_AT..] == sent, "round {round}");
        assert_eq!(usize::from(word(frame, UDP_AT + 4)), 8 + count);
    }
    pair.send(&data(900, 9), 1000);
    let frames = pair.receive(900);
    assert_eq!((frames.len(), frames[0].0.gso()), (1, Some(GsoType::None)), "one alone");
}

#[test]
fn guests_that_take_no_several_get_each_alone() {
    let uso = Features::GUEST_USO4 | Features::GUEST_USO6;
    let accepted = [
        Features::OFFERED - uso,
        Features::OFFERED - uso - Features::MRG_RXBUF,
        Features::VERSION_1 | Features::MRG_RXBUF,
        Features::VERSION_1,
    ];
    for features in accepted {
        let directory = tempfile::tempdir().expect("a directory");
        let mut pair = Pair::start(directory.path(), features);
        for round in 0..3 {
            let sent = data(12_300, round);
            pair.send(&sent, 1000);
            let frames = pair.receive(sent.len());
            let lens: Vec<_> = frames.iter().map(|(_, frame)| frame.len() - DATA_AT).collect();
            assert_eq!(lens, [&[1000; 12][..], &[300]].concat(), "{features:?}");
            let got: Vec<_> = frames.iter().flat_map(|(_, frame)| &frame[DATA_AT..]).collect();
            assert!(got.into_iter().eq(&sent), "{features:?}, round {round}");
        }
    }
}

/// Each goes in parts, also those that wait together in the socket while the first ones are cut;
/// from then on they come one by one.
#[test]
fn several_that_are_longer_than_a_packet_are_cut() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut pair = Pair::start(directory.path(), Features::OFFERED);
    pair.send(&data(12_300, 0), 1000);
    assert_eq!(pair.receive(12_300).len(), 1);
    for round in 0..3 {
        let sent = data(24_000, round);
        pair.post(&sent[..12_000], 4000);
        pair.send(&sent[12_000..], 4000);
        let frames = pair.receive(sent.len());
        assert_eq!(frames.len(), 18, "six of three parts");
        let is_first = |frame: &[u8]| word(frame, 20) & 0x1fff == 0;
        let firsts = frames.iter().filter(|(_, it)| is_first(it));
        let lens: Vec<u16> = firsts.map(|(_, it)| word(it, UDP_AT + 4)).collect();
        assert_eq!(lens, [4008; 6], "round {round}");
        let from = |frame: &[u8]| if is_first(frame) { DATA_AT } else { UDP_AT };
        let got: Vec<_> = frames.iter().flat_map(|(_, it)| it[from(it)..].to_vec()).collect();
        assert!(got == sent, "round {round}");
    }
}
