//! Requests of front-ends, and what becomes of their queues: over a real socket, in ringway as it
//! runs.

mod common;

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{Ordering, fence};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{LIMIT, Ringway, wait_for};
use ringway_testkit::{Answer, REGIONS, RawFrontEnd, pair};
use ringway_vhost_user::{Connection, Received};
use ringway_virtq::{Format, SharedSlice};

const SET_MEM_TABLE: u32 = 5;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
const SET_VRING_ERR: u32 = 14;
const SET_BACKEND_REQ_FD: u32 = 21;
const ADD_MEM_REG: u32 = 37;

fn message(code: u32, payload: &[u64]) -> Vec<u8> {
    let len = u32::try_from(8 * payload.len()).expect("few");
    let header = [code, 1, len].map(u32::to_le_bytes).concat();
    [header, payload.iter().flat_map(|word| word.to_le_bytes()).collect()].concat()
}

/// Whether a front-end that connects is answered.
fn is_answered(socket: &Path) -> bool {
    let mut connection = Connection::connect(socket).expect("it listens");
    connection.send(&message(1, &[])).expect("connected");
    let mut deadline = Instant::now() + LIMIT;
    // A reply is no request: it is received as one that is malformed.
    while connection.wait_readable(deadline).expect("a socket") {
        match connection.receive().expect("a reply") {
            Received::Request(_) => return true,
            Received::Closed => return false,
            Received::Nothing => deadline = deadline.min(Instant::now() + LIMIT),
        }
    }
    false
}

#[test]
fn a_front_end_that_sends_its_own_socket_and_ends_is_followed_by_the_next() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["--port", "vm0=vm:vm0.sock", "--port", "vm1=vm:vm1.sock"];
    let ringway = Ringway::run(directory.path(), &ports);
    let [vm0, vm1] = ["vm0.sock", "vm1.sock"].map(|name| directory.path().join(name));
    let fits = [0, 0x1000, 0, 0].as_slice();
    let requests: [(u32, Vec<u64>); 6] = [
        (SET_BACKEND_REQ_FD, vec![]),
        (SET_VRING_KICK, vec![0]),
        (SET_VRING_CALL, vec![1]),
        (SET_VRING_ERR, vec![1]),
        (SET_MEM_TABLE, [&[1], fits].concat()),
        (ADD_MEM_REG, [&[0], fits].concat()),
    ];
    for (code, payload) in requests {
        // Each sends its own, and that of the other one.
        let mut both = [&vm0, &vm1].map(|path| Connection::connect(path).expect("it listens"));
        let ends = both.each_ref().map(|end| end.as_fd().try_clone_to_owned().expect("an fd"));
        for front_end in &mut both {
            for end in &ends {
                let bytes = message(code, &payload);
                front_end.send_with_fds(&bytes, &[end.as_fd()]).expect("connected");
            }
        }
        drop((both, ends));
        assert!(is_answered(&vm0) && is_answered(&vm1), "request {code}: {}", ringway.log());
    }
    ringway.assert_logged("a socket that is connected to ringway itself");
    wait_for("the end of all", || (ringway.state("vm0")? == "waiting").then_some(()));
}

const GET_VRING_BASE: u32 = 11;
const SET_VRING_ENABLE: u32 = 18;
const SET_STATUS: u32 = 39;

/// Entries of a ring, and its parts, from where it begins.
const SIZE: u16 = 16;
const RING_LEN: usize = 0x1000;
const USED: usize = 0x400;
const AVAILABLE: usize = 0x800;

const WRITE: u16 = 2;
const BUFFER_LEN: u32 = 2048;

/// A packet: a header that says nothing, and a broadcast.
const HEADER_LEN: usize = 12;
const PACKET_LEN: u32 = 12 + 60;

/// Long enough for what must not happen.
const WATCHED: Duration = Duration::from_millis(300);

