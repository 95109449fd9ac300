//! The system calls that a data plane may make: those of its loops, with the arguments that they
//! have there (seccomp). Another one ends the process, and the supervisor is told which. See ADR
//! 30.
//!
//! Limits: a filter sees numbers and addresses, and nothing that lies in memory.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use anyhow::Context;
use ringway_host::{EMPTY_PATH_AT, EMPTY_PATH_END};
use ringway_supervisor::wire::ToSupervisor;
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{self, Eq, Ge, MaskedEq, Ne};
use seccompiler::{BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule};

/// System calls that are allowed with any arguments.
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
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_brk,
    // File descriptors that came.
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_getsockopt,
    libc::SYS_pread64,
    // Threads.
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sigaltstack,
    libc::SYS_sched_getaffinity,
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
const OLD_CALLS: &[libc::c_long] = &[libc::SYS_epoll_wait, libc::SYS_poll];
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[libc::c_long] = &[];

/// A thread as C libraries make it, and nothing else: `VM`, `FS`, `FILES`, `SIGHAND`, `THREAD`,
/// `SYSVSEM`, `SETTLS`, `PARENT_SETTID`, `CHILD_CLEARTID`, no signal at its end. Of a child process
/// nothing would end with this one. (musl adds `DETACHED`, which means nothing.)
const CLONE_AS_THREAD: u64 = 0x003d_0f00;
const CLONE_DETACHED: u64 = 0x0040_0000;

/// For the names of memory areas (`prctl(2)`), which the C library may set.
const PR_SET_VMA: u64 = 0x5356_4d41;

/// Requests to taps: `TUNSETOFFLOAD`, `TUNSETCARRIER`, `TUNGETIFF`, `SIOCGIFMTU`
/// (linux/if_tun.h, linux/sockios.h).
const IOCTLS: [i64; 4] = [0x4004_54d0, 0x4004_54e2, 0x8004_54d2, 0x8921];

/// Commands of `fcntl`. No descriptor may be made to send signals (`F_SETOWN`), and none is
/// given other status flags: `O_APPEND` of the log stays.
const FCNTLS: [libc::c_int; 5] =
    [libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_DUPFD_CLOEXEC, libc::F_GET_SEALS];

/// Of the type of a socket the kind alone, without `SOCK_NONBLOCK` and `SOCK_CLOEXEC`.
const SOCKET_KIND: i64 = 0xf;

/// Sockets of routers: family, kind, protocol.
const SOCKETS: [[libc::c_int; 3]; 6] = [
    [libc::AF_INET, libc::SOCK_STREAM, 0],
    [libc::AF_INET6, libc::SOCK_STREAM, 0],
    [libc::AF_INET, libc::SOCK_DGRAM, 0],
    [libc::AF_INET6, libc::SOCK_DGRAM, 0],
    [libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP],
    [libc::AF_INET6, libc::SOCK_DGRAM, libc::IPPROTO_ICMPV6],
];

/// Gives up all system calls that are not needed any more, in all threads. Another one ends the
/// process, and the supervisor at that socket is told which.
///
/// # Errors
/// The operating system refuses.
pub fn filter_calls(routers: bool, supervisor: BorrowedFd<'_>) -> anyhow::Result<()> {
    let told = ToSupervisor::Forbidden { call: 0 }.encode();
    let first = told.first().context("no message")?;
    ringway_host::tell_forbidden_calls(supervisor, *first).context("a handler of SIGSYS")?;
    ringway_host::place_empty_path().context("a place for the empty path")?;
    let arch = std::env::consts::ARCH.try_into().context("seccomp: this machine")?;
    // The flags of clone3 lie in memory, where a filter cannot see them: the C library then uses
    // clone.
    let clone3 = BTreeMap::from([(libc::SYS_clone3, vec![])]);
    let unknown = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let first = SeccompFilter::new(clone3, SeccompAction::Allow, unknown, arch)?;
    let mut rules = rules(routers)?;
    // The first filter answers it.
    rules.insert(libc::SYS_clone3, vec![]);
    let second = SeccompFilter::new(rules, SeccompAction::Trap, SeccompAction::Allow, arch)?;
    for filter in [first, second] {
        let program: BpfProgram = filter.try_into()?;
        seccompiler::apply_filter_all_threads(&program)?;
    }
    Ok(())
}

/// How many system calls a data plane may make, some of them with some arguments only; with
/// routers, and without.
pub fn calls_allowed(routers: bool) -> usize {
    rules(routers).map_or(0, |rules| rules.len())
}

