//! The file system of QEMU guests: busybox, iperf3, ping, ethtool, tcpdump, and the virtio
//! modules.
//!
//! How: programs come from this machine together with the libraries that `ldd` names; modules from
//! the unpacked kernel, in the order in which they depend on each other. The archive is a `cpio`
//! in the kernel's "newc" form, not compressed: an emulated processor would take longer to
//! decompress it than to read it.
//!
//! Limits: modules as Debian has them: not compressed (12), or with `xz` (13).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail, ensure};

use super::console::AGENT_LOOP;
use crate::kernel_files::KernelFiles;
use crate::shell;

/// Programs of this machine that guests run.
pub const PROGRAMS: [&str; 4] = ["iperf3", "ping", "ethtool", "tcpdump"];

/// The modules of a guest's network; others come along by dependency.
const MODULES: [&str; 2] = ["virtio_pci", "virtio_net"];

/// Folders that must be there.
const FOLDERS: [&str; 7] = ["bin", "dev", "etc", "mod", "proc", "sys", "tmp"];

/// Deepest folder of modules that is looked into.
const DEPTH_MAX: usize = 8;

const FOLDER_MODE: u32 = 0o040_755;
const FILE_MODE: u32 = 0o100_755;

const PROLOGUE: &str = "\
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/tmp
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /tmp
cd /tmp
for module in MODULES; do
    insmod /mod/$module.ko
done
ip link set lo up
# Without this, busybox's shell would run its own.
ping() { /bin/ping \"$@\"; }
";

/// The archive, as QEMU takes it with `-initrd`, with these programs beside the usual ones.
///
/// # Errors
/// A program or a module is missing.
pub fn build(kernel: &KernelFiles, more: &[PathBuf]) -> anyhow::Result<Vec<u8>> {
    let mut archive = Archive::default();
    for folder in FOLDERS {
        archive.folder(folder);
    }
    let mut order = Vec::new();
    for module in MODULES {
        add_module(kernel, module, &mut order, &mut archive)?;
    }
    let prologue = PROLOGUE.replace("MODULES", &order.join(" "));
    // A user has to be called root: tcpdump looks its user up.
    archive.file("etc/passwd", b"root:x:0:0::/tmp:/bin/sh\n");
    archive.file("init", format!("{prologue}{AGENT_LOOP}").as_bytes());
    // Before the links of busybox, which leave out names that are there.
    let find = |program| shell::find_program(program).with_context(|| format!("no {program}"));
    let usual = PROGRAMS.into_iter().chain(["busybox"]).map(find);
    for program in usual.chain(more.iter().cloned().map(Ok)) {
        let program = program?;
        let name = program.file_name().unwrap_or_default().display();
        archive.file(&format!("bin/{name}"), &read(&program)?);
        for library in libraries(&program)? {
            archive.file(library.trim_start_matches('/'), &read(Path::new(&library))?);
        }
    }
    Ok(archive.finish())
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| path.display().to_string())
}

/// The libraries that the dynamic linker would load for a program; none for a static one.
fn libraries(program: &Path) -> anyhow::Result<Vec<String>> {
    let output = shell::command(&["ldd"]).arg(program).output().context("ldd")?;
    Ok(library_paths(&String::from_utf8_lossy(&output.stdout)))
}

fn library_paths(listing: &str) -> Vec<String> {
    let words = listing.lines().filter_map(|line| {
        let path = line.split_once("=> ").map_or(line, |(_, path)| path);
        path.split_whitespace().next()
    });
    words.filter(|word| word.starts_with('/')).map(str::to_string).collect()
}

/// Adds a module after those it depends on.
fn add_module(
    kernel: &KernelFiles,
    name: &str,
    order: &mut Vec<String>,
    archive: &mut Archive,
) -> anyhow::Result<()> {
    if order.iter().any(|known| known == name) {
        return Ok(());
    }
    if is_built_in(kernel, name) {
        return Ok(());
    }
    let path = find_module(&kernel.modules, name, DEPTH_MAX);
    let path = path.ok_or_else(|| anyhow!("{}: no module {name}", kernel.modules.display()))?;
    let module = read_module(&path)?;
    for dependency in dependencies(&module)? {
        add_module(kernel, &dependency, order, archive)?;
    }
    archive.file(&format!("mod/{name}.ko"), &module);
    order.push(name.to_string());
    Ok(())
}

/// Whether the kernel has it without a module, as the list beside the modules says.
fn is_built_in(kernel: &KernelFiles, name: &str) -> bool {
    let list = fs::read_to_string(kernel.modules.with_file_name("modules.builtin"));
    let list = list.unwrap_or_default();
    let mut files = list.lines().filter_map(|line| line.rsplit('/').next());
    files.any(|file| file.replace('-', "_").strip_suffix(".ko") == Some(name))
}

/// A module's contents, decompressed.
fn read_module(path: &Path) -> anyhow::Result<Vec<u8>> {
    if path.extension().is_none_or(|extension| extension != "xz") {
        return read(path);
    }
    let output = shell::command(&["xz", "-dc"]).arg(path).output().context("xz")?;
    let why = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}", path.display(), why.trim());
    Ok(output.stdout)
}

