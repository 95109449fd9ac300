//! A QEMU guest moves between two hosts, or two ports of one, and back while it talks with this
//! side: both connections live on, with each byte, and the bridge turns to its new place.
//!
//! How: the median of the times is judged, with what this machine adds to a silence by itself; one
//! time only by a limit that shows a hang.

use anyhow::ensure;
use ringway_extent::Extent;
use ringway_guests::Stage;

use super::migration_scene::{Device, Places, Scene, Times, check_format};

/// How often a guest moves there and back.
const ROUNDS: Extent = Extent::new("RINGWAY_MIGRATIONS", 2, 20);

/// Longer silences than QEMU's own, or until the bridge has learned, are hangs.
const HANG_MS: f64 = 10_000.0;

/// Longest median of the silence beyond QEMU's downtime, and of the time until the bridge has
/// learned.
const MEDIAN_MS: f64 = 100.0;
/// How often a median is taken that may be as long as it is for what else runs here.
const TRIES: u32 = 3;

/// There and back, with a device that has these options and as many queue pairs.
pub fn qemu(stage: &Stage, options: &str, pairs: usize) -> anyhow::Result<()> {
    there_and_back(Scene::start(stage, Device { options, pairs })?, options)
}

/// The same between two ports of one ringway, as where a VMM is replaced in its place.
pub fn ports(stage: &Stage, options: &str) -> anyhow::Result<()> {
    let device = Device { options, pairs: 1 };
    there_and_back(Scene::start_between(stage, Places::Ports, device)?, options)
}

/// As often as a busy machine needs for one whose times are short enough.
fn there_and_back(mut scene: Scene<'_>, options: &str) -> anyhow::Result<()> {
    for tries_left in (0..TRIES).rev() {
        let all = times_of(&mut scene, options.contains("packed=on"))?;
        let more = |times: &Times| times.silence_ms - times.downtime_ms;
        let [silence, learned] =
            [median(&all, more), median(&all, |times: &Times| times.learned_ms)].map(f64::round);
        let (count, quiet) = (all.len(), scene.quiet_ms.round());
        let text = format!(
            "{count} migrations; median of silence beyond downtime {silence} ms, \
             until the bridge knows {learned} ms; silent for {quiet} ms without one"
        );
        scene.stage.note(&text);
        if silence.max(learned) <= MEDIAN_MS + quiet {
            break;
        }
        ensure!(tries_left > 0, "too long: {text}");
    }
    scene.finish()
}

fn times_of(scene: &mut Scene<'_>, is_packed: bool) -> anyhow::Result<Vec<Times>> {
    let mut all = Vec::new();
    for _ in 0..2 * ROUNDS.announced() {
        let times = scene.migrate()?;
        told(scene.stage, times)?;
        check_format(scene, is_packed)?;
        all.push(times);
    }
    Ok(all)
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
