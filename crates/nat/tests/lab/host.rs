//! Sockets of a host, as queues of bytes.

use std::collections::{BTreeMap, VecDeque};

use ringway_nat::{Action, Close, Emit, Event, Failure, FlowId, Protocol, Read, Target};

use super::wire::Random;

/// The outcome of a connection attempt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Answer {
    #[default]
    Connects,
    Fails(Failure),
    Silence,
}

#[derive(Debug)]
pub struct Fake {
    pub flow: FlowId,
    pub protocol: Protocol,
    pub to: Target,
    /// The data that the application sends, and the part that is already in the receive queue.
    pub outgoing: VecDeque<u8>,
    pub queue: VecDeque<u8>,
    pub ends: bool,
    has_ended: bool,
    pub consumed: u64,
    /// The data that the guest sent, taken by the application, and still in the send buffer.
    pub received: Vec<u8>,
    buffer: VecDeque<u8>,
    pub reads: bool,
    is_blocked: bool,
    /// It could not be opened.
    pub failed: bool,
    pub shutdown: bool,
    pub closed: Option<Close>,
    pub datagrams_in: VecDeque<Vec<u8>>,
    pub datagrams_out: Vec<Vec<u8>>,
}

impl Fake {
    fn new(flow: FlowId, protocol: Protocol, to: Target) -> Self {
        Self {
            flow,
            protocol,
            to,
            outgoing: VecDeque::new(),
            queue: VecDeque::new(),
            ends: false,
            has_ended: false,
            consumed: 0,
            received: Vec::new(),
            buffer: VecDeque::new(),
            reads: true,
            is_blocked: false,
            failed: false,
            shutdown: false,
            closed: None,
            datagrams_in: VecDeque::new(),
            datagrams_out: Vec::new(),
        }
    }

    fn room(&self, capacity: usize) -> u32 {
        u32::try_from(capacity.saturating_sub(self.buffer.len())).unwrap()
    }

    /// The application works a bit.
    fn work(&mut self, random: &mut Random, events: &mut Vec<(FlowId, Event)>) {
        let len = usize::try_from(random.below(40_000)).unwrap().min(self.outgoing.len());
        let len = len.min(200_000usize.saturating_sub(self.queue.len()));
        self.queue.extend(self.outgoing.drain(..len));
        let ends_now = self.ends && self.outgoing.is_empty() && !self.has_ended;
        self.has_ended |= ends_now;
        if len > 0 || ends_now {
            events.push((self.flow, Event::Readable));
        }
        if self.reads {
            let len = usize::try_from(random.below(30_000)).unwrap().min(self.buffer.len());
            self.received.extend(self.buffer.drain(..len));
            if self.is_blocked && self.buffer.is_empty() {
                self.is_blocked = false;
                events.push((self.flow, Event::Writable));
            }
        }
    }
}

#[derive(Debug)]
pub struct Host {
    pub fakes: BTreeMap<u64, Fake>,
    pub answer: Answer,
    /// Bytes of a send buffer; more are refused, whatever was said before.
    pub capacity: usize,
    /// Percent of sends that are cut short.
    pub short: u64,
    pending: Vec<(FlowId, Event)>,
}

impl Default for Host {
    fn default() -> Self {
        let (fakes, pending) = (BTreeMap::new(), Vec::new());
        Self { fakes, answer: Answer::default(), capacity: 100_000, short: 0, pending }
    }
}

impl Host {
    /// The only one.
    pub fn one(&mut self) -> &mut Fake {
        assert_eq!(self.fakes.len(), 1);
        self.fakes.values_mut().next().unwrap()
    }

    /// A connection that comes from outside.
    pub fn accepted(&mut self, flow: FlowId, from: std::net::SocketAddr) {
        let fake = Fake::new(flow, Protocol::Tcp, Target::Address(from));
        assert!(self.fakes.insert(flow.to_u64(), fake).is_none());
    }

    /// A client whose datagrams come from outside.
    pub fn accepted_datagrams(&mut self, flow: FlowId, from: std::net::SocketAddr) {
        let fake = Fake::new(flow, Protocol::Udp, Target::Address(from));
        assert!(self.fakes.insert(flow.to_u64(), fake).is_none());
    }

