//! Messages of a data plane to the supervisor, in any order, between those of a front-end.
//!
//! How: a byte says what comes next: a piece of a request, a message of any bytes, an answer that
//! nearly fits, a death, or another supervisor that goes on. File descriptors are numbers, each of
//! which must come back once. Limits: one front-end; what the binary does with ports and orders is
//! not reached.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ringway_supervisor::frame::Framer;
use ringway_supervisor::restart::{Busy, PlaneExit, Restarts};
use ringway_supervisor::slots::{Keep, LINK_FDS_MAX, LINK_LEN_MAX, Link, SLOTS_MAX, SlotRange};
use ringway_supervisor::watch::{Beat, Watch};
use ringway_supervisor::wire::ToSupervisor;

use crate::wire::message;

/// Most steps of one input.
const STEPS_MAX: usize = 256;

/// Numbers that are between two slots of the same kind, so that ranges meet them.
const SLOT_STEP: u16 = 7;

struct Played {
    link: Link<u32>,
    /// Descriptors that were sent, and are open.
    open: BTreeSet<u32>,
    next_fd: u32,
    restarts: Restarts,
    watch: Watch,
    now: Instant,
    kept: usize,
}

/// One input; how many requests it has led to be kept.
pub fn supervisor(data: &[u8]) -> usize {
    let mut played = Played {
        link: Link::default(),
        open: BTreeSet::new(),
        next_fd: 0,
        restarts: Restarts::default(),
        watch: Watch::default(),
        now: Instant::now(),
        kept: 0,
    };
    let mut rest = data;
    for _ in 0..STEPS_MAX {
        let [kind, a, b, behind @ ..] = rest else { break };
        rest = behind;
        match kind {
            0..0x60 => played.request(*kind, *a, *b),
            0x60..0xb0 => played.answer(*a, *b),
            0xb0..0xe0 => {
                let (bytes, behind) = behind.split_at(usize::from(*a).min(behind.len()));
                rest = behind;
                played.hear(129 + b % 13, bytes);
            }
            0xe0..0xf0 => played.dies(*a, *b),
            0xf0..0xf8 => played.look(*a, *b),
            _ => played.go_on(),
        }
        played.check();
    }
    played.kept
}

impl Played {
    /// A request, or a part of one, with some descriptors.
    fn request(&mut self, kind: u8, a: u8, b: u8) {
        let bytes = message(a, &vec![b; usize::from(b)]);
        let (mut rest, mut fds) = (&bytes[..], u32::from(kind % 4));
        while !rest.is_empty() && self.link.framer.wanted() > 0 {
            let (piece, behind) = rest.split_at(self.link.framer.wanted().min(rest.len()));
            let sent = self.next_fd..self.next_fd + fds;
            (self.next_fd, fds, rest) = (sent.end, 0, behind);
            self.open.extend(sent.clone());
            if self.link.framer.push(piece, sent, false).is_err() {
                // The connection ends, and everything of it is closed.
                (self.link, self.open) = (Link::default(), BTreeSet::new());
                return;
            }
            if kind & 0x40 != 0 {
                return;
            }
        }
    }

    /// An answer to the request that is outstanding, more or less.
    fn answer(&mut self, a: u8, b: u8) {
        let number = self.link.framer.outstanding().map_or(0, |(number, _)| number);
        let slot = u16::from(b) * SLOT_STEP + u16::from(a >> 7) * (SLOTS_MAX - 900);
        let keep = Keep { slot, fds: a >> 2 & 3 };
        let range = SlotRange { first: slot.saturating_sub(20), last: slot + 20 };
        let drops = if a & 16 != 0 { vec![range] } else { vec![] };
        let number = number.wrapping_add(u32::from(a & 0x60 == 0x60));
        self.done(number, &drops, (a & 3 != 0).then_some(keep));
    }

    /// A message of any bytes.
    fn hear(&mut self, kind: u8, bytes: &[u8]) {
        let bytes = [&[kind], bytes].concat();
        let Ok(said) = ToSupervisor::decode(&bytes) else { return };
        assert_eq!(said.encode(), bytes, "what is decoded encodes to the same");
        match said {
            ToSupervisor::Done { number, keep, drops, .. } => {
                self.done(number, &drops.into_inner(), keep);
            }
            ToSupervisor::Forget { drops, .. } => {
                let gone = self.link.forget(&drops.into_inner());
                self.close(gone);
            }
            _ => {}
        }
    }

