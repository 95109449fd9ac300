//! The kernel that QEMU guests run, and its modules.
//!
//! Limits: as Debian's packages have them: `boot/vmlinuz-VERSION`, and `lib/modules/VERSION` or
//! `usr/lib/modules/VERSION`.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the modules are: in packages of Debian 12, and later.
const MODULES: [&str; 2] = ["lib/modules", "usr/lib/modules"];

/// A kernel and its modules.
#[derive(Debug, Clone)]
pub struct KernelFiles {
    /// The bootable image.
    pub image: PathBuf,
    /// `lib/modules/VERSION/kernel`.
    pub modules: PathBuf,
}

/// The kernel below a directory: an unpacked package, or the root of a machine.
pub fn find(directory: &Path) -> Option<KernelFiles> {
    let entries = fs::read_dir(directory.join("boot")).ok()?.flatten();
    entries.map(|entry| entry.path()).find_map(|image| {
        let version = image.file_name()?.to_str()?.strip_prefix("vmlinuz-")?;
        let modules = MODULES.map(|place| directory.join(place).join(version).join("kernel"));
        let modules = modules.into_iter().find(|modules| modules.is_dir())?;
        Some(KernelFiles { image, modules })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_found_with_its_modules_only() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let root = directory.path();
        fs::create_dir_all(root.join("boot")).expect("created");
        fs::write(root.join("boot/vmlinuz-6.1"), "").expect("written");
        assert!(find(root).is_none());
        for place in ["usr/lib/modules", "lib/modules"] {
            let modules = root.join(place).join("6.1/kernel");
            fs::create_dir_all(&modules).expect("created");
            assert_eq!(find(root).map(|files| files.modules), Some(modules));
        }
    }
}
