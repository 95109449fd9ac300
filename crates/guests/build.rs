//! Builds what is put in front of User Mode Linux, a shared library of its own, so that the crate
//! can carry it along.
//!
//! Limits: flags that the crate itself is built with are not passed on; whatever links it links the
//! library, too.

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
        // It is loaded into another program, whatever the C library of this one.
        .args(["-Cstrip=symbols", "-Ctarget-feature=-crt-static", "--target"])
        .arg(variable("TARGET"))
        .args(env::var("RUSTC_LINKER").ok().map(|linker| format!("-Clinker={linker}")))
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
