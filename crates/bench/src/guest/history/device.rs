//! A device between a real guest and a tap that does as a row says.
//!
//! How: one thread looks at both directions in turns, and at the front-end's messages, and sleeps
//! until a kick, a packet in the tap or a timer wakes it.
//!
//! Limits: what the tap has no room for is lost. A User Mode Linux guest, which may miss a call
//! (ADR 8), is called again until 64 ms later. QEMU's emulation of one processor may lose a kick:
//! a ring that was busy lately is looked at every 2 ms.

use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, anyhow};
use ringway_device::{AnyGuestPort, FromGuest, GuestPort, Published, Queue, ToGuest};
use ringway_host::{EventFd, Events, Flush, Pace, Poller, Tap, TapOffloads, TapOptions, now};
use ringway_net::{Features, Nanos, NetHeader, Packet, PacketSink, PacketSource, Put};
use ringway_virtq::{Arm, Broken, DeviceQueue};

use super::rows::Technique;
use crate::backend::{Backend, QueueFds};
use crate::ring::end::Template;

const BATCH: u32 = 64;

/// Longest sleep, and the longest one so soon after a packet.
const SLEEP_MAX: Duration = Duration::from_millis(200);
const BUSY_SLEEP_MAX: Duration = Duration::from_millis(2);
const BUSY_NS: u64 = 400_000_000;

/// When a guest that may have missed a call is called again, for the first and the last time.
const CALLED_AGAIN_NS: u64 = 1_000_000;
const CALLED_AGAIN_NS_MAX: u64 = 64_000_000;

/// Longest wait for an answer of the thread.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Longest Ethernet packet with an MTU of 1500, in bytes.
const MTU_LEN: usize = 1514;

/// The events that wake the thread.
const BELL: u64 = 0;
const MESSAGES: u64 = 1;
const WORK: u64 = 2;

#[derive(Debug, Clone, Copy)]
pub(in super::super) struct DeviceState {
    /// Packets of the MTU that the receive ring holds now.
    pub capacity: u32,
    pub accepted: Features,
}

/// The thread of a device; it ends when this is dropped.
#[derive(Debug)]
pub(in super::super) struct Device {
    bell: Arc<EventFd>,
    /// For questions, each with a way for the answer; gone: the thread ends.
    questions: Option<Sender<Sender<DeviceState>>>,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
}

impl Device {
    /// Listens on `socket`, and opens or creates the tap of this name.
    pub fn start(socket: &Path, tap: &str, technique: Technique) -> anyhow::Result<Self> {
        let backend = Backend::bind(socket, technique.features, Arm::Next)?;
        let tap = Tap::open(&TapOptions { name: tap.to_string(), mtu: None })?;
        let bell = Arc::new(EventFd::new()?);
        let (questions, asked) = channel();
        let heard = Arc::clone(&bell);
        let thread = thread::spawn(move || {
            // Timers are of 50 µs and more.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
            let mover = Mover::new(tap, technique);
            run(backend, mover, &heard, &asked)
        });
        Ok(Self { bell, questions: Some(questions), thread: Some(thread) })
    }

    /// Looks at the guest. The packets that are counted are given to it, and have another address.
    pub fn state(&mut self) -> anyhow::Result<DeviceState> {
        let (answer, answered) = channel();
        let questions = self.questions.as_ref().context("the device ends")?;
        questions.send(answer).ok().context("the device has ended")?;
        self.bell.notify();
        let state = answered.recv_timeout(ANSWER_LIMIT);
        self.check()?;
        state.context("the device does not answer")
    }

    /// Why it has ended, if it has.
    pub fn check(&mut self) -> anyhow::Result<()> {
        let Some(thread) = self.thread.take_if(|thread| thread.is_finished()) else {
            return Ok(());
        };
        thread.join().map_err(|_| anyhow!("the device panicked"))?.context("the device")
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.questions = None;
        self.bell.notify();
        if let Some(thread) = self.thread.take() {
            // The answers of the thread were asked for while it was measured.
            let _ = thread.join();
        }
    }
}

fn run(
    mut backend: Backend,
    mut mover: Mover,
    bell: &EventFd,
    questions: &Receiver<Sender<DeviceState>>,
) -> anyhow::Result<()> {
    let (mut poller, mut events) = (poller(&backend, &mover.tap, bell)?, Events::with_capacity(8));
    loop {
        let (again, wake_at) = mover.visit(&mut backend)?;
        let sleep_max = mover.sleep_max();
        let sleep = match wake_at {
            _ if again => Duration::ZERO,
            Some(at) => Duration::from_nanos(at.0.saturating_sub(now().0)).min(sleep_max),
            None => sleep_max,
        };
        poller.wait(&mut events, Some(sleep))?;
        let is_woken_by = |token| events.iter().any(|event| event.token == token);
        if is_woken_by(BELL) {
            bell.drain();
            match questions.try_recv() {
                // Without a way back it has waited too long.
                Ok(answer) => drop(answer.send(mover.look(&mut backend)?)),
                Err(TryRecvError::Disconnected) => return Ok(()),
                Err(TryRecvError::Empty) => {}
            }
        }
        if is_woken_by(MESSAGES) {
            backend.serve()?;
        }
        mover.is_kicked |= is_woken_by(WORK);
        if std::mem::take(&mut backend.has_changed) {
            mover.start(&backend);
            poller = self::poller(&backend, &mover.tap, bell)?;
        }
    }
}

