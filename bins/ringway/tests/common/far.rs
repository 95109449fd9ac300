//! Another machine, behind a link of a ringway's network namespace: a namespace of its own.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::process::{Child, Command, Stdio};

use crate::common::Ringway;

/// The two ends of the link.
pub const NEAR: [u8; 4] = [192, 0, 2, 1];
pub const FAR: [u8; 4] = [192, 0, 2, 7];
pub const FAR_6: &str = "2001:db8::7";

pub struct Far(Child);

impl Far {
    /// `None`: such a thing cannot be made here.
    pub fn new(ringway: &Ringway) -> Option<Self> {
        let pid = ringway.pid().as_raw_nonzero().to_string();
        let namespaces = ["--preserve-credentials", "--user", "--net", "--target", &pid];
        let far = Command::new("nsenter")
            .args(namespaces)
            .args(["unshare", "--net", "sleep", "300"])
            .stdin(Stdio::null())
            .spawn();
        let far = Self(far.ok()?);
        let number = far.0.id().to_string();
        let run = |words: &str| ringway.inside(&["sh", "-c", &format!("{words} && echo done")]);
        let own = std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        crate::common::wait_for("a namespace", || {
            let other = std::fs::read_link(format!("/proc/{number}/ns/net")).ok();
            (other.is_some() && other != own).then_some(())
        });
        let near = format!(
            "ip link set lo up && ip link add up0 type veth peer name far0 netns {number} && \
             ip addr add 192.0.2.1/24 dev up0 && ip addr add 2001:db8::1/64 dev up0 nodad && \
             ip link set up0 up && echo 0 0 > /proc/sys/net/ipv4/ping_group_range"
        );
        let there = "ip link set lo up && ip addr add 192.0.2.7/24 dev far0 && \
                     ip addr add 2001:db8::7/64 dev far0 nodad && ip link set far0 up";
        let is_made = run(&near).contains("done") && far.run(there);
        is_made.then_some(far)
    }

    /// Runs a line of the shell there; `true`: it has succeeded.
    pub fn run(&self, line: &str) -> bool {
        self.command(line).status().is_ok_and(|status| status.success())
    }

    /// A line of the shell there.
    pub fn command(&self, line: &str) -> Command {
        let number = self.0.id().to_string();
        let mut command = Command::new("nsenter");
        command.args(["--preserve-credentials", "--user", "--net", "--target", &number]);
        command.args(["sh", "-c", line]);
        command
    }

    /// Of its process.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
