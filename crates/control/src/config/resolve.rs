//! From what was written down to a checked port: every option is looked up in the table, set, and
//! held against the others.

use super::error::SpecError;
use super::options::{DEFAULT, OPTIONS, PortOption, Ports, find, keys};
use super::port::{KINDS, LowOption, LowPort, PortKind, PortSpec};
use super::values::check_name;

impl PortSpec {
    /// Checks what was written down.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn resolve(low: &LowPort) -> Result<Self, Vec<SpecError>> {
        let name = check_name(&low.origin, &low.name);
        let kind = low.kind();
        let (Ok(()), Ok(kind)) = (&name, &kind) else {
            return Err(name.err().into_iter().chain(kind.err()).collect());
        };
        let mut spec = Self::new(&low.name, kind.clone());
        let errors = spec.change(&low.options);
        if errors.is_empty() { Ok(spec) } else { Err(errors) }
    }

    /// Sets options; gives everything that is wrong with them. After an error it is half done.
    pub fn change(&mut self, options: &[LowOption]) -> Vec<SpecError> {
        let mut errors = Vec::new();
        let mut seen: Vec<&str> = Vec::new();
        for option in options {
            if seen.contains(&option.key.as_str()) {
                let wrong = format!("{} is given twice", option.key);
                errors.push(option.origin.wrong(wrong, "keep one"));
                continue;
            }
            seen.push(&option.key);
            errors.extend(self.set_option(option).err());
        }
        if errors.is_empty() {
            errors.extend(self.contradictions(options));
        }
        errors
    }

    fn set_option(&mut self, option: &LowOption) -> Result<(), SpecError> {
        let LowOption { origin, key, value } = option;
        if key.is_empty() {
            let wrong = "an option is missing after a comma";
            return Err(origin.wrong(wrong, "write KEY=VALUE, or remove the comma"));
        }
        if KINDS.contains(&key.as_str()) {
            let wrong = format!("{key} says where a port leads, which stays");
            return Err(origin.wrong(wrong, "remove the port and add it again"));
        }
        let Some(known) = find(key) else {
            return Err(origin.unknown_key("option", key, &keys()));
        };
        let wrong = match known.ports {
            Ports::Guests if !self.kind.is_guest() => {
                Some(format!("{key} belongs to guests, and a {} is none", self.kind.name()))
            }
            Ports::Listening if !matches!(self.kind, PortKind::Vm { .. } | PortKind::Nat) => {
                Some(format!("{key} belongs to vm and nat, which make sockets"))
            }
            Ports::Taps if !self.kind.is_tap() => {
                Some(format!("{key} belongs to taps, and a {} is none", self.kind.name()))
            }
            Ports::Routers if self.kind != PortKind::Nat => {
                Some(format!("{key} belongs to nat, which makes a router"))
            }
            Ports::Guests | Ports::Listening | Ports::Taps | Ports::Routers | Ports::All => None,
        };
        if let Some(wrong) = wrong {
            return Err(origin.wrong(wrong, format!("remove {}", origin.assign(key, value))));
        }
        known.set(self, origin, value)
    }

    /// Options that each are fine and together make no sense.
    fn contradictions(&self, options: &[LowOption]) -> Vec<SpecError> {
        let possible = self.features_offered().drop_unmet();
        let is_asked_for = |option: &&LowOption| option.value != DEFAULT && option.value == "on";
        let unmet = options.iter().filter(is_asked_for).filter(|option| {
            let feature = find(&option.key).and_then(PortOption::feature);
            feature.is_some_and(|feature| !possible.contains(feature))
        });
        let complain = |option: &LowOption| {
            let wrong = format!("{} needs another feature, which is off", option.key);
            let off = OPTIONS.iter().filter_map(|other| {
                let is_off = other.feature().is_some_and(|it| self.features_off.contains(it));
                is_off.then_some(other.key)
            });
            let off: Vec<&str> = off.collect();
            option.origin.wrong(wrong, format!("turn it off too, or turn on {}", off.join(" or ")))
        };
        let queues = options.iter().find(|option| option.key == "queues");
        let queues =
            queues.filter(|_| self.queues > 1 && matches!(self.kind, PortKind::TapFd { .. }));
        let queues = queues.map(|option| {
            let wrong = "a tap that is given as a file descriptor has one queue";
            option.origin.wrong(wrong, "leave queues out, or give the tap by its name")
        });
        let is_of_socket = |option: &&LowOption| option.key.starts_with("socket_");
        let locked_out = self.locked_out().zip(options.iter().rfind(is_of_socket));
        let locked_out = locked_out.map(|(wrong, option)| {
            let example = option.origin.assign("socket_mode", "0660");
            option.origin.wrong(wrong, format!("write {example}, or leave socket_mode out"))
        });
        let rules = self.rules.contradiction().zip(options.last());
        let rules = rules.map(|((wrong, advice), last)| last.origin.wrong(wrong, advice));
        let router = self.router_contradiction(options);
        unmet.map(complain).chain(queues).chain(locked_out).chain(rules).chain(router).collect()
    }

    fn router_contradiction(&self, options: &[LowOption]) -> Option<SpecError> {
        let last = options.last().filter(|_| self.kind == PortKind::Nat)?;
        let queues = options.iter().find(|option| option.key == "queues" && self.queues > 1);
        if let Some(option) = queues {
            let wrong = "a router has no queues";
            return Some(option.origin.wrong(wrong, "leave queues out"));
        }
        let (wrong, advice) = self.nat.contradiction(self.mtu)?;
        Some(last.origin.wrong(wrong, advice))
    }
}

#[cfg(test)]
mod tests {
    use ringway_net::{Features, MacAddress};

