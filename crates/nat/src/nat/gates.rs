//! The packets of a guest with a policy: its questions, the first packet of each flow, and the
//! first bytes of those connections that name their host.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;

use ringway_net::MacAddress;

use super::verdict::{Verdict, WHOLE_LEN_MAX};
use crate::actions::Actions;
use crate::addresses::Plan;
use crate::emit::{Lone, lone_segment};
use crate::flows::Flows;
use crate::frame::{Stations, TCP, udp};
use crate::guests::{Guests, REPLIES_MAX};
use crate::names;
use crate::packet::{Incoming, word};
use crate::policy::Decision;
use crate::policy::guest::{Asked, First, Placed, Policies, decision, key_of};
use crate::policy::hello::UNRECOGNIZED_NAME;
use crate::refusal::{Refusal, Refused};
use crate::socket::{Close, Problem};
use crate::table::{FlowId, FlowKey, Protocol};
use crate::tcp::{ACK, FIN, Head, PSH, RST, Segment};

/// The parts of a router that judge.
pub(super) struct Gates<'a> {
    pub policies: &'a mut Policies,
    pub flows: &'a mut Flows,
    pub guests: &'a mut Guests,
    pub plan: &'a Plan,
    pub keys: &'a RandomState,
}

/// The next step with a packet, other than that it goes on.
pub(super) enum GateStep {
    /// There is nothing more to do with it.
    Over(Verdict),
    /// Another one takes its place.
    Instead(Vec<u8>),
    /// It goes on, and opens a connection whose first bytes decide.
    AwaitsHello(FlowKey),
}

