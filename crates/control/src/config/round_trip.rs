//! Any port, written as a flag, in a file and in a request, is read back as the same port.

use proptest::prelude::*;
use ringway_net::{Features, MacAddress};

use super::error::Origin;
use super::nat::NatSpec;
use super::options::{DEFAULT, OPTIONS};
use super::port::{PortKind, PortSpec};
use super::values::Account;
use super::{file, flags, json, rules};

fn kind() -> impl Strategy<Value = PortKind> {
    // Characters that mean something in one syntax or another, and some that do not.
    let path = "[a-z/][-a-z0-9,=.:+\"'\\\\# \\[\\]äß]{0,40}";
    prop_oneof![
        path.prop_map(|path| PortKind::Vm { socket: path.into() }),
        path.prop_map(|path| PortKind::VmConnect { socket: path.into() }),
        "[a-z][-a-z0-9_.,=+\"']{0,14}".prop_map(|name| PortKind::Tap { name }),
        (3..1000i32).prop_map(|fd| PortKind::TapFd { fd }),
        Just(PortKind::Nat),
    ]
}

fn nat() -> impl Strategy<Value = NatSpec> {
    let text = prop_oneof![
        Just(""),
        Just(",range=10.9.0.0/16+fd12::/64,dns=off"),
        Just(",host=10.0.2.2,domain=lab.internal+b"),
        Just(",range=fd12::/64,dns=10.0.0.1+::1"),
        Just(",forward=tcp:8080:vm0:80+tcp:*:22-23:vm1:22+tcp:[::1]:9:a:9"),
    ];
    text.prop_map(|options| {
        let low = flags::parse_port(&format!("n=nat:{options}")).expect("a port");
        PortSpec::resolve(&low).expect("options of a router").nat
    })
}

prop_compose! {
    fn spec()(
        name in "[-a-zA-Z0-9_.]{1,32}",
        kind in kind(),
        mac in proptest::option::of(any::<[u8; 5]>()),
        mtu in proptest::option::of(68..=u16::MAX),
        is_link_up in any::<bool>(),
        off in any::<u64>(),
        rules in rules::any(),
        queues in 1..=64u16,
        announces in any::<bool>(),
        auto in any::<bool>(),
        labels in proptest::collection::btree_map("[a-z./]{1,9}", "[-A-Z0-9:@_]{0,9}", 0..4),
        mode in proptest::option::of(0..=0o777u32),
        user in proptest::option::of(0..1000u32),
        group in proptest::option::of(0..1000u32),
        nat in nat(),
    ) -> PortSpec {
        let keyed: Features = OPTIONS.iter().filter_map(|option| option.feature()).collect();
        let mtu = mtu.map(|mtu| if kind == PortKind::Nat { mtu.max(1280) } else { mtu });
        let nat = if kind == PortKind::Nat { nat } else { NatSpec::default() };
        let mirror = Some(if name == "mon" { "other" } else { "mon" }.to_owned());
        let plain = PortSpec { nat, mtu, is_link_up, rules, ..PortSpec::new(&name, kind) };
        let plain = PortSpec { mirror, labels, offloads: off & 1 == 0, ..plain };
        let is_listening = matches!(plain.kind, PortKind::Vm { .. });
        let account = |id: u32| Account { name: id.to_string(), id };
        match plain.kind.is_guest() {
            false if plain.kind.is_tap() => PortSpec {
                syncs_fdb: !announces,
                syncs_neighbours: off & 2 == 0,
                ..plain
            },
            false => plain,
            true => PortSpec {
                mac: mac.map(|[a, b, c, d, e]| MacAddress([0x52, a, b, c, d, e])),
                features_off: (Features::from_bits_retain(off) & keyed) - Features::ON_REQUEST,
                // They need the controlq.
                features_on: match Features::from_bits_retain(off).contains(Features::CTRL_VQ) {
                    true => Features::empty(),
                    false => Features::from_bits_retain(off) & keyed & Features::ON_REQUEST,
                },
                queues,
                mtu: plain.mtu.filter(|_| !auto),
                has_mtu_of_uplinks: auto,
                announces,
                has_histograms: off & 4 == 0,
                has_device_state: off & 8 == 0,
                socket_mode: mode.filter(|_| is_listening).map(|mode| match (user, group) {
                    (None, None) => mode,
                    _ => mode | 0o660,
                }),
                socket_user: user.filter(|_| is_listening).map(account),
                socket_group: group.filter(|_| is_listening).map(account),
                ..plain
            },
        }
    }
}

