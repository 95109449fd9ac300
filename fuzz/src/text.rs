//! Text of operators and control clients: files, flags, and lines of JSON.
//!
//! How: most of an input chooses among the keys there are and among values that have meant
//! something; what is chosen is written as a file, or as a request. The rest of the input is text
//! as it is.

use serde_json::{Map, Value, json};

use crate::config::{
    LowConfig, PortKind, PortSpec, RunConfig, SpecError, file, flags, json as port_json, options,
    port, resolve_beside, settings,
};
use crate::control::{Request, StatsReply, refusal};

/// Where the control socket is.
const CONTROL: &str = "/run/c.sock";
/// Most entries of one input.
const ENTRIES_MAX: usize = 8;

/// Values that some key takes, and some that none takes.
const VALUES: [&str; 25] = [
    "on",
    "off",
    "default",
    "",
    "0",
    "1",
    "64",
    "1500",
    "65535",
    "4294967296",
    "/run/a.sock",
    "/run/c.sock",
    "tap0",
    "52:54:00:00:00:01",
    "01:00:5e:00:00:01",
    "10.0.0.1+fe80::1",
    "1-4094",
    "7+9-12",
    "adaptive",
    "timer:50us",
    "1G",
    "10M",
    "always",
    "0x1f",
    "a,b=c",
];

/// A configuration file: as it is, or made of keys and values.
pub(crate) fn config(data: &[u8]) {
    let Some((&how, rest)) = data.split_first() else { return };
    let text = match how & 3 {
        0 => String::from_utf8_lossy(rest).into_owned(),
        _ => a_file(how, rest),
    };
    let (low, errors) = file::parse("f", &text);
    all_in_one_line(&errors);
    for port in &low.ports {
        match PortSpec::resolve(port) {
            Ok(spec) => is_read_back(&spec),
            Err(errors) => all_in_one_line(&errors),
        }
    }
    match RunConfig::resolve(&low, CONTROL.into()) {
        Ok(config) => config.ports.iter().for_each(is_read_back),
        Err(errors) => all_in_one_line(&errors),
    }
    if let Ok(typed) = flags::parse_port(&text) {
        let low = LowConfig { settings: Vec::new(), ports: vec![typed] };
        let _ = RunConfig::resolve(&low, CONTROL.into());
    }
}

/// A line on the control socket, and an answer to a client.
pub(crate) fn control_json(data: &[u8]) {
    let Some((&how, rest)) = data.split_first() else { return };
    let line = match how & 3 {
        0 => String::from_utf8_lossy(rest).into_owned(),
        _ => a_request(how, rest),
    };
    let _ = serde_json::from_str::<StatsReply>(&line);
    match Request::parse(&line) {
        Ok(request) => {
            assert_eq!(Request::parse(&request.to_line()).as_ref(), Ok(&request), "{line}");
            carry_out(&request);
        }
        Err(why) => assert!(!refusal(&[why]).contains('\n'), "an answer of two lines"),
    }
}

/// The checks of the daemon on a request before it opens anything.
fn carry_out(request: &Request) {
    let there = PortSpec::new("a", PortKind::Vm { socket: "/run/a.sock".into() });
    match request {
        Request::PortAdd { port, .. } => {
            let low = port_json::read_port(port);
            let added =
                low.and_then(|low| resolve_beside(&low, [&there].into_iter(), CONTROL.as_ref()));
            match added {
                Ok(spec) => is_read_back(&spec),
                Err(errors) => all_in_one_line(&errors),
            }
        }
        Request::PortSet { options, .. } => {
            let mut changed = there.clone();
            match port_json::read_options(options) {
                Ok(options) => all_in_one_line(&changed.change(&options)),
                Err(errors) => all_in_one_line(&errors),
            }
        }
        Request::Capture(question) => drop(question.parsed_filter()),
        _ => {}
    }
}

/// Each mistake is one line of the log, and of an answer.
fn all_in_one_line(errors: &[SpecError]) {
    for error in errors {
        let text = error.to_string();
        assert!(!text.contains('\n'), "two lines: {text:?}");
    }
}

/// A port that was accepted means the same when it is written and read again.
fn is_read_back(spec: &PortSpec) {
    let written = file::write_port(spec);
    let (low, errors) = file::parse("f", &written);
    let port = low.ports.first().map(PortSpec::resolve);
    assert_eq!((port, errors), (Some(Ok(spec.clone())), Vec::new()), "{written}");
    let low = port_json::read_port(&port_json::write_port(spec));
    assert_eq!(low.and_then(|low| PortSpec::resolve(&low)), Ok(spec.clone()), "{written}");
}

/// Keys and values that the input chooses, in pairs.
fn entries(how: u8, data: &[u8]) -> impl Iterator<Item = (u8, &'static str, &'static str)> {
    let most = 1 + usize::from(how >> 2) % ENTRIES_MAX;
    let keys: Vec<&str> =
        options::keys().into_iter().chain(settings::keys()).chain(port::KINDS).collect();
    data.as_chunks().0.iter().take(most).map(move |&[how, key, value]| {
        let (key, value) = (usize::from(key) % keys.len(), usize::from(value) % VALUES.len());
        (how, keys[key], VALUES[value])
    })
}

fn a_file(how: u8, data: &[u8]) -> String {
    let mut text = String::from("[port.first]\nvm = 'vm.sock'\n");
    for (how, key, value) in entries(how, data) {
        text += &match how % 8 {
            0 => format!("[port.{key}]\nvm = '/run/{how}.sock'\n"),
            1 => format!("[port.p{how}]\ntap = 'tap{how}'\n"),
            2 => "[ringway]\n".to_string(),
            3 => format!("{key} = {value}\n"),
            4 => format!("{key} = ['{value}', {how}]\n"),
            5 => format!("{key} = {}\n", how & 8 != 0),
            _ => format!("{key} = '{value}'\n"),
        };
    }
    text
}

fn a_request(how: u8, data: &[u8]) -> String {
    let mut object: Map<String, Value> = entries(how, data)
        .map(|(how, key, value)| (key.to_string(), json_of(how, value)))
        .collect();
    object.insert("name".into(), json!("b"));
    object.insert("vm".into(), json!("/run/b.sock"));
    let command = ["port_add", "port_set", "port_add", "port_remove"][usize::from(how >> 6)];
    let line = json!({
        "version": 1, "command": command, "name": "a", "port": object, "options": object,
    });
    line.to_string()
}

fn json_of(how: u8, value: &str) -> Value {
    match how % 16 {
        0 => json!(null),
        1 => json!(how & 8 != 0),
        2 => json!(u64::from(how) << (how & 31)),
        3 => json!([value, how]),
        4 => json!({ value: how }),
        5 => json!(f64::from(how) / 3.0),
        _ => json!(value),
    }
}
