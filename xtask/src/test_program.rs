//! Tests that a scenario starts beside something of its own: built by cargo like all others, and
//! kept below `target/guest`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use ringway_guests::{Console, Stage, shell};
use serde_json::Value;

use crate::paths::Paths;

/// In front of what a test says about what it has verified.
const VERIFIED: &str = "verified: ";

#[derive(Debug, Clone, Copy)]
pub struct TestProgram {
    pub package: &'static str,
    pub name: &'static str,
}

impl TestProgram {
    pub fn build(self, paths: &Paths) -> anyhow::Result<()> {
        let mut command = paths.cargo("test");
        command.args(["-p", self.package, "--test", self.name, "--no-run"]);
        command.args(["--message-format=json-render-diagnostics"]).stderr(Stdio::inherit());
        let messages = shell::output(&mut command)?;
        let built = messages.lines().find_map(|message| executable(self.name, message));
        let (built, kept) = (built.context("cargo built no test")?, self.kept(paths));
        fs::create_dir_all(paths.guest())
            .and_then(|()| fs::copy(&built, &kept))
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
        let (status, text) = Console::start(stage, self.name, test)?.wait_end(0, limit)?;
        ensure!(status.success(), "{}: {status}:\n{text}", self.name);
        let verified = text.lines().find_map(|line| line.split_once(VERIFIED));
        stage.note(verified.with_context(|| format!("nothing was verified:\n{text}"))?.1);
        Ok(())
    }

    /// Cargo's name for it changes.
    fn kept(self, paths: &Paths) -> PathBuf {
        paths.guest().join(self.name)
    }
}

/// The program that a message of cargo's is about.
fn executable(name: &str, message: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    let is_it = message["target"]["name"] == name;
    message["executable"].as_str().filter(|_| is_it).map(|path| Path::new(path).to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_read_from_cargos_messages() {
        let of = |name: &str, path: Option<&str>| {
            let message = serde_json::json!({
                "reason": "compiler-artifact", "target": { "name": name }, "executable": path
            });
            executable("it", &message.to_string())
        };
        assert_eq!(of("it", Some("/t/it-1")), Some("/t/it-1".into()));
        assert_eq!(of("other", Some("/t/other")), None);
        assert_eq!(of("it", None), None);
        assert_eq!(executable("it", "no message"), None);
    }
}