fn poller(backend: &Backend, tap: &Tap, bell: &EventFd) -> anyhow::Result<Poller> {
    let poller = Poller::new()?;
    poller.add(bell.as_fd(), BELL)?;
    let (listener, connection) = backend.sockets();
    poller.add(listener.as_fd(), MESSAGES)?;
    if let Some(connection) = connection {
        poller.add(connection.as_fd(), MESSAGES)?;
    }
    poller.add_edge(tap.as_fd(), WORK)?;
    for kick in backend.fds.iter().filter_map(|fds| fds.kick.as_ref()) {
        poller.add_edge(kick.as_fd(), WORK)?;
    }
    Ok(poller)
}

struct Mover {
    tap: Tap,
    technique: Technique,
    pace: Pace,
    /// The time at which packets of the guest are taken; `None`: when it kicks.
    timer_ends: Option<Nanos>,
    /// Something woke the thread since the transmitq was last looked at.
    is_kicked: bool,
    calls: [LastCall; 2],
    busy_at: Nanos,
}

#[derive(Debug, Clone, Copy, Default)]
struct LastCall {
    /// A guest that may miss calls is called again then, and after twice that time.
    again_at: Option<Nanos>,
    wait_ns: u64,
}

impl LastCall {
    fn call(&mut self, fds: &QueueFds) {
        self.wait_ns = CALLED_AGAIN_NS;
        self.send(fds);
    }

    fn send(&mut self, fds: &QueueFds) {
        let Some(call) = &fds.call else { return };
        // A front-end that is gone says so by its socket.
        let _ = call.call();
        let is_again = call.is_socket() && self.wait_ns <= CALLED_AGAIN_NS_MAX;
        self.again_at = is_again.then(|| now().plus(self.wait_ns));
        self.wait_ns *= 2;
    }

    fn again(&mut self, fds: &QueueFds) {
        if self.again_at.is_some_and(|at| at <= now()) {
            self.send(fds);
        }
    }
}

impl Mover {
    fn new(tap: Tap, technique: Technique) -> Self {
        let pace = Pace::new(technique.policy);
        let (calls, busy_at) = (Default::default(), now());
        Self { tap, technique, pace, timer_ends: None, is_kicked: false, calls, busy_at }
    }

    fn sleep_max(&self) -> Duration {
        let is_busy = now().0.saturating_sub(self.busy_at.0) < BUSY_NS;
        if is_busy { BUSY_SLEEP_MAX } else { SLEEP_MAX }
    }

    /// Queues have started.
    fn start(&mut self, backend: &Backend) {
        for (queue, fds) in [Queue::ToGuest, Queue::FromGuest].into_iter().zip(&backend.fds) {
            self.pace.start(queue, fds.size);
        }
        let accepted = TapOffloads::accepted_by(backend.port.negotiated());
        let without_segments = TapOffloads { csum: accepted.csum, ..TapOffloads::default() };
        self.tap.set_offloads(if self.technique.host_gso { accepted } else { without_segments });
        (self.timer_ends, self.is_kicked) = (None, true);
    }

    /// Puts packets of the MTU into the receive ring until there is no room.
    fn look(&mut self, backend: &mut Backend) -> anyhow::Result<DeviceState> {
        let packet = Template::new(MTU_LEN)?;
        let len = u32::try_from(MTU_LEN)?;
        let header = NetHeader::default();
        let packet = Packet { header: &header, payload: packet.shared(), len };
        let full = (0..u32::from(u16::MAX)).find(|_| backend.port.put(&packet) != Put::Done);
        backend.port.publish(Queue::ToGuest);
        if backend.port.must_call(Queue::ToGuest) {
            self.calls[0].call(&backend.fds[0]);
        }
        let capacity = full.context("the receive ring has no end")?;
        Ok(DeviceState { capacity, accepted: backend.accepted })
    }

    /// Moves what there is, but no more than a batch each way; whether there may be more, and when
    /// to come back at the latest.
    fn visit(&mut self, backend: &mut Backend) -> anyhow::Result<(bool, Option<Nanos>)> {
        let fds = &backend.fds;
        match &mut backend.port {
            AnyGuestPort::Split(port) => self.visit_port(port, fds),
            AnyGuestPort::Packed(port) => self.visit_port(port, fds),
        }
    }

