//! Signals, as something that can be waited for beside other things.

use std::os::unix::net::UnixStream;

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};

/// SIGINT and SIGTERM, which end a command that otherwise goes on, make the returned stream
/// readable.
///
/// # Errors
/// The operating system refuses.
pub fn catch_signals() -> anyhow::Result<UnixStream> {
    catch(&[SIGINT, SIGTERM])
}

/// Whether this process was started without that signal, as by nohup(1). Once caught it is not.
pub fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    // The lowest bit is the first signal's.
    ignored.unwrap_or(0).checked_shr(signal.unsigned_abs().wrapping_sub(1)).unwrap_or(0) & 1 == 1
}

/// These signals make the returned stream readable.
///
/// # Errors
/// The operating system refuses.
pub fn catch(signals: &[i32]) -> anyhow::Result<UnixStream> {
    let (read, write) = UnixStream::pair().context("socketpair")?;
    for &signal in signals {
        signal_hook::low_level::pipe::register(signal, write.try_clone()?)
            .context("catching signals")?;
    }
    Ok(read)
}
