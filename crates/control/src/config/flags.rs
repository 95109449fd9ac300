//! Ports as on a command line: `NAME=KIND:ARG[,KEY=VALUE…]`.
//!
//! How: the text is split at single commas (two stand for one that is meant, as in QEMU), the
//! first part is the port, the others are its options.

use super::error::{Origin, SpecError};
use super::options::OPTIONS;
use super::port::{KIND_ADVICE, LowOption, LowPort, PortSpec};

/// Parses what stands after `--port`.
///
/// # Errors
/// Not a name, a kind and a place.
pub fn parse_port(typed: &str) -> Result<LowPort, SpecError> {
    let origin = Origin::flag(typed);
    let mut parts = split_at_commas(typed).into_iter();
    let port = parts.next().unwrap_or_default();
    let Some((name, rest)) = port.split_once('=') else {
        let example = "write NAME=KIND:ARG, such as vm0=vm:/run/vm0.sock";
        return Err(origin.wrong("a port needs a name and a kind", example));
    };
    super::values::check_name(&origin, name)?;
    let Some((kind, place)) = rest.split_once(':') else {
        let wrong = format!("{rest:?} is not a kind of port and its place");
        return Err(origin.wrong(wrong, KIND_ADVICE));
    };
    let kind = LowOption { origin: origin.clone(), key: kind.into(), value: place.into() };
    let options = parts.map(|part| option(&origin, &part)).collect();
    Ok(LowPort { origin, name: name.into(), kinds: vec![kind], options })
}

/// Options that stand alone, as after `ringway port set NAME`. Each may again be several,
/// separated by commas.
pub fn parse_options(typed: &[String]) -> Vec<LowOption> {
    let parts = typed.iter().flat_map(|text| split_at_commas(text));
    parts.map(|part| option(&Origin::flag(part.as_str()), &part)).collect()
}

/// The port as it would be typed.
pub fn write_port(spec: &PortSpec) -> String {
    let mut text = format!("{}={}", spec.name, spec.kind).replace(',', ",,");
    for option in OPTIONS {
        if let Some(value) = option.value_of(spec) {
            let value = value.to_text().replace(',', ",,");
            text.push_str(&format!(",{}={value}", option.key));
        }
    }
    text
}

fn option(origin: &Origin, text: &str) -> LowOption {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    LowOption { origin: origin.clone(), key: key.into(), value: value.into() }
}

/// Splits at single commas; two commas stand for one that belongs to the text.
fn split_at_commas(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(',') {
        let last = parts.len() - 1;
        parts[last].push_str(before);
        rest = match after.strip_prefix(',') {
            Some(after) => {
                parts[last].push(',');
                after
            }
            None => {
                parts.push(String::new());
                after
            }
        };
    }
    let last = parts.len() - 1;
    parts[last].push_str(rest);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_commas_and_the_equals_sign_can_be_part_of_a_path() {
        let low = parse_port("v=vm:/a,,b=c.sock,mtu=1500").expect("a port");
        assert_eq!(low.kinds[0].value, "/a,b=c.sock");
        assert_eq!((low.options[0].key.as_str(), low.options[0].value.as_str()), ("mtu", "1500"));
        assert_eq!(split_at_commas("a,,,b"), ["a,", "b"]);
        assert_eq!(split_at_commas(""), [""]);
    }
}
