//! Linker arguments: no C library, no start files, our own layout.

fn main() {
    let here = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    for argument in ["-nostdlib", "-nostartfiles", "-static", "-no-pie"] {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
    for argument in [
        "--build-id=none",
        "--gc-sections",
        "--no-eh-frame-hdr",
        "-zmax-page-size=4096",
        "-znoexecstack",
    ] {
        println!("cargo:rustc-link-arg-bins=-Wl,{argument}");
    }
    println!("cargo:rustc-link-arg-bins=-Wl,-T,{here}/link.ld");
    println!("cargo:rerun-if-changed=link.ld");
    println!("cargo:rerun-if-changed=build.rs");
}
