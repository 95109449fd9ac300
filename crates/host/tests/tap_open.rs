//! How a tap comes into being, each test in a network namespace of its own.

mod common;

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use common::wire::{QUIET, Wire, frame, interface_index};
use common::{gathered, in_namespace, wait_readable, wire};
use ringway_host::{Tap, TapError, TapOptions};
use ringway_net::{PACKET_LEN_MAX, PacketSource};

const FLAGS: i32 = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;

fn open(name: &str) -> Tap {
    try_open(name, None).expect("a tap")
}

fn try_open(name: &str, mtu: Option<u16>) -> Result<Tap, TapError> {
    Tap::open(&TapOptions { name: name.to_owned(), mtu })
}

#[test]
fn a_tap_that_did_not_exist_vanishes_with_its_owner() {
    in_namespace(|| {
        let tap = try_open("tap%d", Some(9000)).expect("a tap");
        assert_eq!((tap.name(), tap.mtu()), ("tap0", Some(9000)));
        assert_ne!(interface_index("tap0"), 0);
        assert!(wire::has_link("tap0"), "it is up");
        tap.set_link(false).expect("TUNSETCARRIER");
        assert!(!wire::has_link("tap0"));
        tap.set_link(true).expect("TUNSETCARRIER");
        assert!(wire::has_link("tap0"));
        drop(tap);
        assert_eq!(interface_index("tap0"), 0);
    });
}

#[test]
fn an_existing_tap_is_adopted_and_stays() {
    in_namespace(|| {
        wire::create_persistent("tap0", libc::IFF_TAP | libc::IFF_NO_PI);
        wire::create_persistent("many0", FLAGS | libc::IFF_MULTI_QUEUE);
        for name in ["tap0", "many0"] {
            wire::set_mtu(name, 2000);
            for round in 0..2 {
                let mut tap = try_open(name, Some(9000)).expect("a tap");
                assert_eq!((tap.name(), tap.mtu()), (name, Some(2000)), "its own MTU");
                let wire = Wire::new(name, QUIET);
                wire.send(&frame(100, round));
                wait_readable(tap.as_fd());
                let packet = tap.peek().expect("a packet, with a header although made without");
                assert_eq!(gathered(packet.payload), frame(100, round));
            }
            assert_ne!(interface_index(name), 0, "it is not ours to remove");
        }
    });
}

#[test]
fn each_reason_why_there_is_no_tap_is_told() {
    in_namespace(|| {
        let failure = |name: &str| try_open(name, None).expect_err(name).to_string();
        let _tap = open("tap0");
        assert_eq!(failure("tap0"), "tap0: busy: another program has it open");
        assert!(failure("lo").starts_with("lo: is not a tap"), "{}", failure("lo"));
        wire::create_persistent("tun0", libc::IFF_TUN | libc::IFF_NO_PI);
        assert!(failure("tun0").starts_with("tun0: is not a tap"), "{}", failure("tun0"));
        assert!(failure("sixteen-bytes-xy").contains("at most 15 bytes, this one has 16"));
        let mtu = try_open("tap1", Some(67)).expect_err("a bad MTU").to_string();
        assert!(mtu.starts_with("tap1: MTU 67: "), "{mtu}");
        assert_eq!(interface_index("tap1"), 0, "nothing is left of the attempt");
        wire::create_persistent("others0", FLAGS);
        // SAFETY: only this thread, which ends with the test, becomes an unprivileged user.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) }, 0);
        assert!(failure("lo").starts_with("lo: is not a tap"), "{}", failure("lo"));
        assert!(failure("tun0").starts_with("tun0: is not a tap"), "{}", failure("tun0"));
        let others = failure("others0");
        assert!(others.starts_with("others0: permission denied"), "{others}");
        assert_eq!(
            failure("tap2"),
            "tap2: permission denied: run as root, grant CAP_NET_ADMIN, or create it first with: \
             ip tuntap add tap2 mode tap user $USER vnet_hdr"
        );
    });
}

#[test]
fn a_passed_tap_works_and_anything_else_is_refused() {
    in_namespace(|| {
        let passed = wire::raw_tap("tap0", FLAGS);
        wire::set_up("tap0", true);
        let number = passed.as_raw_fd();
        let mut tap = Tap::from_raw_fd_number(number).expect("a tap");
        assert_eq!((tap.name(), tap.mtu()), ("tap0", Some(1500)));
        assert!(tap.peek().is_none(), "it does not block");
        Wire::new("tap0", QUIET).send(&frame(99, 1));
        wait_readable(tap.as_fd());
        assert_eq!(gathered(tap.peek().expect("a packet").payload), frame(99, 1));
        drop((tap, passed));

        let failure = |fd: OwnedFd| {
            Tap::from_raw_fd_number(fd.as_raw_fd()).expect_err("not a good tap").to_string()
        };
        let plain = wire::raw_tap("plain0", libc::IFF_TAP | libc::IFF_NO_PI);
        assert!(failure(plain).starts_with("plain0: packets have no virtio-net header"));
        let tun = wire::raw_tap("tun0", libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR);
        assert!(failure(tun).starts_with("tun0: is not a tap"));
        assert!(failure(common::memory_file(1)).contains("is not a tap"));
        let closed = Tap::from_raw_fd_number(1 << 20).expect_err("no such fd").to_string();
        assert!(closed.starts_with("fd 1048576: not open: "), "{closed}");
        assert!(Tap::from_raw_fd_number(-1).is_err());
    });
}

#[test]
fn a_passed_tap_of_another_network_does_not_take_over_a_namesakes_mtu() {
    in_namespace(|| {
        let passed = wire::raw_tap("tap0", FLAGS);
        // SAFETY: as in `in_namespace`.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
        let _namesake = try_open("tap0", Some(1400)).expect("another tap");
        let tap = Tap::from_raw_fd_number(passed.as_raw_fd()).expect("a tap");
        assert_eq!((tap.name(), tap.mtu()), ("tap0", None));
        assert_eq!(tap.packet_len_max(), PACKET_LEN_MAX);
    });
}
