//! Where the programs are that take part in measurements.

use std::env;
use std::path::Path;

use ringway_guests::dpdk_files::DpdkFiles;

/// Names a directory with the files of DPDK's Debian packages in it, unpacked and not installed.
const DPDK_VARIABLE: &str = "RINGWAY_DPDK";

/// Looks for DPDK.
///
/// # Errors
/// It is not there, or not all of it.
pub(crate) fn dpdk() -> anyhow::Result<DpdkFiles> {
    match env::var_os(DPDK_VARIABLE) {
        Some(directory) => DpdkFiles::unpacked(Path::new(&directory)),
        None => DpdkFiles::installed(),
    }
}
