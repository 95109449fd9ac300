//! The kernel that QEMU guests run, and its modules.
//!
//! Limits: as Debian's packages have them: `boot/vmlinuz-VERSION` and `lib/modules/VERSION`.

use std::fs;
use std::path::{Path, PathBuf};

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
        let modules = directory.join("lib/modules").join(version).join("kernel");
        modules.is_dir().then_some(KernelFiles { image, modules })
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
        let modules = root.join("lib/modules/6.1/kernel");
        fs::create_dir_all(&modules).expect("created");
        assert_eq!(find(root).map(|files| files.modules), Some(modules));
    }
}
