//! `./x demo`: set up, build, run.

use crate::check;
use crate::paths::Paths;
use crate::setup::{self, For};
use ringway_guests::shell;

/// `./x demo`
pub fn command(paths: &Paths, options: &[String]) -> anyhow::Result<()> {
    // What is missing was printed; the demonstration then uses guests of its own.
    if let Err(error) = setup::prepare(paths, For::Demo) {
        println!("{error:#}");
    }
    check::build_ringway(paths)?;
    shell::run(shell::command(&[paths.target.join("release/ringway")]).arg("demo").args(options))
}
