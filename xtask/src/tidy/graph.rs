//! The crates that may depend on each other.
//!
//! How: `cargo metadata` against a table. A crate without a line in it is a violation, so that a
//! new crate is placed on purpose. Dev-dependencies are free: tests may use any crate. The table
//! itself leads from no shipped program to test code or measurements, which a test looks after.

use serde_json::Value;

/// In front of our crates' names.
const PREFIX: &str = "ringway-";

/// The crates that each crate may use: of ours, where arrows point from later lines to earlier ones
/// only, and of others. `None`: programs and test code may use what the workspace names.
const CRATES: [(&str, &str, Option<&str>); 21] = [
    ("ringway-foreign", "", Some("")),
    ("ringway-virtq", "", Some("loom")),
    ("ringway-net", "virtq", Some("bitflags")),
    ("ringway-driver", "virtq net", Some("smoltcp")),
    ("ringway-device", "virtq net", Some("")),
    ("ringway-switch", "virtq net", Some("")),
    ("ringway-nat", "net", Some("simple-dns smoltcp")),
    ("ringway-vhost-user", "foreign virtq net driver", Some("bitflags rustix thiserror")),
    ("ringway-supervisor", "vhost-user", Some("thiserror")),
    ("ringway-host", "foreign virtq net device switch nat", Some("io-uring libc rustix thiserror")),
    (
        "ringway-control",
        "net switch nat",
        Some("anyhow nix rustix serde serde_json strsim thiserror toml"),
    ),
    ("ringway-testkit", "virtq net driver device switch vhost-user host control", None),
    ("ringway-extent", "", Some("")),
    // It starts programs, and links nothing of them but what is said on the control socket.
    ("ringway-guests", "control", None),
    ("ringway-bench", "virtq net driver device switch vhost-user host testkit guests", None),
    ("ringway", "foreign virtq net device switch nat vhost-user supervisor host control", None),
    ("ringway-cni", "control", None),
    (
        "ringway-fuzz",
        "virtq net driver device vhost-user supervisor testkit switch nat host control",
        None,
    ),
    ("ringway-services", "net", None),
    ("ringway-attach", "virtq net driver vhost-user services testkit", None),
    ("xtask", "control extent guests", None),
];

/// Violations in the output of `cargo metadata --no-deps`.
pub fn complaints(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array();
    let mut complaints: Vec<String> =
        packages.into_iter().flatten().flat_map(package_complaints).collect();
    if packages.is_none_or(Vec::is_empty) {
        complaints.push("cargo metadata: no packages".to_string());
    }
    complaints
}

fn package_complaints(package: &Value) -> Vec<String> {
    let name = package["name"].as_str().unwrap_or_default();
    let Some((_, ours, others)) = CRATES.iter().find(|(known, ..)| *known == name) else {
        return vec![format!("{name}: no line for it in the table of xtask/src/tidy/graph.rs")];
    };
    let is_in = |words: &str, name: &str| words.split(' ').any(|word| word == name);
    let mut complaints = Vec::new();
    for dependency in normal_dependencies(package) {
        let is_fine = match dependency.strip_prefix(PREFIX) {
            Some(short) => is_in(ours, short),
            None => others.is_none_or(|allowed| is_in(allowed, dependency)),
        };
        if !is_fine {
            complaints.push(format!("{name}: must not depend on {dependency}"));
        }
    }
    complaints
}

fn normal_dependencies(package: &Value) -> impl Iterator<Item = &str> {
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    let normal = dependencies.filter(|dependency| dependency["kind"] != "dev");
    normal.filter_map(|dependency| dependency["name"].as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn one(name: &str, dependency: &str, kind: &Value) -> Vec<String> {
        let dependencies = json!([{ "name": dependency, "kind": kind }]);
        complaints(&json!({ "packages": [{ "name": name, "dependencies": dependencies }] }))
    }

    #[test]
    fn arrows_point_one_way() {
        assert!(one("ringway-net", "ringway-virtq", &Value::Null).is_empty());
        assert_eq!(one("ringway-virtq", "ringway-net", &Value::Null).len(), 1);
        assert_eq!(one("ringway-driver", "ringway-device", &Value::Null).len(), 1);
        assert!(one("ringway-driver", "ringway-device", &json!("dev")).is_empty());
        assert_eq!(one("ringway-host", "ringway-testkit", &Value::Null).len(), 1);
    }

    #[test]
    fn libraries_use_few_others() {
        assert_eq!(one("ringway-host", "clap", &Value::Null).len(), 1);
        assert!(one("ringway", "clap", &Value::Null).is_empty());
        assert!(one("ringway-net", "bitflags", &Value::Null).is_empty());
    }

    #[test]
    fn the_shipped_binary_has_no_test_code() {
        let mut reached = vec!["ringway"];
        let mut at = 0;
        while let Some(name) = reached.get(at) {
            let row = CRATES.iter().find(|row| row.0.trim_start_matches(PREFIX) == *name);
            let uses = row.expect("a line in the table").1.split_whitespace();
            let new: Vec<&str> = uses.filter(|used| !reached.contains(used)).collect();
            reached.extend(new);
            at += 1;
        }
        assert!(reached.contains(&"virtq"), "{reached:?}");
        assert!(!["testkit", "bench"].iter().any(|name| reached.contains(name)), "{reached:?}");
    }

    #[test]
    fn new_crates_must_be_placed() {
        assert_eq!(one("ringway-new", "ringway-virtq", &Value::Null).len(), 1);
        assert_eq!(complaints(&json!({})).len(), 1);
    }
}
