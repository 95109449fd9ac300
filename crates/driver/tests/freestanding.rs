//! The driver needs no standard library: a program without one is linked, and run.

use std::path::Path;
use std::process::Command;

/// The exit code of the program where everything in it worked.
const WORKED: i32 = 42;

#[test]
#[cfg_attr(not(all(target_arch = "x86_64", target_os = "linux")), ignore = "x86-64 Linux only")]
fn a_program_without_a_standard_library_links_and_runs() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/freestanding");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("freestanding");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["build", "--quiet", "--locked"])
        .current_dir(&here)
        .arg("--target-dir")
        .arg(&target);
    // Flags of an outer build, coverage for example, would want a standard library.
    let built = cargo.env_remove("RUSTFLAGS").status().expect("cargo runs");
    assert!(built.success(), "it does not link");
    let status = Command::new(target.join("debug/freestanding")).status().expect("it runs");
    assert_eq!(status.code(), Some(WORKED), "{status}");
}
