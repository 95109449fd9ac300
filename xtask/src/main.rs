//! The commands of `./x`: set-up, the demonstration, tests, checks and measurements.
//!
//! How: one sub-command per file. Tests with real guests are in [`guest`]: each runs in a process
//! of its own inside fresh namespaces, so that nothing of it can stay behind.
//!
//! Limits: Debian 12 or something like it, x86-64.

#![forbid(unsafe_code)]

mod apt;
mod bench;
mod cargo_tests;
mod check;
mod counts;
mod demo;
mod downloads;
mod guest;
mod lanes;
mod page;
mod paths;
mod results;
mod setup;
mod side_by_side;
mod tally;
mod test_program;
mod test_run;
mod tidy;
mod unikernel;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use ringway_guests::shell;

use paths::Paths;

#[derive(Parser)]
#[command(name = "./x")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Install what is missing
    Setup,
    /// Set up, build, and let two Linux guests talk through ringway
    Demo(demo::DemoOptions),
    /// Run every test, or those whose names contain one of the given words
    Test {
        /// Parts of the names of the tests to run; `guest::` in front: scenarios only
        names: Vec<String>,
        /// List the names only
        #[arg(long)]
        list: bool,
        /// All of each test, and every version of guests: takes hours
        #[arg(long)]
        long: bool,
    },
    /// Format, lints, tidy rules and unit tests
    Check,
    /// Build a Debian package below target/package
    Package {
        /// Instead programs that need no shared library: target/package/static
        #[arg(long = "static")]
        is_static: bool,
    },
    /// Build the bare-metal example and boot it under QEMU
    Unikernel(unikernel::UnikernelOptions),
    /// Measure ringway beside its peers; without options a quick look
    Bench {
        /// Options of `ringway bench`; or `docs`, and maybe the kinds to measure
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Format the tree
    Fmt,
    /// Check the rules of the tree
    Tidy {
        /// Print how large its parts are instead
        #[arg(long)]
        numbers: bool,
    },
    /// Carry out the demonstration (internal)
    #[command(hide = true)]
    DemoPerformance(demo::Performance),
    /// Run one scenario here and now, without namespaces around it (internal)
    #[command(hide = true)]
    GuestOne {
        /// Its name
        name: String,
        /// Where its sockets and scripts may be
        #[arg(long)]
        directory: PathBuf,
    },
}

fn main() -> ExitCode {
    let paths = Paths::new();
    let result = match Arguments::parse().command {
        Command::Setup => setup::command(&paths),
        Command::Demo(options) => demo::command(&paths, &options),
        Command::DemoPerformance(performance) => return demo::perform(&paths, &performance),
        Command::Test { names, list: true, .. } => test_run::list(&paths, &names),
        Command::Test { names, long, .. } => test_run::command(&paths, &names, long),
        Command::Check => check::command(&paths),
        Command::Package { is_static: false } => package(&paths),
        Command::Package { is_static: true } => static_programs(&paths),
        Command::Unikernel(options) => unikernel::command(&paths, &options),
        Command::Bench { options } => bench::command(&paths, &options),
        Command::Fmt => check::format(&paths),
        Command::Tidy { numbers: false } => tidy::command(&paths),
        Command::Tidy { numbers: true } => tidy::numbers(&paths),
        Command::GuestOne { name, directory } => return guest::run_here(&paths, &name, &directory),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// `./x package`: the program with its units, manual pages and completions.
fn package(paths: &Paths) -> anyhow::Result<()> {
    check::build_ringway(paths)?;
    shell::run(paths.cargo("build").args(["--release", "-p", "ringway-cni"]))?;
    let mut build = shell::command(&[paths.root.join("packaging/build-deb")]);
    build.arg(paths.target.join("release/ringway")).arg(env!("CARGO_PKG_VERSION"));
    shell::run(build.arg(paths.target.join("package")))
}

/// `./x package --static`: for a machine, or an image, without the libraries of this one.
fn static_programs(paths: &Paths) -> anyhow::Result<()> {
    let (built, packed) = (check::static_directory(paths), paths.target.join("package/static"));
    shell::run(&mut check::static_build(paths))?;
    std::fs::create_dir_all(&packed)?;
    for name in ["ringway", "ringway-cni"] {
        let program = packed.join(name);
        std::fs::copy(built.join(name), &program)?;
        shell::run(shell::command(&["strip"]).arg(&program))?;
        println!("{}", program.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_script_knows_every_command_and_lists_it() {
        let script = std::fs::read_to_string(Paths::new().root.join("x")).expect("it is there");
        let known = script.lines().find_map(|line| line.trim().strip_prefix("setup | "));
        let known: Vec<&str> = known.expect("a list").trim_end_matches(')').split(" | ").collect();
        let commands = Arguments::command();
        for command in commands.get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            assert!(name == "setup" || known.contains(&name), "{name} is not passed on");
            assert!(script.contains(&format!("\n./x {name} ")), "{name} is not in its help");
        }
    }
}
