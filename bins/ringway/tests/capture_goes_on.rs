//! A capture outlives the data plane that it began with: it goes on with the next one, whether the
//! first was killed or replaced; and ends with ringway.

mod common;

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use common::{Ringway, wait_for};
use pcap_file::pcapng::{Block, PcapNgReader};
use ringway_testkit::{AnyUserGuest, GuestOptions, Traffic};
use rustix::process::{Signal, kill_process};

const PACKETS: u64 = 50;

fn packets_in(file: &Path) -> u64 {
    let mut reader = PcapNgReader::new(File::open(file).expect("a file")).expect("pcapng");
    let mut count = 0;
    while let Some(block) = reader.next_block() {
        let (block, _) = block.expect("a whole block");
        count += u64::from(matches!(block, Block::EnhancedPacket(_)));
    }
    count
}

/// Bytes of the file when nothing more is written: a capture writes every few milliseconds.
fn len_at_rest(file: &Path) -> u64 {
    let len = || file.metadata().map_or(0, |it| it.len());
    loop {
        let before = len();
        thread::sleep(Duration::from_millis(100));
        if len() == before {
            return before;
        }
    }
}

#[test]
fn a_capture_goes_on_with_the_next_data_plane() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let mut ringway = Ringway::run(here, &["--port", "a=vm:a.sock", "--port", "b=vm:b.sock"]);
    let mut guests = ["a.sock", "b.sock"].map(|name| {
        let attach = || AnyUserGuest::attach(&here.join(name), &GuestOptions::default()).ok();
        wait_for("a guest", attach)
    });
    let mut between = Traffic::new([guests[0].mac(), guests[1].mac()], 1, 1514);
    between.settle(&mut guests).expect("they hear each other");
    let file = here.join("a.pcapng");
    let mut child = Command::new(env!("CARGO_BIN_EXE_ringway"));
    child.arg("capture").arg("--control").arg(ringway.control()).arg("a").arg(&file);
    let child = child.stderr(Stdio::piped()).spawn().expect("it starts");
    let mut exchange = || {
        let before = len_at_rest(&file);
        wait_for("packets in the file", || {
            between.exchange(&mut guests, PACKETS).expect("undisturbed");
            (len_at_rest(&file) > before).then_some(())
        });
    };
    exchange();
    kill_process(ringway.data_plane(), Signal::KILL).expect("it runs");
    exchange();
    ringway.told(&["upgrade"]);
    exchange();
    ringway.must_end_soon(Duration::from_secs(5));
    let output = child.wait_with_output().expect("it ends");
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{why}");
    assert!(why.contains("is gone: the capture ends"), "{why}");
    assert!(why.contains("; the data plane changed 2 times, "), "{why}");
    // Of each data plane what was sent while it captured, both ways.
    assert!(packets_in(&file) >= 3 * PACKETS, "{}: {why}", packets_in(&file));
}
