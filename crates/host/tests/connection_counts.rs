//! How far both streams of a connection have come follows from the kernel's counts alone.
//!
//! How: two sockets of this machine send, read, peek, discard and end at random; after each step
//! the kernel's sums must be the test's own, to the byte, on the end that opened the connection
//! and on the other one.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use ringway_extent::Extent;
use ringway_host::connection_counts;
use ringway_testkit::Rng;
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_socket_oobinline, set_socket_recv_buffer_size, set_socket_send_buffer_size,
};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

/// Steps of all connections together.
const STEPS: Extent = Extent::new("RINGWAY_COUNTED_STEPS", 40_000, 1_000_000);

/// Steps of one connection before both ends begin to end.
const STEPS_OF_ONE: u64 = 600;

/// Most steps of one connection: for ten seconds and more behind its end it only reads.
const STEPS_MAX: u64 = 100_000;

/// Most bytes of one send or read.
const LEN_MAX: u64 = 100_000;

/// One end, with what the test knows of it.
struct End {
    socket: TcpStream,
    base_written: u64,
    base_taken: u64,
    sent: u64,
    taken: u64,
    has_ended: bool,
    has_seen_end: bool,
}

impl End {
    fn new(socket: TcpStream, is_small: bool) -> Self {
        socket.set_nonblocking(true).expect("a socket");
        set_socket_oobinline(&socket, true).expect("a socket");
        if is_small {
            set_socket_recv_buffer_size(&socket, 4096).expect("a socket");
            set_socket_send_buffer_size(&socket, 16 << 10).expect("a socket");
        }
        let counts = connection_counts(socket.as_fd()).expect("the kernel counts");
        Self {
            base_written: counts.written(),
            base_taken: counts.taken(),
            socket,
            sent: 0,
            taken: 0,
            has_ended: false,
            has_seen_end: false,
        }
    }

    fn step(&mut self, rng: &mut Rng, bytes: &mut [u8], may_end: bool) {
        let limit = if rng.one_in(3) { LEN_MAX } else { 3000 };
        let bytes = &mut bytes[..usize::try_from(rng.between(1, limit)).expect("small")];
        match rng.below(if may_end { 9 } else { 8 }) {
            0..=2 if !self.has_ended => self.send(bytes, rng.one_in(20)),
            3..=4 => self.read(bytes, RecvFlags::empty()),
            5 => self.read(bytes, RecvFlags::TRUNC),
            6 => _ = recv(&self.socket, bytes, RecvFlags::PEEK | RecvFlags::DONTWAIT),
            8 => {
                // It is not connected any more where both have ended.
                let _ = shutdown(&self.socket, Shutdown::Write);
                self.has_ended = true;
            }
            _ => {}
        }
    }

    fn send(&mut self, bytes: &[u8], is_urgent: bool) {
        let urgent = if is_urgent { SendFlags::OOB } else { SendFlags::empty() };
        match send(&self.socket, bytes, urgent | SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(len) => self.sent += len as u64,
            Err(why) => assert_eq!(why, Errno::AGAIN),
        }
    }

    fn read(&mut self, bytes: &mut [u8], flags: RecvFlags) {
        match recv(&self.socket, &mut *bytes, flags | RecvFlags::DONTWAIT) {
            Ok((_, 0)) => self.has_seen_end = true,
            Ok((_, len)) => self.taken += len as u64,
            Err(why) => assert_eq!(why, Errno::AGAIN),
        }
    }

    fn check(&self, other: &Self) {
        let counts = connection_counts(self.socket.as_fd()).expect("they stand still");
        let end = u64::from(self.has_ended);
        assert_eq!(counts.written() - self.base_written, self.sent + end, "{counts:?}");
        assert_eq!(counts.taken() - self.base_taken, self.taken, "{counts:?}");
        let received = counts.received() - self.base_taken;
        assert!((self.taken..=other.sent).contains(&received), "{counts:?}, {}", other.sent);
        assert_eq!(counts.has_ended(), self.has_ended, "{counts:?}");
        assert!(!counts.has_received_end() || other.has_ended, "{counts:?}");
        if self.has_seen_end {
            assert!(counts.has_received_end(), "{counts:?}");
            assert_eq!(self.taken, other.sent);
        }
    }
}

fn connection(listener: &TcpListener, rng: &mut Rng) -> [End; 2] {
    let opened = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    // Data may wait in a socket before it is accepted.
    let early = rng.below(3) * 1000;
    let sent = send(&opened, &vec![7; usize::try_from(early).expect("small")], SendFlags::empty());
    let (accepted, _) = listener.accept().expect("it waits");
    let is_small = rng.one_in(3);
    let mut ends = [opened, accepted].map(|socket| End::new(socket, is_small));
    let sent = sent.expect("there is room") as u64;
    // The first end's sum was read behind those bytes, the second one's before any was taken.
    ends[0].base_written -= sent;
    ends[0].sent = sent;
    ends
}

fn run(address: SocketAddr, steps: u64, rng: &mut Rng) {
    let listener = TcpListener::bind(address).expect("loopback");
    let mut bytes = vec![7; usize::try_from(LEN_MAX).expect("small")];
    let (mut done, mut connections) = (0, 0);
    while done < steps {
        let mut ends = connection(&listener, rng);
        let mut step = 0;
        while !ends.iter().all(|end| end.has_seen_end) {
            let which = usize::from(rng.one_in(2));
            let may_end = step >= STEPS_OF_ONE && rng.one_in(20);
            ends[which].step(rng, &mut bytes, may_end);
            ends[0].check(&ends[1]);
            ends[1].check(&ends[0]);
            step += 1;
            if step > 4 * STEPS_OF_ONE {
                // A window that was closed is asked for again a while later.
                thread::sleep(Duration::from_micros(100));
            }
            assert!(step < STEPS_MAX, "a connection comes to its end");
        }
        (done, connections) = (done + step, connections + 1);
    }
    assert!(connections > 1);
}

#[test]
fn sequence_numbers_follow_from_the_kernels_counts() {
    let mut rng = Rng::from_environment("connection_counts", 0xc0c0);
    let steps = STEPS.announced() / 2;
    run((Ipv4Addr::LOCALHOST, 0).into(), steps, &mut rng);
    run((Ipv6Addr::LOCALHOST, 0).into(), steps, &mut rng);
}
