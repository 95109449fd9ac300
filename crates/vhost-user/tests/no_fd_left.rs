//! A front-end's file descriptors where this process may have no more of them. The limit holds for
//! the whole process, so this test is the only one of its file.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;

use ringway_vhost_user::{Connection, Received, Request, WhyMalformed};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// `SET_VRING_KICK` of ring 0.
fn kick() -> Vec<u8> {
    [12u32, 9, 8, 0, 0].into_iter().flat_map(u32::to_le_bytes).collect()
}

#[test]
fn descriptors_that_could_not_be_received_are_named_and_the_connection_goes_on() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut front_end = Connection::new(ours).unwrap();
    let mut connection = Connection::new(theirs).unwrap();
    let file = File::open("/dev/null").unwrap();
    let limit = getrlimit(Resource::Nofile);
    let next_fd = file.try_clone().unwrap().as_raw_fd();
    for free in [0, 1] {
        let most = Some(u64::try_from(next_fd + free).unwrap());
        setrlimit(Resource::Nofile, Rlimit { current: most, ..limit }).unwrap();
        front_end.send_with_fds(&kick(), &[file.as_fd(), file.as_fd()]).unwrap();
        let received = connection.receive();
        setrlimit(Resource::Nofile, limit).unwrap();
        let Ok(Received::Request(message)) = received else { panic!("{received:?}") };
        let Request::Malformed { code: 12, why } = message.request else { panic!("{message:?}") };
        assert_eq!(why, WhyMalformed::LostFds);
        assert!(message.reply_wanted);
    }
    front_end.send_with_fds(&kick(), &[file.as_fd()]).unwrap();
    let received = connection.receive();
    let Ok(Received::Request(message)) = received else { panic!("{received:?}") };
    assert_eq!(message.request.fds().len(), 1, "the next one is as usual");
}