/// A guest with two split rings that are written by hand.
struct Guest {
    front_end: RawFrontEnd,
}

impl Guest {
    /// Running, with all buffers posted.
    fn attach(socket: &Path) -> Self {
        let mut front_end = RawFrontEnd::connect(socket).expect("it listens");
        front_end.bring_up(Format::Split).expect("a device");
        let guest = Self { front_end };
        (0..SIZE).for_each(|_| guest.offer(0, BUFFER_LEN, WRITE));
        guest.kick(0);
        guest
    }

    fn ring(&self, index: usize) -> SharedSlice {
        self.front_end.memory.region(0).split_at(index * RING_LEN).1
    }

    fn used(&self, index: usize) -> u16 {
        self.ring(index).load_u16(USED + 2)
    }

    fn wait_used(&self, index: usize, count: u16) {
        wait_for("used buffers", || (self.used(index) == count).then_some(()));
    }

    /// The next buffer of a ring, behind those of the rings before.
    fn offer(&self, index: usize, len: u32, flags: u16) {
        let ring = self.ring(index);
        let at = ring.load_u16(AVAILABLE + 2);
        let slot = usize::from(at % SIZE);
        let buffer = (usize::from(SIZE) * index + slot) as u64 * u64::from(BUFFER_LEN);
        ring.store_u64(16 * slot, REGIONS[1].0 + buffer);
        ring.store_u32(16 * slot + 8, len);
        ring.store_u16(16 * slot + 12, flags);
        ring.store_u16(AVAILABLE + 4 + 2 * slot, u16::try_from(slot).expect("few"));
        fence(Ordering::SeqCst);
        ring.store_u16(AVAILABLE + 2, at.wrapping_add(1));
        if flags == 0 {
            let buffer = usize::try_from(buffer).expect("small");
            let bytes = self.front_end.memory.region(1);
            bytes.write(buffer, &[0; HEADER_LEN]);
            bytes.write(buffer + HEADER_LEN, &[0xff; 6]);
            bytes.write(buffer + HEADER_LEN + 6, &[0x52, 0x54, 0, 1, 2, 3]);
        }
    }

    fn kick(&self, index: usize) {
        rustix::io::write(&self.front_end.kicks[index], &1u64.to_ne_bytes()).expect("an eventfd");
    }

    fn send(&self, count: u16) {
        (0..count).for_each(|_| self.offer(1, PACKET_LEN, 0));
        fence(Ordering::SeqCst);
        self.kick(1);
    }

    fn must(&mut self, code: u32, payload: &[u8]) {
        let answer = self.front_end.request(code, payload, &[]).expect("an answer");
        assert!(answer.is_done(), "request {code}: {answer:?}");
    }

    fn base(&mut self, index: u32) -> u64 {
        let answer = self.front_end.request(GET_VRING_BASE, &pair(index, 0), &[]);
        let Answer::Number(word) = answer.expect("an answer") else { panic!("no base") };
        assert_eq!(word & 0xffff_ffff, u64::from(index));
        word >> 32
    }
}

/// Two guests on a cable.
fn guests() -> (tempfile::TempDir, Ringway, Guest, Guest) {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["--port", "vm0=vm:vm0.sock", "--port", "vm1=vm:vm1.sock"];
    let ringway = Ringway::run(directory.path(), &ports);
    let [one, other] =
        ["vm0.sock", "vm1.sock"].map(|name| Guest::attach(&directory.path().join(name)));
    (directory, ringway, one, other)
}

