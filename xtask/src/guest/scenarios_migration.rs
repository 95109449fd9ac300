//! A QEMU guest moves between two hosts and back while it talks with this side: both connections
//! live on, with each byte, and the bridge turns to its new place.
//!
//! How: times are told and not judged, except by limits that show a hang.

use anyhow::ensure;
use ringway_extent::Extent;
use ringway_guests::Stage;

use super::migration_scene::{Device, Scene, Times, check_format};

/// How often a guest moves there and back.
const ROUNDS: Extent = Extent::new("RINGWAY_MIGRATIONS", 2, 20);

/// Longer silences than QEMU's own, or until the bridge has learned, are hangs.
const HANG_MS: f64 = 10_000.0;

/// There and back, with a device that has these options and as many queue pairs.
pub fn qemu(stage: &Stage, options: &str, pairs: usize) -> anyhow::Result<()> {
    let mut scene = Scene::start(stage, Device { options, pairs })?;
    let is_packed = options.contains("packed=on");
    let mut all = Vec::new();
    for _ in 0..2 * ROUNDS.announced() {
        let times = scene.migrate()?;
        told(stage, times)?;
        check_format(&scene, is_packed)?;
        all.push(times);
    }
    let more = |times: &Times| times.silence_ms - times.downtime_ms;
    let [silence, learned] =
        [median(&all, more), median(&all, |times: &Times| times.learned_ms)].map(f64::round);
    let count = all.len();
    stage.note(&format!(
        "{count} migrations; median of silence beyond downtime {silence} ms, \
         until the bridge knows {learned} ms"
    ));
    scene.finish()
}

fn told(stage: &Stage, times: Times) -> anyhow::Result<()> {
    stage.step(&format!("{times:.1?}"));
    let Times { downtime_ms, learned_ms, silence_ms } = times;
    let hangs = learned_ms > HANG_MS || silence_ms - downtime_ms > HANG_MS;
    ensure!(!hangs, "too long: {times:.0?}");
    Ok(())
}

fn median(all: &[Times], of: impl Fn(&Times) -> f64) -> f64 {
    let mut values: Vec<f64> = all.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        let times = |silence_ms| Times { downtime_ms: 1.0, learned_ms: 0.0, silence_ms };
        let all = [9.0, 2.0, 5.0].map(times);
        assert_eq!(median(&all, |times| times.silence_ms), 5.0);
        assert_eq!(median(&[], |times| times.silence_ms), 0.0);
    }
}
