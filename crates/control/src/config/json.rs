//! Ports in requests and reports: a JSON object with the keys of the file.
//!
//! ```json
//! {"name":"vm0","vm":"/run/vm0.sock","packed":false}
//! ```

use serde_json::{Map, Value};

use super::error::{Origin, SpecError, Syntax};
use super::literal::Literal;
use super::options::{DEFAULT, OPTIONS};
use super::port::{KINDS, LowOption, LowPort, PortKind, PortSpec, needs_text};

/// The key of a port's name.
const NAME: &str = "name";

/// The port as an object: its name, its kind with the place, and everything that is no default.
pub fn write_port(spec: &PortSpec) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert(NAME.into(), spec.name.clone().into());
    object.insert(spec.kind.name().into(), value_of(place(&spec.kind)));
    for option in OPTIONS {
        if let Some(value) = option.value_of(spec) {
            object.insert(option.key.into(), value_of(value));
        }
    }
    object
}

/// Reads a port.
///
/// # Errors
/// A value is neither text nor number nor switch nor a list of these.
pub fn read_port(object: &Map<String, Value>) -> Result<LowPort, Vec<SpecError>> {
    let name = object.get(NAME).and_then(Value::as_str).unwrap_or_default().to_string();
    let mut low = LowPort {
        origin: origin(format!("port {name:?}")),
        name,
        kinds: Vec::new(),
        options: Vec::new(),
    };
    for option in read_options(object)? {
        let is_kind = KINDS.contains(&option.key.as_str());
        if is_kind { low.kinds.push(option) } else { low.options.push(option) }
    }
    Ok(low)
}

/// Reads options; the name of a port is none. `null` stands for the default.
///
/// # Errors
/// A value is neither text nor number nor switch nor a list of these.
pub fn read_options(object: &Map<String, Value>) -> Result<Vec<LowOption>, Vec<SpecError>> {
    let mut options = Vec::new();
    let mut errors = Vec::new();
    for (key, value) in object.iter().filter(|(key, _)| *key != NAME) {
        let origin = origin(format!("{key:?}: {value}"));
        if needs_text(key) && !value.is_string() {
            errors.push(origin.wrong(format!("{key} is not text"), "write a string, in quotes"));
            continue;
        }
        match text_of(value) {
            Some(value) => options.push(LowOption { origin, key: key.clone(), value }),
            None => {
                let advice = "write text, a whole number, true or false, or a list of these";
                errors.push(origin.wrong("not a value of an option", advice));
            }
        }
    }
    if errors.is_empty() { Ok(options) } else { Err(errors) }
}

/// Options as an object, for a request.
pub fn write_options(options: &[LowOption]) -> Map<String, Value> {
    let text = |option: &LowOption| (option.key.clone(), option.value.clone().into());
    options.iter().map(text).collect()
}

/// Where a port leads, as a value.
pub fn place(kind: &PortKind) -> Literal {
    match kind {
        PortKind::TapFd { fd } => Literal::Number(u64::from(fd.unsigned_abs())),
        other => Literal::Text(other.address()),
    }
}

fn origin(typed: String) -> Origin {
    Origin { typed, syntax: Syntax::Json }
}

fn value_of(literal: Literal) -> Value {
    match literal {
        Literal::Switch(is_on) => is_on.into(),
        Literal::Number(number) => number.into(),
        Literal::List(texts) => texts.into(),
        Literal::Text(text) => text.into(),
    }
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::Null => Some(DEFAULT.into()),
        Value::Bool(is_on) => Some(Literal::Switch(*is_on).to_text()),
        Value::Number(number) => number.as_u64().map(|number| number.to_string()),
        Value::String(text) => Some(text.clone()),
        Value::Array(list) => {
            let texts = list.iter().map(|item| match item {
                Value::Array(_) => None,
                other => text_of(other),
            });
            Some(texts.collect::<Option<Vec<_>>>()?.join("+"))
        }
        Value::Object(_) => None,
    }
}
