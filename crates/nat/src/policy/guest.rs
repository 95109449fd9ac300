//! The policies of guests as the router goes by them: questions that were asked outside for them,
//! addresses that were answers, and connections whose first bytes decide.
//!
//! How: an address is bound to its name before the guest hears of it. Once a second it is looked
//! which of them flows use: those stay bound.
//!
//! Limits: questions come by UDP, [`QUESTIONS_PER_SECOND`] of a guest, and [`QUESTIONS_MAX`] of
//! them wait for an answer; of its connections [`HELLOS_MAX`] wait for a hello, [`HELLO_NS`] each.
//! A connection that was open before its policy asks for a hello is not asked for one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ringway_net::Nanos;

use super::answer::GuestAnswer;
use super::bindings::Bindings;
use super::hello::{HELLO_LEN_MAX, Hello, HelloReader};
use super::name::HostName;
use super::question::{Denial, QuestionStep, UpstreamQuestion, judge};
use super::rule::PRIVATE;
use super::{Decision, Policy};
use crate::addresses::Plan;
use crate::frame::{ICMP, ICMPV6, TCP, UDP};
use crate::packet::{Incoming, word};
use crate::reach::{Reach, meant, reach};
use crate::table::{FlowId, FlowKey, Guest, Protocol, Rate};

/// Most questions of a guest in a second; twice as many at once.
pub const QUESTIONS_PER_SECOND: u32 = 50;
/// Most questions of a guest that wait for a resolver's answer; the oldest ones are forgotten.
pub const QUESTIONS_MAX: usize = 64;

/// Most connections of a guest whose first bytes are awaited.
pub const HELLOS_MAX: usize = 256;
/// How long they may take, in nanoseconds.
pub const HELLO_NS: u64 = 3_000_000_000;

/// How often it is looked which addresses are used.
const LOOK_EVERY_NS: u64 = 1_000_000_000;

/// The outcome of a guest's question.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// An answer to the guest.
    Answered(Vec<u8>),
    /// A message to a resolver, in the place of the guest's.
    Outside(Vec<u8>),
    /// Nothing: it is no question, or there are too many.
    Dropped,
}

/// The policy of one guest.
#[derive(Debug)]
pub(crate) struct GuestPolicy {
    policy: Arc<Policy>,
    denial: Denial,
    bindings: Bindings,
    questions: Rate,
    waiting: VecDeque<UpstreamQuestion>,
    /// The message that goes outside next, in the place of the guest's.
    judged: Option<Vec<u8>>,
    /// Addresses that flows use.
    used: BTreeSet<IpAddr>,
    /// Connections that have not said yet with whom.
    hellos: BTreeMap<u64, AwaitedHello>,
}

/// The first bytes of a connection, which are not acknowledged before they are whole.
#[derive(Debug)]
struct AwaitedHello {
    until: Nanos,
    bytes: Vec<u8>,
    reader: HelloReader,
}

/// The outcome of a connection's first bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// They go on as they came.
    Pass,
    /// These go on, which came in several segments.
    PassAll(Vec<u8>),
    /// More are needed.
    Wait,
    /// It is refused.
    Refuse,
}

impl GuestPolicy {
    fn new(policy: Arc<Policy>, denial: Denial) -> Self {
        Self {
            policy,
            denial,
            bindings: Bindings::default(),
            questions: Rate::new(QUESTIONS_PER_SECOND),
            waiting: VecDeque::new(),
            judged: None,
            used: BTreeSet::new(),
            hellos: BTreeMap::new(),
        }
    }

    /// Judges a message to the router's name server. `number`: one that cannot be guessed.
    pub fn ask(&mut self, message: &[u8], number: u16, now: Nanos) -> Asked {
        if !self.questions.take(now) {
            return Asked::Dropped;
        }
        match judge(message, false, number, &self.policy, self.denial).map(|it| it.step) {
            None => Asked::Dropped,
            Some(QuestionStep::Answer(answer)) => Asked::Answered(answer),
            Some(QuestionStep::Ask(question)) => {
                let message = question.message();
                self.waiting.retain(|it| !it.has_number(number));
                if self.waiting.len() >= QUESTIONS_MAX {
                    self.waiting.pop_front();
                }
                self.waiting.push_back(question);
                self.judged = Some(message.clone());
                Asked::Outside(message)
            }
        }
    }

