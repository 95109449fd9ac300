//! Notification fds: nothing blocks, whatever the other end does.

mod common;

use std::io::{ErrorKind, Read};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{memory_file, without_blocking};
use ringway_host::{CallFd, CallGuard, CallResult, Callee, EventFd, Events, KickFd, Poller};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::OFlags;

/// The largest value an eventfd's counter can have.
const COUNTER_MAX: u64 = u64::MAX - 1;

fn new_eventfd(flags: EventfdFlags) -> (OwnedFd, OwnedFd) {
    let fd = eventfd(0, flags).expect("eventfd");
    let other = fd.try_clone().expect("dup");
    (fd, other)
}

fn add(fd: &OwnedFd, value: u64) {
    assert_eq!(rustix::io::write(fd, &value.to_ne_bytes()), Ok(8));
}

fn take(fd: &OwnedFd) -> u64 {
    let mut value = [0; 8];
    assert_eq!(rustix::io::read(fd, &mut value), Ok(8));
    u64::from_ne_bytes(value)
}

#[test]
fn every_kick_of_a_blocking_eventfd_wakes_and_the_eventfd_stays_as_it_is() {
    let (ours, theirs) = new_eventfd(EventfdFlags::empty());
    let kick = KickFd::new(ours).expect("an eventfd");
    let poller = Poller::new().expect("epoll");
    poller.add_edge(kick.as_fd(), 0).expect("add_edge");
    let mut events = Events::with_capacity(1);
    let mut wakes = || poller.wait(&mut events, Some(Duration::ZERO)).expect("wait");
    assert_eq!(wakes(), 0, "there was no kick");
    for _ in 0..3 {
        add(&theirs, 1);
        assert_eq!((wakes(), wakes()), (1, 0));
    }
    assert_eq!(take(&theirs), 3);
    let flags = rustix::fs::fcntl_getfl(&theirs).expect("F_GETFL");
    assert!(!flags.contains(OFlags::NONBLOCK), "the front-end's fd has changed");
}

#[test]
fn calls_add_up_in_an_eventfd() {
    for flags in [EventfdFlags::empty(), EventfdFlags::NONBLOCK] {
        let (ours, theirs) = new_eventfd(flags);
        let call = CallFd::new(ours, &Callee::default()).expect("an eventfd");
        for _ in 0..3 {
            assert_eq!(call.call(), CallResult::Sent);
        }
        assert_eq!(take(&theirs), 3);
        let now = rustix::fs::fcntl_getfl(&theirs).expect("F_GETFL").contains(OFlags::NONBLOCK);
        assert_eq!(now, flags == EventfdFlags::NONBLOCK, "the front-end's fd has changed");
    }
}

#[test]
fn a_saturated_eventfd_never_blocks_a_call() {
    for flags in [EventfdFlags::empty(), EventfdFlags::NONBLOCK] {
        let (ours, theirs) = new_eventfd(flags);
        add(&theirs, COUNTER_MAX);
        let call = CallFd::new(ours, &Callee::default()).expect("an eventfd");
        let call = without_blocking(move || {
            for _ in 0..1000 {
                assert_eq!(call.call(), CallResult::Pending);
            }
            call
        });
        assert_eq!(take(&theirs), COUNTER_MAX);
        assert_eq!(call.call(), CallResult::Sent);
        assert_eq!(take(&theirs), 1);
    }
}

/// Makes an eventfd blocking and fills it, as a hostile front-end may after it has sent it.
fn block(fd: &OwnedFd) {
    rustix::fs::fcntl_setfl(fd, OFlags::empty()).expect("F_SETFL");
    add(fd, COUNTER_MAX);
}

#[test]
fn an_eventfd_that_is_made_blocking_and_filled_delays_one_call_and_gets_no_other() {
    let bell = Arc::new(EventFd::new().expect("eventfd"));
    let callee = Callee::new(bell.clone());
    let mut pairs: Vec<_> = (0..2).map(|_| new_eventfd(EventfdFlags::NONBLOCK)).collect();
    let fds: Vec<OwnedFd> =
        pairs.iter_mut().map(|(ours, _)| ours.try_clone().expect("dup")).collect();
    let calls: Vec<CallFd> =
        fds.into_iter().map(|fd| CallFd::new(fd, &callee).expect("an eventfd")).collect();
    block(&pairs[0].1);
    let took = without_blocking(move || {
        let _guard = CallGuard::new().expect("a timer");
        assert_eq!(calls[1].call(), CallResult::Sent);
        let begin = Instant::now();
        for _ in 0..1000 {
            assert_eq!(calls[0].call(), CallResult::Blocked);
            assert_eq!(calls[1].call(), CallResult::Blocked, "the same front-end");
        }
        begin.elapsed()
    });
    println!("1000 calls took {took:?}");
    assert!(callee.has_blocked() && bell.drain());
    assert_eq!([take(&pairs[0].1), take(&pairs[1].1)], [COUNTER_MAX, 1]);
    let flags = rustix::fs::fcntl_getfl(&pairs[0].1).expect("F_GETFL");
    assert!(!flags.contains(OFlags::NONBLOCK), "the front-end's fd has changed");
}

