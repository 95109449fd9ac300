//! `ringway bench`: every kind measures something and shows it in each form.
//!
//! Limits: what the numbers are is not looked at; they depend on the machine. Peers are not here,
//! wherever they are installed: scenarios measure them.

use std::process::{Command, Stdio};

use serde_json::Value;

/// Packets of this length are beyond what DPDK's program can do, so that it is not started.
const LEN: &str = "65536";

/// Name the directories in which there are peers.
const PEERS: [&str; 5] =
    ["RINGWAY_DPDK", "RINGWAY_OVS", "RINGWAY_VDE", "RINGWAY_PASST", "RINGWAY_GVPROXY"];

fn bench(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_ringway-bench"))
        .args(arguments)
        .envs(PEERS.map(|peer| (peer, "/nowhere")))
        .stdin(Stdio::null())
        .output()
        .expect("ringway-bench starts");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn every_row_of_the_ring_is_measured_in_both_formats_and_directions() {
    let directory = tempfile::tempdir().expect("a directory");
    let page = directory.path().join("page.html");
    let page = page.to_str().expect("UTF-8");
    let arguments = ["ring", "--seconds", "0.02", "--repeats", "2", "--sizes", LEN];
    let json = bench(&[&arguments[..], &["--json", "--html", page]].concat());
    let report: Value = serde_json::from_str(&json).expect("JSON");
    let tables = report["tables"].as_array().expect("tables");
    assert_eq!(tables.len(), 4, "{json}");
    for table in tables {
        let rows: Vec<&str> = table["rows"]
            .as_array()
            .expect("rows")
            .iter()
            .filter_map(|row| row[1].as_str())
            .collect();
        let ours = ["limit: plain ring", "ringway × ringway, logged", "ringway × ringway"];
        assert_eq!(rows, ours, "{table}");
        for row in table["rows"].as_array().expect("rows") {
            // Behind the bytes, the name and the entries.
            assert!(row[3]["median"].as_f64() > Some(0.0), "{row}");
        }
    }
    let page = std::fs::read_to_string(page).expect("the page is written");
    assert!(page.contains("class=\"b\"") && page.contains("ringway × ringway"));
    assert!(!page.contains("http-equiv") && !page.contains("<script") && !page.contains("src="));
}

#[test]
fn every_scheme_gets_every_kind_of_traffic_through() {
    let json = bench(&["rxbuf", "--seconds", "0.001", "--repeats", "1", "--json"]);
    let report: Value = serde_json::from_str(&json).expect("JSON");
    let rows = report["tables"][0]["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 30);
    for row in rows {
        assert!(row[2]["median"].as_f64() > Some(0.0), "{row}");
        assert!(row[4]["median"].as_f64() >= Some(0.99), "{row}");
    }
}

#[test]
fn what_no_guest_lets_one_switch_is_measured() {
    let json = bench(&["history", "--seconds", "0.1", "--repeats", "2", "--json"]);
    let report: Value = serde_json::from_str(&json).expect("JSON");
    let names = |table: usize| {
        let rows = report["tables"][table]["rows"].as_array().expect("rows");
        // The rate that arrives: of streams in the first number, under overload in the second.
        let above = |row: &&Value| row[1 + table / 2]["median"].as_f64() > Some(0.0);
        let names = rows.iter().filter(above).filter_map(|row| row[0].as_str());
        names.collect::<Vec<_>>().join("; ")
    };
    let streams = "a full ring ends the timer; full rings wait, too; \
                   full rings wait, NOTIFY_ON_EMPTY";
    let overload = "allocated with each receive buffer; allocated on arrival; \
                    allocated on arrival, 1 % fail";
    let locks = "held while the tap is read; not held while the tap is read";
    assert_eq!([names(0), names(1), names(2)], [streams, locks, overload]);
}

#[test]
fn every_number_of_ports_is_measured_on_a_daemon() {
    let json = bench(&["scale", "--seconds", "0.2", "--repeats", "1", "--json"]);
    let report: Value = serde_json::from_str(&json).expect("JSON");
    let rows = report["tables"][0]["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 9);
    for row in rows {
        // The cost of a packet, packets, memory, time to attach.
        for column in 2..6 {
            assert!(row[column]["median"].as_f64() > Some(0.0), "{row}");
        }
    }
}

#[test]
fn workers_are_counted_and_sixteen_are_predicted() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: no valgrind");
        return;
    }
    let words = ["scale", "--workers", "1", "--seconds", "0.02", "--repeats", "1", "--json"];
    // A busy machine may be too slow for valgrind once.
    let mut tries = (0..3).map(|_| bench(&words));
    let json = tries.find(|json| !json.contains("instructions: ")).expect("counted in time");
    let report: Value = serde_json::from_str(&json).expect("JSON");
    let rows = report["tables"][0]["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 2, "{json}");
    let instructions = rows.iter().filter_map(|row| row[3]["median"].as_f64());
    assert!(instructions.filter(|count| *count > 200.0).count() == 2, "{json}");
    assert!(json.contains("Predicted for 16 workers"), "{json}");
}

#[test]
fn every_packet_from_guest_to_guest_has_its_price() {
    if std::thread::available_parallelism().is_ok_and(|processors| processors.get() < 2) {
        println!("skipped: two processors are needed");
        return;
    }
    let json = bench(&["switch", "--seconds", "0.02", "--repeats", "1", "--json"]);
    let report: Value = serde_json::from_str(&json).expect("JSON");
    let rows = report["tables"][0]["rows"].as_array().expect("rows");
    let ways =
        ["two ports", "three ports", "three ports, in two pieces", "three ports, one processor"];
    for way in ways {
        let rows: Vec<_> = rows.iter().filter(|row| row[2] == way).collect();
        assert_eq!(rows.len(), 6, "{way}: three lengths in both formats");
        for row in rows {
            // The cost of a packet and of a copy, and system calls.
            for column in 3..9 {
                assert!(row[column]["median"].as_f64() > Some(0.0), "{row}");
            }
        }
    }
    let all = report["tables"][1]["rows"].as_array().expect("rows");
    assert!(all.len() >= 6 && all.iter().all(|row| row[3]["median"].as_f64() > Some(0.0)));
    // Programs that have no row are named.
    assert!(json.contains("missing: vde_switch"), "{json}");
}

#[test]
fn a_length_that_is_not_possible_is_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_ringway-bench"))
        .args(["ring", "--sizes", "63"])
        .stdin(Stdio::null())
        .output()
        .expect("ringway-bench starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("63: a packet has 64 to 65536 bytes"));
}

#[test]
fn no_line_of_any_help_is_longer_than_100_columns() {
    let all = ["ring", "guest", "pacing", "nat", "history", "scale", "instructions"];
    for words in all.map(|kind| vec![kind]).into_iter().chain([vec![]]) {
        for help in ["-h", "--help"] {
            let text = bench(&[&words[..], &[help]].concat());
            let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > 100).collect();
            assert!(long.is_empty() && text.contains("Usage: ringway bench"), "{long:#?}{text}");
        }
    }
}

#[test]
fn errors_are_json_where_results_would_be() {
    for (words, status) in [(&["ring", "--sizes", "63"][..], 1), (&["ring", "--nonsense"], 2)] {
        let output = Command::new(env!("CARGO_BIN_EXE_ringway-bench"))
            .args(words)
            .arg("--json")
            .output()
            .expect("ringway-bench starts");
        let error: Value = serde_json::from_slice(&output.stderr).expect("one line of JSON");
        assert_eq!((output.status.code(), &error["ok"]), (Some(status), &Value::Bool(false)));
    }
}
