//! This side's network, inside the scenario's own namespace.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::process::LOOK_EVERY;
use crate::shell;

/// The loopback interface up, and no interface that sends by itself.
///
/// # Errors
/// We are not alone in a network namespace, or may not configure it.
pub fn prepare() -> anyhow::Result<()> {
    // A last line of defence: these commands would change the machine's own network.
    let interfaces =
        fs::read_dir("/proc/thread-self/net/dev_snmp6").map(Iterator::count).unwrap_or(0);
    let text =
        fs::read_to_string("/proc/thread-self/net/dev").context("/proc/thread-self/net/dev")?;
    if interfaces > 1 || text.lines().filter(|line| line.contains(':')).count() > 1 {
        bail!("there are interfaces already: scenarios run in namespaces of their own only");
    }
    for set in ["all", "default"] {
        let path = format!("/proc/sys/net/ipv6/conf/{set}/disable_ipv6");
        if Path::new(&path).exists() {
            fs::write(&path, "1").with_context(|| path.clone())?;
        }
    }
    ip("link set lo up")
}

/// `ip WORDS`
///
/// # Errors
/// It fails.
pub fn ip(words: &str) -> anyhow::Result<()> {
    let mut command = shell::command(&["ip"]);
    shell::output(command.args(words.split(' '))).map(|_| ())
}

/// A tap that is there before ringway is, and stays when it goes.
///
/// # Errors
/// No permission, or no tap driver.
pub fn create_tap(name: &str) -> anyhow::Result<()> {
    ip(&format!("tuntap add dev {name} mode tap vnet_hdr"))
}

/// Gives an interface its address and switches it on.
///
/// # Errors
/// There is no such interface.
pub fn set_up(name: &str, address: &str, mtu: u32) -> anyhow::Result<()> {
    ip(&format!("addr add {address}/24 dev {name}"))?;
    ip(&format!("link set {name} mtu {mtu} up"))
}

/// Whether there is such an interface.
pub fn exists(name: &str) -> bool {
    // Not /sys: it may belong to another network namespace.
    let interfaces = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    interfaces.lines().any(|line| line.trim().split(':').next() == Some(name))
}

/// Bytes that came in over an interface, and those that went out, ever since it is there.
///
/// # Errors
/// There is no such interface.
pub fn bytes(name: &str) -> anyhow::Result<[u64; 2]> {
    let interfaces =
        fs::read_to_string("/proc/thread-self/net/dev").context("/proc/thread-self/net/dev")?;
    bytes_in(&interfaces, name).with_context(|| format!("{name}: not in /proc/thread-self/net/dev"))
}

fn bytes_in(interfaces: &str, name: &str) -> Option<[u64; 2]> {
    let of = |line: &str| {
        let (_, numbers) = line.split_once(':').filter(|(first, _)| first.trim() == name)?;
        let mut numbers = numbers.split_whitespace();
        // Eight numbers of what came in, then as many of what went out; bytes are the first.
        let bytes = [numbers.next()?, numbers.nth(7)?];
        Some([bytes[0].parse().ok()?, bytes[1].parse().ok()?])
    };
    interfaces.lines().find_map(of)
}

/// Waits until an interface is there, or no longer.
///
/// # Errors
/// It takes too long.
pub fn wait_exists(name: &str, wanted: bool, limit: Duration) -> anyhow::Result<()> {
    let deadline = Instant::now() + limit;
    while exists(name) != wanted {
        if Instant::now() > deadline {
            bail!("{name}: still {} after {limit:?}", if wanted { "missing" } else { "there" });
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_interface_that_was_asked_for() {
        let interfaces = "Inter-|   Receive              |  Transmit\n\
             face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets\n\
             \x20   lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n \
             rw1t0:  10 20 30 40 50 60 70 80 90 100 110 120 130 140 150 160\n";
        assert_eq!(bytes_in(interfaces, "rw1t0"), Some([10, 90]));
        assert_eq!(bytes_in(interfaces, "lo"), Some([1, 9]));
        assert_eq!(bytes_in(interfaces, "rw1t"), None);
        assert!(bytes("no-such-interface").is_err());
    }
}
