//! Rights that a data plane gives up before it reads anything that a guest or a front-end wrote:
//! its user, all capabilities, and every file (an empty root, Landlock); system calls follow in
//! `filter.rs`. See ADR 30.
//!
//! Order: this is what each thread has of its own, and so comes before there is a second one; the
//! filter of system calls is for all threads, and comes last.
//!
//! Limits: a kernel without Landlock, or with an old one, gives less of it, which statistics say.

pub mod attempt;
pub mod filter;
mod namespaces;

use anyhow::Context;
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetStatus,
    Scope,
};
use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Gid, Resource, Rlimit, Uid, geteuid, set_dumpable_behavior, setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs, set_thread_gid, set_thread_groups, set_thread_uid,
};

/// The user that a data plane is that root started, if there is one of that name; otherwise the one
/// that owns nothing by custom.
pub const USER: &str = "ringway-data";
const OWNER_OF_NOTHING: u32 = 65_534;

/// The rights that each thread gave up for itself.
#[derive(Debug, Clone)]
pub struct Sandbox {
    landlock: &'static str,
    has_empty_root: bool,
    user: Option<u32>,
}

impl Sandbox {
    /// Gives up user, capabilities, files and TCP, but for routers. Before any other thread is
    /// started.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn enter(routers: bool) -> anyhow::Result<Self> {
        set_no_new_privs(true).context("no_new_privs")?;
        // Another user has not the right to do so any more.
        empty_bounding_set().context("the bounding set")?;
        let user = change_user().context("another user")?;
        let has_empty_root = namespaces::enter(routers);
        // In a new user namespace all are there again.
        empty_bounding_set().context("the bounding set")?;
        give_up_capabilities().context("capabilities")?;
        // A program that is started, and a change of user, undo it.
        set_dumpable_behavior(DumpableBehavior::NotDumpable).context("no core dumps")?;
        setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })
            .context("no core dumps")?;
        Ok(Self { landlock: give_up_files(routers).context("Landlock")?, has_empty_root, user })
    }

    /// For statistics.
    pub fn text(&self) -> String {
        let user = self.user.map_or_else(String::new, |user| format!(", user {user}"));
        let root = if self.has_empty_root { ", an empty root" } else { "" };
        format!("no capabilities, seccomp, {}{root}{user}", self.landlock)
    }
}

/// The user and the group that are there for it alone.
pub fn own_user() -> Option<(u32, u32)> {
    let user = nix::unistd::User::from_name(USER).ok().flatten()?;
    Some((user.uid.as_raw(), user.gid.as_raw()))
}

/// Root becomes another user; others stay who they are.
fn change_user() -> anyhow::Result<Option<u32>> {
    let has = capabilities(None)?.effective;
    if !geteuid().is_root() || !has.contains(CapabilitySet::SETUID | CapabilitySet::SETGID) {
        return Ok(None);
    }
    // In a user namespace there may be no other user.
    if set_thread_groups(&[]).is_err() {
        return Ok(None);
    }
    let (user, group) = own_user().unwrap_or((OWNER_OF_NOTHING, OWNER_OF_NOTHING));
    match set_thread_gid(Gid::from_raw(group)) {
        Err(Errno::INVAL) => return Ok(None),
        done => done?,
    }
    set_thread_uid(Uid::from_raw(user))?;
    Ok(Some(user))
}

/// No program that is started has any capability. Without `SETPCAP` it stays as it is, which
/// changes nothing: no program can be started.
fn empty_bounding_set() -> anyhow::Result<()> {
    if !capabilities(None)?.effective.contains(CapabilitySet::SETPCAP) {
        return Ok(());
    }
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match remove_capability_from_bounding_set(capability) {
            // The kernel knows no more of them.
            Err(Errno::INVAL) => break,
            done => done?,
        }
    }
    Ok(())
}

fn give_up_capabilities() -> anyhow::Result<()> {
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    Ok(set_capabilities(None, none)?)
}

/// No file at all can be opened, no TCP connection made but by routers, and no process outside be
/// reached.
fn give_up_files(routers: bool) -> anyhow::Result<&'static str> {
    let abi = ABI::V6;
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))?
        .scope(Scope::from_all(abi))?;
    if !routers {
        ruleset = ruleset.handle_access(AccessNet::from_all(abi))?;
    }
    let status = ruleset.create()?.restrict_self()?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => "landlock",
        RulesetStatus::PartiallyEnforced => "landlock in part",
        RulesetStatus::NotEnforced => "no landlock",
    })
}