fn find_module(folder: &Path, name: &str, depth: usize) -> Option<PathBuf> {
    let is_it = |path: &Path| {
        let file = path.file_name().unwrap_or_default().to_string_lossy().replace('-', "_");
        file.strip_prefix(name).is_some_and(|ending| matches!(ending, ".ko" | ".ko.xz"))
    };
    let entries = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let mut folders = Vec::new();
    for path in entries {
        if is_it(&path) {
            return Some(path);
        }
        folders.extend(path.is_dir().then_some(path));
    }
    let deeper = depth.checked_sub(1)?;
    folders.iter().find_map(|folder| find_module(folder, name, deeper))
}

/// The names after `depends=` in a module's information.
fn dependencies(module: &[u8]) -> anyhow::Result<Vec<String>> {
    let mark = b"\0depends=";
    let Some(at) = module.windows(mark.len()).position(|window| window == mark) else {
        bail!("not a kernel module");
    };
    let text = module.get(at + mark.len()..).unwrap_or_default();
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    let names = std::str::from_utf8(text)?.split(',').filter(|name| !name.is_empty());
    Ok(names.map(|name| name.replace('-', "_")).collect())
}

/// An archive in the kernel's "newc" form.
#[derive(Debug, Default)]
struct Archive {
    bytes: Vec<u8>,
    names: Vec<String>,
}

impl Archive {
    fn folder(&mut self, name: &str) {
        self.entry(name, FOLDER_MODE, &[]);
    }

    /// Adds a file, and the folders it is in.
    fn file(&mut self, name: &str, contents: &[u8]) {
        for (at, _) in name.match_indices('/') {
            self.folder(name.get(..at).unwrap_or_default());
        }
        self.entry(name, FILE_MODE, contents);
    }

    fn entry(&mut self, name: &str, mode: u32, contents: &[u8]) {
        if self.names.iter().any(|known| known == name) {
            return;
        }
        self.names.push(name.to_string());
        // inode, mode, user, group, links, time, length, four device numbers, name's length, sum
        let inode = self.names.len();
        self.bytes.extend_from_slice(b"070701");
        for field in [inode, mode as usize, 0, 0, 1, 0, contents.len()] {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        for field in [0, 0, 0, 0, name.len() + 1, 0] {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_have_the_form_the_kernel_reads() {
        let mut archive = Archive::default();
        archive.file("a/b", b"hello");
        archive.file("a/c", b"");
        let bytes = archive.finish();
        let text = String::from_utf8_lossy(&bytes);
        let headers: Vec<usize> = text.match_indices("070701").map(|(at, _)| at).collect();
        assert_eq!(headers.len(), 4, "folder a once, a/b, a/c, trailer");
        assert!(headers.iter().all(|at| at % 4 == 0) && bytes.len() % 4 == 0);
        let b = headers[1];
        let field = |number: usize| &text[b + 6 + number * 8..b + 14 + number * 8];
        assert_eq!((field(1), field(6), field(11)), ("000081ED", "00000005", "00000004"));
        assert_eq!(&text[b + 110..b + 114], "a/b\0");
        assert_eq!(&text[b + 116..b + 121], "hello", "the name is padded to four bytes");
        assert!(text.ends_with("TRAILER!!!\0\0\0\0"), "{:?}", &text[text.len() - 20..]);
    }

    #[test]
    fn libraries_are_read_from_ldd() {
        let listing = "\tlinux-vdso.so.1 (0x7ffc)\n\tlibc.so.6 => /lib/libc.so.6 (0x7f)\n\
                       \t/lib64/ld-linux-x86-64.so.2 (0x7f)\n\tnot a dynamic executable\n";
        assert_eq!(library_paths(listing), ["/lib/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]);
    }

    #[test]
    fn modules_are_found_and_decompressed() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let folder = directory.path().join("net");
        fs::create_dir_all(&folder).expect("created");
        let packed = folder.join("net-failover.ko");
        fs::write(&packed, "module").expect("written");
        let find = || find_module(directory.path(), "net_failover", DEPTH_MAX);
        assert_eq!(find().as_ref(), Some(&packed));
        shell::run(shell::command(&["xz"]).arg(&packed)).expect("xz runs");
        let found = find().expect("the packed one");
        assert_eq!(found, folder.join("net-failover.ko.xz"));
        assert_eq!(read_module(&found).expect("unpacked"), b"module");
        fs::write(&found, "nonsense").expect("written");
        assert!(read_module(&found).is_err());
    }

    #[test]
    fn what_is_built_in_is_no_module() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let [image, modules] = ["image", "kernel"].map(|name| directory.path().join(name));
        let kernel = KernelFiles { image, modules };
        assert!(!is_built_in(&kernel, "virtio_pci"));
        let list = "kernel/drivers/virtio/virtio-pci.ko\nkernel/lib/dim/dimlib.ko\n";
        fs::write(directory.path().join("modules.builtin"), list).expect("written");
        assert!(is_built_in(&kernel, "virtio_pci") && is_built_in(&kernel, "dimlib"));
        assert!(!is_built_in(&kernel, "virtio"));
    }

    #[test]
    fn dependencies_are_read_from_modules() {
        let module = b"ELF\0license=GPL\0depends=virtio_ring,net-failover\0name=x\0";
        assert_eq!(
            dependencies(module).ok(),
            Some(vec!["virtio_ring".into(), "net_failover".into()])
        );
        assert_eq!(dependencies(b"x\0depends=\0").ok(), Some(vec![]));
        assert!(dependencies(b"nothing").is_err());
    }
}
