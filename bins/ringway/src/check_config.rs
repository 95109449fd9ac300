//! `ringway check-config`: whether a file is fine, without opening anything it names.
//!
//! Limits: what depends on the machine (whether a directory exists, a tap may be opened) shows only
//! when it runs.

use std::collections::BTreeSet;

use serde_json::json;

use crate::args::CheckConfigArgs;
use crate::config::error::no_port;
use crate::config::routers::second_router;
use crate::config::{RunConfig, SpecError, document, json, schema};
use crate::identity::Identity;
use crate::{outcome, places, units};

/// Checks a file and says that it is fine; the outer error is that it is not, the inner one that
/// this could not be printed.
///
/// # Errors
/// Everything that is wrong with it.
pub fn check_config(args: &CheckConfigArgs) -> Result<anyhow::Result<()>, Vec<SpecError>> {
    let text = match &args.file {
        None if args.schema => schema::schema().to_string() + "\n",
        None => document::tables(),
        Some(file) => {
            let config = RunConfig::load(file, &[], places::control_socket(), None)?;
            match args.json {
                true => report(&config),
                false => fine(&file.display().to_string(), &config),
            }
        }
    };
    Ok(outcome::print(&text))
}

fn fine(shown: &str, config: &RunConfig) -> String {
    let ports = units::counted(config.ports.len() as u64, "port");
    let refused = match config.ports.is_empty() && !config.settings.no_ports {
        true => " (on SIGHUP it is refused where there were some: see no_ports)",
        false => "",
    };
    let warnings = warnings(config);
    let warnings = warnings.iter().map(|warning| format!("{shown}: warning: {warning}\n"));
    format!("{shown}: fine, {ports}{refused}\n") + &warnings.collect::<String>()
}

/// Warnings about what is probably not meant.
fn warnings(config: &RunConfig) -> Vec<String> {
    let names: Vec<&str> = config.ports.iter().map(|port| port.name.as_str()).collect();
    let lost = config.ports.iter().filter_map(|port| port.nat.lost_forward(&names));
    let shared = Identity::here(&config.settings.control).shared_macs(config);
    let before = |at: usize| config.ports[..at].iter();
    let routers = config.ports.iter().enumerate();
    let routers = routers.filter_map(|(at, port)| second_router(port, before(at)));
    let mirrors = config.ports.iter().filter_map(|port| port.mirror.as_deref());
    let absent = mirrors.filter(|name| !names.contains(name));
    let absent = absent.map(|name| format!("mirror={name}: {}", no_port(name, names.clone())));
    let forwards = second_forwards(config);
    shared.into_iter().chain(routers).chain(lost).chain(absent).chain(forwards).collect()
}

/// Forwards that listen where one before them does.
fn second_forwards(config: &RunConfig) -> impl Iterator<Item = String> {
    let mut places = BTreeSet::new();
    let forwards = config.ports.iter().flat_map(|port| &port.nat.forwards);
    let second = forwards.filter(move |spec| {
        let mut all = spec.forwards().into_iter();
        !all.all(|it| places.insert(format!("{:?} {}", it.protocol, it.at)))
    });
    second.map(|spec| format!("forward={}: one before it listens there already", spec))
}

fn report(config: &RunConfig) -> String {
    let ports: Vec<_> = config.ports.iter().map(json::write_port).collect();
    let settings = &config.settings;
    let group = settings.control_group.as_ref().map(|group| group.name.as_str());
    let settings = json!({
        "control": settings.control,
        "control_mode": format!("{:04o}", settings.file_mode()),
        "control_group": group,
        "snoop_multicast": settings.snoop_multicast,
    });
    let warnings = warnings(config);
    let mut report = json!({ "ringway": settings, "ports": ports });
    if !warnings.is_empty() {
        report["warnings"] = warnings.into();
    }
    report.to_string() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{LowConfig, flags};

    fn said(typed: &[&str]) -> Vec<String> {
        let ports = typed.iter().map(|typed| flags::parse_port(typed).expect("a port")).collect();
        let low = LowConfig { settings: vec![], ports };
        warnings(&RunConfig::resolve(&low, "control.sock".into()).expect("a configuration"))
    }

    #[test]
    fn copies_that_go_nowhere_are_warned_of() {
        let why = "mirror=nowhere: there is no port called \"nowhere\": use one of a b c";
        assert_eq!(said(&["a=vm:a,mirror=b", "b=vm:b", "c=vm:c,mirror=nowhere"]), [why]);
    }

    #[test]
    fn a_forward_that_can_never_listen_is_warned_of() {
        let forwards = "tcp:8080:a:80+udp:8080:a:80+tcp:8090:a:80+tcp:127.0.0.1:8079-8080:a:81";
        let why = "forward=tcp:127.0.0.1:8079-8080:a:81: one before it listens there already";
        assert_eq!(said(&["a=vm:a", &format!("net=nat:,forward={forwards}")]), [why]);
    }
}
