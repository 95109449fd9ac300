//! Ports that come, change and go while others carry traffic.
//!
//! A port that goes with a guest connected is seen by that guest as a link that goes down: it stays
//! for [`LINK_DOWN_GRACE`], without packets, so that the guest can read what it was told.
//! Its name and its place are free at once.
//!
//! Limits: at most [`PORTS_MAX`] ports, those included that are about to go.

use std::time::Instant;

use ringway_supervisor::changes::Undo;
use ringway_supervisor::wire::SeenIp;
use ringway_switch::PORTS_MAX;
use tracing::info;

use super::forward_sockets::ForwardSockets;
use super::tap_port::TapState;
use super::vm_port::VmPort;
use crate::chatter::Chatter;
use crate::config::{PortKind, PortSpec};
use crate::host_routes;
use crate::identity::Identity;
use crate::supervisor::front_ends::front_end::FrontEnd;
use crate::supervisor::planes::order::Requester;
use crate::supervisor::planes::plane::OutgoingFd;
use crate::supervisor::setup::source::PortSource;
use crate::supervisor::stores::stations::Stations;

pub const TOO_MANY: &str = "there are 256 ports already: remove one first";
const _: () = assert!(PORTS_MAX == 256);

/// One port as the supervisor sees it.
pub struct SupervisedPort {
    pub spec: PortSpec,
    /// As the file has it, if it comes from there.
    pub from_file: Option<PortSpec>,
    pub source: PortSource,
    /// Why the port does not work, if it does not.
    pub failure: Option<String>,
    pub vm: Option<VmPort>,
    pub tap: TapState,
    /// Unix sockets that lead into guests, of a router.
    pub sockets: ForwardSockets,
    /// Lines that its front-end is the reason for.
    pub chatter: Chatter,
    /// It was removed, and goes for good then.
    pub leaves_at: Option<Instant>,
    /// A data plane has had it.
    pub is_served: bool,
    /// Visits of it in which data planes ended: in each a packet may have come twice.
    pub replayed: u64,
    /// IP addresses that were seen to be used behind it.
    pub seen_ips: Vec<SeenIp>,
    /// The stations that a router knows.
    pub stations: Stations,
    /// The network of this machine that a router's overlaps with; the log has said so.
    pub overlap: Option<String>,
    /// Who asked for it, and has no answer yet because the data plane had ended.
    pub asked: Option<Requester>,
}

impl SupervisedPort {
    pub fn new(spec: PortSpec, from_file: Option<PortSpec>) -> Self {
        Self {
            spec,
            from_file,
            source: PortSource::Configuration,
            failure: None,
            vm: None,
            tap: TapState::default(),
            sockets: ForwardSockets::default(),
            chatter: Chatter::new(),
            leaves_at: None,
            is_served: false,
            replayed: 0,
            seen_ips: Vec::new(),
            stations: Stations::default(),
            overlap: None,
            asked: None,
        }
    }

    /// The front-end that is connected.
    pub fn link(&self) -> Option<&FrontEnd> {
        self.vm.as_ref()?.link.as_ref()
    }

    pub fn is_linked(&self) -> bool {
        self.link().is_some()
    }

    /// Whether a guest is there that runs, as far as is known, and its link is up.
    pub fn is_here(&self) -> bool {
        let is_stopped = self.vm.as_ref().is_some_and(|vm| vm.moves.is_stopped);
        self.is_linked() && !is_stopped && self.spec.is_link_up && !self.is_leaving()
    }

    pub fn is_leaving(&self) -> bool {
        self.leaves_at.is_some()
    }

    /// The reason why it does not stay as it is, if there is one.
    pub fn is_changing(&self) -> Option<&'static str> {
        if self.is_leaving() || self.asked.is_some() || self.tap.is_reopening() {
            return Some("it is changing");
        }
        let vm = self.vm.as_ref()?;
        let is_closing = vm.admission.is_closing() || !vm.closing.closer.is_idle();
        let is_closing = is_closing.then_some("what its front-end sent is still being closed");
        is_closing.or(vm.admission.has_third().then_some("a third front-end has just come"))
    }

    /// It does not work. What it had open is closed.
    pub fn fail(&mut self, why: String) {
        (self.failure, self.vm, self.tap) = (Some(why), None, TapState::default());
        self.sockets = ForwardSockets::default();
    }

    /// The file descriptors of it that the data plane gets.
    pub fn sent(&self) -> Vec<OutgoingFd> {
        self.tap.sent().into_iter().chain(self.sockets.sent()).collect()
    }

    /// Gives it other options, as far as they are the supervisor's; those before.
    ///
    /// # Errors
    /// The operating system refuses; then nothing has changed.
    pub fn change(&mut self, spec: PortSpec, identity: &Identity) -> anyhow::Result<PortSpec> {
        let before = std::mem::replace(&mut self.spec, spec);
        if let Err(why) = self.change_end(&before) {
            self.spec = before;
            return Err(why);
        }
        if let Some(vm) = &mut self.vm {
            vm.mac = identity.mac_of(&self.spec);
        }
        Ok(before)
    }

    fn change_end(&mut self, before: &PortSpec) -> anyhow::Result<()> {
        let now = &self.spec;
        let is_router = now.kind == PortKind::Nat;
        if now.nat.ranges() != before.nat.ranges() {
            host_routes::check(now.nat.ranges())?;
        }
        if let Some(mtu) = now.mtu.filter(|_| now.mtu != before.mtu && !is_router) {
            self.tap.set_mtu(mtu)?;
        }
        self.sockets.follow(now, before)?;
        match &self.vm {
            // Its file may be gone, which hinders no other change.
            Some(vm) if now.socket_access() != before.socket_access() => vm.permit(now),
            _ => Ok(()),
        }
    }

    /// The data plane has refused a change.
    pub fn take_back(&mut self, undo: Undo<PortSpec>, identity: &Identity) {
        let Some(refused) = undo.apply(&mut self.spec, &mut self.from_file) else { return };
        let _ = self.change_end(&refused);
        if let Some(vm) = &mut self.vm {
            vm.mac = identity.mac_of(&self.spec);
        }
    }

    /// A data plane serves it.
    pub fn note_serving(&mut self) {
        if !std::mem::replace(&mut self.is_served, true) {
            info!(port = self.spec.name, "open: {}", self.spec.kind);
        }
        self.tap.is_reopened(&self.spec.name);
    }

    /// A change is over: Unix sockets that lead nowhere any more go.
    pub fn close_other_sockets(&mut self) {
        self.sockets.close_others(&self.spec);
    }
}
