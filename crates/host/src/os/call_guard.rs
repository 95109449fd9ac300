//! Ends calls that would wait for a front-end.
//!
//! An eventfd that a front-end sent never makes a write wait for as long as the front-end leaves it
//! so: it can make it blocking at any time, and fill it. The kernel has no write that never waits
//! for an eventfd that is blocking, and to ask before each write costs a system call more and
//! leaves a gap. So a timer sends the calling thread a signal, which does nothing but end a write
//! that waits (`EINTR`; the handler is installed without `SA_RESTART`). A write that need not wait
//! never looks for signals: one that was ended has met a full counter on a blocking fd.
//!
//! The timer is set by the first call, ends [`TICK`] later, and is set again by the next call. So a
//! worker that calls all the time makes one system call more per [`TICK`], and one that falls
//! asleep is woken by it once, at most. A signal that comes when a call has begun, but does not
//! wait in the kernel yet, ends nothing: therefore the handler sets the timer again for as long as
//! a call is under way.
//!
//! Limits: a call can take two [`TICK`]s, and one that waits for less is not ended: [`sleeps`]
//! tells that it waited. Only threads with a [`CallGuard`] are guarded; all their other system
//! calls must expect `EINTR`.

use std::io;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, compiler_fence};
use std::time::Duration;

use crate::os::system_calls::count_system_call;

/// How long a call may take before it counts as blocked: as long as a receiver may keep others
/// waiting.
const TICK: Duration = Duration::from_millis(10);

const TICK_ONCE: libc::itimerspec = libc::itimerspec {
    it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
    it_value: libc::timespec { tv_sec: 0, tv_nsec: TICK.subsec_nanos() as libc::c_long },
};

/// `state` of a thread without a guard.
const UNGUARDED: u8 = 0;
/// The timer is not set.
const RESTS: u8 = 1;
/// A signal will come.
const TICKS: u8 = 2;

/// The state that a thread shares with the handler that interrupts it.
struct Watch {
    timer: AtomicPtr<libc::c_void>,
    state: AtomicU8,
    is_calling: AtomicBool,
}

thread_local! {
    // Constant and never dropped, so that the handler finds it without any ado.
    static WATCH: Watch = const {
        Watch {
            timer: AtomicPtr::new(ptr::null_mut()),
            state: AtomicU8::new(UNGUARDED),
            is_calling: AtomicBool::new(false),
        }
    };
}

/// Makes `write`, which is a call, unless the thread has a guard and it would wait for longer
/// than two [`TICK`]s: then it ends with `EINTR`.
#[inline]
pub(crate) fn bounded<T>(write: impl FnOnce() -> T) -> T {
    WATCH.with(|watch| {
        watch.is_calling.store(true, Relaxed);
        // A signal from here on sets the timer again, so what is read next stays true.
        // PAIRS WITH: call_guard.rs::on_tick, in the same thread
        compiler_fence(SeqCst);
        if watch.state.load(Relaxed) == RESTS {
            watch.state.store(TICKS, Relaxed);
            count_system_call();
            watch.set_timer();
        }
        let result = write();
        // PAIRS WITH: call_guard.rs::on_tick, in the same thread
        compiler_fence(SeqCst);
        watch.is_calling.store(false, Relaxed);
        result
    })
}

/// How often this thread has slept, which it does not when another one only takes its processor.
pub(crate) fn sleeps() -> i64 {
    // SAFETY: all-zero bytes are a valid `rusage`, which the call fills in; it cannot fail with
    // these arguments.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage.ru_nvcsw
    }
}

impl Watch {
    fn set_timer(&self) {
        // SAFETY: the timer of this thread, which is there unless the state is UNGUARDED. The call
        // is async-signal-safe; it fails for wrong arguments only.
        unsafe { libc::timer_settime(self.timer.load(Relaxed), 0, &TICK_ONCE, ptr::null_mut()) };
    }
}

/// While it lives, no call of the thread that made it waits for a front-end.
#[derive(Debug)]
pub struct CallGuard {
    // A raw pointer, so the guard stays in its thread.
    timer: libc::timer_t,
}

