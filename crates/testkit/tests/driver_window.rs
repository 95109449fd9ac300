//! Payload that a receiver with a limit on memory gets through a real device, for each scheme of
//! receive buffers: the same order as in the model.
//!
//! How: one guest sends to another through a `ringway run` of its own. The receiver holds packets,
//! as a socket does, until they hold [`WINDOW_LEN`] bytes of memory (`truesize`); then it reads
//! them all and says so in a packet, for which the sender waits. So less payload in a window means
//! more round trips. How many bytes each window takes is compared with the model, and no time is
//! looked at.
//!
//! To measure, `RINGWAY_WINDOWS=200 cargo test --release -p ringway-testkit --test driver_window --
//! --nocapture`: so many windows each, with a network of [`ROUND_TRIP`] between the two guests, and
//! the rate as well.
//!
//! Limits: the network is a wait before the acknowledgement; it loses and delays nothing else.

use std::env;
use std::error::Error;
use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use ringway_driver::rx_buffer::buffers_for;
use ringway_driver::{Held, LINEAR_LEN_MAX, RxBufferSizer, RxScheme, Sent};
use ringway_net::{Features, HEADER_LEN, NetHeader};
use ringway_testkit::beside::{Outcome, accepting, verify_exchange};
use ringway_testkit::frames::{self, Link, STAMPED_LEN_MIN, Stamp};
use ringway_testkit::{ARRIVAL_LIMIT, AnyUserGuest, GuestOptions, RingwayProcess};

/// Bytes of memory that the receiver holds before it reads.
const WINDOW_LEN: u32 = 1 << 20;
/// Windows that are counted.
const WINDOWS: u64 = 8;
const WINDOWS_VARIABLE: &str = "RINGWAY_WINDOWS";
/// Shortest time from one window to the next when rates are measured.
const ROUND_TRIP: Duration = Duration::from_millis(2);
/// Packets before that: every buffer of the ring has been replaced several times.
const WARM_UP: usize = 1024;
/// Packets on the way at once.
const BURST: usize = 16;
/// Entries of the ring.
const RING_SIZE: u16 = 256;
/// Longer packets are sent as one that is to be segmented.
const PLAIN_LEN_MAX: usize = 1514;
const SEGMENT_LEN: u16 = 1448;
/// The model and a real ring differ by the ends of chunks and by whole packets, in per cent.
const SLACK: u64 = 5;

/// Lengths of packets in bytes that follow each other again and again.
const ROWS: [(&str, &[usize]); 6] = [
    ("MTU", &[1514]),
    ("3000 to 4000", &[3100, 3700, 3300, 3900, 3500]),
    ("9000", &[9014]),
    ("64 KiB", &[65_226]),
    ("70 B and 9000", &[STAMPED_LEN_MIN, 9014]),
    ("MTU and 64 KiB", &[1514, 1514, 1514, 1514, 65_226]),
];

/// Both guests, and the packets that one sends to the other.
struct Pair {
    sender: AnyUserGuest,
    receiver: AnyUserGuest,
    packets: Vec<(NetHeader, Vec<u8>)>,
    acknowledgement: Vec<u8>,
    sent: usize,
    arrived: usize,
    held: Vec<Held>,
    into: Vec<u8>,
}

impl Pair {
    fn attach(
        ringway: &RingwayProcess,
        scheme: RxScheme,
        lens: &[usize],
    ) -> Result<Self, Box<dyn Error>> {
        let mut accept = Features::OFFERED;
        accept.set(Features::MRG_RXBUF, scheme.needs_mergeable());
        let options = GuestOptions {
            rx_scheme: scheme,
            rx_spare_len: 2 * WINDOW_LEN,
            queue_size: RING_SIZE,
            ..accepting(accept)
        };
        let mut guests = [
            AnyUserGuest::attach(&ringway.socket("a"), &GuestOptions::default())?,
            AnyUserGuest::attach(&ringway.socket("b"), &options)?,
        ];
        verify_exchange(&mut guests, 4, PLAIN_LEN_MAX)?;
        let [sender, receiver] = guests;
        let link = Link { from: sender.mac(), to: receiver.mac() };
        let stamp = Stamp { flow: 7, sequence: 0 };
        let back = Link { from: link.to, to: link.from };
        let large = |len| frames::tcp_large(link, stamp, len, SEGMENT_LEN);
        let plain = |len| (NetHeader::default(), frames::udp(link, stamp, len));
        let packet = |&len: &usize| if len > PLAIN_LEN_MAX { large(len) } else { plain(len) };
        Ok(Self {
            sender,
            receiver,
            packets: lens.iter().map(packet).collect(),
            acknowledgement: frames::udp(back, stamp, STAMPED_LEN_MIN),
            sent: 0,
            arrived: 0,
            held: Vec::with_capacity(WINDOW_LEN as usize / LINEAR_LEN_MAX),
            into: vec![0; 1 << 16],
        })
    }

    /// Fills one window, reads it, and lets the sender know, no sooner than `round_trip` after it
    /// began; returns its payload.
    fn window(&mut self, round_trip: Duration) -> Result<u64, Box<dyn Error>> {
        let began = Instant::now();
        let (mut truesize, mut payload) = (0, 0);
        while truesize < WINDOW_LEN {
            self.send()?;
            let (len, size) = self.accept()?;
            payload += u64::from(len);
            truesize += size;
        }
        for held in self.held.drain(..) {
            held.copy_to(&mut self.into[..held.len as usize]);
            self.receiver.release(held);
        }
        thread::sleep(round_trip.saturating_sub(began.elapsed()));
        self.acknowledge()?;
        Ok(payload)
    }

