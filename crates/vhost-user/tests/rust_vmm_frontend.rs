//! The front-end of the rust-vmm crate `vhost` against the session, over a real socket.

mod common;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use common::{Backend, describe};
use ringway_vhost_user::{Applied, Connection, Effect, Received};
use ringway_virtq::Position;
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserHeaderFlag};
use vhost::vhost_user::{Frontend, VhostUserFrontend, VhostUserProtocolFeatures};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::EventFd;

const MEMORY_LEN: u64 = 0x10_0000;
const USER_ADDRESS: u64 = 0x7fff_0000_0000;

/// Serves one connection until it is closed; all effects, in order.
fn serve(stream: UnixStream) -> Vec<String> {
    let mut connection = Connection::new(stream).unwrap();
    let mut session = Backend::new().session;
    let mut log = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match connection.receive().unwrap() {
            Received::Request(request) => {
                let outcome = session.handle(request);
                let mut applied = Applied::OK;
                for effect in &outcome.effects {
                    log.push(describe(effect));
                    if let Effect::StopQueue { index } | Effect::DiscardPackets { index, .. } =
                        effect
                    {
                        let at = Position { available: 300, used: 300, ..Position::FRESH };
                        applied.stopped.push((*index, at));
                    }
                }
                log.extend(outcome.refused.map(|refusal| refusal.to_string()));
                if let Some(reply) = session.complete(outcome.pending, applied) {
                    connection.send(&reply).unwrap();
                }
            }
            Received::Closed => return log,
            Received::Nothing => assert!(connection.wait_readable(deadline).unwrap()),
        }
    }
}

fn region(file: &File, index: u64) -> VhostUserMemoryRegionInfo {
    VhostUserMemoryRegionInfo {
        guest_phys_addr: index * MEMORY_LEN,
        memory_size: MEMORY_LEN,
        userspace_addr: USER_ADDRESS + index * MEMORY_LEN,
        mmap_offset: index * MEMORY_LEN,
        mmap_handle: file.as_raw_fd(),
    }
}

fn negotiate(frontend: &mut Frontend) {
    frontend.set_owner().unwrap();
    assert_eq!(frontend.get_features().unwrap(), common::FEATURES | common::BIT_30);
    frontend.set_features(0x1_3000_8000 | common::BIT_30).unwrap();
    let protocol_features = frontend.get_protocol_features().unwrap();
    assert_eq!(protocol_features.bits(), common::PROTOCOL_FEATURES);
    assert!(protocol_features.contains(VhostUserProtocolFeatures::REPLY_ACK));
    frontend.set_protocol_features(protocol_features).unwrap();
    frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
    assert_eq!(frontend.get_max_mem_slots().unwrap(), 509);
}

fn start_rings(frontend: &mut Frontend) {
    for index in 0..2 {
        let at = USER_ADDRESS + 0x1_0000 * index as u64;
        let ring = VringConfigData {
            queue_max_size: 256,
            queue_size: 256,
            flags: 0,
            desc_table_addr: at,
            used_ring_addr: at + 0x3000,
            avail_ring_addr: at + 0x2000,
            log_addr: None,
        };
        frontend.set_vring_num(index, 256).unwrap();
        frontend.set_vring_addr(index, &ring).unwrap();
        frontend.set_vring_base(index, 7).unwrap();
        frontend.set_vring_call(index, &EventFd::new(0).unwrap()).unwrap();
        frontend.set_vring_err(index, &EventFd::new(0).unwrap()).unwrap();
        frontend.set_vring_kick(index, &EventFd::new(0).unwrap()).unwrap();
        frontend.set_vring_enable(index, true).unwrap();
    }
}

#[test]
fn a_whole_life_with_every_request_acknowledged() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = thread::spawn(move || serve(theirs));
    let mut frontend = Frontend::from_stream(ours, 3);
    let file = tempfile::tempfile().unwrap();
    negotiate(&mut frontend);
    frontend.set_mem_table(&[region(&file, 0), region(&file, 1)]).unwrap();
    start_rings(&mut frontend);
    let flags = VhostUserConfigFlags::empty();
    let (_, mac) = frontend.get_config(0, 6, flags, &[0; 6]).unwrap();
    assert_eq!(mac, common::CONFIG[..6]);
    assert!(frontend.set_config(0, flags, &[0; 6]).is_err());
    frontend.add_mem_region(&region(&file, 2)).unwrap();
    let mut other = region(&file, 2);
    other.userspace_addr += 0x1000;
    assert!(frontend.add_mem_region(&other).is_err());
    frontend.add_mem_region(&region(&file, 2)).unwrap();
    frontend.remove_mem_region(&region(&file, 2)).unwrap();
    frontend.remove_mem_region(&region(&file, 2)).unwrap();
    frontend.set_vring_enable(1, false).unwrap();
    frontend.set_vring_enable(1, true).unwrap();
    assert_eq!(frontend.get_vring_base(0).unwrap(), 300);
    frontend.reset_device().unwrap();
    drop(frontend);
    let log = server.join().unwrap();
    let expected = [
        "features 0x130008000",
        "memory 0x0+0x100000@0x7fff00000000/0x0 0x100000+0x100000@0x7fff00100000/0x100000",
        "start 0 split 256 at 0x0/0x2000/0x3000 base 0x7 kick call error",
        "watch 1",
        "watch",
        "start 1 split 256 at 0x10000/0x12000/0x13000 base 0x7 kick call error",
        "the configuration space cannot be written",
        "add memory 0x200000+0x100000@0x7fff00200000/0x200000",
        "memory region 0x200000: overlaps another region",
        "remove memory 0x200000",
        "watch 1",
        "stop 1",
        "discard 1",
        "watch",
        "start 1 split 256 at 0x10000/0x12000/0x13000 base 0x12c kick call error",
        "watch 0 1",
        "stop 0",
        "watch",
        "stop 1",
        "reset",
    ];
    assert_eq!(log, expected);
}
