//! What a data plane gives up before it reads anything that a guest or a front-end wrote: its user,
//! all capabilities, every file (Landlock), and all system calls but those of its loops (seccomp).
//! See ADR 30.
//!
//! Order: first what each thread has of its own, before there is a second one; the filter of system
//! calls last, for all threads.
//!
//! Limits: a kernel without Landlock, or with an old one, gives less of it, which statistics say.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use anyhow::{Context, ensure};
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetStatus,
    Scope,
};
use ringway_supervisor::wire::ToSupervisor;
use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Gid, Resource, Rlimit, Uid, geteuid, set_dumpable_behavior, setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs, set_thread_gid, set_thread_groups, set_thread_uid,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// The user that a data plane is that root started, if there is one of that name; otherwise the one
/// that owns nothing by custom.
const USER: &str = "ringway-data";
const OWNER_OF_NOTHING: u32 = 65_534;

/// New namespaces (`clone(2)`).
const CLONE_NEW: u64 = 0x7e02_0080;

/// For the names of memory areas (`prctl(2)`), which the C library may set.
const PR_SET_VMA: u64 = 0x5356_4d41;

/// What may be called, whatever the arguments.
const CALLS: &[libc::c_long] = &[
    // Loops, taps, bells, call fds, the supervisor.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_futex,
    libc::SYS_eventfd2,
    libc::SYS_io_uring_enter,
    // The guard of calls, pacing.
    libc::SYS_timer_create,
    libc::SYS_timer_settime,
    libc::SYS_timer_delete,
    libc::SYS_getrusage,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_sched_yield,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    // Memory.
    libc::SYS_munmap,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_brk,
    libc::SYS_lseek,
    libc::SYS_memfd_create,
    libc::SYS_ftruncate,
    // File descriptors that came.
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_fstatfs,
    libc::SYS_statx,
    libc::SYS_getsockopt,
    libc::SYS_pread64,
    libc::SYS_readlinkat,
    // Threads.
    libc::SYS_clone3,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sigaltstack,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_getrandom,
];

/// Beside those, where there are routers: sockets of their guests.
const SOCKET_CALLS: &[libc::c_long] = &[
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_listen,
    libc::SYS_accept4,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_shutdown,
];

/// Of x86 alone.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: &[libc::c_long] = &[libc::SYS_epoll_wait, libc::SYS_poll, libc::SYS_readlink];
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[libc::c_long] = &[];

/// What taps are asked and told: `TUNSETOFFLOAD`, `TUNSETCARRIER`, `TUNGETIFF`, `SIOCGIFMTU`
/// (linux/if_tun.h, linux/sockios.h).
const IOCTLS: [u64; 4] = [0x4004_54d0, 0x4004_54e2, 0x8004_54d2, 0x8921];

/// What was given up by each thread for itself.
#[derive(Debug, Clone)]
pub struct Sandbox {
    landlock: &'static str,
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
        let user = change_user().context("another user")?;
        give_up_capabilities().context("capabilities")?;
        // A program that is started, and a change of user, undo it.
        set_dumpable_behavior(DumpableBehavior::NotDumpable).context("no core dumps")?;
        setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })
            .context("no core dumps")?;
        Ok(Self { landlock: give_up_files(routers).context("Landlock")?, user })
    }

    /// For statistics.
    pub fn text(&self) -> String {
        let user = self.user.map_or_else(String::new, |user| format!(", user {user}"));
        format!("no capabilities, seccomp, {}{user}", self.landlock)
    }
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
    let known = nix::unistd::User::from_name(USER).ok().flatten();
    let (user, group) = known.map_or((OWNER_OF_NOTHING, OWNER_OF_NOTHING), |user| {
        (user.uid.as_raw(), user.gid.as_raw())
    });
    match set_thread_gid(Gid::from_raw(group)) {
        Err(Errno::INVAL) => return Ok(None),
        done => done?,
    }
    set_thread_uid(Uid::from_raw(user))?;
    Ok(Some(user))
}

