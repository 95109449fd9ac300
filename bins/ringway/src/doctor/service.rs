//! Whether workers may be pinned to processors: by this user, and by the service of the package,
//! whose unit forbids it unless a file beside the unit says otherwise.
//!
//! Limits: of systemd's search path `/etc` and `/lib` are read.

use std::fs;
use std::path::{Path, PathBuf};

use super::finding::Finding;
use super::machine::SERVICE_OF_PACKAGE;
use crate::data_plane::workers::threads::refused_pin;
use crate::places::WIDE_SERVICE;

/// The configuration file that the service reads.
const FILE_OF_SERVICE: &str = "/etc/ringway/ringway.toml";

const UNIT_OF_ADMINISTRATOR: &str = "/etc/systemd/system/ringway.service";

/// The system calls with which a thread is pinned, among others.
const CALLS: &str = "@resources";

pub fn pin(file: &Path, pins: &[u16]) -> Option<Finding> {
    const WHAT: &str = "pin";
    if pins.is_empty() {
        return None;
    }
    let is_of_service = fs::canonicalize(file).is_ok_and(|it| it == Path::new(FILE_OF_SERVICE));
    Some(match refused_pin(pins) {
        Some((found, mend)) => Finding::wrong(WHAT, found, mend),
        None if is_of_service && is_narrow(Path::new("/")) => {
            Finding::wrong(WHAT, "the unit of the service forbids it", WIDE_SERVICE)
        }
        None => Finding::fine(WHAT, "workers may be pinned"),
    })
}

/// Whether the unit forbids these calls: what is said last counts.
fn is_narrow(root: &Path) -> bool {
    let inside = |path: &str| root.join(path.trim_start_matches('/'));
    let units = [UNIT_OF_ADMINISTRATOR, SERVICE_OF_PACKAGE].map(inside);
    let beside = fs::read_dir(inside(&format!("{UNIT_OF_ADMINISTRATOR}.d")));
    let mut beside: Vec<PathBuf> =
        beside.into_iter().flatten().flatten().map(|it| it.path()).collect();
    beside.retain(|path| path.extension().is_some_and(|it| it == "conf"));
    beside.sort();
    let unit = units.iter().find_map(|path| fs::read_to_string(path).ok());
    let texts = unit.into_iter().chain(beside.iter().flat_map(fs::read_to_string));
    let text: String = texts.collect::<Vec<_>>().join("\n");
    let mut filters = text.lines().filter_map(|line| line.trim().strip_prefix("SystemCallFilter="));
    filters.rfind(|it| it.contains(CALLS)).is_some_and(|last| last.starts_with('~'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_is_narrow_until_a_file_beside_it_allows_more() {
        let root = tempfile::tempdir().expect("a directory");
        let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
        let put = |name: &str, at: &str| {
            let at = root.path().join(at.trim_start_matches('/'));
            fs::create_dir_all(at.parent().expect("a directory")).expect("made");
            fs::copy(packaging.join(name), at).expect("copied");
        };
        assert!(!is_narrow(root.path()), "there is no service");
        put("ringway.service", SERVICE_OF_PACKAGE);
        assert!(is_narrow(root.path()));
        put("strict.conf", "/etc/systemd/system/ringway.service.d/strict.conf");
        assert!(is_narrow(root.path()));
        put("wide.conf", "/etc/systemd/system/ringway.service.d/wide.conf");
        assert!(!is_narrow(root.path()));
    }
}
