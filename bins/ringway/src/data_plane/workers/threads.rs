//! Threads of workers: how they are started, each on its processor.

use std::io::ErrorKind;
use std::thread::JoinHandle;

use anyhow::{Context, anyhow};
use ringway_host::{Worker, WorkerChannels};
use tracing::error;

use crate::places::WIDE_SERVICE;

/// A processor that was asked for and cannot be had is an error, and not a surprise.
pub fn check_pins(pins: &[u16]) -> anyhow::Result<()> {
    refused_pin(pins).map_or(Ok(()), |(found, mend)| Err(anyhow!("pin: {found}: {mend}")))
}

/// The first processor that cannot be had: why, and what to do. Tried by a thread that does nothing
/// else: which processors may be used shows only in the attempt.
pub fn refused_pin(pins: &[u16]) -> Option<(String, String)> {
    pins.iter().find_map(|&cpu| {
        let why = std::thread::spawn(move || ringway_host::pin_to(cpu)).join().ok()?.err()?;
        Some(match why.kind() {
            ErrorKind::PermissionDenied => {
                (why.to_string(), format!("leave it out, or let the service do it: {WIDE_SERVICE}"))
            }
            _ => {
                let wrong = "does not exist, or this process may not use it";
                (format!("processor {cpu} {wrong}: {why}"), "choose another".to_owned())
            }
        })
    })
}

/// Starts one worker, on that processor if one is given.
pub fn spawn(channels: WorkerChannels, pin: Option<u16>) -> anyhow::Result<JoinHandle<()>> {
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

/// For the hashes of tables that peers fill.
pub fn random_seed() -> anyhow::Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .context("getrandom")?;
    Ok(u64::from_le_bytes(bytes))
}
