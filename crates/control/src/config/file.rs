//! `ringway.toml`: the same ports and settings as on the command line, with lines to point at.
//!
//! ```toml
//! [ringway]
//! control = "/run/ringway.sock"
//!
//! [port.vm0]
//! vm = "/run/vm0.sock"
//! packed = false
//! ```
//!
//! How: the table with its spans becomes the low form that flags become too; an array is a list
//! separated by plus signs, `true` and `false` are `on` and `off`.
//!
//! Limits: a file has at most [`FILE_LEN_MAX`] bytes.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Origin, SpecError, Syntax, TYPED_CHARS_MAX};
use super::literal::Literal;
use super::options::{self, OPTIONS};
use super::port::{KINDS, LowOption, LowPort, PortSpec, needs_text};
use super::{LowConfig, settings};

/// Bytes of a file: a few hundred per port, and room for comments.
pub const FILE_LEN_MAX: u64 = 1 << 20;

/// Tables of the first level.
const TABLES: [&str; 2] = ["ringway", "port"];

/// Reads a file: what it says, and what is wrong with how it says it.
pub fn read(path: &Path) -> (LowConfig, Vec<SpecError>) {
    let shown = path.display().to_string();
    let cannot = |why: String| {
        let error = SpecError::new(&shown, why, "check the path and who may read it");
        (LowConfig::default(), vec![error])
    };
    let mut bytes = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(FILE_LEN_MAX + 1).read_to_end(&mut bytes));
    match read {
        Err(why) => cannot(format!("cannot be read: {why}")),
        Ok(len) if len as u64 > FILE_LEN_MAX => cannot(format!("longer than {FILE_LEN_MAX} bytes")),
        Ok(_) => match text_in(&shown, &bytes) {
            Ok(text) => parse(&shown, text),
            Err(error) => (LowConfig::default(), vec![error]),
        },
    }
}

/// The bytes as text: UTF-8 without zeros.
fn text_in<'a>(shown: &str, bytes: &'a [u8]) -> Result<&'a str, SpecError> {
    let at = match std::str::from_utf8(bytes) {
        Ok(text) => match text.find('\0') {
            None => return Ok(text),
            Some(at) => at,
        },
        Err(why) => why.valid_up_to(),
    };
    let line = 1 + bytes[..at].iter().filter(|byte| **byte == b'\n').count();
    let wrong = format!("byte {:#04x} is not text, so this is no configuration file", bytes[at]);
    let advice = "name a file in TOML, in UTF-8, such as docs/configuration.md shows";
    Err(SpecError::new(&format!("{shown}:{line}"), wrong, advice))
}

/// Parses the text of a file that is called `shown`.
pub fn parse(shown: &str, text: &str) -> (LowConfig, Vec<SpecError>) {
    let lines = text.split_inclusive('\n').scan(0, |end, line| {
        *end += line.len();
        Some((*end, line))
    });
    let (low, errors) = (LowConfig::default(), Vec::new());
    let mut reader = Reader { shown, lines: lines.collect(), low, errors };
    match DeTable::parse(text) {
        Ok(table) => reader.file(table.get_ref()),
        Err(why) => {
            let origin = reader.origin(why.span().map_or(0, |span| span.start));
            let wrong = why.message().trim_end().to_string();
            reader.errors.push(origin.wrong(wrong, "see https://toml.io for how it is written"));
        }
    }
    (reader.low, reader.errors)
}

/// The port as it would be written in a file.
pub fn write_port(spec: &PortSpec) -> String {
    // A dot would begin a table inside the table.
    let name = match spec.name.contains('.') {
        true => quoted(&spec.name),
        false => spec.name.clone(),
    };
    let mut text = format!("[port.{name}]\n");
    let place = super::json::place(&spec.kind);
    let _ = writeln!(text, "{} = {}", spec.kind.name(), literal(&place));
    for option in OPTIONS {
        if let Some(value) = option.value_of(spec) {
            let _ = writeln!(text, "{} = {}", option.key, literal(&value));
        }
    }
    text
}

fn literal(value: &Literal) -> String {
    match value {
        Literal::Switch(is_on) => is_on.to_string(),
        Literal::Number(number) => number.to_string(),
        Literal::List(texts) => {
            let quoted: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
            format!("[{}]", quoted.join(", "))
        }
        Literal::Text(text) => quoted(text),
    }
}

/// A basic string of TOML 1.0.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(control));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

struct Reader<'a> {
    shown: &'a str,
    /// Each with where it ends: looking for them anew for each key would take as long as the file.
    lines: Vec<(usize, &'a str)>,
    low: LowConfig,
    errors: Vec<SpecError>,
}