    fn done(&mut self, number: u32, drops: &[SlotRange], keep: Option<Keep>) {
        let before = self.link.replay().count();
        let outstanding = self.link.framer.outstanding().is_some();
        match self.link.done(number, drops, keep) {
            Ok(gone) => {
                assert!(outstanding && self.link.framer.outstanding().is_none());
                self.kept += usize::from(keep.is_some());
                self.close(gone);
            }
            Err(_) => {
                assert_eq!(self.link.framer.outstanding().is_some(), outstanding);
                assert_eq!(self.link.replay().count(), before, "nothing was dropped");
            }
        }
    }

    fn close(&mut self, gone: Vec<u32>) {
        for fd in gone {
            assert!(self.open.remove(&fd), "fd {fd} is closed twice");
        }
    }

    fn dies(&mut self, a: u8, b: u8) {
        self.now += Duration::from_millis(u64::from(b) * 50);
        let end = match a & 3 {
            0 => PlaneExit::Exit(1),
            1 => PlaneExit::Hung,
            _ => PlaneExit::Signal(i32::from(a >> 2) % 40),
        };
        let into = (b & 4 != 0).then_some(u16::from(b >> 3 & 3));
        let busy = [
            Busy { visited: u16::from(a >> 6), into },
            Busy { visited: u16::from(b & 3), into: None },
        ];
        let is_named =
            |port: &u16| busy.iter().any(|it| it.visited == *port || it.into == Some(*port));
        let in_hand = self.link.framer.outstanding().map(|(number, _)| (1, number));
        let in_hand: Vec<_> = in_hand.into_iter().collect();
        let verdict = self.restarts.died(self.now, end, &busy, &in_hand);
        assert!(verdict.start_at >= self.now, "it is started in the past");
        assert!(verdict.quarantine.iter().all(is_named));
        assert!(verdict.refuse.iter().all(|request| in_hand.contains(request)));
        if b & 1 != 0 {
            self.restarts.release(busy[0].visited);
        }
    }

    fn look(&mut self, a: u8, b: u8) {
        self.now += Duration::from_millis(u64::from(a) * 10);
        let beat = Beat { count: u64::from(b >> 2), is_asleep: b & 1 != 0 };
        let oldest = (b & 2 != 0).then_some(self.now);
        let again = self.watch.look(self.now, oldest, &[beat]).again;
        assert!(again.is_none_or(|at| at >= self.now), "it looks again in the past");
    }

    /// Another supervisor gets what this one has.
    fn go_on(&mut self) {
        let (number, bytes, fds, has_lost_fds) = self.link.framer.partial();
        let (bytes, fds) = (bytes.to_vec(), fds.to_vec());
        let partial = ringway_supervisor::frame::Frame { bytes, fds, has_lost_fds };
        let outstanding = self.link.framer.outstanding().map(|(_, frame)| frame.clone());
        let framer = Framer::resume(number, partial, outstanding).expect("what there was");
        let slots = self.link.replay().map(|(slot, frame)| (slot, frame.clone()));
        let next = Link::resume(framer, slots).expect("no more than is kept");
        assert!(next.replay().eq(self.link.replay()));
        self.link = next;
    }

    /// All that is open is somewhere, and no more is kept than may be.
    fn check(&self) {
        let kept = || self.link.replay().map(|(_, frame)| frame);
        assert!(kept().map(|frame| frame.bytes.len()).sum::<usize>() <= LINK_LEN_MAX);
        assert!(kept().map(|frame| frame.fds.len()).sum::<usize>() <= LINK_FDS_MAX);
        assert!(self.link.replay().all(|(slot, _)| slot < SLOTS_MAX));
        let (_, _, partial, _) = self.link.framer.partial();
        let outstanding = self.link.framer.outstanding().map(|(_, frame)| frame);
        let held = kept().chain(outstanding).flat_map(|frame| &frame.fds).chain(partial);
        assert!(held.collect::<BTreeSet<_>>().into_iter().eq(&self.open), "an fd is lost");
    }
}