/// Calls with what their arguments must be: one of several rules.
struct Rules(BTreeMap<i64, Vec<SeccompRule>>);

type Conditions<const N: usize> = [anyhow::Result<SeccompCondition>; N];

impl Rules {
    fn allow<const N: usize>(
        &mut self,
        call: libc::c_long,
        conditions: Conditions<N>,
    ) -> anyhow::Result<()> {
        let conditions = conditions.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
        self.0.entry(call).or_default().push(SeccompRule::new(conditions)?);
        Ok(())
    }
}

/// An `int`, of which the kernel looks at no more than 32 bits.
fn int(at: u8, how: SeccompCmpOp, value: impl Into<i64>) -> anyhow::Result<SeccompCondition> {
    let value = value.into().cast_unsigned() & u64::from(u32::MAX);
    Ok(SeccompCondition::new(at, Dword, how, value)?)
}

/// A `long`, or an address.
fn word(at: u8, how: SeccompCmpOp, value: usize) -> anyhow::Result<SeccompCondition> {
    Ok(SeccompCondition::new(at, Qword, how, value.try_into()?)?)
}

fn rules(routers: bool) -> anyhow::Result<BTreeMap<i64, Vec<SeccompRule>>> {
    let always = CALLS.iter().chain(OLD_CALLS);
    let mut rules = Rules(always.map(|call| (*call, vec![])).collect());
    memory_rules(&mut rules)?;
    thread_rules(&mut rules)?;
    for command in FCNTLS {
        rules.allow(libc::SYS_fcntl, [int(1, Eq, command)])?;
    }
    for ioctl in IOCTLS {
        rules.allow(libc::SYS_ioctl, [int(1, Eq, ioctl)])?;
    }
    // Of a descriptor, and never of a path.
    rules.allow(libc::SYS_statx, [word(1, Eq, EMPTY_PATH_AT)])?;
    if routers {
        rules.0.extend(SOCKET_CALLS.iter().map(|call| (*call, vec![])));
        for [family, kind, protocol] in SOCKETS {
            let kind = int(1, MaskedEq(SOCKET_KIND.unsigned_abs()), kind);
            rules.allow(libc::SYS_socket, [int(0, Eq, family), kind, int(2, Eq, protocol)])?;
        }
        rules.allow(libc::SYS_ioctl, [int(1, Eq, libc::TIOCOUTQ as i64)])?;
    }
    Ok(rules.0)
}

/// Memory never becomes a program, and what is below [`EMPTY_PATH_END`] stays.
fn memory_rules(rules: &mut Rules) -> anyhow::Result<()> {
    let above = |at| word(at, Ge, EMPTY_PATH_END);
    let without = |at, flag: libc::c_int| word(at, MaskedEq(flag.try_into()?), 0);
    let no_program = || without(2, libc::PROT_EXEC);
    rules.allow(libc::SYS_mmap, [no_program(), without(3, libc::MAP_FIXED)])?;
    rules.allow(libc::SYS_mmap, [no_program(), above(0)])?;
    rules.allow(libc::SYS_mprotect, [no_program(), above(0)])?;
    rules.allow(libc::SYS_munmap, [above(0)])?;
    rules.allow(libc::SYS_mremap, [above(0), without(3, libc::MREMAP_FIXED)])
}

fn thread_rules(rules: &mut Rules) -> anyhow::Result<()> {
    let as_thread = MaskedEq(u64::from(u32::MAX) & !CLONE_DETACHED);
    rules.allow(libc::SYS_clone, [int(0, as_thread, CLONE_AS_THREAD.cast_signed())])?;
    let own = i64::from(std::process::id());
    rules.allow(libc::SYS_tgkill, [int(0, Eq, own)])?;
    // Of the thread that calls it.
    rules.allow(libc::SYS_sched_setaffinity, [int(0, Eq, 0)])?;
    // Not that of the signal by which a forbidden call ends the process.
    rules.allow(libc::SYS_rt_sigaction, [int(0, Ne, libc::SIGSYS)])?;
    // Limits are read, not set, and those of no other process.
    rules.allow(libc::SYS_prlimit64, [int(0, Eq, 0), word(2, Eq, 0)])?;
    for option in [libc::PR_SET_NAME, libc::PR_SET_TIMERSLACK] {
        rules.allow(libc::SYS_prctl, [int(0, Eq, option)])?;
    }
    rules.allow(libc::SYS_prctl, [int(0, Eq, PR_SET_VMA.cast_signed())])
}
