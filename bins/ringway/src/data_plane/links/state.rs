//! The transfer of the state of a guest's device, one at a time, and what has come by one.
//!
//! How: a thread of the transfer reads or writes, because that may wait for as long as the
//! front-end likes, whatever the file's flags say (ADR 25). It begins when the front-end's answer
//! is on its way, so that a request whose data plane ends is carried out by the next one, and none
//! twice. An honest front-end's thread ends in time, or when its connection does. One that does not
//! end is left behind: until it has ended the front-end has no further transfer, and then its port
//! no next front-end (the thread that closes what it sent waits for it). Limits: what has come and
//! was not taken is lost with the data plane.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use ringway_foreign::{DeferredDrop, Untrusted};
use ringway_host::{EventFd, StateFile};
use ringway_vhost_user::device_state::{BadState, DeviceState, STATE_LEN_MAX};
use ringway_vhost_user::{Message, Request};

/// The time of a transfer. A monitor waits for it, and its guest stands still. The supervisor takes
/// a request for one that hangs after 5 s.
const TRANSFER_MAX: Duration = Duration::from_secs(4);

/// The time that is left to one while another process waits to take over.
const LEFT: Duration = Duration::from_millis(300);

/// A thread that has not ended so long afterwards is not waited for.
const GRACE: Duration = Duration::from_millis(100);

/// The part of a transfer that is this side's.
pub enum Work {
    /// These bytes are written.
    Save(Vec<u8>),
    Load,
}

/// The end of a transfer.
#[derive(Debug)]
pub enum Ended {
    /// The bytes that were written, by their number.
    Saved(usize),
    Loaded(Result<DeviceState, BadState>),
}

/// See the module.
#[derive(Default)]
pub struct StateTransfer {
    /// It begins when the front-end has its answer.
    accepted: Option<(StateFile, Work)>,
    running: Option<RunningTransfer>,
    /// Whether the last one has ended well.
    is_good: Option<bool>,
    /// The request, with its number, that asks for that, and waits.
    asked: Option<(u32, Message)>,
    /// It has come, and is taken when the device starts.
    pub arrived: Option<DeviceState>,
    /// The commands that led to what the guest had set through its controlq before the last reset.
    pub left: Vec<u8>,
}

struct RunningTransfer {
    ended: Receiver<io::Result<Ended>>,
    /// It is rung when nothing is transferred any more.
    ends: Arc<EventFd>,
    until: Instant,
    /// It has not ended in time.
    is_late: bool,
    _thread: Untrusted<TransferThread>,
}

impl Drop for RunningTransfer {
    fn drop(&mut self) {
        self.ends.notify();
    }
}

/// Dropping it waits until it has ended.
struct TransferThread(Option<JoinHandle<()>>);

impl Drop for TransferThread {
    fn drop(&mut self) {
        self.0.take().map(JoinHandle::join);
    }
}

impl Work {
    fn carry_out(self, file: &StateFile, until: Instant, ends: &EventFd) -> io::Result<Ended> {
        match self {
            Self::Save(bytes) => {
                file.write_all(&bytes, until, ends).map(|()| Ended::Saved(bytes.len()))
            }
            Self::Load => {
                let bytes = file.read_to_end(STATE_LEN_MAX, until, ends)?;
                Ok(Ended::Loaded(DeviceState::decode(&bytes)))
            }
        }
    }
}

impl StateTransfer {
    /// A transfer is to begin.
    ///
    /// # Errors
    /// The one before has not ended.
    pub fn accept(&mut self, file: StateFile, work: Work) -> anyhow::Result<()> {
        let runs = self.running.is_some() || self.accepted.is_some();
        ensure!(!runs, "SET_DEVICE_STATE_FD: the transfer before has not ended");
        if matches!(work, Work::Load) {
            self.arrived = None;
        }
        self.is_good = None;
        self.accepted = Some((file, work));
        Ok(())
    }

    /// The front-end has its answer; `bell` is rung when the transfer has ended.
    ///
    /// # Errors
    /// The operating system gives no thread.
    pub fn begin(&mut self, closer: &DeferredDrop, bell: Arc<EventFd>) -> io::Result<()> {
        let Some((file, work)) = self.accepted.take() else { return Ok(()) };
        self.is_good = Some(false);
        let (tell, ended) = mpsc::channel();
        let (ends, until) = (Arc::new(EventFd::new()?), Instant::now() + TRANSFER_MAX);
        let told_to_end = ends.clone();
        let transfer = move || {
            let outcome = work.carry_out(&file, until, &told_to_end);
            // The front-end reads to its end.
            drop(file);
            let _ = tell.send(outcome);
            bell.notify();
        };
        let thread = std::thread::Builder::new().name("ringway-state".into()).spawn(transfer)?;
        let _thread = closer.keep(TransferThread(Some(thread)));
        self.running = Some(RunningTransfer { ended, ends, until, is_late: false, _thread });
        Ok(())
    }