    /// Whether no application has anything to do.
    pub fn is_idle(&self) -> bool {
        let is_idle = |fake: &Fake| fake.outgoing.is_empty() && fake.buffer.is_empty();
        self.pending.is_empty() && self.fakes.values().all(is_idle)
    }

    pub fn news(&mut self, random: &mut Random) -> Vec<(FlowId, Event)> {
        let mut events = std::mem::take(&mut self.pending);
        for fake in self.fakes.values_mut().filter(|fake| fake.closed.is_none()) {
            fake.work(random, &mut events);
        }
        events
    }

    pub fn carry_out(
        &mut self,
        action: Action,
        frame: &[u8],
        random: &mut Random,
    ) -> Option<(FlowId, Event)> {
        let capacity = self.capacity;
        let bytes = |skip: u32, len: u32| &frame[skip as usize..][..len as usize];
        match action {
            Action::Open { flow, protocol, to, .. } => {
                let old = self.fakes.insert(flow.to_u64(), Fake::new(flow, protocol, to));
                assert!(old.is_none_or(|old| old.failed), "one socket of a flow at a time");
                let room = u32::try_from(capacity).unwrap();
                match self.answer {
                    _ if protocol != Protocol::Tcp => {}
                    Answer::Connects => self.pending.push((flow, Event::Connected { room })),
                    Answer::Fails(why) => {
                        self.open(flow).failed = true;
                        self.pending.push((flow, Event::Failed(why)));
                    }
                    Answer::Silence => {}
                }
                None
            }
            Action::Consume { flow, len } => {
                let fake = self.open(flow);
                assert!(len as usize <= fake.queue.len(), "consumes what is there");
                fake.queue.drain(..len as usize);
                fake.consumed += u64::from(len);
                None
            }
            Action::Send { flow, skip, len } => {
                let is_short = random.percent(self.short);
                let fake = self.open(flow);
                assert!(!fake.shutdown && len > 0);
                let room = fake.room(capacity).min(len);
                let taken = if is_short { room / 2 } else { room };
                fake.is_blocked |= taken < len;
                fake.buffer.extend(bytes(skip, taken));
                Some((flow, Event::Sent(taken)))
            }
            Action::SendDatagram { flow, skip, len, .. } => {
                self.open(flow).datagrams_out.push(bytes(skip, len).to_vec());
                None
            }
            Action::Shutdown { flow } => {
                let fake = self.open(flow);
                assert!(!fake.shutdown);
                fake.shutdown = true;
                None
            }
            Action::AskRoom { flow } => {
                let room = self.open(flow).room(capacity);
                Some((flow, Event::Room(room)))
            }
            Action::AskEnd { flow } => {
                let fake = self.open(flow);
                (fake.has_ended && fake.queue.is_empty()).then_some((flow, Event::HungUp))
            }
            Action::FollowGuests => None,
            Action::Close { flow, how } => {
                let fake = self.open(flow);
                fake.closed = Some(how);
                // The data that was sent still arrives.
                fake.received.extend(fake.buffer.drain(..));
                None
            }
        }
    }

    fn open(&mut self, flow: FlowId) -> &mut Fake {
        let fake = self.fakes.get_mut(&flow.to_u64()).expect("opened");
        assert_eq!(fake.closed, None, "open");
        fake
    }

    /// The data that is read for a frame; `None`: no frame.
    pub fn read(&mut self, emit: &mut Emit) -> (Read, Option<Vec<u8>>) {
        let Some(source) = emit.source else { return (Read::Bytes(0), Some(Vec::new())) };
        let fake = self.open(emit.flow);
        let Some(at) = source.peek_at else {
            let Some(datagram) = fake.datagrams_in.pop_front() else { return (Read::Empty, None) };
            let len = u32::try_from(datagram.len()).unwrap();
            let read = if emit.must_be_cut(len) { Read::TooLong } else { Read::Bytes(len) };
            return (read, Some(datagram));
        };
        let at = at as usize;
        assert!(at <= fake.queue.len(), "an offset behind the queue looks like the end");
        let bytes: Vec<u8> =
            fake.queue.iter().skip(at).take(source.len_max as usize).copied().collect();
        match bytes.len() {
            0 if fake.has_ended => (Read::End, None),
            0 => (Read::Empty, None),
            len => (Read::Bytes(u32::try_from(len).unwrap()), Some(bytes)),
        }
    }
}
