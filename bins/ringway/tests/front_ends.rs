//! What front-ends send, and what becomes of their queues: over a real socket, in ringway as it runs.

mod common;

use std::os::fd::AsFd;
use std::path::Path;
use std::time::Instant;

use common::{LIMIT, Ringway, wait_for};
use ringway_vhost_user::{Connection, Received};

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
    assert!(ringway.log().contains("a socket that is connected to ringway itself"));
    wait_for("the end of all", || (ringway.state("vm0")? == "waiting").then_some(()));
}
