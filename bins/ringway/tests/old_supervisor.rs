//! A data plane of a supervisor that this test is: an older one is told nothing that it does not
//! know.

use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use ringway_supervisor::wire::{Bytes, List, MESSAGE_LEN_MAX, ToData, ToSupervisor};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send};
use rustix::net::{socketpair, sockopt};

const SETTINGS: &str = r#"{"workers":"1","sandbox":"off","routers":"on"}"#;
const ROUTER: &str = r#"{"name":"net","nat":""}"#;
const GUEST: &str = r#"{"name":"a","vm":"/run/a.sock"}"#;

/// The data plane's end of the channel ends it when it is closed.
struct DataPlane {
    channel: OwnedFd,
    child: Child,
}

impl DataPlane {
    fn start() -> Self {
        let kind = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let pair = socketpair(AddressFamily::UNIX, kind.0, kind.1, None);
        let (channel, theirs) = pair.expect("sockets");
        let limit = Some(std::time::Duration::from_secs(60));
        sockopt::set_socket_timeout(&channel, sockopt::Timeout::Recv, limit).expect("a timeout");
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
        command.arg("data-plane").stdin(Stdio::from(theirs)).stdout(Stdio::null());
        Self { channel, child: command.spawn().expect("it starts") }
    }

    fn tell(&self, message: &ToData) {
        send(&self.channel, &message.encode(), SendFlags::NOSIGNAL).expect("it runs");
    }

    /// All that it says up to that one.
    fn heard(&self, is_last: impl Fn(&ToSupervisor) -> bool) -> Vec<ToSupervisor> {
        let mut all = Vec::new();
        while all.last().is_none_or(|last| !is_last(last)) {
            let mut bytes = vec![0; MESSAGE_LEN_MAX];
            let (_, len) =
                recv(&self.channel, &mut bytes[..], RecvFlags::empty()).expect("it runs");
            all.push(ToSupervisor::decode(&bytes[..len]).expect("a message"));
        }
        all
    }
}

impl Drop for DataPlane {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn bytes<const MAX: usize>(text: &str) -> Bytes<MAX> {
    Bytes::new(text.into()).expect("short")
}

#[test]
fn stations_are_told_of_each_router_at_the_end_and_to_no_older_supervisor() {
    for (is_newer, count) in [(true, 1), (false, 0)] {
        let plane = DataPlane::start();
        plane.heard(|said| matches!(said, ToSupervisor::Hello { .. }));
        if is_newer {
            plane.tell(&ToData::Given { fds: List::default() });
        }
        plane.tell(&ToData::Config { settings: bytes(SETTINGS) });
        plane.tell(&ToData::Port { order: 1, port: 0, spec: bytes(ROUTER) });
        plane.tell(&ToData::Replayed {});
        let heard = plane.heard(|said| matches!(said, ToSupervisor::Ready { .. }));
        let is_good = |said: &ToSupervisor| match said {
            ToSupervisor::Finished { refusal, .. } | ToSupervisor::Ready { refusal } => {
                refusal.is_none()
            }
            _ => true,
        };
        assert!(heard.iter().all(is_good), "{heard:?}");
        plane.tell(&ToData::Go { is_last: true, positions: bytes("") });
        plane.heard(|said| matches!(said, ToSupervisor::Running {}));
        plane.tell(&ToData::Quiesce {});
        let heard = plane.heard(|said| matches!(said, ToSupervisor::Export { is_last: true, .. }));
        let stations =
            |said: &&ToSupervisor| matches!(said, ToSupervisor::Stations { port: 0, .. });
        assert_eq!(heard.iter().filter(stations).count(), count, "{is_newer}: {heard:?}");
    }
}

#[test]
fn guests_that_run_and_stop_are_told_to_no_older_supervisor() {
    for (version, count) in [(1, 0), (2, 0), (3, 1)] {
        let plane = DataPlane::start();
        plane.heard(|said| matches!(said, ToSupervisor::Hello { .. }));
        if version > 2 {
            plane.tell(&ToData::Speaks { version });
        }
        if version > 1 {
            plane.tell(&ToData::Given { fds: List::default() });
        }
        plane.tell(&ToData::Config { settings: bytes(SETTINGS) });
        plane.tell(&ToData::Port { order: 1, port: 0, spec: bytes(GUEST) });
        plane.tell(&ToData::Link { order: 2, port: 0, link: 7, spec: bytes(GUEST) });
        plane.tell(&ToData::Replayed {});
        plane.heard(|said| matches!(said, ToSupervisor::Ready { refusal: None }));
        plane.tell(&ToData::Go { is_last: true, positions: bytes("") });
        plane.tell(&ToData::Quiesce {});
        let heard = plane.heard(|said| matches!(said, ToSupervisor::Export { is_last: true, .. }));
        let stopped = ToSupervisor::Stopped { link: 7, is_migrating: false };
        let count_of = heard.iter().filter(|said| **said == stopped).count();
        assert_eq!(count_of, count, "{version}: {heard:?}");
    }
}