impl CallGuard {
    /// Guards the calls of this thread, which must have no guard yet.
    ///
    /// # Errors
    /// The operating system has no timer left (they count as pending signals), or refuses the
    /// handler.
    pub fn new() -> io::Result<Self> {
        static INSTALLED: OnceLock<i32> = OnceLock::new();
        match *INSTALLED.get_or_init(|| os_error(install())) {
            0 => {}
            why => return Err(io::Error::from_raw_os_error(why)),
        }
        WATCH.with(|watch| {
            assert!(watch.state.load(Relaxed) == UNGUARDED, "a thread has one guard");
            let timer = new_timer()?;
            watch.timer.store(timer, Relaxed);
            // PAIRS WITH: call_guard.rs::on_tick, in the same thread
            compiler_fence(SeqCst);
            watch.state.store(RESTS, Relaxed);
            Ok(Self { timer })
        })
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        WATCH.with(|watch| watch.state.store(UNGUARDED, Relaxed));
        // PAIRS WITH: call_guard.rs::on_tick, in the same thread
        compiler_fence(SeqCst);
        // SAFETY: the timer is ours, and is used no more: not by the handler either, as of now.
        unsafe { libc::timer_delete(self.timer) };
    }
}

/// The signal of all these timers.
fn signal() -> libc::c_int {
    libc::SIGRTMIN()
}

/// A timer that sends the signal to this thread; it is not set.
fn new_timer() -> io::Result<libc::timer_t> {
    let mut timer = ptr::null_mut();
    // SAFETY: all-zero bytes are a valid `sigevent`, and a valid signal set as well; the pointers
    // are to local values, and `gettid` cannot fail.
    let (unblocked, made) = unsafe {
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal();
        event.sigev_notify_thread_id = libc::gettid();
        // The parent process may have blocked it.
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut signals, signal());
        let unblocked = libc::pthread_sigmask(libc::SIG_UNBLOCK, &signals, ptr::null_mut());
        (unblocked, libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer))
    };
    match (unblocked, os_error(made)) {
        (0, 0) => Ok(timer),
        (0, why) | (why, _) => {
            let why = io::Error::from_raw_os_error(why);
            Err(io::Error::new(why.kind(), format!("no timer to end calls that wait: {why}")))
        }
    }
}

fn install() -> libc::c_int {
    // SAFETY: all-zero bytes are a valid `sigaction`: no flags, an empty mask, the default action.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(libc::c_int) = on_tick;
    action.sa_sigaction = handler as libc::sighandler_t;
    // SAFETY: `action` is filled in, and the handler only calls what a signal handler may call.
    unsafe { libc::sigaction(signal(), &action, ptr::null_mut()) }
}

/// 0 if the call behind that result has not failed.
fn os_error(result: libc::c_int) -> i32 {
    match result {
        0 => 0,
        _ => io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL),
    }
}

extern "C" fn on_tick(_signal: libc::c_int) {
    WATCH.with(|watch| {
        // PAIRS WITH: call_guard.rs::bounded, in the same thread
        compiler_fence(SeqCst);
        if watch.state.load(Relaxed) != TICKS {
            return;
        }
        match watch.is_calling.load(Relaxed) {
            true => {
                // SAFETY: errno is this thread's own; the interrupted code must find it unchanged.
                let errno = unsafe { *libc::__errno_location() };
                watch.set_timer();
                // SAFETY: as above.
                unsafe { *libc::__errno_location() = errno };
            }
            false => watch.state.store(RESTS, Relaxed),
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Instant;

    use super::*;

    /// Ends with the error of a read that waits, `before` a call began.
    fn interrupted_after(before: Duration) -> io::Result<usize> {
        let (sender, receiver) = mpsc::sync_channel(1);
        std::thread::spawn(move || {
            let _guard = CallGuard::new().unwrap();
            let (empty, _writer) = rustix::pipe::pipe().unwrap();
            let result = bounded(|| {
                let until = Instant::now() + before;
                while Instant::now() < until {}
                rustix::io::read(&empty, &mut [0; 8])
            });
            let _ = sender.send(result.map_err(io::Error::from));
        });
        receiver.recv_timeout(Duration::from_secs(5)).expect("it waits")
    }

    #[test]
    fn a_signal_that_comes_before_the_wait_is_not_the_last_one() {
        for ticks in [0, 1, 2, 5] {
            let result = interrupted_after(TICK * ticks + TICK / 2);
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::Interrupted);
        }
    }

    #[test]
    fn a_thread_without_a_guard_has_no_timer() {
        assert_eq!(bounded(|| WATCH.with(|watch| watch.state.load(Relaxed))), UNGUARDED);
    }

    #[test]
    fn the_timer_rests_when_no_call_is_made() {
        let state = || WATCH.with(|watch| watch.state.load(Relaxed));
        let _guard = CallGuard::new().unwrap();
        assert_eq!(state(), RESTS);
        bounded(|| assert_eq!(state(), TICKS));
        std::thread::sleep(3 * TICK);
        assert_eq!(state(), RESTS);
    }
}
