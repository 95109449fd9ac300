//! A router reads sockets straight into a guest's buffers: these pages are marked, too.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use ringway_testkit::RingwayProcess;
use ringway_testkit::beside::{Outcome, SHOWN_LIMIT};

use crate::front_end::{
    LOG_ALL, LOG_LEN, log_file, marked, memory, receiver, send_frame, set_features, set_log, stop,
};

const GATEWAY: [u8; 4] = [10, 0, 2, 2];
const GUEST: [u8; 4] = [10, 0, 2, 15];

/// A datagram of the guest to that port of the host.
fn datagram(port: u16) -> Vec<u8> {
    const LEN: u8 = 20 + 8 + 4;
    let mut ip = vec![0x45, 0, 0, LEN, 0, 0, 0x40, 0, 64, 17, 0, 0];
    ip.extend([GUEST, GATEWAY].concat());
    let words = ip.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum = words.sum::<u32>();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let router = [&[0x52, 0x55][..], &GATEWAY].concat();
    let ports = [5000u16, port, u16::from(LEN) - 20, 0].map(u16::to_be_bytes);
    let guest = [2, 0, 0, 0, 0, 9];
    [&router[..], &guest, &[8, 0], &ip, ports.as_flattened(), b"hear"].concat()
}

#[test]
fn what_a_router_reads_into_a_guest_is_marked() -> Outcome {
    let server = UdpSocket::bind("127.0.0.1:0")?;
    server.set_read_timeout(Some(SHOWN_LIMIT))?;
    let more = ["--port", "net=nat:,host=10.0.2.2"];
    let ringway = RingwayProcess::start_with(&[("a", "")], &more)?;
    let mut front_end = receiver(&ringway, "a")?;
    send_frame(&front_end, &datagram(server.local_addr()?.port()))?;
    let (_, guest) = server.recv_from(&mut [0; 64])?;
    let log = log_file(LOG_LEN)?;
    set_log(&mut front_end, Some(&log), [LOG_LEN, 0])?;
    set_features(&mut front_end, LOG_ALL)?;
    let before = memory(&front_end);
    for number in 1..=5u8 {
        let known = ringway.port_stats("a")?.to_guest.packets;
        server.send_to(&vec![number; 200 * usize::from(number)], guest)?;
        let deadline = Instant::now() + SHOWN_LIMIT;
        while ringway.port_stats("a")?.to_guest.packets == known {
            assert!(Instant::now() < deadline, "nothing came: {}", ringway.log());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    stop(&mut front_end)?;
    let after = memory(&front_end);
    let pairs = before.iter().zip(&after).filter(|(before, after)| before != after);
    let changed: BTreeSet<u64> = pairs.map(|((page, _), _)| *page).collect();
    let all = marked(&log)?;
    let missing: Vec<_> = changed.difference(&all).collect();
    assert!(changed.len() >= 6 && missing.is_empty(), "{missing:x?} of {changed:x?}");
    assert!(all.difference(&changed).count() <= 16, "{all:x?}");
    Ok(())
}
