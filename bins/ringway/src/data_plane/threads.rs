//! Threads of workers: how they are started, each on its processor.

use std::io::ErrorKind;
use std::thread::JoinHandle;

use anyhow::bail;
use ringway_host::{Worker, WorkerChannels};
use tracing::error;

use crate::places::WIDE_SERVICE;

/// What was asked for and cannot be had is an error, and not a surprise. Tried by a thread that
/// does nothing else: which processors may be used shows only in the attempt.
pub(super) fn check_pins(pins: &[u16]) -> anyhow::Result<()> {
    for &cpu in pins {
        let tried = std::thread::spawn(move || ringway_host::pin_to(cpu)).join();
        if let Ok(Err(why)) = tried {
            if why.kind() == ErrorKind::PermissionDenied {
                bail!("pin: {why}: leave it out, or let the service do it: {WIDE_SERVICE}");
            }
            let wrong = "does not exist, or this process may not use it";
            bail!("pin: processor {cpu} {wrong}: {why}: choose another");
        }
    }
    Ok(())
}

/// Starts one worker, on that processor if one is given.
pub(super) fn spawn(channels: WorkerChannels, pin: Option<u16>) -> anyhow::Result<JoinHandle<()>> {
    let name = format!("ringway-worker{}", channels.peers.index());
    let ended = channels.event_bell.clone();
    let worker = Worker::new(channels)?;
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        if let Some(cpu) = pin
            && let Err(why) = ringway_host::pin_to(cpu)
        {
            error!("processor {cpu}: {why}: the worker runs anywhere");
        }
        if let Err(why) = worker.run() {
            error!("worker: {why}");
        }
        ended.notify();
    })?;
    Ok(thread)
}
