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
