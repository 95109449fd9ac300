//! Where another suite of this machine's distribution is to be had: where its own is.
//!
//! How: `apt-get indextargets` says where what is installed comes from; the mirror stays, and the
//! name of the suite is another. The keys are those of the distribution's archive.
//!
//! Limits: the component `main`; the first mirror that apt names.

use std::path::Path;

use ringway_guests::shell;

/// What is asked for: a mirror, a suite and a component.
const FORMAT: &str = "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(CREATED_BY)";

/// A value of `/etc/os-release`.
pub fn value_of<'a>(os_release: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = os_release.lines().filter_map(|line| line.split_once('='));
    let value = lines.find(|(known, _)| *known == name)?.1.trim().trim_matches('"');
    (!value.is_empty()).then_some(value)
}

/// The keys of a distribution's archive, where they are installed.
pub fn keys(distribution: &str) -> Option<String> {
    let file = format!("/usr/share/keyrings/{distribution}-archive-keyring.gpg");
    Path::new(&file).is_file().then_some(file)
}

/// What apt has on this machine.
pub fn targets() -> anyhow::Result<String> {
    let mut targets = shell::command(&["apt-get", "indextargets", "--format", FORMAT]);
    shell::output(&mut targets)
}

/// A source, in the form of a `.sources` file, of the suite `wanted` where `installed` is from.
pub fn source_of(targets: &str, installed: &str, wanted: &str) -> Option<String> {
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
}