/// Each call waits, but not until the timer ends.
#[test]
fn an_eventfd_that_is_filled_and_read_soon_is_noticed() {
    const SOON: Duration = Duration::from_millis(2);
    let callee = Callee::default();
    let (ours, theirs) = new_eventfd(EventfdFlags::NONBLOCK);
    let call = CallFd::new(ours, &callee).expect("an eventfd");
    let calls = without_blocking(move || {
        let _guard = CallGuard::new().expect("a timer");
        let is_sent = |_: &u32| {
            block(&theirs);
            let result = std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(SOON);
                    take(&theirs);
                });
                call.call()
            });
            result == CallResult::Sent && take(&theirs) == 1
        };
        (0..200).take_while(is_sent).count()
    });
    assert!(callee.has_blocked(), "{calls} calls");
    assert!(calls < 100, "{calls} calls: one of 32 is looked at, and then each");
}

#[test]
fn a_guest_that_reads_while_it_is_called_is_not_suspected() {
    let callee = Callee::default();
    let (ours, theirs) = new_eventfd(EventfdFlags::NONBLOCK);
    let call = CallFd::new(ours, &callee).expect("an eventfd");
    without_blocking(move || {
        let _guard = CallGuard::new().expect("a timer");
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut read = 0;
                while read < 100_000 {
                    read += rustix::io::read(&theirs, &mut [0; 8]).map_or(0, |_| 1);
                }
            });
            while !reader.is_finished() {
                assert_eq!(call.call(), CallResult::Sent);
            }
        });
    });
    assert!(!callee.has_blocked());
}

/// The timer ends when there are no calls, and must be there again with the next one.
#[test]
fn calls_are_guarded_again_after_a_pause_and_again_by_the_next_guard() {
    let took = without_blocking(|| {
        let mut took = Vec::new();
        for _ in 0..3 {
            let _guard = CallGuard::new().expect("a timer");
            for pause_ms in [0, 5, 30, 60] {
                let (ours, theirs) = new_eventfd(EventfdFlags::NONBLOCK);
                let call = CallFd::new(ours, &Callee::default()).expect("an eventfd");
                assert_eq!(call.call(), CallResult::Sent);
                std::thread::sleep(Duration::from_millis(pause_ms));
                take(&theirs);
                block(&theirs);
                let begin = Instant::now();
                assert_eq!(call.call(), CallResult::Blocked);
                took.push(begin.elapsed());
            }
        }
        took
    });
    println!("{took:?}");
}

#[test]
fn ten_thousand_calls_to_a_socket_that_is_never_read_never_block() {
    let (ours, mut theirs) = UnixStream::pair().expect("socketpair");
    let call = CallFd::new(OwnedFd::from(ours), &Callee::default()).expect("a socket");
    let (call, sent) = without_blocking(move || {
        let mut results: Vec<_> = (0..10_000).map(|_| call.call()).collect();
        let sent = results.iter().filter(|&&result| result == CallResult::Sent).count();
        results.dedup();
        assert_eq!(results, [CallResult::Sent, CallResult::Pending], "full once, full for ever");
        (call, sent)
    });
    let mut unread = vec![0; sent * 8];
    theirs.read_exact(&mut unread).expect("whole calls");
    assert!(unread.chunks(8).all(|value| value == 1u64.to_ne_bytes()));
    assert_eq!(call.call(), CallResult::Sent, "there is room again");
    theirs.read_exact(&mut unread[..8]).expect("one more call");
}

#[test]
fn a_socket_whose_peer_is_gone_says_so_and_raises_no_signal() {
    let (ours, theirs) = UnixStream::pair().expect("socketpair");
    let call = CallFd::new(OwnedFd::from(ours), &Callee::default()).expect("a socket");
    drop(theirs);
    // The test harness ignores SIGPIPE, as Rust programs do; here it would end the process.
    // SAFETY: the default action is a valid one, and nothing else in this process relies on it.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    assert_eq!(call.call(), CallResult::Gone);
    assert_eq!(call.call(), CallResult::Gone);
}

#[test]
fn other_kinds_of_fds_are_refused() {
    let (_, pipe) = rustix::pipe::pipe().expect("pipe");
    let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC);
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a TCP socket");
    let datagram = UnixDatagram::unbound().expect("a Unix socket");
    for fd in [memory_file(0), pipe, epoll.expect("epoll"), tcp.into(), datagram.into()] {
        let error =
            CallFd::new(fd, &Callee::default()).expect_err("neither an eventfd nor a socket");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("must be an eventfd"), "{error}");
    }
}

#[test]
fn an_eventfd_of_our_own_wakes_once_for_many_notifications() {
    let bell = EventFd::new().expect("eventfd");
    assert!(!bell.drain());
    bell.notify();
    bell.notify();
    common::wait_readable(bell.as_fd());
    assert!(bell.drain());
    assert!(!bell.drain());
}
