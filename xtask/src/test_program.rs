//! Tests that a scenario starts beside something of its own, by cargo like all others.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use ringway_guests::{Console, Stage, shell};

use crate::paths::Paths;

/// In front of what a test says about what it has verified.
const VERIFIED: &str = "verified: ";

#[derive(Debug, Clone, Copy)]
pub struct TestProgram {
    pub package: &'static str,
    pub name: &'static str,
}

impl TestProgram {
    /// In a scenario's namespaces there is nothing to build any more, and no network.
    pub fn build(self, paths: &Paths) -> anyhow::Result<()> {
        shell::run(self.cargo(paths).arg("--no-run"))
    }

    /// Runs it, once it is built, with this variable of its environment, and says what it has
    /// verified.
    pub fn verify(
        self,
        stage: &Stage,
        variable: (&str, &Path),
        limit: Duration,
    ) -> anyhow::Result<()> {
        let mut test = self.cargo(&Paths::new());
        test.args(["--offline", "--", "--nocapture"]).env(variable.0, variable.1);
        let (status, text) = Console::start(stage, self.name, test)?.wait_end(0, limit)?;
        ensure!(status.success(), "{}: {status}:\n{text}", self.name);
        let verified = text.lines().find_map(|line| line.split_once(VERIFIED));
        stage.note(verified.with_context(|| format!("nothing was verified:\n{text}"))?.1);
        Ok(())
    }

    fn cargo(self, paths: &Paths) -> Command {
        let mut command = paths.cargo("test");
        command.args(["-p", self.package, "--test", self.name]);
        command
    }
}