impl Gates<'_> {
    /// Judges a packet for the router, whose source is right. `None`: it goes on.
    pub fn judge(
        &mut self,
        incoming: &Incoming<'_>,
        destination: MacAddress,
        actions: &mut Actions,
    ) -> Result<Option<GateStep>, Refused> {
        let Some(key) = key_of(incoming) else { return Ok(None) };
        let is_question = key.protocol == Protocol::Udp && self.plan.is_name_server(key.to);
        match self.flows.find(&key) {
            _ if is_question => self.question(incoming, destination),
            None if opens_flow(incoming) => self.new_flow(key, incoming),
            Some(flow) if key.protocol == Protocol::Tcp => {
                self.first_bytes(flow, &key, incoming, actions)
            }
            _ => Ok(None),
        }
    }

    /// A flow that begins goes to what the guest may reach, or to the router itself.
    fn new_flow(
        &mut self,
        key: FlowKey,
        incoming: &Incoming<'_>,
    ) -> Result<Option<GateStep>, Refused> {
        if self.plan.is_name_server(key.to) && key.protocol == Protocol::Tcp {
            return Err(Refused::with_reset(Refusal::Denied));
        }
        if self.plan.host == Some(key.to.ip()) {
            return Ok(None);
        }
        let Some(policy) = self.policies.of(key.guest) else { return Ok(None) };
        let decision = decision(policy, &key, incoming.now);
        if let Decision::Denied(_) = decision {
            return Err(Refused::with(Refusal::Denied, Problem::Prohibited));
        }
        let needs_hello = matches!(decision, Decision::Hello(_));
        if needs_hello && !policy.may_await_hello() {
            return Err(Refused::with_reset(Refusal::FlowLimit));
        }
        policy.use_address(key.to.ip(), incoming.now);
        Ok(needs_hello.then_some(GateStep::AwaitsHello(key)))
    }

    /// A message to the name server is answered here, or another one takes its place.
    fn question(
        &mut self,
        incoming: &Incoming<'_>,
        destination: MacAddress,
    ) -> Result<Option<GateStep>, Refused> {
        let &Incoming { guest, mac, ip, now } = incoming;
        if !ip.is_all_here() {
            return whole(incoming);
        }
        let message = names::message(ip.payload).ok_or(Refusal::Malformed)?;
        let port = |at| word(ip.payload, at).ok_or(Refusal::Malformed);
        let (from, server) = (SocketAddr::new(ip.from, port(0)?), SocketAddr::new(ip.to, port(2)?));
        let [high, low, ..] = self.keys.hash_one((now.0, from, message)).to_ne_bytes();
        let number = u16::from_ne_bytes([high, low]);
        let Some(policy) = self.policies.of(guest) else { return Ok(None) };
        if policy.takes_judged(message) {
            return Ok(None);
        }
        match policy.ask(message, number, now) {
            Asked::Dropped => Err(Refusal::Denied.into()),
            Asked::Answered(answer) => {
                let stations = Stations { from: self.plan.mac(), to: mac };
                self.guests.reply_up_to(REPLIES_MAX, guest, udp(stations, server, from, &answer));
                Ok(Some(GateStep::Over(Verdict::Done)))
            }
            Asked::Outside(message) => {
                let stations = Stations { from: mac, to: destination };
                Ok(Some(GateStep::Instead(udp(stations, from, server, &message))))
            }
        }
    }

    /// The first bytes of a connection are held until they have said with whom.
    fn first_bytes(
        &mut self,
        flow: FlowId,
        key: &FlowKey,
        incoming: &Incoming<'_>,
        actions: &mut Actions,
    ) -> Result<Option<GateStep>, Refused> {
        let &Incoming { guest, mac, ip, now } = incoming;
        let Some(policy) = self.policies.of(guest).filter(|it| it.awaits_hello(flow)) else {
            return Ok(None);
        };
        let segment = Segment::parse(ip.payload, ip.payload_len).ok_or(Refusal::Malformed)?;
        if segment.data_len == 0 && !segment.has(FIN) || segment.has(RST) {
            return Ok(None);
        }
        if !ip.is_all_here() {
            return whole(incoming);
        }
        let expected = self.flows.expected(flow).ok_or(Refusal::NoFlow)?;
        let data = ip.payload.get(segment.data_at as usize..).ok_or(Refusal::Malformed)?;
        let place = usize::try_from(segment.seq.offset_from(expected));
        let first = match place {
            // Bytes that were taken before, or an end without a hello.
            Err(_) => return Ok(None),
            Ok(_) if segment.has(FIN) => First::Refuse,
            Ok(at) => policy.hello(flow, key.to, Placed { at, data }, now),
        };
        let head =
            |seq, ack| Head { seq, ack, flags: ACK | PSH, window: segment.window, scale: None };
        match first {
            First::Pass => Ok(None),
            First::Wait => Ok(Some(GateStep::Over(Verdict::Done))),
            First::PassAll(bytes) => {
                let stations = Stations { from: mac, to: self.plan.mac() };
                let lone = Lone { head: head(expected, segment.ack), data: &bytes };
                Ok(Some(GateStep::Instead(lone_segment(stations, key.from, key.to, lone))))
            }
            First::Refuse => {
                policy.forget_hello(flow);
                self.flows.end(flow, Close::Reset, actions);
                let stations = Stations { from: self.plan.mac(), to: mac };
                let head = head(segment.ack, expected);
                let alert = Lone { head, data: &UNRECOGNIZED_NAME };
                let alert = lone_segment(stations, key.to, key.from, alert);
                self.guests.reply_up_to(REPLIES_MAX, guest, alert);
                Err(Refused::with_reset(Refusal::Denied))
            }
        }
    }
}

/// All of a packet has to be looked at. A longer one is dropped: its guest sends it again in
/// segments of the MTU.
fn whole(incoming: &Incoming<'_>) -> Result<Option<GateStep>, Refused> {
    let len = incoming.ip.payload_at + incoming.ip.payload_len;
    let fits = len <= WHOLE_LEN_MAX;
    fits.then_some(Some(GateStep::Over(Verdict::Whole))).ok_or(Refusal::Malformed.into())
}

/// Whether a packet begins a flow if there is none.
fn opens_flow(incoming: &Incoming<'_>) -> bool {
    let ip = &incoming.ip;
    let segment = || Segment::parse(ip.payload, ip.payload_len);
    ip.protocol != TCP || segment().is_some_and(|it| it.begins())
}
