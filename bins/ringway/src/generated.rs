//! `ringway completions` and `ringway manual`: what is made of the command line's own description.

use std::fs;
use std::path::Path;

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Arguments;
use crate::outcome;

/// Prints the completions for a shell.
///
/// # Errors
/// They cannot be written.
pub fn completions(shell: Shell) -> anyhow::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "ringway", &mut text);
    outcome::print(&String::from_utf8_lossy(&text))
}

/// Writes a manual page for ringway and for each of its commands into a directory.
///
/// # Errors
/// A file cannot be written.
pub fn manual(directory: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    let mut command = Arguments::command().disable_help_subcommand(true);
    // Subcommands get their full names: `ringway port add`.
    command.build();
    page(&command, directory)
}

fn page(command: &Command, directory: &Path) -> anyhow::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_string();
    let mut text = Vec::new();
    Man::new(command.clone()).title(&name).render(&mut text)?;
    let file = directory.join(format!("{name}.1"));
    fs::write(&file, text).with_context(|| file.display().to_string())?;
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    shown.filter(|command| command.get_name() != "help").try_for_each(|it| page(it, directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_hidden_ones_have_none() {
        let directory = tempfile::tempdir().expect("a directory");
        manual(directory.path()).expect("written");
        let page = |name: &str| fs::read_to_string(directory.path().join(name));
        assert!(page("ringway.1").expect("there").contains("ringway\\-port"));
        assert!(page("ringway-run.1").expect("there").contains("vm:SOCKET"));
        assert!(page("ringway-port-add.1").is_ok() && page("ringway-keep.1").is_err());
    }
}