    /// Keeps packets on the way.
    fn send(&mut self) -> Result<(), Box<dyn Error>> {
        if self.sent - self.arrived > BURST / 2 {
            return Ok(());
        }
        while self.sent - self.arrived < BURST {
            let (header, packet) = &self.packets[self.sent % self.packets.len()];
            if self.sender.send_with(header, packet)? != Sent::Done {
                break;
            }
            self.sent += 1;
        }
        self.sender.flush();
        Ok(())
    }

    /// Waits for the next packet and holds it: its length, and the memory that it holds.
    fn accept(&mut self) -> Result<(u32, u32), Box<dyn Error>> {
        let deadline = Instant::now() + ARRIVAL_LIMIT;
        loop {
            if let Some(arrived) = self.receiver.receive_held()? {
                self.arrived += 1;
                self.held.extend(arrived.held);
                return Ok((arrived.len, arrived.truesize));
            }
            self.receiver.flush();
            self.send()?;
            self.receiver.wait_call(Duration::from_millis(50))?;
            if Instant::now() > deadline {
                return Err(format!("packet {} does not arrive", self.arrived).into());
            }
        }
    }

    fn acknowledge(&mut self) -> Outcome {
        let _ = self.receiver.send(&self.acknowledgement)?;
        self.receiver.flush();
        let deadline = Instant::now() + ARRIVAL_LIMIT;
        while self.sender.receive_into(&mut self.into)?.is_none() {
            self.sender.wait_call(Duration::from_millis(50))?;
            if Instant::now() > deadline {
                return Err("the acknowledgement does not arrive".into());
            }
        }
        self.sender.flush();
        self.into.resize(1 << 16, 0);
        Ok(())
    }
}

/// The numbers of one scheme: bytes of payload in a window, and how fast it went.
#[derive(Debug, Clone, Copy, Default)]
struct Found {
    payload: u64,
    gigabits: f64,
}

/// Windows to count, and the time of each.
fn windows() -> (u64, Duration) {
    let windows = env::var(WINDOWS_VARIABLE).ok().and_then(|windows| windows.parse().ok());
    windows.map_or((WINDOWS, Duration::ZERO), |windows| (windows, ROUND_TRIP))
}

// Numbers of bytes are far below 2^53.
#[allow(clippy::cast_precision_loss)]
fn find(
    ringway: &RingwayProcess,
    scheme: RxScheme,
    lens: &[usize],
) -> Result<Found, Box<dyn Error>> {
    let mut pair = Pair::attach(ringway, scheme, lens)?;
    while pair.arrived < WARM_UP {
        pair.window(Duration::ZERO)?;
    }
    let (windows, round_trip) = windows();
    let began = Instant::now();
    let mut payload = 0;
    for _ in 0..windows {
        payload += pair.window(round_trip)?;
    }
    let gigabits = payload as f64 * 8e-9 / began.elapsed().as_secs_f64();
    pair.sender.detach()?;
    pair.receiver.detach()?;
    Ok(Found { payload: payload / windows, gigabits })
}

/// Memory for each MiB of payload by the model; short packets are copied.
fn model(scheme: RxScheme, lens: &[usize]) -> u64 {
    let header_len = u32::try_from(HEADER_LEN).unwrap_or(0);
    let mut sizer = RxBufferSizer::new(scheme, header_len, RING_SIZE);
    let lens: Vec<u32> = lens.iter().filter_map(|len| u32::try_from(*len).ok()).collect();
    lens.iter().cycle().take(WARM_UP).for_each(|len| sizer.on_packet(*len));
    let buffer_len = sizer.next_len();
    let memory = |len: &u32| match *len as usize <= LINEAR_LEN_MAX {
        true => u64::from(*len),
        false => u64::from(buffers_for(len + header_len, buffer_len)) * u64::from(buffer_len),
    };
    let payload: u64 = lens.iter().copied().map(u64::from).sum();
    (lens.iter().map(memory).sum::<u64>() << 20) / payload
}

#[test]
fn a_window_through_a_real_device_is_ordered_as_the_model_says() -> Outcome {
    let ringway = RingwayProcess::start(&[("a", ""), ("b", "")])?;
    let mut text = format!("{:<16}", "KiB, Gb/s");
    RxScheme::ALL.iter().for_each(|scheme| {
        let _ = write!(text, "{:>15}", scheme.name());
    });
    let mut compared = 0;
    for (name, lens) in ROWS {
        let mut found = [Found::default(); RxScheme::ALL.len()];
        let _ = write!(text, "\n{name:<16}");
        for (found, scheme) in found.iter_mut().zip(RxScheme::ALL) {
            *found = find(&ringway, scheme, lens)?;
            let _ = write!(text, "{:>8}{:>7.2}", found.payload / 1024, found.gigabits);
        }
        let memory = RxScheme::ALL.map(|scheme| model(scheme, lens));
        for (one, other) in (0..memory.len()).flat_map(|one| (0..one).map(move |two| (one, two))) {
            let (less, more) =
                if memory[one] < memory[other] { (one, other) } else { (other, one) };
            if memory[less] * (100 + SLACK) < memory[more] * 100 {
                compared += 1;
                let schemes = [less, more].map(|at| RxScheme::ALL[at].name());
                let is_ordered = found[less].payload > found[more].payload;
                assert!(is_ordered, "{name}: {schemes:?} {found:?} {memory:?}\n{text}");
            }
        }
    }
    println!("{text}");
    assert!(compared > 25, "{compared} differences only");
    Ok(())
}