#[test]
fn a_transmitq_that_is_disabled_is_emptied_and_forwards_nothing() {
    let (_directory, ringway, mut sender, receiver) = guests();
    sender.send(1);
    receiver.wait_used(0, 1);
    sender.must(SET_VRING_ENABLE, &pair(1, 0));
    // Each time it is kicked, and more than the ring holds.
    for round in 1..=20 {
        sender.send(3);
        sender.wait_used(1, 1 + 3 * round);
    }
    // Packets that are there when it is disabled again go the same way.
    sender.must(SET_VRING_ENABLE, &pair(1, 1));
    sender.must(SET_VRING_ENABLE, &pair(1, 0));
    sender.must(SET_VRING_ENABLE, &pair(1, 1));
    sleep(WATCHED);
    assert_eq!(receiver.used(0), 1, "{}", ringway.log());
    sender.send(2);
    receiver.wait_used(0, 3);
    assert!(ringway.told(&["stats", "--json"]).contains("\"link_down\":60"));
}

#[test]
fn a_receiveq_that_is_disabled_is_not_filled() {
    let (_directory, _ringway, sender, mut receiver) = guests();
    receiver.must(SET_VRING_ENABLE, &pair(0, 0));
    sender.send(3);
    sender.wait_used(1, 3);
    sleep(WATCHED);
    assert_eq!(receiver.used(0), 0);
    receiver.must(SET_VRING_ENABLE, &pair(0, 1));
    sender.send(1);
    receiver.wait_used(0, 1);
}

#[test]
fn queues_whose_base_was_only_asked_for_go_on_when_the_guest_kicks() {
    for asked in [vec![0], vec![1], vec![0, 1]] {
        let (_directory, ringway, mut guest, other) = guests();
        guest.send(2);
        other.send(3);
        guest.wait_used(0, 3);
        guest.wait_used(1, 2);
        for &index in &asked {
            assert_eq!(guest.base(index), [3, 2][index as usize]);
        }
        // Nothing is given to a guest that does not kick.
        if asked.contains(&0) {
            other.send(2);
            sleep(WATCHED);
            assert_eq!(guest.used(0), 3);
        }
        guest.send(1);
        guest.wait_used(1, 3);
        wait_for("the receiveq", || {
            other.send(1);
            sleep(Duration::from_millis(20));
            (guest.used(0) > 3).then_some(())
        });
        ringway.assert_logged("run again: the guest kicked them");
        assert_eq!(ringway.state("vm0").as_deref(), Some("running"));
    }
}

/// As QEMU's monitor does it: a front-end that tells the device's status would have told of a stop.
#[test]
fn queues_of_a_running_device_go_on_without_a_kick() {
    let (_directory, ringway, mut guest, other) = guests();
    guest.must(SET_STATUS, &15_u64.to_le_bytes());
    other.send(3);
    guest.wait_used(0, 3);
    assert_eq!(guest.base(0), 3);
    wait_for("the receiveq", || {
        other.send(1);
        sleep(Duration::from_millis(20));
        (guest.used(0) > 3).then_some(())
    });
    ringway.assert_logged("run again: the front-end has only asked where they stand");
    // One that is stopped stays so.
    guest.must(SET_STATUS, &0_u64.to_le_bytes());
    let stood = guest.base(0);
    other.send(1);
    sleep(WATCHED);
    assert_eq!(u64::from(guest.used(0)), stood);
}

/// QEMU 7.2 stops a device in this order.
#[test]
fn positions_are_told_behind_a_device_status_of_0() {
    let (_directory, ringway, mut guest, other) = guests();
    for round in 1..=20 {
        guest.send(1);
        other.wait_used(0, round.min(SIZE));
        guest.wait_used(1, round);
        guest.must(SET_STATUS, &0_u64.to_le_bytes());
        assert_eq!([guest.base(0), guest.base(1)], [0, round.into()]);
        let features: u64 = 1 << 32 | 1 << 30;
        guest.must(2, &features.to_le_bytes());
        // Whatever base is told (0 here), the ring says where it stands.
        (0..2).for_each(|index| guest.front_end.start_queue(index).expect("as before"));
        assert_eq!(ringway.state("vm0").as_deref(), Some("running"));
    }
    sleep(WATCHED);
    assert_eq!(other.used(0), SIZE, "nothing was sent twice, and its buffers are used up");
}
