//! Tests that a scenario starts beside something of its own: built by cargo like all others, and
//! kept below `target/guest`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use ringway_guests::{Console, Stage};

use crate::cargo_tests;
use crate::paths::Paths;

/// In front of what a test says about what it has verified.
const VERIFIED: &str = "verified: ";

/// By its name.
#[derive(Debug, Clone, Copy)]
pub struct TestProgram(pub &'static str);

impl TestProgram {
    /// With the features of the whole workspace, as all tests are built: else the libraries would
    /// be built once more.
    pub fn build(self, paths: &Paths) -> anyhow::Result<()> {
        let programs = cargo_tests::build(paths, &["--workspace", "--test", self.0])?;
        let built = programs.first().context("cargo built no test")?;
        let kept = self.kept(paths);
        fs::create_dir_all(paths.guest())
            .and_then(|()| fs::copy(built.path(), &kept))
            .with_context(|| kept.display().to_string())?;
        Ok(())
    }

    /// Runs it, once it is built, with this variable of its environment, and says what it has
    /// verified.
    pub fn verify(
        self,
        stage: &Stage,
        variable: (&str, &Path),
        limit: Duration,
    ) -> anyhow::Result<()> {
        let mut test = Command::new(self.kept(&Paths::new()));
        test.arg("--nocapture").env(variable.0, variable.1);
        let (status, text) = Console::start(stage, self.0, test)?.wait_end(0, limit)?;
        let errors = || {
            let file = stage.logs.join(format!("{}-errors.log", self.0));
            fs::read_to_string(file).unwrap_or_default()
        };
        ensure!(status.success(), "{}: {status}:\n{text}\n{}", self.0, errors());
        let verified = text.lines().find_map(|line| line.split_once(VERIFIED));
        stage.note(verified.with_context(|| format!("nothing was verified:\n{text}"))?.1);
        Ok(())
    }

    /// Cargo's name for it changes.
    fn kept(self, paths: &Paths) -> PathBuf {
        paths.guest().join(self.0)
    }
}
