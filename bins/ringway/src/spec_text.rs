//! Ports and settings as the supervisor tells them to the data plane: JSON, with the keys of the
//! file.
//!
//! The supervisor settles before what only it can know or do: the guest's MAC address is always
//! told, so are the networks and resolvers of a router, and who may open a socket is left out.

use ringway_nat::Prefix6;
use ringway_net::PollOptions;
use ringway_net::TapCalls;
use ringway_supervisor::wire::{Bytes, SETTINGS_LEN_MAX, SPEC_LEN_MAX};
use serde_json::{Map, Value};

use crate::config::settings::flag;
use crate::config::{LowOption, PortKind, PortSpec, RunConfig, Settings, json};
use crate::identity::Identity;
use crate::resolvers;

/// The settings that a data plane goes by, beside the number of its workers.
const PLANE: [&str; 8] = [
    "pin",
    "poll",
    "poll_budget",
    "tap_writes",
    "tap_reads",
    "snoop_multicast",
    "fdb_age",
    "sandbox",
];

/// No key of the file: some port is a router.
const ROUTERS: &str = "routers";

/// The settings of the data plane as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaneSettings {
    pub workers: u16,
    pub pins: Vec<u16>,
    pub poll: PollOptions,
    pub tap_writes: TapCalls,
    pub tap_reads: TapCalls,
    pub snoop_multicast: bool,
    pub fdb_age_s: u16,
    pub sandbox: bool,
    /// Whether it may open sockets for the guests of routers.
    pub routers: bool,
}

/// A port for the data plane; `tap`: the name of its interface.
///
/// # Errors
/// Its options are too many.
pub fn port(
    spec: &PortSpec,
    tap: Option<&str>,
    identity: &Identity,
) -> anyhow::Result<Bytes<SPEC_LEN_MAX>> {
    let mut told = spec.clone();
    if let Some(name) = tap {
        told.kind = PortKind::Tap { name: name.to_owned() };
    }
    if spec.kind.is_guest() {
        told.mac = Some(identity.mac_of(spec));
    }
    if spec.kind == PortKind::Nat {
        let local6 = Prefix6::local(identity.number_of(&spec.name));
        told.nat = spec.nat.told(
            identity.network_of(&spec.name),
            local6,
            || resolvers::of_this_machine().resolvers,
            resolvers::interface,
        );
    }
    (told.socket_mode, told.socket_user, told.socket_group) = (None, None, None);
    let text = Value::Object(json::write_port(&told)).to_string();
    Bytes::new(text.into_bytes())
        .ok_or_else(|| anyhow::anyhow!("its options have more than {SPEC_LEN_MAX} bytes"))
}

/// The port of that text. `None`: it is none.
pub fn read_port(text: Bytes<SPEC_LEN_MAX>) -> Option<PortSpec> {
    let object: Map<String, Value> = serde_json::from_slice(&text.into_inner()).ok()?;
    PortSpec::resolve(&json::read_port(&object).ok()?).ok()
}

/// As many workers as asked for; by itself one for each pair that some port may have, as far as
/// there are processors.
pub fn workers(config: &RunConfig) -> u16 {
    config.settings.workers.unwrap_or_else(|| {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let pairs = config.ports.iter().map(|port| port.queues).max().unwrap_or(1);
        pairs.min(u16::try_from(processors).unwrap_or(u16::MAX))
    })
}

/// The settings that matter to the data plane.
pub fn settings(settings: &Settings, workers: u16, routers: bool) -> Bytes<SETTINGS_LEN_MAX> {
    let told = settings.written().into_iter().filter(|(key, _)| PLANE.contains(key));
    let mut text: Map<String, Value> = told.map(|(key, to)| (key.into(), to.into())).collect();
    text.insert("workers".into(), workers.to_string().into());
    text.insert(ROUTERS.into(), if routers { "on" } else { "off" }.into());
    // As many processors as there can be have fewer bytes.
    Bytes::new(Value::Object(text).to_string().into_bytes()).unwrap_or_default()
}

/// The settings of that text. `None`: they are none.
pub fn read_settings(text: Bytes<SETTINGS_LEN_MAX>) -> Option<PlaneSettings> {
    let mut object: Map<String, Value> = serde_json::from_slice(&text.into_inner()).ok()?;
    let routers = object.remove(ROUTERS)? == "on";
    let texts = object.iter().map(|(key, value)| Some(flag(key, value.as_str()?)));
    let options: Vec<LowOption> = texts.collect::<Option<_>>()?;
    let mut settings = Settings::new("none".into());
    if !settings.change(&options).is_empty() {
        return None;
    }
    Some(PlaneSettings {
        workers: settings.workers?,
        pins: settings.pins,
        poll: settings.poll,
        tap_writes: settings.tap_writes,
        tap_reads: settings.tap_reads,
        snoop_multicast: settings.snoop_multicast,
        fdb_age_s: settings.fdb_age,
        sandbox: settings.sandbox,
        routers,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::flags;

    fn spec(typed: &str) -> PortSpec {
        PortSpec::resolve(&flags::parse_port(typed).expect("a port")).expect("a port")
    }

    #[test]
    fn a_port_arrives_with_its_address_and_without_its_sockets_owner() {
        let identity = Identity::here("control.sock".as_ref());
        let typed = "v=vm:/run/v.sock,mtu=9000,packed=off,queues=2,link=down";
        let sent = spec(&format!("{typed},socket_user=0,socket_mode=0660"));
        let told = read_port(port(&sent, None, &identity).expect("short")).expect("a port");
        let mac = Some(identity.mac_of(&sent));
        assert_eq!(told, PortSpec { mac, ..spec(typed) });
        let tap = spec("up=tap:tap0,mtu=1400");
        assert_eq!(read_port(port(&tap, Some("tap0"), &identity).expect("short")), Some(tap));
    }

    #[test]
    fn settings_arrive() {
        for typed in ["poll=never", "pin=0,1", "tap_writes=io_uring", "poll_budget=7%"] {
            let (key, value) = typed.split_once('=').expect("a setting");
            let mut sent = Settings::new("c".into());
            assert_eq!(sent.change(&[flag(key, value)]), []);
            let told = read_settings(settings(&sent, 3, true)).expect("settings");
            assert_eq!((told.workers, told.poll, told.pins), (3, sent.poll, sent.pins), "{typed}");
            assert_eq!((told.tap_writes, told.tap_reads), (sent.tap_writes, sent.tap_reads));
        }
    }
}
