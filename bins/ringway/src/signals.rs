//! The signals that end a command which otherwise goes on.

use std::os::unix::net::UnixStream;

use anyhow::Context;

/// SIGINT and SIGTERM make the returned stream readable.
///
/// # Errors
/// The operating system refuses.
pub fn catch_signals() -> anyhow::Result<UnixStream> {
    let (read, write) = UnixStream::pair().context("socketpair")?;
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::low_level::pipe::register(signal, write.try_clone()?)
            .context("catching signals")?;
    }
    Ok(read)
}
