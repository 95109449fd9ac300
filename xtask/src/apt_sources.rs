//! Where another suite of this machine's distribution is to be had: where its own is.
//!
//! How: of the sources that `apt` has on this machine, the first that names the suite that is
//! installed is copied with the name of the other; the mirror and its keys stay.
//!
//! Limits: `.sources` files and one-line `.list` files; of their options only `signed-by`.

use std::fs;
use std::path::Path;

/// The release that is installed, by its code name.
pub fn installed_suite(os_release: &str) -> Option<&str> {
    let name = os_release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    let name = name.trim().trim_matches('"');
    (!name.is_empty()).then_some(name)
}

/// Every file with sources below `/etc/apt`, in order.
pub fn files(etc_apt: &Path) -> Vec<String> {
    let mut paths = vec![etc_apt.join("sources.list")];
    let entries = fs::read_dir(etc_apt.join("sources.list.d")).into_iter().flatten().flatten();
    let mut more: Vec<_> = entries.map(|entry| entry.path()).collect();
    more.sort();
    paths.extend(more);
    paths.iter().filter_map(|path| fs::read_to_string(path).ok()).collect()
}

/// A source, in the form of a `.sources` file, of the suite `wanted` where `installed` is from.
pub fn source_of(files: &[String], installed: &str, wanted: &str) -> Option<String> {
    let place = files.iter().find_map(|text| {
        let lines = text.lines().filter_map(|line| place_in_line(line, installed));
        lines.chain(stanzas(text).filter_map(|stanza| place_in_stanza(&stanza, installed))).next()
    })?;
    let keys = place.keys.map_or(String::new(), |keys| format!("Signed-By:{keys}\n"));
    Some(format!(
        "Types: deb\nURIs: {}\nSuites: {wanted}\nComponents: main\nArchitectures: amd64\n\
         Targets: Packages\nLanguages: none\n{keys}",
        place.uri
    ))
}

/// A mirror, and what follows after `Signed-By:`, maybe on several lines.
#[derive(Debug)]
struct Place {
    uri: String,
    keys: Option<String>,
}

/// `deb [signed-by=KEYS] URI SUITE COMPONENT…`
fn place_in_line(line: &str, installed: &str) -> Option<Place> {
    let rest = line.trim().strip_prefix("deb ")?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", rest),
    };
    let mut words = rest.split_whitespace();
    let (uri, suite) = (words.next()?, words.next()?);
    let has_main = words.any(|component| component == "main");
    let keys = options.split_whitespace().find_map(|option| option.strip_prefix("signed-by="));
    let keys = keys.map(|keys| format!(" {}", keys.replace(',', " ")));
    (suite == installed && has_main).then(|| Place { uri: uri.to_string(), keys })
}

/// Paragraphs of a `.sources` file, without comments.
fn stanzas(text: &str) -> impl Iterator<Item = String> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let stanzas = lines.split(|line| line.trim().is_empty()).map(|lines| lines.join("\n"));
    stanzas.collect::<Vec<_>>().into_iter()
}

fn place_in_stanza(stanza: &str, installed: &str) -> Option<Place> {
    let has = |name: &str, word: &str| {
        field(stanza, name).is_some_and(|value| value.split_whitespace().any(|one| one == word))
    };
    let is_off = has("Enabled", "no");
    let is_it = has("Types", "deb") && has("Suites", installed) && has("Components", "main");
    let uri = field(stanza, "URIs")?.split_whitespace().next()?.to_string();
    (is_it && !is_off).then(|| Place { uri, keys: field(stanza, "Signed-By") })
}

/// A field's value with the lines that continue it.
fn field(stanza: &str, name: &str) -> Option<String> {
    let mut lines = stanza.lines().skip_while(|line| value_of(line, name).is_none());
    let mut value = value_of(lines.next()?, name)?.to_string();
    for line in lines.take_while(|line| line.starts_with([' ', '\t'])) {
        value.push('\n');
        value.push_str(line);
    }
    Some(value)
}

fn value_of<'a>(line: &'a str, wanted: &str) -> Option<&'a str> {
    let (name, value) = line.split_once(':')?;
    name.eq_ignore_ascii_case(wanted).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCES: &str = "\
Types: deb
# as of some day
URIs: http://mirror.test/security
Suites: one-security
Components: main
Signed-By: /keys/other.gpg

Types: deb deb-src
URIs: http://mirror.test/things
Suites: one one-updates
Components: main contrib
Signed-By: /keys/archive.gpg
";

    fn derived(texts: &[&str]) -> Option<String> {
        let files: Vec<String> = texts.iter().map(ToString::to_string).collect();
        source_of(&files, "one", "two")
    }

    #[test]
    fn the_mirror_and_its_keys_stay() {
        let source = derived(&["", "deb http://other.test/ nodistro main\n", SOURCES]);
        let wanted = "Types: deb\nURIs: http://mirror.test/things\nSuites: two\n\
                      Components: main\nArchitectures: amd64\nTargets: Packages\n\
                      Languages: none\nSigned-By: /keys/archive.gpg\n";
        assert_eq!(source.as_deref(), Some(wanted));
    }

    #[test]
    fn one_line_sources_are_read() {
        let source = derived(&["# deb http://old.test one main\ndeb-src http://m.test one main\n\
                                 deb [arch=amd64 signed-by=/a.gpg,/b.gpg] http://m.test one main\n"]);
        let source = source.unwrap_or_default();
        assert!(source.contains("URIs: http://m.test\nSuites: two\n"), "{source}");
        assert!(source.ends_with("Signed-By: /a.gpg /b.gpg\n"), "{source}");
        let source = derived(&["deb http://m.test/ one main contrib\n"]).unwrap_or_default();
        assert!(source.contains("URIs: http://m.test/\n"), "{source}");
        assert!(!source.contains("Signed-By"), "{source}");
    }

    #[test]
    fn keys_inside_the_file_stay_whole() {
        let keys = "Signed-By:\n -----BEGIN-----\n .\n abc\n -----END-----\n";
        let text =
            format!("types: deb\nuris: http://m.test\nsuites: one\ncomponents: main\n{keys}");
        let source = derived(&[&text]).unwrap_or_default();
        assert!(source.ends_with(keys), "{source}");
    }

    #[test]
    fn what_is_switched_off_or_of_another_suite_is_no_source() {
        assert_eq!(derived(&[&format!("{SOURCES}Enabled: no\n")]), None);
        assert_eq!(derived(&["deb http://m.test three main\n", ""]), None);
        assert_eq!(derived(&["deb http://m.test one contrib\n"]), None);
    }

    #[test]
    fn the_installed_suite_is_named() {
        assert_eq!(installed_suite("ID=x\nVERSION_CODENAME=one\n"), Some("one"));
        assert_eq!(installed_suite("VERSION_CODENAME=\"one\"\n"), Some("one"));
        assert_eq!(installed_suite("ID=x\nVERSION_CODENAME=\n"), None);
    }
}
