//! The keys there are as a JSON Schema, for editors: made of the same tables as the documentation.
//!
//! Limits: it says which keys there are and what kind of value each takes; what values mean
//! together is for `ringway check-config`.

use serde_json::{Map, Value, json};

use super::option::DEFAULT;
use super::options::OPTIONS;
use super::port::{KINDS, needs_text};
use super::settings::SETTINGS;

/// The schema of a configuration file.
pub fn schema() -> Value {
    let settings = SETTINGS.iter().map(|it| property(it.key, it.value, it.default, it.about));
    let options = OPTIONS.iter().map(|it| property(it.key, it.value, it.default, it.about));
    let kinds = KINDS.iter().map(|kind| {
        let value = if needs_text(kind) { "string" } else { "integer" };
        (kind.to_string(), json!({ "type": value, "description": "where the port leads" }))
    });
    let one_kind: Vec<Value> = KINDS.iter().map(|kind| json!({ "required": [kind] })).collect();
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "ringway.toml",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "ringway": table(settings.collect()),
            "port": {
                "type": "object",
                "description": "the ports, by name",
                "additionalProperties": { "$ref": "#/definitions/port" },
            },
        },
        "definitions": { "port": with(table(kinds.chain(options).collect()), "oneOf", one_kind) },
    })
}

fn table(properties: Map<String, Value>) -> Value {
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}

fn with(mut schema: Value, key: &str, value: impl Into<Value>) -> Value {
    schema[key] = value.into();
    schema
}

fn property(key: &str, value: &str, default: &str, about: &str) -> (String, Value) {
    let description = format!("{about} ({value}; default: {default})");
    (key.to_owned(), with(kind_of(value), "description", description))
}

/// The JSON schema of a value, from the words for people about its kind.
fn kind_of(value: &str) -> Value {
    if value == "on or off" {
        return json!({ "enum": [true, false, "on", "off", DEFAULT] });
    }
    if value.starts_with("list ") || value.contains(" list ") {
        let items = json!({ "type": ["string", "integer"] });
        return json!({ "type": ["array", "string", "integer"], "items": items });
    }
    let (words, last) = value.split_once(" or ").unwrap_or(("", value));
    let words: Vec<&str> = words.split(", ").chain([last]).collect();
    let is_word = |word: &&str| {
        !word.is_empty() && word.chars().all(|it| it.is_ascii_lowercase() || it == '_')
    };
    // `number` and `name` are no values themselves.
    let is_choice = words.len() > 1
        && words.iter().all(is_word)
        && !words.iter().any(|word| matches!(*word, "number" | "name"));
    match is_choice {
        true => json!({ "enum": words.iter().chain(&[DEFAULT]).collect::<Vec<_>>() }),
        false => json!({ "type": ["string", "integer"] }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_there_with_its_kind_of_value() {
        let schema = schema();
        let port = &schema["definitions"]["port"]["properties"];
        assert_eq!(port.as_object().expect("keys").len(), KINDS.len() + OPTIONS.len());
        let settings = &schema["properties"]["ringway"]["properties"];
        assert_eq!(settings.as_object().expect("keys").len(), SETTINGS.len());
        let choice = |key: &str| port[key]["enum"].clone();
        assert_eq!(choice("link"), json!(["up", "down", "default"]));
        assert_eq!(choice("packed"), json!([true, false, "on", "off", "default"]));
        assert_eq!(settings["poll"]["enum"], json!(["auto", "always", "never", "default"]));
        assert_eq!(settings["workers"]["type"], json!(["string", "integer"]));
        assert_eq!(port["trunk"]["type"], json!(["array", "string", "integer"]));
        assert_eq!(port["dns"]["type"], json!(["array", "string", "integer"]));
        assert_eq!(port["tap-fd"]["type"], "integer");
        assert!(port["socket_group"]["enum"].is_null() && port["mtu"]["enum"].is_null());
    }
}
