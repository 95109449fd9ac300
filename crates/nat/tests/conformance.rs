//! Connections segment by segment, with a guest that follows a script (RFC 9293, RFC 6093).

mod lab;

use std::net::SocketAddr;

use lab::host::{Answer, Fake};
use lab::packets::{REMOTE, packet, segment};
use lab::{GUEST, Lab};
use ringway_nat::{Actions, Close};

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 0x10;
const URG: u8 = 0x20;

/// Sequence number of the guest's first byte.
const FIRST: u32 = 1001;

/// A segment to the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Said {
    seq: u32,
    ack: u32,
    flags: u8,
    window: u16,
    data: Vec<u8>,
}

/// A guest that does what the test says.
struct Script {
    lab: Lab,
    /// The number that it acknowledges.
    ack: u32,
}

impl Script {
    fn new() -> Self {
        Self { lab: Lab::scripted(), ack: 0 }
    }

    /// A connection that is open.
    fn open() -> Self {
        let mut script = Self::new();
        script.send(SYN, FIRST - 1, &[]);
        let said = script.said(3);
        assert_eq!((said.len(), said[0].flags, said[0].ack), (1, SYN | ACK, FIRST));
        script.ack = said[0].seq.wrapping_add(1);
        script.send(ACK, FIRST, &[]);
        assert_eq!(script.said(3), []);
        script
    }

    fn send(&mut self, flags: u8, seq: u32, data: &[u8]) {
        self.lab.send(&segment(seq, self.ack, flags, &[], data));
    }

    fn send_with_window(&mut self, window: u16) {
        let mut frame = segment(FIRST, self.ack, ACK, &[], &[]);
        frame[48..50].copy_from_slice(&window.to_be_bytes());
        self.lab.send(&frame);
    }

    /// The segments that the guest hears within so many milliseconds.
    fn said(&mut self, ms: u32) -> Vec<Said> {
        self.lab.seen.clear();
        for _ in 0..ms {
            self.lab.step();
        }
        let segments = self.lab.seen.iter().filter(|frame| frame[12..14] == [8, 0]);
        segments.filter(|frame| frame[23] == 6).map(|frame| said(frame)).collect()
    }

    fn socket(&mut self) -> &mut Fake {
        self.lab.host.one()
    }

    /// The socket's other end sends that.
    fn feed(&mut self, data: &[u8]) {
        self.socket().outgoing.extend(data);
    }

    fn received(&mut self) -> Vec<u8> {
        self.said(50);
        self.socket().received.clone()
    }
}

fn said(frame: &[u8]) -> Said {
    let word = |at: usize| u32::from_be_bytes(*frame[at..].first_chunk().unwrap());
    let end = 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    Said {
        seq: word(38),
        ack: word(42),
        flags: frame[47],
        window: u16::from_be_bytes([frame[48], frame[49]]),
        data: frame[34 + usize::from(frame[46] >> 4) * 4..end].to_vec(),
    }
}

#[test]
fn a_syn_again_opens_one_connection_and_gets_the_same_answer() {
    let mut script = Script::new();
    script.send(SYN, FIRST - 1, &[]);
    script.send(SYN, FIRST - 1, &[]);
    let first = script.said(5);
    assert_eq!(first.len(), 1);
    script.send(SYN, FIRST - 1, &[]);
    assert_eq!(script.said(5), first, "the same number");
    script.ack = first[0].seq.wrapping_add(1);
    script.send(ACK, FIRST, &[]);
    script.said(5);
    // One that was late changes nothing.
    script.send(SYN, FIRST - 1, &[]);
    let late = script.said(5);
    assert_eq!((late.len(), late[0].flags, late[0].ack), (1, ACK, FIRST));
    assert_eq!(script.socket().closed, None);
}

#[test]
fn an_answer_to_a_syn_is_repeated_four_times_and_given_up() {
    let mut script = Script::new();
    script.send(SYN, FIRST - 1, &[]);
    let all = script.said(40_000);
    assert_eq!(all.len(), 5);
    assert!(all.iter().all(|it| *it == all[0]), "{all:?}");
    assert_eq!(script.socket().closed, Some(Close::Reset));
    assert_eq!(script.lab.nat.flows_of(GUEST), 0);
}

