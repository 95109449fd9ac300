//! Packages that are downloaded and unpacked, never installed.
//!
//! How: `apt-get` with the package lists of this machine ([`Apt::default`]), or with lists of
//! its own in another directory ([`Apt::of_newest`]): the machine's configuration stays as it is.
//!
//! Limits: Debian, or a distribution like it; the component `main`, the first mirror of apt's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use ringway_guests::shell;

/// The format in which apt names a source: a mirror, a suite, a component, and what it is.
const TARGET: &str = "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(CREATED_BY)";

/// The list of installed packages.
const STATUS: &str = "/var/lib/dpkg/status";

/// The distribution's newest release, by any name.
const NEWEST: &str = "stable";

#[derive(Debug, Clone, Default)]
pub struct Apt {
    options: Vec<String>,
}

impl Apt {
    /// Lists of their own, kept in `directory`, of what `source` (in the form of a `.sources` file)
    /// names.
    fn apart(directory: &Path, source: &str) -> anyhow::Result<Self> {
        for name in ["lists/partial", "cache/archives/partial"] {
            let path = directory.join(name);
            fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        }
        let file = directory.join("apart.sources");
        fs::write(&file, source).with_context(|| file.display().to_string())?;
        let at = |name: &str| directory.join(name).display().to_string();
        let options = [
            format!("Dir::Etc::sourcelist={}", at("apart.sources")),
            "Dir::Etc::sourceparts=/dev/null".to_string(),
            format!("Dir::State::lists={}", at("lists")),
            format!("Dir::Cache={}", at("cache")),
            // Installed packages are not to be chosen: they cannot be downloaded from there.
            "Dir::State::status=/dev/null".to_string(),
        ];
        let options = options.into_iter().flat_map(|option| ["-o".to_string(), option]);
        Ok(Self { options: options.collect() })
    }

    /// Lists of the distribution's newest release, fetched anew and kept in `directory`.
    pub fn of_newest(directory: &Path) -> anyhow::Result<Self> {
        Self::of_suite(directory, |_| NEWEST.to_owned())
    }

    /// The same of newer packages for the installed release.
    pub fn of_backports(directory: &Path) -> anyhow::Result<Self> {
        Self::of_suite(directory, |installed| format!("{installed}-backports"))
    }

    /// `apt-get indextargets` says where what is installed comes from; the mirror stays, and the
    /// name of the suite is another. The keys are those of the distribution's archive.
    fn of_suite(directory: &Path, wanted: impl Fn(&str) -> String) -> anyhow::Result<Self> {
        let os_release = fs::read_to_string("/etc/os-release").context("/etc/os-release")?;
        let installed = value_of(&os_release, "VERSION_CODENAME");
        let installed = installed.context("/etc/os-release: no VERSION_CODENAME")?;
        let mut targets = shell::command(&["apt-get", "indextargets", "--format", TARGET]);
        let source = source_of(&shell::output(&mut targets)?, installed, &wanted(installed));
        let mut source = source.with_context(|| format!("apt has no source of {installed}"))?;
        let distribution = value_of(&os_release, "ID").unwrap_or_default();
        let keys = format!("/usr/share/keyrings/{distribution}-archive-keyring.gpg");
        if Path::new(&keys).is_file() {
            source.push_str(&format!("Signed-By: {keys}\n"));
        }
        let apt = Self::apart(directory, &source)?;
        let mut update = apt.command("apt-get", "update");
        shell::output(update.args(["-q", "-o", "APT::Update::Error-Mode=any"]))?;
        Ok(apt)
    }

    pub fn kernel_of(&self, meta_package: &str) -> anyhow::Result<String> {
        let mut depends = self.command("apt-cache", "depends");
        let depends = shell::output(depends.arg(meta_package))?;
        let package = concrete_package(&depends, meta_package).map(str::to_string);
        package.with_context(|| format!("{meta_package}: depends on no kernel: {depends}"))
    }

