//! Log settings in the environment: `RINGWAY_LOG` is the filter, `NO_COLOR` turns colours off.
//!
//! How: `RINGWAY_LOG` is a level, or several levels of single crates separated by commas:
//! `warn,ringway_host=debug`. A word that is neither is an error, where the library would take it
//! for the name of a crate and log nothing.

use std::ffi::OsString;
use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::SpecError;
use crate::config::error::nearest;

/// Names what to log, as in `RINGWAY_LOG=debug`.
pub const LOG_VARIABLE: &str = "RINGWAY_LOG";

/// Turns colours off with any value but the empty one (<https://no-color.org>).
const NO_COLOR_VARIABLE: &str = "NO_COLOR";

/// The filter without the variable.
const DEFAULT: &str = "info";

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The filter that the environment names.
///
/// # Errors
/// The variable names something else than levels.
pub fn from_environment() -> Result<EnvFilter, SpecError> {
    let value = std::env::var_os(LOG_VARIABLE).filter(|value| !value.is_empty());
    let text = value.map_or(Ok(DEFAULT.to_string()), OsString::into_string);
    let shown = |text: &str| format!("{LOG_VARIABLE}={text}");
    let no_text = |value: OsString| wrong(&shown(&value.to_string_lossy()), "is not text", None);
    let text = text.map_err(no_text)?;
    read(&shown(&text), &text)
}

/// The filter of a text that was typed so.
///
/// # Errors
/// It names something else than levels.
pub fn read(typed: &str, text: &str) -> Result<EnvFilter, SpecError> {
    check(typed, text)?;
    EnvFilter::try_new(text).map_err(|why| wrong(typed, &why.to_string(), None))
}

/// Whether lines of the log are coloured: on a terminal, unless that is not wanted.
pub fn is_coloured() -> bool {
    let is_refused = std::env::var_os(NO_COLOR_VARIABLE).is_some_and(|value| !value.is_empty());
    !is_refused && std::io::stderr().is_terminal()
}

fn check(typed: &str, text: &str) -> Result<(), SpecError> {
    for part in text.split(',') {
        let level = part.rsplit_once('=').map_or(part, |(_, level)| level).trim();
        if !LEVELS.iter().any(|known| known.eq_ignore_ascii_case(level)) {
            let hint = nearest(&level.to_lowercase(), LEVELS);
            return Err(wrong(typed, &format!("{level:?} is not a level"), hint));
        }
    }
    Ok(())
}

fn wrong(typed: &str, why: &str, hint: Option<&str>) -> SpecError {
    let advice = match hint {
        Some(word) => format!("did you mean {word}?"),
        None => format!("write one of {}", LEVELS.join(" ")),
    };
    SpecError::new(typed, why, advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_alone_and_of_crates_are_known_and_nothing_else() {
        for text in ["info", "WARN", "off", "warn,ringway_host=debug", "ringway::daemon=trace"] {
            assert_eq!(check("", text), Ok(()), "{text}");
        }
        for text in ["bogus", "ringway_host", "warn,", "ringway_host=loud", ""] {
            assert!(check("", text).is_err(), "{text}");
        }
        let error = check("RINGWAY_LOG=inof", "inof").expect_err("no level").to_string();
        assert_eq!(error, "RINGWAY_LOG=inof: \"inof\" is not a level: did you mean info?");
    }
}