/// Both send their FIN before they have seen the other's (RFC 9293 §3.6, figure 13).
#[test]
fn both_ends_may_close_at_once() {
    let mut script = Script::open();
    script.socket().ends = true;
    let said = script.said(5);
    assert_eq!((said.len(), said[0].flags), (1, FIN | ACK));
    script.send(FIN | ACK, FIRST, &[]);
    let answer = script.said(5);
    assert_eq!((answer.len(), answer[0].ack), (1, FIRST + 1));
    assert_eq!(script.socket().closed, None, "its own FIN is not acknowledged");
    script.ack = script.ack.wrapping_add(1);
    script.send(ACK, FIRST + 1, &[]);
    script.said(5);
    assert_eq!(script.socket().closed, Some(Close::Gracefully));
    assert!(script.socket().shutdown);
    script.said(6000);
    assert_eq!(script.lab.nat.flows_of(GUEST), 0);
}

#[test]
fn a_fin_that_is_repeated_is_answered_after_the_end() {
    let mut script = Script::open();
    script.send(FIN | ACK, FIRST, &[]);
    script.socket().ends = true;
    assert_eq!(script.said(5).last().map(|it| it.flags), Some(FIN | ACK));
    script.ack = script.ack.wrapping_add(1);
    script.send(ACK, FIRST + 1, &[]);
    script.said(5);
    script.send(FIN | ACK, FIRST, &[]);
    let again = script.said(5);
    assert_eq!((again.len(), again[0].flags, again[0].ack), (1, ACK, FIRST + 1));
}

#[test]
fn a_fin_behind_missing_data_ends_nothing() {
    let mut script = Script::open();
    script.send(FIN | ACK, FIRST + 100, b"end");
    let said = script.said(5);
    assert_eq!((said.len(), said[0].ack), (1, FIRST), "what is missing is asked for");
    assert!(!script.socket().shutdown);
    script.send(ACK, FIRST, &[7; 100]);
    script.send(FIN | ACK, FIRST + 100, b"end");
    assert_eq!(script.received(), [&[7; 100][..], b"end"].concat());
    assert!(script.socket().shutdown);
}

#[test]
fn a_closed_window_is_probed_and_data_waits_for_it() {
    let mut script = Script::open();
    script.send_with_window(0);
    script.feed(&[7; 3000]);
    assert_eq!(script.said(900), [], "nothing may be sent, and no second has passed");
    let probes = script.said(16_000);
    assert!((3..=5).contains(&probes.len()), "after 1, 2, 4, 8 s: {probes:?}");
    for probe in &probes {
        assert_eq!((probe.seq, probe.data.len()), (script.ack.wrapping_sub(1), 0), "{probe:?}");
    }
    script.send_with_window(9000);
    let data: Vec<u8> = script.said(5).into_iter().flat_map(|it| it.data).collect();
    assert_eq!(data, [7; 3000]);
}

#[test]
fn a_full_window_waits_for_the_guest() {
    let mut script = Script::open();
    let flow = script.socket().flow;
    script.send_with_window(3000);
    script.feed(&[7; 1000]);
    script.said(5);
    assert!(!script.lab.nat.waits_for_guest(flow), "there is room for more segments");
    script.feed(&[7; 9000]);
    script.said(5);
    assert!(script.lab.nat.waits_for_guest(flow));
    script.ack = script.ack.wrapping_add(1000);
    script.send_with_window(3000);
    assert!(!script.lab.nat.waits_for_guest(flow));
}

#[test]
fn a_window_that_shrinks_to_nothing_takes_back_what_is_on_the_way() {
    let mut script = Script::open();
    script.feed(&[7; 3000]);
    let lost = script.said(5);
    assert!(!lost.is_empty());
    script.send_with_window(0);
    script.said(500);
    script.send_with_window(9000);
    let again = script.said(5);
    assert_eq!(again[0].seq, script.ack, "from the beginning");
    let data: Vec<u8> = again.into_iter().flat_map(|it| it.data).collect();
    assert_eq!(data, [7; 3000]);
}