    /// A package and what it depends on and is not there: with lists apart, all of that. Packages
    /// of the same source are not there, whether they are installed or not.
    pub fn with_dependencies(&self, package: &str) -> anyhow::Result<Vec<String>> {
        let status = tempfile::NamedTempFile::new()?;
        let mut simulate = self.command("apt-get", "install");
        if self.options.is_empty() {
            let shown = shell::output(self.command("apt-cache", "show").arg(package))?;
            let installed = fs::read_to_string(STATUS).context(STATUS)?;
            fs::write(status.path(), without_source(&installed, source(&shown)))?;
            simulate.arg("-o").arg(format!("Dir::State::status={}", status.path().display()));
        }
        // Installed packages may need one that is left out of the list.
        simulate.args(["-q", "--simulate", "--no-install-recommends", "--fix-broken", package]);
        let packages = installed_packages(&shell::output(&mut simulate)?);
        ensure!(!packages.is_empty(), "{package}: nothing would be installed");
        Ok(packages)
    }

    /// Downloads packages and unpacks them where they can be changed before they are moved.
    pub fn unpacked(&self, packages: &[String], directory: &Path) -> anyhow::Result<Unpacked> {
        let parent = directory.parent().unwrap_or(directory);
        fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        let downloads = tempfile::tempdir_in(parent)?;
        let mut download = self.command("apt-get", "download");
        shell::output(download.arg("-q").args(packages).current_dir(downloads.path()))?;
        let root = downloads.path().join("unpacked");
        let mut names = String::new();
        for archive in fs::read_dir(downloads.path())?.flatten() {
            let mut unpack = shell::command(&["dpkg-deb", "-x"]);
            shell::run(unpack.arg(archive.path()).arg(&root))?;
            names += &format!("{}\n", archive.file_name().display());
        }
        // With their versions, for reports.
        fs::write(root.join("packages"), names)?;
        Ok(Unpacked { root, _downloads: downloads })
    }

    fn command(&self, program: &str, verb: &str) -> Command {
        let mut command = shell::command(&[program, verb]);
        command.args(&self.options);
        command
    }
}

/// Files of packages, in a place that goes away.
#[derive(Debug)]
pub struct Unpacked {
    pub root: PathBuf,
    _downloads: tempfile::TempDir,
}

impl Unpacked {
    /// Moves them to `directory`, or adds them to what is there.
    pub fn move_to(self, directory: &Path) -> anyhow::Result<()> {
        if directory.exists() {
            let mut copy = shell::command(&["cp", "-a", "-T"]);
            return shell::run(copy.arg(&self.root).arg(directory));
        }
        fs::rename(&self.root, directory).with_context(|| directory.display().to_string())
    }
}

/// The kernel package in what `apt-cache depends` prints.
fn concrete_package<'a>(depends: &'a str, meta_package: &str) -> Option<&'a str> {
    let packages = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    packages.into_iter().find(|name| name.starts_with("linux-image-") && *name != meta_package)
}

/// The source of a package, in a description of it.
fn source(description: &str) -> &str {
    let named = |field| description.lines().find_map(|line| line.strip_prefix(field));
    let source = named("Source: ").or_else(|| named("Package: "));
    source.and_then(|source| source.split(' ').next()).unwrap_or_default()
}

/// Descriptions of packages, without those of this source.
fn without_source(descriptions: &str, source: &str) -> String {
    let all = descriptions.split("\n\n").filter(|text| self::source(text) != source);
    all.map(|text| format!("{}\n\n", text.trim_end())).collect()
}

/// The packages in what `apt-get install --simulate` prints, without those that are there in an
/// older version: `Inst NAME [OLD] (NEW …)`.
fn installed_packages(simulation: &str) -> Vec<String> {
    let lines = simulation.lines().filter_map(|line| line.strip_prefix("Inst "));
    let names =
        lines.filter_map(|line| line.split_once(' ').filter(|(_, rest)| rest.starts_with('(')));
    names.map(|(name, _)| name.to_string()).collect()
}

