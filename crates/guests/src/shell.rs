//! Running other programs, with errors that name them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

/// Where programs are, also those for administrators, which are not on the `PATH` of every user.
const DIRECTORIES: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// A command from its words.
pub fn command<S: AsRef<std::ffi::OsStr>>(words: &[S]) -> Command {
    let mut words = words.iter();
    let program = words.next().map(AsRef::as_ref).unwrap_or_default();
    let mut command = Command::new(program);
    command.args(words);
    command
}

/// Runs it; its output goes where ours goes.
///
/// # Errors
/// It cannot be started, or fails.
pub fn run(command: &mut Command) -> anyhow::Result<()> {
    let shown = show(command);
    let status = command.status().with_context(|| shown.clone())?;
    if !status.success() {
        bail!("{shown}: {status}");
    }
    Ok(())
}

/// Runs it and returns what it prints.
///
/// # Errors
/// It cannot be started, or fails: the text has what it printed on standard error.
pub fn output(command: &mut Command) -> anyhow::Result<String> {
    let shown = show(command);
    let output = command.stdin(Stdio::null()).output().with_context(|| shown.clone())?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        bail!("{shown}: {}: {}", output.status, why.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs it and returns what it prints on standard output; what it says beside that goes where ours
/// goes.
///
/// # Errors
/// It cannot be started, or fails.
pub fn output_beside(command: &mut Command) -> anyhow::Result<String> {
    let shown = show(command);
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| shown.clone())?;
    if !output.status.success() {
        bail!("{shown}: {}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A program's path, if it is installed.
pub fn find_program(name: &str) -> Option<PathBuf> {
    DIRECTORIES.iter().map(|directory| Path::new(directory).join(name)).find(|path| path.is_file())
}

/// The programs among these that are not installed, if there are any.
pub fn missing(programs: &[&str]) -> Option<String> {
    let absent = programs.iter().filter(|name| find_program(name).is_none());
    let absent: Vec<&str> = absent.copied().collect();
    (!absent.is_empty()).then(|| format!("not installed: {}", absent.join(" ")))
}

/// Whether we may do everything.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The command as one would type it.
pub fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_returned_and_failure_names_the_command() {
        assert_eq!(output(&mut command(&["echo", "a", "b"])).ok().as_deref(), Some("a b\n"));
        let error = output(&mut command(&["sh", "-c", "echo broken >&2; exit 3"]));
        let text = format!("{:#}", error.err().map_or_else(Default::default, |e| e.to_string()));
        assert!(text.contains("sh -c") && text.contains('3') && text.contains("broken"), "{text}");
        assert!(run(&mut command(&["/no/such/program"])).is_err());
    }

    #[test]
    fn programs_are_found_or_not() {
        assert!(find_program("sh").is_some());
        assert!(find_program("no-such-program-anywhere").is_none());
    }

    #[test]
    fn missing_programs_are_named() {
        assert_eq!(missing(&["sh"]), None);
        let reason = missing(&["sh", "no-such-program"]).unwrap_or_default();
        assert!(reason.contains("no-such-program") && !reason.contains(" sh"), "{reason}");
    }
}
