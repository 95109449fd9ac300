//! The part of `ringway run --help` about ports and their options, from the table of options.

use crate::config::options::OPTIONS;

const KINDS_HELP: &str = "\
Kinds of ports:
  vm:SOCKET          listen on this vhost-user socket; a virtual machine connects; without a
                     path: ringway/NAME.sock where the control socket is by default
  vm-connect:SOCKET  connect to this vhost-user socket, and keep trying
  tap:IFNAME         a tap of the host: used if it exists, otherwise created
  tap-fd:NUMBER      an open tap that was passed in as this file descriptor
  nat:               a router to what this machine reaches: addresses, names and the internet for
                     all guests, through ordinary sockets and without root

Options, after the port and separated by commas (write ,, for a comma in a path):
";

const RUN_HELP_END: &str = "
Example:
  ringway run --port vm0=vm: --port vm1=vm:/run/vm1.sock,packed=off --port up=tap:tap0
  ringway run --port vm0=vm: --port vm1=vm: --port net=nat:

With --config, the ports are in a file; on SIGHUP it is read again and what has changed is carried
out. The environment variable RINGWAY_LOG says what to log: error, warn, info, debug or trace.";

/// Characters of a line of help.
pub const WIDTH: usize = 100;

/// Characters in front of a line's second column.
const COLUMN: usize = 28;

/// The text after the flags of `ringway run --help`.
pub fn run_help() -> String {
    let mut text = String::from(KINDS_HELP);
    for option in OPTIONS {
        let key = format!("{}={}", option.key, option.value.to_uppercase());
        text.push_str(&row(&key, &format!("{} (default: {})", option.about, option.default)));
    }
    text + RUN_HELP_END
}

/// An option, and its description beside it in a column of its own.
fn row(key: &str, about: &str) -> String {
    let mut lines = vec![format!("  {key:<COLUMN$}")];
    if key.len() > COLUMN {
        lines.push(" ".repeat(COLUMN + 2));
    }
    for word in about.split(' ') {
        if lines.last().is_some_and(|line| line.len() + 1 + word.len() > WIDTH) {
            lines.push(" ".repeat(COLUMN + 2));
        }
        if let Some(line) = lines.last_mut() {
            line.push(' ');
            line.push_str(word);
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_every_option_of_a_port() {
        for key in crate::config::options::keys() {
            assert!(run_help().contains(&format!("  {key}=")), "{key}");
        }
    }
}
