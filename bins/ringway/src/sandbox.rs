//! Privileges that the running ringway gives up before it does anything else: ways to gain rights,
//! to have its memory read (that of all guests is mapped in it), and the capabilities that it has
//! no use for (ADR 30).
//!
//! Limits: the capabilities that stay are those that the process has, and may come to need:
//! options change while it runs, and what was given up never comes back.

use anyhow::Context;
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, configure_capability_in_ambient_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use crate::control::SandboxStats;

/// `SETUID` and `SETGID` make the data plane another user, and `KILL` ends it then.
/// `NET_ADMIN` makes taps, sets their MTU, and takes stations out of bridges. The others are for
/// sockets that belong to another user: `CHOWN` and `FOWNER` give them away and take them back,
/// `DAC_OVERRIDE` connects to them, and makes them in a directory of that user.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::NET_ADMIN);

/// Capabilities to hand on: root's data plane empties its bounding set before it gives up
/// everything, and has `SETPCAP` for that only if this process has it, without using it.
const HANDED_ON: CapabilitySet = KEPT.union(CapabilitySet::SETPCAP);

/// Whether the process is in its sandbox, and what it may do there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sandbox {
    /// With these capabilities.
    On(CapabilitySet),
    /// With whatever it was started with.
    Off,
}

impl Sandbox {
    /// Gives up what `ringway run` has no use for. Before any thread is started: capabilities are
    /// each thread's own.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn enter() -> anyhow::Result<Self> {
        set_no_new_privs(true).context("no_new_privs").map_err(refused)?;
        let kept = give_up_capabilities().context("capabilities").map_err(refused)?;
        // A program to which the kernel pipes core dumps gets them whatever the limit is.
        set_dumpable_behavior(DumpableBehavior::NotDumpable)
            .context("no core dumps")
            .map_err(refused)?;
        setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })
            .context("no core dumps")
            .map_err(refused)?;
        Ok(Self::On(kept))
    }

    /// Whether it may change interfaces, bridges and neighbours.
    pub fn may_administer_networks(self) -> bool {
        let held = match self {
            Self::On(kept) => Ok(kept),
            Self::Off => capabilities(None).map(|now| now.effective),
        };
        held.is_ok_and(|held| held.contains(CapabilitySet::NET_ADMIN))
    }

    /// For statistics.
    pub fn stats(self) -> SandboxStats {
        match self {
            Self::On(kept) => {
                let names = kept.iter_names().map(|(name, _)| name.to_ascii_lowercase());
                SandboxStats { on: true, capabilities: names.collect() }
            }
            Self::Off => SandboxStats { on: false, capabilities: Vec::new() },
        }
    }
}

/// Capabilities that the next program in this process has as well, while it exists: without this
/// one that is not root's would have none.
pub struct Inherited(CapabilitySets);

impl Inherited {
    /// All that this process has.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn all() -> Result<Self, Errno> {
        let now = capabilities(None)?;
        let inherited = Self(now);
        set_capabilities(None, CapabilitySets { inheritable: now.permitted, ..now })?;
        // Root has them without that.
        if !rustix::process::geteuid().is_root() {
            for (_, capability) in now.permitted.iter_names() {
                configure_capability_in_ambient_set(capability, true)?;
            }
        }
        Ok(inherited)
    }
}

impl Drop for Inherited {
    fn drop(&mut self) {
        // As they are not inheritable, they are not ambient either.
        let _ = set_capabilities(None, self.0);
    }
}

fn refused(why: anyhow::Error) -> anyhow::Error {
    why.context("the sandbox: start with --sandbox off if it cannot be had here")
}

/// The capabilities that stay.
fn give_up_capabilities() -> Result<CapabilitySet, Errno> {
    let now = capabilities(None)?;
    if now.effective.contains(CapabilitySet::SETPCAP) {
        shrink_bounding_set()?;
    }
    let kept = CapabilitySets {
        effective: now.effective & KEPT,
        permitted: now.permitted & HANDED_ON,
        // None is inherited, and so none is ambient either.
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, kept)?;
    Ok(kept.effective)
}

/// Without `SETPCAP` it stays as it is, which changes nothing: no_new_privs holds.
fn shrink_bounding_set() -> Result<(), Errno> {
    let others = (0..u64::BITS).map(|number| CapabilitySet::from_bits_retain(1 << number));
    for capability in others.filter(|it| !HANDED_ON.contains(*it)) {
        match remove_capability_from_bounding_set(capability) {
            // The kernel knows no more of them.
            Err(Errno::INVAL) => break,
            done => done?,
        }
    }
    Ok(())
}