#[test]
fn a_byte_that_probes_a_closed_window_is_answered_and_not_taken() {
    let mut script = Script::new();
    script.lab.host.capacity = 2000;
    script.send(SYN, FIRST - 1, &[]);
    script.ack = script.said(5)[0].seq.wrapping_add(1);
    script.send(ACK, FIRST, &[]);
    script.socket().reads = false;
    script.send(ACK, FIRST, &[1; 1000]);
    script.send(ACK, FIRST + 1000, &[1; 1000]);
    let full = script.said(50);
    let last = full.last().expect("acknowledged");
    assert_eq!((last.ack, last.window), (FIRST + 2000, 0));
    script.send(ACK, FIRST + 2000, &[2]);
    let answer = script.said(5);
    assert!(answer.iter().all(|it| (it.ack, it.window) == (FIRST + 2000, 0)), "{answer:?}");
    assert!(!answer.is_empty());
    script.socket().reads = true;
    let open = script.said(2000);
    assert!(open.last().is_some_and(|it| it.window >= 1000), "told unasked: {open:?}");
    script.send(ACK, FIRST + 2000, &[2]);
    assert_eq!(script.received().len(), 2001);
}

#[test]
fn segments_out_of_order_are_asked_for_again() {
    let mut script = Script::open();
    for at in [1000, 2000, 3000] {
        script.send(ACK, FIRST + at, &[9; 1000]);
    }
    let said = script.said(5);
    assert_eq!(said.len(), 3, "one for each, so that the loss is noticed");
    assert!(said.iter().all(|it| it.ack == FIRST && it.data.is_empty()));
    for at in [0, 1000, 2000, 3000] {
        script.send(ACK, FIRST + at, &[9; 1000]);
    }
    assert_eq!(script.received(), [9; 4000]);
}

#[test]
fn of_segments_that_overlap_each_byte_is_taken_once() {
    let mut script = Script::open();
    let text: Vec<u8> = (0..=255).cycle().take(2000).collect();
    for (start, end) in [(0, 700), (0, 500), (300, 1200), (700, 1200), (1100, 2000)] {
        script.send(ACK, FIRST + u32::try_from(start).unwrap(), &text[start..end]);
    }
    // Other bytes in the place of those that were taken change nothing.
    script.send(ACK, FIRST + 100, &[0xee; 300]);
    assert_eq!(script.received(), text);
}

#[test]
fn urgent_data_is_data_wherever_the_pointer_points() {
    for pointer in [0u16, 1, 5, 100, 0x8000, 0xffff] {
        let mut script = Script::open();
        let mut frame = segment(FIRST, script.ack, ACK | URG, &[], b"hurry");
        frame[52..54].copy_from_slice(&pointer.to_be_bytes());
        script.lab.send(&frame);
        script.send(ACK, FIRST + 5, b" up");
        assert_eq!(script.received(), b"hurry up", "{pointer}");
    }
}

#[test]
fn keep_alives_are_answered_and_are_no_sign_of_a_loss() {
    for data in [&[][..], &[0]] {
        let mut script = Script::open();
        script.feed(&[7; 3000]);
        script.said(5);
        for _ in 0..5 {
            script.send(ACK, FIRST - 1, data);
            let said = script.said(5);
            assert_eq!((said.len(), said[0].data.len(), said[0].ack), (1, 0, FIRST), "{said:?}");
        }
        assert!(script.received().is_empty());
    }
}

#[test]
fn a_silent_guest_is_asked_after_five_minutes() {
    let mut script = Script::open();
    assert_eq!(script.said(299_000), []);
    let probes = script.said(2000);
    assert_eq!((probes.len(), probes[0].seq), (1, script.ack.wrapping_sub(1)));
    script.send(ACK, FIRST, &[]);
    assert_eq!(script.said(299_000), []);
}

/// A connection in each of its states, by name.
fn in_state(name: &str) -> Script {
    let mut script = match name {
        "connecting" | "answered" => Script::new(),
        _ => Script::open(),
    };
    match name {
        "connecting" => {
            script.lab.host.answer = Answer::Silence;
            script.send(SYN, FIRST - 1, &[]);
            script.said(3);
        }
        "answered" => {
            script.send(SYN, FIRST - 1, &[]);
            script.ack = script.said(3)[0].seq.wrapping_add(1);
        }
        "guest ended" => script.send(FIN | ACK, FIRST, &[]),
        "remote ended" => {
            script.socket().ends = true;
            script.said(5);
        }
        "ending" => {
            script.socket().ends = true;
            script.said(5);
            script.send(FIN | ACK, FIRST, &[]);
        }
        _ => {}
    }
    let states: Vec<_> = script.lab.nat.flows(GUEST, script.lab.now).map(|it| it.state).collect();
    assert_eq!(states, [name]);
    script
}

const STATES: [&str; 6] =
    ["connecting", "answered", "open", "guest ended", "remote ended", "ending"];