    fn visit_port<Q: DeviceQueue>(
        &mut self,
        port: &mut GuestPort<Q>,
        fds: &[QueueFds; 2],
    ) -> anyhow::Result<(bool, Option<Nanos>)> {
        let (Some(to), Some(from)) = (&mut port.to_guest, &mut port.from_guest) else {
            return Ok((false, None));
        };
        let gives_more = self.give(to, &fds[0]);
        let takes_more = self.take(from, &fds[1]);
        if let Some(why) = to.broken().or(from.broken()) {
            return Err(anyhow!("the guest broke a ring: {}", Broken(why).0));
        }
        for (calls, fds) in self.calls.iter_mut().zip(fds) {
            calls.again(fds);
        }
        let again = self.calls.iter().filter_map(|calls| calls.again_at);
        let wake_at = again.chain(self.pace.wake_at()).chain(self.timer_ends).min();
        Ok((gives_more || takes_more, wake_at))
    }

    /// From the guest to the tap. `true`: there may be more.
    fn take<Q: DeviceQueue>(&mut self, from: &mut FromGuest<Q>, fds: &QueueFds) -> bool {
        if self.timer_ends.is_some_and(|ends| now() < ends) {
            return false;
        }
        let has_timer_ended = self.timer_ends.is_some();
        if let Some(timer_us) = self.technique.timer_us
            && !has_timer_ended
        {
            // The first kick begins the timer.
            if std::mem::take(&mut self.is_kicked) && from.peek().is_some() {
                self.wait_for_timer(from, timer_us);
            } else if from.arm_kicks(Arm::Next) {
                self.is_kicked = true;
                return true;
            }
            return false;
        }
        let mut taken = 0;
        while taken < BATCH
            && let Some(packet) = from.peek()
        {
            let _ = self.tap.put(&packet);
            from.pop();
            taken += 1;
        }
        self.return_taken(from, fds, taken == BATCH);
        match self.technique.timer_us {
            _ if taken == BATCH => true,
            Some(timer_us) if taken > 0 => {
                self.wait_for_timer(from, timer_us);
                false
            }
            Some(_) => {
                (self.timer_ends, self.is_kicked) = (None, true);
                from.arm_kicks(Arm::Next)
            }
            None => {
                let arm = self.pace.idle(now());
                from.arm_kicks(arm)
            }
        }
    }

    fn wait_for_timer<Q: DeviceQueue>(&mut self, from: &mut FromGuest<Q>, timer_us: u32) {
        let _ = from.arm_kicks(Arm::Never);
        self.timer_ends = Some(now().plus(u64::from(timer_us) * 1000));
    }

    fn return_taken<Q: DeviceQueue>(
        &mut self,
        from: &mut FromGuest<Q>,
        fds: &QueueFds,
        more: bool,
    ) {
        let moved = from.publish();
        self.note(moved);
        if self.pace.took(moved, Flush { now: now(), more, short: false }) && from.must_call() {
            self.calls[1].call(fds);
        }
    }

    fn note(&mut self, moved: Published) {
        if moved.packets > 0 {
            self.busy_at = now();
        }
    }

    /// From the tap to the guest. `true`: there may be more.
    fn give<Q: DeviceQueue>(&mut self, to: &mut ToGuest<Q>, fds: &QueueFds) -> bool {
        let (mut given, mut short) = (0, false);
        while given < BATCH && !short {
            match self.give_one(to) {
                Some(Put::NoRoom) => short = true,
                Some(_) => given += 1,
                None => break,
            }
        }
        let moved = to.publish();
        self.note(moved);
        let flush = Flush { now: now(), more: given == BATCH, short };
        if self.pace.gave(moved, to.requests.take(), flush) && to.must_call() {
            self.pace.called(flush.now);
            self.calls[0].call(fds);
        }
        to.requests.watch(self.pace.wants_requests());
        // Kicks that were asked for and tell nothing, unless there is no buffer.
        let asks = short || !self.technique.quiet_refill;
        let has_room = to.arm_kicks(if asks { Arm::Next } else { Arm::Never });
        given == BATCH || (short && has_room)
    }

    /// `None`: there is no packet.
    fn give_one<Q: DeviceQueue>(&mut self, to: &mut ToGuest<Q>) -> Option<Put> {
        if self.technique.bounce || self.tap.is_lending() {
            let put = to.put(&self.tap.peek()?);
            if put != Put::NoRoom {
                self.tap.pop();
            }
            return Some(put);
        }
        let Some(room) = to.reserve(self.tap.packet_len_max()) else { return Some(Put::NoRoom) };
        match self.tap.read_into(room) {
            Ok(Some((header, len))) => to.commit(header, len),
            // Longer than was to be expected: copied next time.
            Ok(None) if self.tap.is_lending() => {}
            Ok(None) => return None,
            // Something was lost; what waits behind it may be fine.
            Err(_) => {}
        }
        Some(Put::Done)
    }
}