fn give_up_capabilities() -> anyhow::Result<()> {
    if capabilities(None)?.effective.contains(CapabilitySet::SETPCAP) {
        for number in 0..u64::BITS {
            let capability = CapabilitySet::from_bits_retain(1 << number);
            if remove_capability_from_bounding_set(capability).is_err() {
                // The kernel knows no more of them.
                break;
            }
        }
    }
    let none = CapabilitySet::empty();
    Ok(set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )?)
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

/// Gives up all system calls that are not needed any more, in all threads. Another one ends the
/// process, and the supervisor at that socket is told which.
///
/// # Errors
/// The operating system refuses.
pub fn filter_calls(routers: bool, supervisor: BorrowedFd<'_>) -> anyhow::Result<()> {
    let told = ToSupervisor::Forbidden { call: 0 }.encode();
    let first = told.first().context("no message")?;
    ringway_host::tell_forbidden_calls(supervisor, *first).context("a handler of SIGSYS")?;
    let arch = std::env::consts::ARCH.try_into().context("seccomp: this machine")?;
    // The flags of clone3 lie in memory, where a filter cannot see them: the C library then uses
    // clone.
    let clone3 = BTreeMap::from([(libc::SYS_clone3, vec![])]);
    let unknown = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let first = SeccompFilter::new(clone3, SeccompAction::Allow, unknown, arch)?;
    let second =
        SeccompFilter::new(rules(routers)?, SeccompAction::Trap, SeccompAction::Allow, arch)?;
    for filter in [first, second] {
        let program: BpfProgram = filter.try_into()?;
        seccompiler::apply_filter_all_threads(&program)?;
    }
    Ok(())
}

fn rules(routers: bool) -> anyhow::Result<BTreeMap<i64, Vec<SeccompRule>>> {
    use SeccompCmpArgLen::{Dword, Qword};
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        CALLS.iter().chain(OLD_CALLS).map(|call| (*call, vec![])).collect();
    if routers {
        rules.extend(SOCKET_CALLS.iter().map(|call| (*call, vec![])));
    }
    let exec = u64::try_from(libc::PROT_EXEC)?;
    let own = u64::from(std::process::id());
    let mut allow = |call: libc::c_long, condition| -> anyhow::Result<()> {
        let rule = SeccompRule::new(vec![condition])?;
        rules.entry(call).or_default().push(rule);
        Ok(())
    };
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        allow(call, SeccompCondition::new(2, Qword, MaskedEq(exec), 0)?)?;
    }
    allow(libc::SYS_clone, SeccompCondition::new(0, Qword, MaskedEq(CLONE_NEW), 0)?)?;
    allow(libc::SYS_tgkill, SeccompCondition::new(0, Dword, Eq, own)?)?;
    // Not that of the signal by which a forbidden call ends the process.
    let forbidden = u64::try_from(libc::SIGSYS)?;
    allow(libc::SYS_rt_sigaction, SeccompCondition::new(0, Dword, Ne, forbidden)?)?;
    // Limits are read, not set.
    allow(libc::SYS_prlimit64, SeccompCondition::new(2, Qword, Eq, 0)?)?;
    if routers {
        for family in [libc::AF_INET, libc::AF_INET6].map(u64::try_from) {
            allow(libc::SYS_socket, SeccompCondition::new(0, Dword, Eq, family?)?)?;
        }
        allow(libc::SYS_ioctl, SeccompCondition::new(1, Dword, Eq, libc::TIOCOUTQ)?)?;
    }
    for ioctl in IOCTLS {
        allow(libc::SYS_ioctl, SeccompCondition::new(1, Dword, Eq, ioctl)?)?;
    }
    let names = [libc::PR_SET_NAME, libc::PR_SET_TIMERSLACK].map(u64::try_from);
    for option in names {
        allow(libc::SYS_prctl, SeccompCondition::new(0, Dword, Eq, option?)?)?;
    }
    allow(libc::SYS_prctl, SeccompCondition::new(0, Dword, Eq, PR_SET_VMA)?)?;
    ensure!(!rules.is_empty(), "no rules");
    Ok(rules)
}
