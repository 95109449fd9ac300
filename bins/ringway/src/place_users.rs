//! The process that uses a place where a router is to listen: said beside "in use", to people who
//! ask.
//!
//! How: lists of the kernel name the socket (proc(5)), as the asked ringway's network namespace has
//! it; the process is one that has it open.
//!
//! Limits: only what this user may see, who sees more than the sandboxed ringway. Of another user's
//! socket only that user is known. At most [`FDS_MAX`] file descriptors are looked at, and
//! [`NAMED_MAX`] times.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use ringway_nat::ListenAddress;
use ringway_nat::Protocol;
use rustix::io::Errno;

use crate::config::PortSpec;
use crate::control::{ShownForward, client};
use crate::process_names;

/// File descriptors of all processes that are looked at: a second at the most.
const FDS_MAX: usize = 1 << 18;

/// Forwards of which it is said.
const NAMED_MAX: usize = 16;

/// The state of a socket of TCP that listens.
const LISTENS: &str = "0A";

/// A socket as the kernel lists it.
#[derive(Debug, PartialEq, Eq)]
struct Listed {
    at: SocketAddr,
    uid: u32,
    inode: u64,
}

/// Says of each forward whose place is in use by which process.
pub fn name_in(forwards: &mut [ShownForward], control: &Path) {
    let is_it = |forward: &&mut ShownForward| forward.error.as_deref().is_some_and(is_in_use);
    for forward in forwards.iter_mut().filter(is_it).take(NAMED_MAX) {
        let at = forward.at.parse().ok();
        let user = at.and_then(|at| user_of(at, forward.protocol == "tcp", control));
        if let (Some(why), Some(user)) = (&mut forward.error, user) {
            *why = format!("{why}: {user}");
        }
    }
}

/// The answer of a ringway that refuses to listen for one of these forwards, and the process that
/// uses its place.
pub fn named_in(why: &str, wanted: &PortSpec, control: &Path) -> String {
    let forwards = wanted.nat.forwards.iter().flat_map(|spec| spec.forwards());
    let mut refused = forwards.filter(|it| why.contains(&format!("listening at {}: ", it.at)));
    let found = refused.next().filter(|_| is_in_use(why)).and_then(|forward| match forward.at {
        ListenAddress::Address(at) => user_of(at, forward.protocol == Protocol::Tcp, control),
        ListenAddress::Unix(_) => None,
    });
    found.map_or_else(|| why.to_owned(), |user| format!("{why}: {user}"))
}

fn is_in_use(why: &str) -> bool {
    why.contains(&Errno::ADDRINUSE.to_string())
}

fn user_of(at: SocketAddr, is_tcp: bool, control: &Path) -> Option<String> {
    let pid = client::pid(control)?;
    // A socket of IPv6 may be for both.
    let names = if is_tcp { ["tcp", "tcp6"] } else { ["udp", "udp6"] };
    let lists = &names[usize::from(at.is_ipv6())..];
    let mut found = lists.iter().filter_map(|name| {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{name}")).ok()?;
        in_the_way(&text, at, is_tcp)
    });
    let Listed { uid, inode, .. } = found.next()?;
    Some(match process_with(inode) {
        Some(pid) => {
            let name = process_names::program(pid).unwrap_or_else(|| "a process".into());
            format!("used by {name} ({pid})")
        }
        None => {
            let user = process_names::user(uid).unwrap_or_else(|| uid.to_string());
            format!("used by a process of user {user}")
        }
    })
}

/// The first one that keeps others from listening there.
fn in_the_way(text: &str, wanted: SocketAddr, is_tcp: bool) -> Option<Listed> {
    let is_it = |listed: &Listed| {
        let (one, other) = (listed.at.ip(), wanted.ip());
        let is_any = one.is_unspecified() || other.is_unspecified();
        let is_of_family = one.is_ipv4() == other.is_ipv4();
        let is_for_both = one == Ipv6Addr::UNSPECIFIED;
        let is_met = one == other || (is_any && is_of_family) || is_for_both;
        listed.at.port() == wanted.port() && is_met
    };
    text.lines().skip(1).filter_map(|line| listed(line, is_tcp)).find(is_it)
}

