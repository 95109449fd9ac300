//! A guest that keeps to no rule, on a connection that is open, and sockets that say anything: no
//! panic, nothing is done about a socket that is closed, no byte is consumed that was not sent.

mod lab;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lab::{GUEST, Lab, MAC, plan};
use proptest::collection::vec;
use proptest::prelude::*;
use ringway_nat::{Event, Failure, Problem};

/// A segment near what is expected, or anywhere.
#[derive(Debug, Clone)]
struct Any {
    seq: i32,
    ack: i32,
    flags: u8,
    window: u16,
    options: Vec<u8>,
    data: usize,
}

fn any_segment() -> impl Strategy<Value = Any> {
    let near = || prop_oneof![9 => Just(0), 4 => -3000..3000i32, 1 => any::<i32>()];
    let flags = prop_oneof![4 => Just(0x10u8), 1 => Just(0x11), 1 => Just(2), 1 => any::<u8>()];
    let options = vec(any::<u8>(), 0..10);
    (near(), near(), flags, any::<u16>(), options, 0..2000usize).prop_map(
        |(seq, ack, flags, window, mut options, data)| {
            options.resize(options.len().next_multiple_of(4), 0);
            Any { seq, ack, flags, window, options, data }
        },
    )
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        any::<u32>().prop_map(|room| Event::Connected { room }),
        Just(Event::Failed(Failure::Reset)),
        Just(Event::Failed(Failure::NoRoom)),
        Just(Event::Failed(Failure::Unreachable(Problem::HostUnreachable))),
        Just(Event::Readable),
        Just(Event::Writable),
        any::<u32>().prop_map(Event::Sent),
        any::<u32>().prop_map(Event::Room),
        Just(Event::Report { from: None, problem: Problem::TooBig(576) }),
    ]
}

fn frame(segment: &Any, expected: u32, next: u32) -> Vec<u8> {
    let mut frame = [&plan().mac().0[..], &MAC, &[8, 0]].concat();
    let len = 40 + segment.options.len() + segment.data;
    let [high, low] = u16::try_from(len).unwrap().to_be_bytes();
    frame.extend([0x45, 0, high, low, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 2, 15]);
    frame.extend([198, 51, 100, 7, 0x9c, 0x40, 0, 80]);
    frame.extend(expected.wrapping_add_signed(segment.seq).to_be_bytes());
    frame.extend(next.wrapping_add_signed(segment.ack).to_be_bytes());
    let words = u8::try_from(5 + segment.options.len() / 4).unwrap();
    frame.extend([words << 4, segment.flags]);
    frame.extend(segment.window.to_be_bytes());
    frame.extend([0; 4]);
    frame.extend(&segment.options);
    frame.resize(14 + len, 7);
    frame
}

/// The numbers that the router last told the guest: the one that it expects, and its own.
fn told(lab: &Lab) -> Option<(u32, u32)> {
    let mut frames = lab.seen.iter().rev();
    let last = frames.find(|frame| frame[12..14] == [8, 0] && frame[23] == 6)?;
    let word = |at: usize| u32::from_be_bytes(*last[at..].first_chunk().unwrap());
    let len =
        u32::from(u16::from_be_bytes([last[16], last[17]])) - 20 - u32::from(last[46] >> 4) * 4;
    let flags = u32::from(last[47]);
    Some((word(42), word(38).wrapping_add(len + (flags & 1) + (flags >> 1 & 1))))
}

static CONSUMED: AtomicU64 = AtomicU64::new(0);

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    fn nothing_is_believed_blindly(
        seed in any::<u64>(),
        steps in vec((any_segment(), proptest::option::weighted(0.2, any_event()), 0..4u64), 1..60),
    ) {
        let mut lab = Lab::new(seed);
        lab.host.short = 20;
        let syn = Any { seq: 0, ack: 0, flags: 2, window: 9000, options: vec![], data: 0 };
        lab.send(&frame(&syn, 5000, 0));
        lab.step();
        for (segment, event, pause) in steps {
            let (expected, next) = told(&lab).unwrap_or((5001, 0));
            lab.send(&frame(&segment, expected, next));
            let flows: Vec<_> = lab.host.fakes.values()
                .filter(|fake| fake.closed.is_none()).map(|fake| fake.flow).collect();
            for flow in &flows {
                lab.host.fakes.get_mut(&flow.to_u64()).unwrap().outgoing.extend([1; 3000]);
                if let Some(event) = event {
                    lab.tell(*flow, event);
                }
            }
            lab.step();
            lab.now = lab.now.plus(pause * pause * pause * 20_000_000_000);
            let open = lab.host.fakes.values().filter(|fake| fake.closed.is_none()).count();
            prop_assert!(lab.nat.flows_of(GUEST) >= open, "a socket without a flow");
            let all = lab.host.fakes.values();
            CONSUMED.fetch_add(all.map(|fake| fake.consumed).sum(), Relaxed);
        }
    }
}

#[test]
fn nothing_that_a_guest_or_a_socket_says_is_believed() {
    nothing_is_believed_blindly();
    assert!(CONSUMED.load(Relaxed) > 100_000, "connections were open, and data flowed");
}