    /// Whether that message is the one that was put in the place of the guest's, once.
    pub fn takes_judged(&mut self, message: &[u8]) -> bool {
        self.judged.take_if(|judged| judged == message).is_some()
    }

    /// The guest's answer, made of a resolver's; `None`: it answers no question. `opens`: whether
    /// answers open an address at all.
    pub fn answer(
        &mut self,
        message: &[u8],
        opens: impl Fn(IpAddr) -> bool,
        now: Nanos,
    ) -> Option<Vec<u8>> {
        let answered = self.waiting.iter().enumerate();
        let mut answered = answered.filter_map(|(at, it)| Some((at, it.answer(message, &opens)?)));
        let (at, GuestAnswer { message, addresses, .. }) = answered.next()?;
        let question = self.waiting.remove(at)?;
        let is_bound = self.bindings.bind(question.name(), &addresses, now) == 0;
        Some(if is_bound { message } else { question.failure() })
    }

    /// Whether the guest may open a flow; one that is not TCP or UDP has port 0.
    pub fn flow(&self, is_tcp: bool, to: SocketAddr, now: Nanos) -> Decision {
        let names: Vec<&HostName> = self.bindings.names(to.ip(), now).collect();
        self.policy.flow(is_tcp, to, names.into_iter())
    }

    /// A flow to that address begins.
    pub fn use_address(&mut self, address: IpAddr, now: Nanos) {
        if !self.used.contains(&address) && self.bindings.hold(address, now) {
            self.used.insert(address);
        }
    }

    /// Whether one more connection may wait for its first bytes.
    pub fn may_await_hello(&self) -> bool {
        self.hellos.len() < HELLOS_MAX
    }

    /// A connection was opened whose first bytes decide.
    pub fn await_hello(&mut self, flow: FlowId, now: Nanos) {
        let (until, reader) = (now.plus(HELLO_NS), HelloReader::default());
        self.hellos.insert(flow.to_u64(), AwaitedHello { until, bytes: Vec::new(), reader });
    }

    pub fn awaits_hello(&self, flow: FlowId) -> bool {
        self.hellos.contains_key(&flow.to_u64())
    }

    /// Bytes of a connection, so many behind its beginning.
    pub fn hello(&mut self, flow: FlowId, to: SocketAddr, bytes: Placed<'_>, now: Nanos) -> First {
        let Some(hello) = self.hellos.get_mut(&flow.to_u64()) else { return First::Pass };
        let Placed { at, data } = bytes;
        let known = hello.bytes.len();
        let Some(new) = known.checked_sub(at).and_then(|skip| data.get(skip..)) else {
            // Bytes before these are missing, or nothing is new.
            return First::Wait;
        };
        let room = HELLO_LEN_MAX.saturating_sub(known);
        hello.bytes.extend(&new[..new.len().min(room)]);
        let name = match hello.reader.read(&hello.bytes) {
            Hello::More => return First::Wait,
            Hello::Name(name) => Some(name),
            Hello::Refused(_) => None,
        };
        let hello = self.hellos.remove(&flow.to_u64());
        let is_allowed = name.is_some_and(|name| {
            let is_bound = self.bindings.is_bound(&name, to.ip(), now);
            self.policy.hello(&name, to.port(), is_bound).is_open()
        });
        match hello {
            Some(_) if !is_allowed => First::Refuse,
            Some(hello) if at > 0 || known > 0 => First::PassAll(hello.bytes),
            _ => First::Pass,
        }
    }

    /// A connection is refused.
    pub fn forget_hello(&mut self, flow: FlowId) {
        self.hellos.remove(&flow.to_u64());
    }

    fn look(&mut self, used: &BTreeSet<IpAddr>, now: Nanos) {
        let over: Vec<IpAddr> = self.used.difference(used).copied().collect();
        for address in over {
            self.bindings.release(address, now);
            self.used.remove(&address);
        }
        self.bindings.remove_ended(now);
    }

