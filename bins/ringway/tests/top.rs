//! `ringway top` in a real terminal: tmux draws it, presses keys, changes the size.

mod common;

use std::path::Path;
use std::process::Command;

use common::{Ringway, wait_for};

/// A terminal in which a command runs; ends with the value.
struct Terminal {
    socket: String,
}

impl Terminal {
    fn run(directory: &Path, command: &str) -> Self {
        let socket = directory.join("tmux.sock").display().to_string();
        let terminal = Self { socket };
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", command]);
        terminal
    }

    fn tmux(&self, words: &[&str]) -> String {
        let mut tmux = Command::new("tmux");
        let output = tmux.args(["-S", &self.socket]).args(words).output().expect("tmux starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// The screen, once it contains these words.
    fn shows(&self, words: &str) -> String {
        let screen = || Some(self.tmux(&["capture-pane", "-p"])).filter(|it| it.contains(words));
        wait_for(words, screen)
    }

    fn has_ended(&self) -> bool {
        self.tmux(&["list-sessions"]).is_empty()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

#[test]
fn keys_and_another_size_change_what_is_seen_of_many_ports() {
    if Command::new("tmux").arg("-V").output().is_err() {
        return println!("skipped: tmux is missing: ./x setup installs it");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let ports: Vec<String> =
        (0..256).map(|at| format!("[port.vm{at}]\nvm = \"vm{at}.sock\"\n")).collect();
    let file = directory.path().join("ringway.toml");
    std::fs::write(&file, ports.concat()).expect("written");
    let ringway = Ringway::run(directory.path(), &["--config", &file.display().to_string()]);
    let control = ringway.control().display().to_string();
    let command = format!("{} top --control {control}", env!("CARGO_BIN_EXE_ringway"));
    let terminal = Terminal::run(directory.path(), &command);
    let screen = terminal.shows("256 ports");
    assert!(screen.contains("vm0            waiting") && screen.contains("from pkt/s"), "{screen}");
    terminal.press(&["End"]);
    terminal.shows("vm255 ");
    terminal.press(&["/", "vm17", "Enter"]);
    assert!(!terminal.shows("vm179 ").contains("vm255"));
    terminal.tmux(&["resize-window", "-x", "60", "-y", "20"]);
    let narrow = || {
        let screen = terminal.tmux(&["capture-pane", "-p"]);
        (screen.contains("wake/s") && !screen.contains("pkt/s")).then_some(screen)
    };
    wait_for("fewer columns", narrow);
    terminal.press(&["Enter"]);
    terminal.shows("from vm17: 0 b/s");
    drop(ringway);
    terminal.shows("no ringway is listening here");
    terminal.press(&["q"]);
    wait_for("its end", || terminal.has_ended().then_some(()));
}

#[test]
fn without_a_terminal_it_prints_one_table() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &["--port", "a=vm:a.sock"]);
    let table = ringway.told(&["top"]);
    assert!(table.contains("1 port, ") && table.contains("\na              waiting"), "{table}");
    let json: serde_json::Value = serde_json::from_str(&ringway.told(&["top", "--json"])).unwrap();
    assert_eq!(json["ports"][0]["state"], "waiting");
}

#[test]
fn a_signal_leaves_the_terminal_as_it_was() {
    if Command::new("tmux").arg("-V").output().is_err() {
        return println!("skipped: tmux is missing: ./x setup installs it");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &["--port", "a=vm:a.sock"]);
    let control = ringway.control().display().to_string();
    let terminal = Terminal::run(directory.path(), "sh");
    // The shell goes on when a command of its has ended by a signal.
    terminal.press(&["trap : INT QUIT", "Enter"]);
    let top = format!("{} top --control {control}", env!("CARGO_BIN_EXE_ringway"));
    for (number, signal) in [(1, "HUP"), (2, "INT"), (3, "QUIT"), (15, "TERM")] {
        let script = format!(
            "clear; s=$(stty -g); sh -c 'echo $$ >pid-{signal}; exec {top}'; \
             echo ended-by $? $([ \"$s\" = \"$(stty -g)\" ] && echo as-before)"
        );
        terminal.press(&["-l", &format!("cd {}; {script}", directory.path().display())]);
        terminal.press(&["Enter"]);
        terminal.shows("from pkt/s");
        let pid = std::fs::read_to_string(directory.path().join(format!("pid-{signal}")));
        let pid = pid.expect("written").trim().parse().expect("a number");
        let pid = rustix::process::Pid::from_raw(pid).expect("not 0");
        let sent = rustix::process::Signal::from_named_raw(number).expect("a signal");
        rustix::process::kill_process(pid, sent).expect("it runs");
        terminal.shows(&format!("ended-by {} as-before", 128 + number));
    }
    terminal.press(&[
        "-l",
        &format!("clear; TERM=dumb {top} | cat; TERM=dumb {top}; echo both-were-lines"),
    ]);
    terminal.press(&["Enter"]);
    let screen = terminal.shows("\nboth-were-lines");
    assert_eq!(screen.matches("1 port, ").count(), 2, "{screen}");
}
