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
mod fields;
pub mod file;
pub mod flags;
pub mod forward;
pub mod json;
mod kind;
pub mod labels;
pub mod literal;
pub mod nat;
mod option;
pub mod options;
pub mod port;
pub mod reload;
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
use values::{SOCKET_PATH_LEN_MAX, is_same_path};

/// A configuration as it was written down.
#[derive(Debug, Clone, Default)]
pub struct LowConfig {
    /// The settings that belong to no port.
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
        let mut settings = Settings::new(control.clone());
        let mut errors = settings.change(&low.settings);
        if let Some(surplus) = low.ports.get(PORTS_MAX) {
            let wrong = format!("{} ports, but a switch has {PORTS_MAX}", low.ports.len());
            errors.push(surplus.origin.wrong(wrong, "start a second ringway for the others"));
        }
        if settings.control == control
            && let Some(error) = too_long(&control)
        {
            // Sockets of ports beside it would be too long, too.
            return Err(vec![error]);
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
        control: PathBuf,
        home: Option<&Path>,
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

/// The complaint about a control socket at its usual place, if that path is too long.
fn too_long(control: &Path) -> Option<SpecError> {
    let len = control.as_os_str().len();
    (len > SOCKET_PATH_LEN_MAX).then(|| {
        let wrong = format!(
            "the path of the control socket has {len} bytes, and a socket's has at most \
             {SOCKET_PATH_LEN_MAX}"
        );
        let advice = "choose a shorter $XDG_RUNTIME_DIR, or a place with --control";
        SpecError::new(&control.display().to_string(), wrong, advice)
    })
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
    fn a_default_place_that_is_too_long_is_told_once_with_how_long_it_may_be() {
        let port = flags::parse_port("a=vm:").expect("a port");
        let control = PathBuf::from(format!("/{}/ringway.sock", "x".repeat(120)));
        let low = LowConfig { settings: Vec::new(), ports: vec![port] };
        let errors = RunConfig::resolve(&low, control.clone()).expect_err("it is too long");
        let said: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let right = format!(
            "{}: the path of the control socket has 134 bytes, and a socket's has at most 107: \
             choose a shorter $XDG_RUNTIME_DIR, or a place with --control",
            control.display()
        );
        assert_eq!(said, [right]);
        let named = settings::flag("control", "/run/c.sock");
        let low = LowConfig { settings: vec![named], ..low };
        let config = RunConfig::resolve(&low, control).expect("another place");
        assert_eq!(config.ports[0].kind.address(), "/run/c/a.sock");
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
