//! The configuration: one model, three ways to write it down.
//!
//! Flags ([`flags`]), a file ([`mod@file`]) and requests on the control socket ([`json`]) each
//! become the same low form, keys and values as text with the place they were written at
//! ([`LowConfig`], [`LowPort`]). That form is resolved here into what runs, with every mistake told
//! at its place.
//!
//! Limits: at most as many ports as the switch has.

mod difference;
pub mod document;
pub mod error;
pub mod file;
pub mod flags;
pub mod forward;
pub mod json;
pub mod labels;
pub mod literal;
pub mod nat;
mod option;
pub mod options;
pub mod port;
mod resolve;
pub mod resolver;
#[cfg(test)]
mod round_trip;
pub mod routers;
pub mod rules;
pub mod schema;
pub mod settings;
pub mod values;

use std::path::{Path, PathBuf};

use ringway_switch::PORTS_MAX;

pub use difference::difference;
pub use error::SpecError;
use port::Clash;
pub use port::{LowOption, LowPort, PortKind, PortSpec};
pub use settings::Settings;
use values::is_same_path;

/// A configuration as it was written down.
#[derive(Debug, Clone, Default)]
pub struct LowConfig {
    /// What is no port's.
    pub settings: Vec<LowOption>,
    /// The ports, in order.
    pub ports: Vec<LowPort>,
}

/// Everything `ringway run` needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunConfig {
    /// The ports; names, sockets, interfaces and fixed MAC addresses are unique.
    pub ports: Vec<PortSpec>,
    /// Everything else.
    pub settings: Settings,
    /// The file it comes from, to be read again on SIGHUP.
    pub file: Option<PathBuf>,
}

impl RunConfig {
    /// Checks everything by itself and against the rest; `control` is where the control socket is
    /// if nothing is said about it.
    ///
    /// # Errors
    /// Everything that is wrong, in the order written.
    pub fn resolve(low: &LowConfig, control: PathBuf) -> Result<Self, Vec<SpecError>> {
        let mut settings = Settings::new(control);
        let mut errors = settings.change(&low.settings);
        if let Some(surplus) = low.ports.get(PORTS_MAX) {
            let wrong = format!("{} ports, but a switch has {PORTS_MAX}", low.ports.len());
            errors.push(surplus.origin.wrong(wrong, "start a second ringway for the others"));
        }
        let said_none = low.settings.iter().find(|option| option.key == "no_ports");
        if let Some(option) = said_none.filter(|_| settings.no_ports && !low.ports.is_empty()) {
            let wrong =
                format!("it says that there are no ports, and there are {}", low.ports.len());
            errors.push(option.origin.wrong(wrong, "remove it, or the ports"));
        }
        let mut ports: Vec<PortSpec> = Vec::new();
        for port in low.ports.iter().take(PORTS_MAX) {
            match resolve_beside(port, ports.iter(), &settings.control) {
                Ok(spec) => ports.push(spec),
                Err(wrong) => errors.extend(wrong),
            }
        }
        match errors.is_empty() {
            true => Ok(Self { ports, settings, file: None }),
            false => Err(errors),
        }
    }

    /// Reads a file and checks it. Flags, given as `over`, count more than the file's settings;
    /// `home` is the control socket beside which sockets without a path lie, if that is another one
    /// than what the file says now.
    ///
    /// # Errors
    /// Everything that is wrong, in the order written.
    pub fn load(
        path: &Path,
        over: &[LowOption],
        (control, home): (PathBuf, Option<&Path>),
    ) -> Result<Self, Vec<SpecError>> {
        let (mut low, mut errors) = file::read(path);
        if let Some(home) = home {
            low.ports = low.ports.into_iter().map(|port| port.placed_beside(home)).collect();
        }
        low.settings.extend_from_slice(over);
        match Self::resolve(&low, control) {
            Ok(config) if errors.is_empty() => {
                Ok(Self { file: Some(path.to_path_buf()), ..config })
            }
            Ok(_) => Err(errors),
            Err(others) => {
                errors.extend(others);
                Err(errors)
            }
        }
    }
}

/// Checks a port by itself and against those there are; a socket without a path lies beside that
/// control socket.
///
/// # Errors
/// Everything that is wrong with it.
pub fn resolve_beside<'a>(
    low: &LowPort,
    mut others: impl Iterator<Item = &'a PortSpec>,
    control: &Path,
) -> Result<PortSpec, Vec<SpecError>> {
    let spec = PortSpec::resolve(&low.clone().placed_beside(control))?;
    if spec.kind.socket().is_some_and(|socket| is_same_path(socket, control)) {
        let wrong = format!("{} is the control socket", spec.kind.address());
        let advice = "choose another path here or with --control";
        return Err(vec![low.origin_of(Clash::Place).wrong(wrong, advice)]);
    }
    match others.find_map(|other| spec.conflict_with(other)) {
        Some((clash, wrong, advice)) => Err(vec![low.origin_of(clash).wrong(wrong, advice)]),
        None => Ok(spec),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(ports: &[String]) -> Result<RunConfig, Vec<SpecError>> {
        let ports: Vec<_> =
            ports.iter().filter_map(|typed| flags::parse_port(typed).ok()).collect();
        RunConfig::resolve(&LowConfig { settings: Vec::new(), ports }, "control.sock".into())
    }

    #[test]
    fn all_mistakes_are_told_at_once_and_good_ports_raise_none() {
        let ports = ["a=vm:a.sock", "b=vn:c", "a=vm:c.sock", "d=tap:tap0"].map(String::from);
        assert_eq!(resolve(&ports).expect_err("bad").len(), 2);
        let good = ["a=vm:a.sock", "d=tap:tap0"].map(String::from);
        let config = resolve(&good).expect("good");
        assert_eq!(config.ports.len(), 2);
        assert_eq!(config.settings, Settings::new("control.sock".into()));
    }

    #[test]
    fn no_more_ports_than_the_switch_has() {
        let many = |count| -> Vec<String> {
            (0..count).map(|number| format!("p{number}=vm:{number}.sock")).collect()
        };
        assert!(resolve(&many(PORTS_MAX)).is_ok());
        assert!(resolve(&many(PORTS_MAX + 1)).is_err());
    }
}
