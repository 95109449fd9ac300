//! This crate's front-end against its session, over a real socket on a real path.

mod common;

use std::fs::File;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use common::{Backend, describe};
use ringway_vhost_user::{
    Applied, Connection, Effect, Frontend, FrontendError, Listener, MemoryRegion, ProtocolFeatures,
    QueueStart, Received, send_on_channel,
};
use ringway_virtq::{Areas, Position};

const TIMEOUT: Duration = Duration::from_secs(10);

/// Serves one connection until it is closed; all effects, in order. `SetMtu` is what the test uses
/// to make the device change its configuration.
fn serve(mut connection: Connection) -> Vec<String> {
    let mut session = Backend::new().session;
    let (mut log, mut channel) = (Vec::new(), None);
    let deadline = Instant::now() + 2 * TIMEOUT;
    loop {
        match connection.receive().unwrap() {
            Received::Request(request) => {
                let outcome = session.handle(request);
                let mut applied = Applied::OK;
                for effect in outcome.effects {
                    log.push(describe(&effect));
                    match effect {
                        Effect::StopQueue { index } => {
                            let at = Position { available: 42, used: 42, ..Position::FRESH };
                            applied.stopped.push((index, at));
                        }
                        Effect::BackendChannel(fd) => channel = Some(fd),
                        Effect::Reset => {
                            let notice = session.set_config(vec![9; 12]).expect("negotiated");
                            send_on_channel(channel.as_ref().unwrap(), &notice).unwrap();
                        }
                        _ => {}
                    }
                }
                if let Some(reply) = session.complete(outcome.pending, applied) {
                    connection.send(&reply).unwrap();
                }
            }
            Received::Closed => return log,
            Received::Nothing => assert!(connection.wait_readable(deadline).unwrap()),
        }
    }
}

fn start(path: &Path) -> JoinHandle<Vec<String>> {
    let listener = Listener::bind(path).unwrap();
    thread::spawn(move || {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(connection) = listener.accept().unwrap() {
                return serve(connection);
            }
            assert!(Instant::now() < deadline, "no front-end connected");
            thread::yield_now();
        }
    })
}

fn region(guest_address: u64) -> MemoryRegion {
    let fd = OwnedFd::from(File::open("/dev/zero").unwrap()).into();
    MemoryRegion { guest_address, size: 0x10_0000, user_address: guest_address, mmap_offset: 0, fd }
}

#[test]
fn a_whole_life() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vm0.sock");
    let server = start(&path);
    let mut frontend = Frontend::connect(&path, TIMEOUT).unwrap();
    assert_eq!(frontend.offered_features(), common::FEATURES);
    assert!(frontend.protocol_features().contains(ProtocolFeatures::REPLY_ACK));
    assert_eq!(frontend.config(12).unwrap(), common::CONFIG);
    assert_eq!(frontend.config(256).unwrap().len(), 256);
    assert!(matches!(frontend.config(257), Err(FrontendError::Refused { code: 24 })));
    assert!(matches!(frontend.accept_features(1 << 50), Err(FrontendError::NotOffered { .. })));
    assert_eq!(frontend.memory_slots_max().unwrap(), 509);
    assert_eq!(frontend.queue_pairs_max().unwrap(), 1);
    frontend.accept_features(1 << 32).unwrap();
    frontend.set_memory(vec![region(0x10_0000)]).unwrap();
    let refused = frontend.set_memory(vec![region(0), region(0x1000)]);
    assert!(matches!(refused, Err(FrontendError::Refused { code: 5 })));
    frontend.add_memory(region(0x20_0000)).unwrap();
    frontend.remove_memory(region(0x20_0000).range()).unwrap();
    let fd = File::open("/dev/null").unwrap();
    let areas = Areas::new(0x10_0000, 0x10_1000, 0x10_2000);
    let (kick, call) = (fd.as_fd(), fd.as_fd());
    let start = QueueStart { index: 1, size: 256, areas, base: 7, kick, call };
    frontend.enable_queue(1, true).unwrap();
    frontend.start_queue(start).unwrap();
    assert!(matches!(frontend.start_queue(start), Err(FrontendError::Refused { code: 8 })));
    assert_eq!(frontend.stop_queue(1).unwrap(), 42);
    assert!(matches!(frontend.stop_queue(9), Err(FrontendError::Refused { code: 11 })));
    frontend.set_status(7).unwrap();
    assert_eq!(frontend.status().unwrap(), 7);
    assert!(!frontend.config_changed().unwrap());
    frontend.reset_device().unwrap();
    assert!(frontend.config_changed().unwrap());
    assert!(!frontend.config_changed().unwrap());
    assert_eq!(frontend.config(12).unwrap(), [9; 12]);
    drop(frontend);
    let log = server.join().unwrap();
    let expected = [
        "channel",
        "features 0x100000000",
        "memory 0x100000+0x100000@0x100000/0x0",
        "add memory 0x200000+0x100000@0x200000/0x0",
        "remove memory 0x200000",
        "start 1 split 256 at 0x100000/0x101000/0x102000 base 0x7 kick call",
        "watch 1",
        "stop 1",
        "watch",
        "reset",
    ];
    assert_eq!(log, expected);
}

#[test]
fn a_back_end_that_is_silent_or_gone_is_an_error_and_not_a_hang() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("silent.sock");
    let short = Duration::from_millis(50);
    let missing = Frontend::connect(&path, short).unwrap_err().to_string();
    assert!(missing.contains("silent.sock: cannot connect"), "{missing}");
    let _silent = UnixListener::bind(&path).unwrap();
    let error = Frontend::connect(&path, short).unwrap_err();
    assert!(matches!(error, FrontendError::Timeout { code: 1, .. }), "{error}");
    let (ours, theirs) = UnixStream::pair().unwrap();
    drop(theirs);
    assert!(Frontend::from_stream(ours, short).is_err());
}
