//! The differences of two configurations, for people.

use super::options::OPTIONS;
use super::port::PortSpec;
use super::settings::{SETTINGS, Settings};
use crate::protocol::ConfigChange;

/// The differences between the ports of a file before and now, and the settings.
pub fn difference(
    before: (&[PortSpec], &Settings),
    now: (&[PortSpec], &Settings),
) -> Vec<ConfigChange> {
    let find = |ports: &[PortSpec], name: &str| ports.iter().find(|it| it.name == name).cloned();
    let mut changes = of_settings(before.1, now.1);
    for port in before.0 {
        match find(now.0, &port.name) {
            None => changes.push(whole(&port.name, Some(port), None)),
            Some(other) if other.kind != port.kind => {
                changes.push(whole(&port.name, Some(port), Some(&other)));
            }
            Some(other) => changes.extend(of_options(port, &other)),
        }
    }
    let is_new = |port: &&PortSpec| find(before.0, &port.name).is_none();
    changes.extend(now.0.iter().filter(is_new).map(|port| whole(&port.name, None, Some(port))));
    changes
}

fn whole(name: &str, before: Option<&PortSpec>, now: Option<&PortSpec>) -> ConfigChange {
    let kind = |port: &PortSpec| port.kind.to_string();
    ConfigChange {
        port: Some(name.to_owned()),
        key: "kind".to_owned(),
        from: before.map(kind),
        to: now.map(kind),
    }
}

fn of_options(before: &PortSpec, now: &PortSpec) -> Vec<ConfigChange> {
    let changes = OPTIONS.iter().filter_map(|option| {
        let [from, to] = [before, now].map(|port| option.value_of(port).map(|it| it.to_text()));
        (from != to).then(|| ConfigChange {
            port: Some(now.name.clone()),
            key: option.key.to_owned(),
            from,
            to,
        })
    });
    changes.collect()
}

fn of_settings(before: &Settings, now: &Settings) -> Vec<ConfigChange> {
    let changes = SETTINGS.iter().filter_map(|setting| {
        let [from, to] = [before, now].map(|settings| Some(setting.value_of(settings)));
        let key = setting.key.to_owned();
        (from != to).then_some(ConfigChange { port: None, key, from, to })
    });
    changes.collect()
}