fn value_of<'a>(os_release: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = os_release.lines().filter_map(|line| line.split_once('='));
    let value = lines.find(|(known, _)| *known == name)?.1.trim().trim_matches('"');
    (!value.is_empty()).then_some(value)
}

/// A source, in the form of a `.sources` file, of the suite `wanted` where `installed` is from.
fn source_of(targets: &str, installed: &str, wanted: &str) -> Option<String> {
    let is_it = |line: &&str| line.ends_with(&format!("|{installed}|main|Packages"));
    let (uri, _) = targets.lines().find(is_it)?.split_once('|')?;
    Some(format!(
        "Types: deb\nURIs: {uri}\nSuites: {wanted}\nComponents: main\nArchitectures: amd64\n\
         Targets: Packages\nLanguages: none\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGETS: &str = "http://a/security/|one-security|main|Packages\n\
                           http://a/things/|one|main|Translations\n\
                           http://a/things/|one|contrib|Packages\n\
                           http://a/things/|one|main|Packages\n";

    #[test]
    fn the_mirror_stays_and_the_suite_changes() {
        let source = source_of(TARGETS, "one", "two").expect("a source");
        assert!(source.starts_with("Types: deb\nURIs: http://a/things/\nSuites: two\n"));
        assert_eq!(source_of(TARGETS, "three", "two"), None);
    }

    #[test]
    fn the_installed_suite_is_named() {
        let named = |text| value_of(text, "VERSION_CODENAME");
        assert_eq!(named("ID=x\nVERSION_CODENAME=one\n"), Some("one"));
        assert_eq!(named("VERSION_CODENAME=\"one\"\n"), Some("one"));
        assert_eq!(named("ID=x\nVERSION_CODENAME=\n"), None);
    }

    #[test]
    fn the_concrete_kernel_is_what_the_meta_package_depends_on() {
        const META: &str = "linux-image-cloud-amd64";
        let depends = |name: &str| format!("{META}\n  Depends: {name}\n    other\n");
        for name in ["linux-image-6.1.0-56-cloud-amd64", "linux-image-6.12.95+deb13-cloud-amd64"] {
            assert_eq!(concrete_package(&depends(name), META), Some(name));
        }
        assert_eq!(concrete_package(&depends(META), META), None);
        assert_eq!(concrete_package("linux-image-cloud-amd64\n", META), None);
    }

    #[test]
    fn dependencies_are_what_would_be_installed() {
        let simulation = "Reading package lists...\nThe following NEW packages:\n  libc6 qemu\n\
                          Inst libc6 (2.41-12 Debian:13.2/stable [amd64]) []\n\
                          Inst old [1.0] (1.1 Debian:13.2/stable [amd64])\n\
                          Inst qemu (1:10.0 Debian:13.2/stable [amd64])\nConf libc6 (2.41-12)\n";
        assert_eq!(installed_packages(simulation), ["libc6", "qemu"]);
    }

    #[test]
    fn packages_of_a_source_are_left_out() {
        let [tool, library, other] = [
            "Package: tool\nVersion: 1\n",
            "Package: libtool1\nSource: tool (1)\n",
            "Package: other\nDepends: tool\n",
        ];
        assert_eq!((source(tool), source(library)), ("tool", "tool"));
        let installed = [tool, library, other].join("\n");
        assert_eq!(without_source(&installed, "tool"), format!("{other}\n"));
    }

    #[test]
    fn lists_apart_touch_nothing_of_the_machine() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let apt = Apt::apart(directory.path(), "Types: deb\n").expect("created");
        let command = shell::show(&apt.command("apt-get", "update"));
        let here = directory.path().display();
        assert!(command.contains(&format!("Dir::State::lists={here}/lists")), "{command}");
        assert!(command.contains(&format!("Dir::Cache={here}/cache")), "{command}");
        assert!(command.contains("Dir::Etc::sourceparts=/dev/null"), "{command}");
        assert!(Apt::default().options.is_empty());
    }
}