/// The port as it is read back, with what was written in each syntax.
fn read_back(spec: &PortSpec) -> [(String, PortSpec); 3] {
    let typed = flags::write_port(spec);
    let of_flag = flags::parse_port(&typed).expect("a port");

    let file = file::write_port(spec);
    let (mut low, errors) = file::parse("f", &file);
    assert_eq!(errors, [], "{file}");
    let of_file = low.ports.remove(0);

    let line = serde_json::to_string(&json::write_port(spec)).expect("JSON");
    let object = serde_json::from_str(&line).expect("an object");
    let of_request = json::read_port(&object).expect("a port");

    [(typed, of_flag), (file, of_file), (line, of_request)].map(|(text, low)| {
        let read = PortSpec::resolve(&low).unwrap_or_else(|errors| panic!("{text}: {errors:?}"));
        (text, read)
    })
}

/// Of each option, at least one is a value that is no default.
const TEXTS: [&str; 17] = [
    "on",
    "off",
    "down",
    "drop",
    "sync",
    "every",
    "7",
    "1500",
    "0640",
    "52:54:00:12:34:56",
    "192.0.2.1",
    "10.9.0.0/16",
    "mon",
    "lab.internal+mon",
    "key:value+other:value",
    "tcp:8080:vm0:80+udp:53:vm0:53",
    "20-30+32",
];

/// At least one of them may have each option alone.
const PORTS: [&str; 4] = ["a=vm:/a.sock", "a=vm:/a.sock,trunk=20-30", "a=tap:tap0", "a=nat:"];

/// It names no option: one that is added is tested as soon as it has its row.
#[test]
fn every_row_is_read_and_written_in_each_syntax_and_taken_back() {
    let resolve = |typed: &str| PortSpec::resolve(&flags::parse_port(typed).expect("a port"));
    for option in OPTIONS {
        let key = option.key;
        assert!(!option.value.is_empty() && !option.about.is_empty(), "{key}");
        let mut values = 0;
        for (port, text) in PORTS.iter().flat_map(|port| TEXTS.map(|text| (port, text))) {
            let Ok(spec) = resolve(&format!("{port},{key}={text}")) else { continue };
            if option.value_of(&spec).is_none() {
                continue;
            }
            for (written, read) in read_back(&spec) {
                assert!(written.contains(key), "{key}: {written}");
                assert_eq!(read, spec, "{key}: {written}");
            }
            let mut taken_back = spec;
            assert_eq!(option.set(&mut taken_back, &Origin::flag(key), DEFAULT), Ok(()));
            assert_eq!(Ok(taken_back), resolve(port), "{key}={text}");
            values += 1;
        }
        assert!(values > 0, "{key}: none of TEXTS is a value of it: add one");
    }
}

proptest! {
    #[test]
    fn flags_files_and_requests_mean_the_same(spec in spec()) {
        for (written, read) in read_back(&spec) {
            prop_assert_eq!(&read, &spec, "{}", written);
        }
    }

    #[test]
    fn no_text_is_too_strange(text in any::<String>(), key in any::<String>()) {
        let _ = flags::parse_port(&text).map(|low| PortSpec::resolve(&low));
        let _ = file::parse("f", &text);
        let _ = file::parse("f", &format!("[port.a]\nvm = 's'\n{text}"));
        let options = flags::parse_options(&[format!("{key}={text}")]);
        let mut spec = PortSpec::new("a", PortKind::Vm { socket: "s".into() });
        for error in spec.change(&options) {
            prop_assert!(!error.to_string().contains('\n'), "one line");
        }
    }
}