#[test]
fn a_reset_ends_a_connection_in_each_state() {
    for name in STATES {
        let mut script = in_state(name);
        let seq = FIRST + u32::from(name == "guest ended" || name == "ending");
        script.send(RST, seq, &[]);
        let said = script.said(5);
        assert_eq!(script.socket().closed, Some(Close::Reset), "{name}");
        assert_eq!((script.lab.nat.flows_of(GUEST), said), (0, vec![]), "{name}");
    }
}

#[test]
fn a_reset_from_outside_the_window_ends_nothing_in_any_state() {
    for name in STATES {
        let mut script = in_state(name);
        for seq in [FIRST - 10, FIRST + 0x4000_0000] {
            script.send(RST, seq, &[]);
        }
        script.said(5);
        assert_eq!(script.socket().closed, None, "{name}");
        assert_eq!(script.lab.nat.flows_of(GUEST), 1, "{name}");
    }
}

#[test]
fn acknowledgements_of_what_was_never_sent_are_not_believed() {
    let mut script = Script::open();
    script.feed(&[7; 1000]);
    script.said(5);
    let ack = std::mem::replace(&mut script.ack, 0);
    script.ack = ack.wrapping_add(5000);
    script.send(ACK, FIRST, b"x");
    script.said(5);
    assert_eq!((script.socket().consumed, script.received().len()), (0, 0));
    script.ack = ack.wrapping_add(1000);
    script.send(ACK, FIRST, b"x");
    assert_eq!(script.received(), b"x");
    assert_eq!(script.socket().consumed, 1000);
}

/// The guest is a router itself, and its own next link carries less than its first: it says so, and
/// shorter segments follow (RFC 1191 §4).
#[test]
fn a_path_behind_the_guest_that_carries_less_gets_shorter_segments() {
    let mut script = Script::new();
    let mss = [2, 4, 5, 0xb4];
    script.lab.send(&segment(FIRST - 1, 0, SYN, &mss, &[]));
    script.ack = script.said(5)[0].seq.wrapping_add(1);
    script.send(ACK, FIRST, &[]);
    script.said(3);
    let data: Vec<u8> = (0..=255).cycle().take(3000).collect();
    script.feed(&data);
    let lost = script.said(5);
    assert_eq!(lost[0].data.len(), 1460);
    let quote = [&[0x45, 0, 5, 0xdc, 0, 0, 0x40, 0, 63, 6, 0, 0][..], &REMOTE, &[10, 0, 2, 15]];
    let ports = [0, 80, 0x9c, 0x40];
    let quote = |seq: u32| [&quote.concat()[..], &ports, &seq.to_be_bytes()].concat();
    let error = |mtu: [u8; 2], seq: u32| {
        packet(REMOTE, 1, &[&[3, 4, 0, 0, 0, 0, mtu[0], mtu[1]][..], &quote(seq)].concat())
    };
    // About what is not on the way, and one that would make segments useless.
    script.lab.send(&error([3, 0xe8], script.ack.wrapping_sub(9000)));
    assert_eq!(script.said(5), []);
    script.lab.send(&error([4, 0xb0], script.ack));
    let again = script.said(5);
    assert_eq!((again[0].seq, again[0].data.len()), (script.ack, 1160), "1200 less 40");
    let got: Vec<u8> = again.into_iter().flat_map(|it| it.data).collect();
    assert_eq!(got, data);
    script.lab.send(&error([0, 68], script.ack));
    let least = script.said(5);
    assert!(least.iter().all(|it| it.data.len() <= 536), "{least:?}");
    assert!(least.iter().any(|it| it.data.len() == 536), "not less than 576 bytes are believed");
}

#[test]
fn a_connection_from_outside_is_asked_for_five_times_and_given_up() {
    let mut script = Script::new();
    lab::lease(&mut script.lab);
    let from = SocketAddr::from(([203, 0, 113, 5], 7777));
    let now = script.lab.now;
    let mut actions = Actions::new();
    let flow =
        script.lab.nat.accept(lab::port(GUEST, 80), lab::caller(from, 50_000), now, &mut actions);
    let flow = flow.expect("a flow");
    script.lab.host.accepted(flow, from);
    let all = script.said(40_000);
    assert_eq!((all.len(), all[0].flags), (5, SYN));
    assert!(all.iter().all(|it| *it == all[0]), "{all:?}");
    assert_eq!(script.socket().closed, Some(Close::Reset));
}