    use super::*;
    use crate::config::flags;
    use crate::config::port::SocketAccess;
    use crate::config::values::SOCKET_PATH_LEN_MAX;

    fn parse(typed: &str) -> Result<PortSpec, Vec<SpecError>> {
        let low = flags::parse_port(typed).map_err(|error| vec![error])?;
        PortSpec::resolve(&low)
    }

    fn ok(typed: &str) -> PortSpec {
        parse(typed).unwrap_or_else(|errors| panic!("{errors:?}"))
    }

    #[test]
    fn a_port_without_options_leaves_everything_open() {
        let kind = PortKind::Vm { socket: "/run/vm0.sock".into() };
        assert_eq!(ok("vm0=vm:/run/vm0.sock"), PortSpec::new("vm0", kind));
    }

    #[test]
    fn each_kind_is_shown_as_it_was_typed() {
        for kind in ["vm:/run/a.sock", "vm-connect:b.sock", "tap:tap0", "tap-fd:7", "nat:"] {
            assert_eq!(ok(&format!("p={kind}")).kind.to_string(), kind);
        }
    }

    #[test]
    fn options_are_taken_over() {
        let spec = ok("v=vm:s,mac=52:54:00:12:34:56,mtu=9000,packed=off,csum=on,host_ecn=off");
        assert_eq!(spec.mac, Some(MacAddress([0x52, 0x54, 0, 0x12, 0x34, 0x56])));
        assert_eq!(spec.mtu, Some(9000));
        assert_eq!(spec.features_off, Features::RING_PACKED | Features::HOST_ECN);
        assert_eq!(ok("t=tap:tap0,mtu=68").mtu, Some(68));
        assert!(!ok("t=tap:tap0,link=down").is_link_up);
    }

    #[test]
    fn an_option_can_be_taken_back() {
        let mut spec = ok("v=vm:s,mtu=9000,packed=off,link=down,mac=52:54:00:12:34:56");
        let back = flags::parse_options(
            &["mtu", "packed", "link", "mac"].map(|key| format!("{key}={DEFAULT}")),
        );
        assert_eq!(spec.change(&back), []);
        assert_eq!(spec, ok("v=vm:s"));
    }

    #[test]
    fn every_feature_key_turns_off_one_feature_that_is_offered() {
        let mut off = Features::empty();
        for option in OPTIONS {
            let Some(feature) = option.feature() else { continue };
            let key = option.key;
            let offered = |value: &str| ok(&format!("v=vm:s,{key}={value}")).features_offered();
            assert_eq!(offered("on") - offered("off"), feature, "{key}");
            let is_default_on = Features::OFFERED.contains(feature);
            assert_eq!(offered(DEFAULT).contains(feature), is_default_on, "{key}");
            assert!(is_default_on || Features::ON_REQUEST.contains(feature), "{key}");
            assert!(!off.intersects(feature), "{}", option.key);
            off |= feature;
        }
        assert!(!off.is_empty());
    }

    #[test]
    fn what_needs_a_feature_that_is_off_cannot_be_asked_for() {
        assert!(parse("v=vm:s,csum=off").is_ok(), "what needs it goes off with it");
        let errors = parse("v=vm:s,csum=off,host_tso4=on").expect_err("a contradiction");
        assert!(errors[0].to_string().contains("turn on csum"), "{errors:?}");
    }

    #[test]
    fn a_tap_given_as_a_descriptor_has_one_queue() {
        assert_eq!(ok("t=tap:tap0,queues=2").queues, 2);
        assert_eq!(ok("t=tap-fd:3,queues=1").queues, 1);
        let errors = parse("t=tap-fd:3,queues=2").expect_err("it has one");
        assert!(errors[0].to_string().contains("give the tap by its name"), "{errors:?}");
        let more = flags::parse_options(&["queues=2".to_string()]);
        assert_eq!(ok("t=tap-fd:3").change(&more).len(), 1);
    }

    #[test]
    fn a_group_that_is_named_may_open_the_socket_unless_that_is_forbidden() {
        let access = |typed: &str| ok(typed).socket_access();
        let group = |mode| SocketAccess { mode, user: None, group: Some(7) };
        assert_eq!(access("v=vm:s"), SocketAccess { mode: 0o600, user: None, group: None });
        assert_eq!(access("v=vm:s,socket_group=7"), group(0o660));
        assert_eq!(access("v=vm:s,socket_group=7,socket_mode=0666"), group(0o666));
        assert_eq!(access("v=vm:s,socket_user=7").user, Some(7));
        for typed in [
            "v=vm:s,socket_group=7,socket_mode=0600",
            "v=vm:s,socket_mode=0640,socket_group=7",
            "v=vm:s,socket_user=7,socket_mode=0066",
        ] {
            let errors = parse(typed).expect_err("they cannot connect");
            assert!(errors[0].to_string().contains("that it cannot open: write socket_mode=0660"));
        }
        let mut spec = ok("v=vm:s,socket_mode=0600");
        let more = flags::parse_options(&["socket_group=7".to_string()]);
        assert_eq!(spec.change(&more).len(), 1, "also later");
    }

    #[test]
    fn a_path_may_be_as_long_as_a_socket_allows_and_no_longer() {
        let longest = "x".repeat(SOCKET_PATH_LEN_MAX);
        assert!(parse(&format!("v=vm:{longest}")).is_ok());
        assert!(parse(&format!("v=vm:{longest}x")).is_err());
    }

    #[test]
    fn all_mistakes_of_a_port_are_told() {
        assert_eq!(parse("v=vm:s,mtu=1,paked=on,mtu=2").expect_err("three").len(), 3);
    }
}