    /// When one that runs is not waited for any more.
    pub fn next(&self) -> Option<Instant> {
        self.running.as_ref().filter(|it| !it.is_late).map(|it| it.until + GRACE)
    }

    /// Another process is about to take over.
    pub fn end_soon(&mut self) {
        if let Some(running) = &mut self.running {
            running.until = running.until.min(Instant::now() + LEFT);
        }
    }

    /// The request, unless it waits for the end of a transfer.
    pub fn postpone(&mut self, number: u32, message: Message) -> Option<Message> {
        let is_asking = matches!(message.request, Request::CheckDeviceState);
        if is_asking && self.running.as_ref().is_some_and(|it| !it.is_late) {
            self.asked = Some((number, message));
            return None;
        }
        Some(message)
    }

    /// The transfer has ended just now, or its time is over.
    pub fn take_ended(&mut self, now: Instant) -> Option<io::Result<Ended>> {
        let running = self.running.as_mut()?;
        let outcome = match running.ended.try_recv() {
            Ok(outcome) => outcome,
            Err(TryRecvError::Disconnected) => Err(io::ErrorKind::Other.into()),
            Err(TryRecvError::Empty) if running.is_late || now < running.until + GRACE => {
                return None;
            }
            Err(TryRecvError::Empty) => {
                running.is_late = true;
                running.ends.notify();
                return Some(Err(io::ErrorKind::TimedOut.into()));
            }
        };
        let was_late = running.is_late;
        self.running = None;
        (!was_late).then_some(outcome)
    }

    /// Whether that was well; the request, with its number, that waited for it.
    pub fn note(&mut self, is_good: bool) -> Option<(u32, Message)> {
        self.is_good = Some(is_good);
        self.asked.take()
    }

    /// Whether the last transfer has ended well.
    ///
    /// # Errors
    /// It has not, or there was none.
    pub fn check(&self) -> anyhow::Result<()> {
        match self.is_good {
            Some(true) => Ok(()),
            Some(false) => bail!("CHECK_DEVICE_STATE: the transfer has failed"),
            None => bail!(
                "CHECK_DEVICE_STATE: nothing was transferred; if it had begun, the data plane has \
                 ended meanwhile"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closer() -> DeferredDrop {
        DeferredDrop::start().expect("a thread")
    }

    fn load(state: &mut StateTransfer) -> (std::os::fd::OwnedFd, Arc<EventFd>) {
        let (reads, writes) = rustix::pipe::pipe().expect("a pipe");
        let bell = Arc::new(EventFd::new().expect("one"));
        state.accept(StateFile::new(reads.into()).expect("a pipe"), Work::Load).expect("the first");
        state.begin(&closer(), bell.clone()).expect("a thread");
        (writes, bell)
    }

    fn asks(reply_wanted: bool) -> Message {
        Message { request: Request::CheckDeviceState, reply_wanted }
    }

    #[test]
    fn a_request_waits_for_the_end_and_no_longer() {
        let mut state = StateTransfer::default();
        assert!(state.check().is_err() && state.postpone(1, asks(false)).is_some());
        let (writes, _bell) = load(&mut state);
        assert!(state.postpone(7, asks(false)).is_none());
        let (reads, _) = rustix::pipe::pipe().expect("a pipe");
        let another = StateFile::new(reads.into()).expect("a pipe");
        assert!(state.accept(another, Work::Load).is_err(), "one at a time");
        assert!(state.take_ended(Instant::now()).is_none());
        rustix::io::write(&writes, &DeviceState::default().encode()).expect("room");
        drop(writes);
        let deadline = Instant::now() + Duration::from_secs(20);
        let ended = loop {
            match state.take_ended(Instant::now()) {
                Some(ended) => break ended,
                None => assert!(Instant::now() < deadline, "it does not end"),
            }
        };
        assert!(matches!(ended, Ok(Ended::Loaded(Ok(_)))), "{ended:?}");
        assert_eq!(state.note(true).map(|(number, _)| number), Some(7));
        assert!(state.check().is_ok() && state.postpone(8, asks(false)).is_some());
    }

    #[test]
    fn one_that_does_not_end_is_left_and_keeps_its_front_end_from_another() {
        let mut state = StateTransfer::default();
        let (writes, _bell) = load(&mut state);
        let late = state.next().expect("it runs");
        let ended = state.take_ended(late).expect("its time is over");
        assert_eq!(ended.expect_err("nothing came").kind(), io::ErrorKind::TimedOut);
        assert!(state.note(false).is_none() && state.check().is_err());
        assert!(state.postpone(1, asks(false)).is_some() && state.next().is_none());
        let (reads, _) = rustix::pipe::pipe().expect("a pipe");
        let another = StateFile::new(reads.into()).expect("a pipe");
        assert!(state.accept(another, Work::Load).is_err());
        drop(writes);
    }
}
