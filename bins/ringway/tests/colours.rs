//! Lines of the log on a terminal: coloured, unless `NO_COLOR` says otherwise.

use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// The output of `ringway run` on a terminal until it is ready.
fn log_on_a_terminal(no_color: Option<&str>) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let main = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&main).expect("a terminal of one's own");
    unlockpt(&main).expect("a terminal");
    let name = ptsname(&main, Vec::new()).expect("a name");
    let terminal = open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).expect("it is there");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
    command.args(["run", "--control", "control.sock", "--port", "a=vm:a.sock"]);
    command.current_dir(&directory).env_remove("NO_COLOR").env_remove("RINGWAY_LOG");
    command.envs(no_color.map(|value| ("NO_COLOR", value)));
    let mut ringway = command.stderr(Stdio::from(terminal)).spawn().expect("it starts");
    drop(command);
    let (mut log, mut main, mut bytes) = (String::new(), File::from(main), [0; 1024]);
    // The end of the program ends the reading, too.
    while !log.contains("ready") {
        let len = main.read(&mut bytes).unwrap_or(0);
        if len == 0 {
            break;
        }
        log.push_str(&String::from_utf8_lossy(&bytes[..len]));
    }
    ringway.kill().expect("it runs");
    ringway.wait().expect("it ends");
    assert!(log.contains("ready"), "{log:?}");
    log
}

#[test]
fn no_color_leaves_colours_out() {
    const ESCAPE: char = '\u{1b}';
    assert!(log_on_a_terminal(None).contains(ESCAPE));
    assert!(log_on_a_terminal(Some("")).contains(ESCAPE), "an empty value says nothing");
    let plain = log_on_a_terminal(Some("1"));
    assert!(!plain.contains(ESCAPE), "{plain:?}");
}
