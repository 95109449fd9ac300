//! Builds what is put in front of User Mode Linux, a shared library of its own, so that the crate can
//! carry it along.

use std::env;
use std::path::Path;
use std::process::{Command, ExitCode};

const SOURCE: &str = "preload/xstate.rs";

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed={SOURCE}");
    let variable = |name: &str| env::var_os(name).unwrap_or_default();
    let library = Path::new(&variable("OUT_DIR")).join("xstate.so");
    let status = Command::new(variable("RUSTC"))
        .args([SOURCE, "--crate-type=cdylib", "--edition=2024", "-Copt-level=2", "-Cpanic=abort"])
        .args(["-Cstrip=symbols", "-Dwarnings", "--target"])
        .arg(variable("TARGET"))
        .arg("-o")
        .arg(library)
        .status();
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) => {
            eprintln!("{SOURCE}: {status}");
            ExitCode::FAILURE
        }
        Err(why) => {
            eprintln!("rustc: {why}");
            ExitCode::FAILURE
        }
    }
}