    /// Another policy holds from now on; what it does not allow is bound no more.
    fn follow(&mut self, policy: Arc<Policy>, denial: Denial) {
        self.bindings.retain(|name| policy.question(name).is_open());
        self.waiting.retain(|question| policy.question(question.name()).is_open());
        (self.policy, self.denial, self.judged) = (policy, denial, None);
    }
}

/// Whether answers open an address: one of the internet, which guests reach without a policy.
pub(crate) fn opens(plan: &Plan, address: IpAddr) -> bool {
    let is_private = |it: IpAddr| PRIVATE.iter().any(|network| network.contains(it));
    reach(plan, address) == Reach::Allowed && !meant(address).any(is_private)
}

/// Whether the policy lets a flow be opened.
pub(crate) fn decision(policy: &GuestPolicy, key: &FlowKey, now: Nanos) -> Decision {
    policy.flow(key.protocol == Protocol::Tcp, key.to, now)
}

/// The key of the flow that a packet belongs to, or may begin.
pub(crate) fn key_of(incoming: &Incoming<'_>) -> Option<FlowKey> {
    let ip = &incoming.ip;
    let port = |at| word(ip.payload, at);
    match (ip.protocol, ip.from, ip.payload.first()) {
        (TCP, ..) => Some(incoming.key(Protocol::Tcp, port(0)?, port(2)?)),
        (UDP, ..) => Some(incoming.key(Protocol::Udp, port(0)?, port(2)?)),
        (ICMP, IpAddr::V4(_), Some(8)) | (ICMPV6, IpAddr::V6(_), Some(128)) => {
            Some(incoming.key(Protocol::Echo, port(4)?, 0))
        }
        _ => None,
    }
}

/// Bytes of a stream, so many behind its beginning.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed<'a> {
    pub at: usize,
    pub data: &'a [u8],
}

/// All guests that have a policy.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    guests: BTreeMap<Guest, GuestPolicy>,
    look_at: Nanos,
}

impl Policies {
    /// That policy holds for a guest from now on; `None`: it may reach all that others may.
    pub fn set(&mut self, guest: Guest, policy: Option<(Arc<Policy>, Denial)>) {
        match (policy, self.guests.get_mut(&guest)) {
            (None, _) => drop(self.guests.remove(&guest)),
            (Some((policy, denial)), Some(known)) => known.follow(policy, denial),
            (Some((policy, denial)), None) => {
                self.guests.insert(guest, GuestPolicy::new(policy, denial));
            }
        }
    }

    /// The policy of a guest, if it has one.
    pub fn of(&mut self, guest: Guest) -> Option<&mut GuestPolicy> {
        self.guests.get_mut(&guest)
    }

    /// Whether a guest has one.
    pub fn has(&self, guest: Guest) -> bool {
        !self.guests.is_empty() && self.guests.contains_key(&guest)
    }

    /// A connection that has not said in time with whom.
    pub fn take_late(&mut self, now: Nanos) -> Option<FlowId> {
        self.guests.values_mut().find_map(|guest| {
            let late = guest.hellos.iter().find(|(_, hello)| hello.until <= now);
            let late = late.map(|(flow, _)| *flow)?;
            guest.hellos.remove(&late);
            Some(FlowId::from_u64(late))
        })
    }

    /// When [`Self::look`] has something to do.
    pub fn deadline(&self) -> Option<Nanos> {
        let holds = |it: &GuestPolicy| !it.used.is_empty() || it.bindings.deadline().is_some();
        let look_at = self.guests.values().any(holds).then_some(self.look_at);
        let hellos = self.guests.values().flat_map(|guest| guest.hellos.values());
        hellos.map(|hello| hello.until).chain(look_at).min()
    }

    /// Looks which bound addresses are used; `of`: those to which a guest has flows.
    pub fn look(&mut self, now: Nanos, of: impl Fn(Guest) -> BTreeSet<IpAddr>) {
        self.look_at = now.plus(LOOK_EVERY_NS);
        self.guests.iter_mut().for_each(|(guest, it)| it.look(&of(*guest), now));
    }
}
