//! The poller: tokens, level and edge, hang-ups, interrupted waits.

mod common;

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use common::HANG_TIMEOUT;
use ringway_host::{EventFd, Events, Interest, PollEvent, Poller};
use rustix::time::{ClockId, clock_getres};

const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

fn waited(poller: &Poller, timeout: Option<Duration>) -> Vec<PollEvent> {
    let mut events = Events::with_capacity(8);
    let count = poller.wait(&mut events, timeout).expect("wait");
    let events: Vec<_> = events.iter().collect();
    assert_eq!(events.len(), count);
    events
}

#[test]
fn level_wakes_again_until_drained_and_edge_only_for_news() {
    let (level, edge) = (EventFd::new().expect("eventfd"), EventFd::new().expect("eventfd"));
    let poller = Poller::new().expect("epoll");
    edge.notify();
    poller.add(level.as_fd(), u64::MAX).expect("add");
    poller.add_edge(edge.as_fd(), 7).expect("add_edge");
    let tokens = || waited(&poller, AT_ONCE).iter().map(|event| event.token).collect::<Vec<_>>();
    assert_eq!(tokens(), [7], "what was there before counts as new");
    assert_eq!(tokens(), [0u64; 0]);
    level.notify();
    assert_eq!((tokens(), tokens()), (vec![u64::MAX], vec![u64::MAX]));
    edge.notify();
    let mut both = tokens();
    both.sort_unstable();
    assert_eq!(both, [7, u64::MAX], "a second notification wakes without a drain");
    level.drain();
    assert_eq!(tokens(), [0u64; 0]);
}

/// Pacing waits for tens of microseconds. A wait that is rounded up to milliseconds is
/// never below one, however quiet the machine; an exact one needs one quiet moment among so many.
#[test]
fn a_wait_of_microseconds_is_not_rounded_up_to_a_millisecond() {
    let resolution = clock_getres(ClockId::Monotonic);
    if (resolution.tv_sec, resolution.tv_nsec) >= (0, 1_000_000) {
        return println!("skipped: the clock's own steps are a millisecond or more");
    }
    let poller = Poller::new().expect("epoll");
    let shortest = (0..200).map(|_| {
        let began = Instant::now();
        waited(&poller, Some(Duration::from_micros(20)));
        began.elapsed()
    });
    let shortest = shortest.min().expect("200 waits");
    assert!(shortest < Duration::from_millis(1), "{shortest:?}");
}

#[test]
fn interest_can_be_changed_and_removed() {
    let (ours, mut theirs) = UnixStream::pair().expect("socketpair");
    let poller = Poller::new().expect("epoll");
    poller.add_with(ours.as_fd(), 1, Interest::Writable).expect("add");
    let expected = PollEvent { token: 1, readable: false, writable: true, hang_up: false };
    assert_eq!(waited(&poller, AT_ONCE), [expected]);
    theirs.write_all(b"x").expect("write");
    poller.modify(ours.as_fd(), 2, Interest::Both).expect("modify");
    assert_eq!(waited(&poller, AT_ONCE), [PollEvent { token: 2, readable: true, ..expected }]);
    poller.remove(ours.as_fd()).expect("remove");
    drop(theirs);
    assert_eq!(waited(&poller, AT_ONCE), []);
    assert!(poller.remove(ours.as_fd()).is_err(), "not watched any more");
}

#[test]
fn a_closed_peer_is_a_hang_up_and_its_last_bytes_are_readable() {
    let (mut ours, mut theirs) = UnixStream::pair().expect("socketpair");
    let poller = Poller::new().expect("epoll");
    poller.add(ours.as_fd(), 1).expect("add");
    theirs.write_all(b"bye").expect("write");
    drop(theirs);
    let events = waited(&poller, Some(HANG_TIMEOUT));
    assert!(events[0].readable && events[0].hang_up, "{events:?}");
    let mut last = String::new();
    ours.read_to_string(&mut last).expect("read");
    assert_eq!(last, "bye");
}

#[test]
fn more_wake_ups_than_room_come_with_the_next_wait() {
    let bells: Vec<_> = (0..5).map(|_| EventFd::new().expect("eventfd")).collect();
    let poller = Poller::new().expect("epoll");
    for (token, bell) in bells.iter().enumerate() {
        poller.add_edge(bell.as_fd(), token as u64).expect("add");
        bell.notify();
    }
    let mut events = Events::with_capacity(2);
    let mut seen = Vec::new();
    for _ in 0..3 {
        poller.wait(&mut events, AT_ONCE).expect("wait");
        seen.extend(events.iter().map(|event| event.token));
    }
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2, 3, 4]);
}

#[test]
fn a_timeout_ends_the_wait_and_not_too_early() {
    let poller = Poller::new().expect("epoll");
    let timeout = Duration::from_micros(2500);
    let started = Instant::now();
    assert_eq!(waited(&poller, Some(timeout)), []);
    assert!(started.elapsed() >= timeout);
}

#[test]
fn the_longest_timeouts_do_not_fail() {
    let poller = Poller::new().expect("epoll");
    let bell = EventFd::new().expect("eventfd");
    poller.add(bell.as_fd(), 0).expect("add");
    bell.notify();
    assert_eq!(waited(&poller, Some(Duration::MAX)).len(), 1);
    assert_eq!(waited(&poller, None).len(), 1);
}

#[test]
fn a_file_cannot_be_polled() {
    let poller = Poller::new().expect("epoll");
    assert!(poller.add(common::memory_file(1).as_fd(), 0).is_err());
}
