//! `ringway check-config`: whether a file is fine, without opening anything it names.
//!
//! Limits: what depends on the machine (whether a directory exists, a tap may be opened) shows only
//! when it runs.

use serde_json::json;

use crate::args::CheckConfigArgs;
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
            let config = RunConfig::load(file, &[], places::control_socket())?;
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

/// What is probably not meant.
fn warnings(config: &RunConfig) -> Vec<String> {
    let names: Vec<&str> = config.ports.iter().map(|port| port.name.as_str()).collect();
    let lost = config.ports.iter().filter_map(|port| port.nat.lost_forward(&names));
    let shared = Identity::here(&config.settings.control).shared_macs(config);
    shared.into_iter().chain(lost).collect()
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