/// Second word: address and port; fourth: the state; eighth: the user; tenth: the inode.
fn listed(line: &str, is_tcp: bool) -> Option<Listed> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (ip, port) = words.get(1)?.split_once(':')?;
    let at = SocketAddr::new(address(ip)?, u16::from_str_radix(port, 16).ok()?);
    let is_there = !is_tcp || *words.get(3)? == LISTENS;
    let (uid, inode) = (words.get(7)?.parse().ok()?, words.get(9)?.parse().ok()?);
    is_there.then_some(Listed { at, uid, inode })
}

/// Words of 32 bits, as they are in memory.
fn address(text: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let word = u32::from_str_radix(text.get(at..at + 8)?, 16).ok()?;
        Some(u32::from_be_bytes(word.to_ne_bytes()))
    };
    if text.len() == 8 {
        return Some(Ipv4Addr::from_bits(word(0)?).into());
    }
    let mut words = [0, 8, 16, 24].into_iter().map(word);
    let bits = words.try_fold(0, |bits: u128, word| Some((bits << 32) | u128::from(word?)))?;
    Some(Ipv6Addr::from_bits(bits).to_canonical())
}

/// The first process that has that socket open.
fn process_with(inode: u64) -> Option<u32> {
    let link = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let pids = processes.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
    let fds = pids.flat_map(|pid| {
        let fds = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        fds.map(move |fd| (pid, fd.path()))
    });
    let is_it = |path: &Path| fs::read_link(path).is_ok_and(|it| it.as_os_str() == link.as_str());
    fds.take(FDS_MAX).find(|(_, path)| is_it(path)).map(|(pid, _)| pid)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    fn found(at: SocketAddr, is_tcp: bool, name: &str) -> Option<u32> {
        let text = fs::read_to_string(format!("/proc/self/net/{name}")).expect("a list");
        process_with(in_the_way(&text, at, is_tcp)?.inode)
    }

    #[test]
    fn sockets_in_the_way_are_found() {
        let me = Some(std::process::id());
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = tcp.local_addr().expect("an address");
        assert_eq!(found(at, true, "tcp"), me);
        assert_eq!(found((Ipv4Addr::UNSPECIFIED, at.port()).into(), true, "tcp"), me);
        assert_eq!(found((Ipv4Addr::new(127, 0, 0, 2), at.port()).into(), true, "tcp"), None);
        assert_eq!(found((Ipv6Addr::UNSPECIFIED, at.port()).into(), true, "tcp"), None);
        drop(tcp);
        assert_eq!(found(at, true, "tcp"), None);
        let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
        assert_eq!(found(udp.local_addr().expect("an address"), false, "udp"), me);
    }

    #[test]
    fn lists_are_read() {
        let line = |ip: &str, state: &str| {
            format!(
                "head\n 0: {ip}:0050 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 \
                 33 0 4711 1\n"
            )
        };
        let web = |ip: &str| SocketAddr::new(ip.parse().expect("an address"), 80);
        let all6 = line("00000000000000000000000000000000", LISTENS);
        let of =
            |at: &str, text: &str| in_the_way(text, web(at), true).map(|it| (it.uid, it.inode));
        assert_eq!(of("192.0.2.1", &all6), Some((33, 4711)), "for both families");
        assert_eq!(of("fd00::1", &all6), Some((33, 4711)));
        assert_eq!(of("fd00::1", &line("00000000", LISTENS)), None, "for the other family");
        assert_eq!(of("192.0.2.1", &line("00000000", "01")), None, "a connection");
        assert_eq!(of("fd00::1", "head\nshort\n0: 0:0 0 0A\n"), None);
        if cfg!(target_endian = "little") {
            let mapped = line("0000000000000000FFFF0000010200C0", LISTENS);
            assert_eq!(of("192.0.2.1", &mapped), Some((33, 4711)));
            let one = line("000000FD000000000000000001000000", LISTENS);
            assert_eq!(of("fd00::1", &one), Some((33, 4711)));
            assert_eq!(of("fd00::2", &one), None);
            assert_eq!(of("0.0.0.0", &one), None);
        }
    }
}