impl Reader<'_> {
    /// File, line, and what stands there.
    fn origin(&self, at: usize) -> Origin {
        let before = self.lines.partition_point(|(end, _)| *end <= at);
        let (line, written) = (before + 1, self.lines.get(before).map_or("", |(_, line)| line));
        // All keys may be on one long line. No more of it is shown.
        let written: String = written.trim().chars().take(TYPED_CHARS_MAX).collect();
        let typed = match written.is_empty() {
            true => format!("{}:{line}", self.shown),
            false => format!("{}:{line}: {written}", self.shown),
        };
        Origin { typed, syntax: Syntax::Toml }
    }

    fn file(&mut self, table: &DeTable<'_>) {
        for (key, value) in in_order(table) {
            let origin = self.origin(key.span().start);
            match (key.get_ref().as_ref(), value.get_ref()) {
                ("ringway", DeValue::Table(settings)) => self.settings(settings),
                ("port", DeValue::Table(ports)) => self.ports(ports),
                (known, _) if TABLES.contains(&known) => {
                    let advice = "write [ringway] and [port.NAME], and options below";
                    self.errors.push(origin.wrong(format!("{known} is not a table"), advice));
                }
                (other, _) => self.errors.push(unknown_table(&origin, other)),
            }
        }
    }

    fn settings(&mut self, table: &DeTable<'_>) {
        let keys = settings::keys();
        for (key, value) in in_order(table) {
            let origin = self.origin(key.span().start);
            match keys.contains(&key.get_ref().as_ref()) {
                true => {
                    let option = self.option(origin, key.get_ref(), value.get_ref());
                    self.low.settings.extend(option);
                }
                false => self.errors.push(origin.unknown_key("setting", key.get_ref(), &keys)),
            }
        }
    }

    fn ports(&mut self, table: &DeTable<'_>) {
        for (name, value) in in_order(table) {
            let origin = self.origin(name.span().start);
            match value.get_ref() {
                DeValue::Table(options) => self.port(origin, name.get_ref(), options),
                _ => {
                    let advice = format!("write [port.{}], and its options below", name.get_ref());
                    self.errors.push(origin.wrong("a port is a table", advice));
                }
            }
        }
    }

    fn port(&mut self, origin: Origin, name: &str, table: &DeTable<'_>) {
        let mut port =
            LowPort { origin, name: name.into(), kinds: Vec::new(), options: Vec::new() };
        for (key, value) in in_order(table) {
            let origin = self.origin(key.span().start);
            let key = key.get_ref().as_ref();
            let is_kind = KINDS.contains(&key);
            if !is_kind && options::find(key).is_none() {
                let keys: Vec<&str> = KINDS.into_iter().chain(options::keys()).collect();
                self.errors.push(origin.unknown_key("option", key, &keys));
                continue;
            }
            let value = value.get_ref();
            if needs_text(key) && !matches!(value, DeValue::String(_)) {
                let wrong = format!("{key} cannot be {}", with_article(value.type_str()));
                self.errors.push(origin.wrong(wrong, "write a string, in quotes"));
                continue;
            }
            let option = self.option(origin, key, value);
            if is_kind { port.kinds.extend(option) } else { port.options.extend(option) }
        }
        self.low.ports.push(port);
    }

    fn option(&mut self, origin: Origin, key: &str, value: &DeValue<'_>) -> Option<LowOption> {
        let Some(value) = text_of(value) else {
            let wrong = format!("{key} cannot be {}", with_article(value.type_str()));
            let advice = "write a string, a whole number, true or false, or a list of these";
            self.errors.push(origin.wrong(wrong, advice));
            return None;
        };
        Some(LowOption { origin, key: key.into(), value })
    }
}

/// The value as it would be on a command line.
fn text_of(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Boolean(is_on) => Some(Literal::Switch(*is_on).to_text()),
        DeValue::Integer(number) => match number.radix() {
            10 => Some(number.as_str().to_string()),
            8 => Some(format!("0o{}", number.as_str())),
            _ => i64::from_str_radix(number.as_str(), number.radix()).ok().map(|n| n.to_string()),
        },
        DeValue::Array(list) => {
            let texts = list.iter().map(|item| match item.get_ref() {
                DeValue::Array(_) => None,
                other => text_of(other),
            });
            Some(texts.collect::<Option<Vec<_>>>()?.join("+"))
        }
        DeValue::Float(_) | DeValue::Datetime(_) | DeValue::Table(_) => None,
    }
}

fn with_article(kind: &str) -> String {
    let article = if kind.starts_with(['a', 'i']) { "an" } else { "a" };
    format!("{article} {kind}")
}

fn unknown_table(origin: &Origin, key: &str) -> SpecError {
    if options::find(key).is_some() || KINDS.contains(&key) {
        let wrong = format!("{key} belongs to a port");
        return origin.wrong(wrong, "write [port.NAME] above it");
    }
    if settings::keys().contains(&key) {
        return origin.wrong(format!("{key} belongs to [ringway]"), "write [ringway] above it");
    }
    origin.unknown_key("table", key, &TABLES)
}

