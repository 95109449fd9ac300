//! An empty root, no network, and no other process's shared memory: namespaces of its own, which
//! need no right where users may make them.
//!
//! Limits: where they may not (in many containers, and in the service, whose unit forbids it: there
//! systemd has made some), everything stays as it is, and the rest of the sandbox holds it alone. A
//! namespace of processes would be for children, of which there are none.

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use rustix::process::{chdir, pivot_root};

/// A directory that is there wherever this program runs; it is covered in this process alone.
const COVERED: &str = "/proc";

/// Enters them; a router needs the network of the machine. Whether there is an empty root from now
/// on, in which nothing can be made. Before Landlock, which forbids it.
///
/// All capabilities are there again, for these namespaces, and all are in the bounding set.
pub fn enter(routers: bool) -> bool {
    let network = if routers { CloneFlags::empty() } else { CloneFlags::CLONE_NEWNET };
    let others = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS;
    let all = CloneFlags::CLONE_NEWUSER | others | network;
    unshare(all).is_ok() && empty_the_root().is_ok()
}

fn empty_the_root() -> nix::Result<()> {
    const NONE: Option<&str> = None;
    let refused = |why: rustix::io::Errno| nix::errno::Errno::from_raw(why.raw_os_error());
    // A mount made here is made nowhere else.
    mount(NONE, "/", NONE, MsFlags::MS_PRIVATE | MsFlags::MS_REC, NONE)?;
    let nothing = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("empty"), COVERED, Some("tmpfs"), nothing, Some("mode=555"))?;
    chdir(COVERED).map_err(refused)?;
    // The old root comes on top of the new one, and goes.
    pivot_root(".", ".").map_err(refused)?;
    umount2(".", MntFlags::MNT_DETACH)
}
