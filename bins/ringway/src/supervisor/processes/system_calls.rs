//! Names of system calls, as far as a library or a fault is likely to make them.

macro_rules! names {
    ($($name:ident)*) => {
        [$((libc::$name, stringify!($name))),*]
    };
}

/// The prefix of the names of these constants.
const PREFIX: &str = "SYS_";

const NAMES: &[(libc::c_long, &str)] = &names! {
    SYS_accept SYS_accept4 SYS_bind SYS_bpf SYS_capset SYS_chdir SYS_clone SYS_clone3
    SYS_close_range SYS_connect SYS_copy_file_range SYS_dup3 SYS_epoll_create1 SYS_execve
    SYS_execveat SYS_faccessat SYS_faccessat2 SYS_fallocate SYS_fchmod SYS_fchmodat SYS_fchownat
    SYS_flock SYS_fsync SYS_futex_waitv SYS_getcwd SYS_getdents64 SYS_geteuid SYS_getpeername
    SYS_getppid SYS_getrlimit SYS_getsockname SYS_getuid SYS_inotify_init1 SYS_io_uring_register
    SYS_io_uring_setup SYS_ioctl SYS_kill SYS_landlock_create_ruleset SYS_linkat SYS_listen
    SYS_membarrier SYS_memfd_secret SYS_mincore SYS_mkdirat SYS_mlock SYS_mmap SYS_mount
    SYS_mprotect SYS_openat SYS_openat2 SYS_perf_event_open SYS_personality SYS_pidfd_getfd
    SYS_pidfd_open SYS_pidfd_send_signal SYS_pipe2 SYS_prctl SYS_prlimit64 SYS_process_vm_readv
    SYS_process_vm_writev SYS_ptrace SYS_pwrite64 SYS_recvmmsg SYS_renameat2 SYS_rt_sigaction
    SYS_rt_sigqueueinfo SYS_sched_getscheduler SYS_sched_setscheduler SYS_seccomp SYS_sendfile
    SYS_sendmmsg SYS_setgid SYS_setns SYS_setresgid SYS_setresuid SYS_setrlimit SYS_setsockopt
    SYS_setuid SYS_shutdown SYS_signalfd4 SYS_socket SYS_socketpair SYS_splice SYS_symlinkat
    SYS_sysinfo SYS_tgkill SYS_timerfd_create SYS_tkill SYS_umask SYS_uname SYS_unlinkat
    SYS_unshare SYS_userfaultfd SYS_wait4 SYS_waitid
};

/// The number, and the name if it is one of those.
pub fn shown(call: u32) -> String {
    let known = NAMES.iter().find(|(number, _)| *number == libc::c_long::from(call));
    match known.and_then(|(_, name)| name.strip_prefix(PREFIX)) {
        Some(name) => format!("{call} ({name})"),
        None => call.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn calls_have_a_number_and_the_usual_ones_a_name() {
        let socket = u32::try_from(libc::SYS_socket).expect("a small number");
        assert_eq!(super::shown(socket), format!("{socket} (socket)"));
        assert_eq!(super::shown(60_000), "60000");
    }
}