/// The entries of a table, first line first.
fn in_order<'t, 'i>(
    table: &'t DeTable<'i>,
) -> Vec<(&'t Spanned<toml::de::DeString<'i>>, &'t Spanned<DeValue<'i>>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(text: &str) -> Vec<String> {
        parse("f.toml", text).1.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_file_becomes_what_flags_become() {
        let text = "[ringway]\ncontrol = '/run/c.sock'\n\n[port.b]\nvm = \"/b.sock\"\nmtu = 9_000\n\
                    packed = false\n[port.a]\ntap-fd = 0x7 # seven\n";
        let (low, errors) = parse("f.toml", text);
        assert_eq!(errors, []);
        assert_eq!(low.settings[0].value, "/run/c.sock");
        let names: Vec<_> = low.ports.iter().map(|port| port.name.as_str()).collect();
        assert_eq!(names, ["b", "a"], "in the order of the file");
        let spec = PortSpec::resolve(&low.ports[0]).expect("a port");
        assert_eq!(super::super::flags::write_port(&spec), "b=vm:/b.sock,mtu=9000,packed=off");
        assert_eq!(low.ports[1].kinds[0].value, "7");
        assert_eq!(low.ports[0].options[1].origin.typed, "f.toml:7: packed = false");
    }

    #[test]
    fn lists_are_separated_by_plus_signs_and_do_not_nest() {
        let table = DeTable::parse("a = [1, '2-3', true]\nb = [[1]]\nc = 1.5").expect("TOML");
        let text = |key: &str| {
            let entry = table.get_ref().iter().find(|(name, _)| name.get_ref() == key);
            entry.and_then(|(_, value)| text_of(value.get_ref()))
        };
        assert_eq!(text("a").as_deref(), Some("1+2-3+on"));
        assert_eq!((text("b"), text("c")), (None, None));
    }

    #[test]
    fn mistakes_name_the_line_and_the_nearest_key() {
        let text = "[rinway]\n[port.a]\nvm = 's'\npaked = true\n[ringway]\ncontrl = 'x'\n";
        assert_eq!(
            errors(text),
            [
                "f.toml:1: [rinway]: there is no table called \"rinway\": did you mean ringway?",
                "f.toml:4: paked = true: there is no option called \"paked\": did you mean packed?",
                "f.toml:6: contrl = 'x': there is no setting called \"contrl\": \
                 did you mean control?",
            ]
        );
        assert!(errors("\n[port.a\n")[0].starts_with("f.toml:2: [port.a: "));
        assert!(errors("mtu = 1")[0].contains("write [port.NAME] above it"));
        assert!(errors("[port]\na = 1")[0].contains("a port is a table"));
        assert_eq!(
            errors("[port.a]\nvm = 5")[0],
            "f.toml:2: vm = 5: vm cannot be an integer: write a string, in quotes"
        );
    }

    /// The supervisor answers no client while it reads a file.
    #[test]
    fn the_longest_file_is_read_in_a_moment() {
        let mut text = "# nothing\n".repeat(80_000);
        (0..10_000).for_each(|at| text.push_str(&format!("[port.p{at}]\nvm=''\n")));
        let begun = std::time::Instant::now();
        let (low, errors) = parse("f.toml", &text);
        assert_eq!((low.ports.len(), errors.len()), (10_000, 0));
        assert_eq!(low.ports[9_999].kinds[0].origin.typed, "f.toml:100000: vm=''");
        // It took a minute when each key was looked for from the start.
        assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
        let ports: Vec<_> = (0..10_000).map(|at| format!("p{at}={{vm=''}}")).collect();
        let (low, errors) = parse("f.toml", &format!("port={{{}}}", ports.join(",")));
        assert_eq!((low.ports.len(), errors.len()), (10_000, 0));
        assert!(low.ports.iter().all(|port| port.origin.typed.len() < 1000), "each had the line");
    }

    #[test]
    fn a_file_that_cannot_be_read_says_so() {
        let missing = read(Path::new("/nonexistent/ringway.toml")).1;
        assert!(missing[0].to_string().starts_with("/nonexistent/ringway.toml: cannot be read"));
        assert!(!read(Path::new("/")).1.is_empty());
        assert!(!read(Path::new("/dev/zero")).1.is_empty(), "it ends");
        for bytes in [&b"[port.a]\nvm = \"\xff\"\n"[..], b"\n\x7fELF\x02\0\0"] {
            let error = text_in("f", bytes).expect_err("no text").to_string();
            assert!(error.starts_with("f:2: byte 0x") && error.contains("is not text"), "{error}");
        }
    }
}
