//! A process that ends with its parent, and takes with it what it has started.
//!
//! Limits: children that are no leaders of a group of their own, as a
//! [`Process`](crate::process::Process) is, are left to end by themselves.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// How often, and how often at most, all is ended and removed until there is nothing left.
const TRY_EVERY: Duration = Duration::from_millis(10);
const TRIES_MAX: u32 = 200;

/// Ends this process and all it has started when the process at the other end of its standard input
/// is gone. `directory` goes with it.
pub fn end_with_parent(directory: &Path) {
    let directory = directory.to_path_buf();
    thread::spawn(move || {
        let mut nothing = [0; 64];
        while let Ok(1..) = std::io::stdin().read(&mut nothing) {}
        // The rest of this process may start one more child meanwhile, or write one more file. No
        // process is left that could report a failure.
        for _ in 0..TRIES_MAX {
            kill_children();
            if fs::remove_dir_all(&directory).is_ok() {
                break;
            }
            thread::sleep(TRY_EVERY);
        }
        std::process::exit(1);
    });
}

/// Ends the children, each with its group, and waits until they have ended.
fn kill_children() {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let lists: Vec<String> = lists.collect();
    let children = lists.iter().flat_map(|list| list.split_whitespace());
    for child in children.filter_map(|id| Pid::from_raw(id.parse().ok()?)) {
        if kill_process_group(child, Signal::KILL).is_ok() {
            let _ = waitid(WaitId::Pid(child), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        }
    }
}
