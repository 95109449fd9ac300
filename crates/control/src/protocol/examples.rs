//! Answers as tests of whatever reads them need them.

use serde_json::Value;

use super::{
    DirectionStats, EffortStats, FrontEndStats, HistogramStats, PROTOCOL_VERSION, PacingStats,
    PortStats, QueueStats, SandboxStats, StatsReply, WaitStats, WorkerStats,
};

/// A reply with one running guest, for tests.
pub fn example() -> StatsReply {
    let direction = |packets, drops: &[(&str, u64)]| DirectionStats {
        packets,
        bytes: packets * 1000,
        kicks: 1,
        calls: 2,
        drops: drops.iter().map(|&(name, count)| (name.to_string(), count)).collect(),
    };
    let port = PortStats {
        link_up: Some(true),
        notice: None,
        number: Some(0),
        name: "vm0".to_string(),
        kind: "vm".to_string(),
        address: "/run/vm0.sock".to_string(),
        labels: Default::default(),
        mac: Some("52:54:00:00:00:01".to_string()),
        mtu: None,
        connected: true,
        state: "running".to_string(),
        error: None,
        front_end: Some(FrontEndStats {
            pid: Some(4711),
            uid: 107,
            user: Some("kvm".to_string()),
            program: Some("qemu-system-x86".to_string()),
        }),
        refused_front_ends: 2,
        migrations_in: 1,
        migrations_out: 2,
        replayed: 0,
        features: vec!["CSUM".to_string(), "MRG_RXBUF".to_string()],
        format: Some("packed".to_string()),
        to_guest: direction(1_000_000, &[("no_room", 7)]),
        from_guest: direction(20, &[]),
        pairs: Vec::new(),
        broken: Vec::new(),
        queues: vec![queue()],
        pacing: vec![pacing()],
        refused_commands: 3,
        moved_addresses: 5,
        ..PortStats::default()
    };
    let last_second =
        EffortStats { packets: 4000, system_calls: 1000, wakeups: 12, polled_ns: 25_000_000 };
    let mode = "polling".to_string();
    let worker = WorkerStats { mode, last_second, ..WorkerStats::default() };
    StatsReply {
        version: PROTOCOL_VERSION,
        ok: true,
        uptime_ms: 5000,
        sandbox: Some(SandboxStats { on: true, capabilities: vec!["net_admin".to_string()] }),
        data_plane: None,
        daemon: None,
        ports: vec![port],
        workers: vec![worker],
    }
}

fn queue() -> QueueStats {
    QueueStats {
        queue: "receiveq1".to_string(),
        mode: "held".to_string(),
        packets: 1_000_000,
        kicks: 2_000,
        calls: 2,
        wakeups_last_second: 1_034,
    }
}

fn pacing() -> PacingStats {
    PacingStats {
        queue: "receiveq1".to_string(),
        direction: "calls".to_string(),
        packets: 1_000_000,
        notifications: 2,
        window: 8,
        timer_ns: 31_000,
        cause: "batches".to_string(),
    }
}

/// The same a second later, with each number as large as it may be: a data plane that was taken
/// over says what it likes.
pub fn largest() -> StatsReply {
    let mut reply = example();
    let port = &mut reply.ports[0];
    for direction in [&mut port.to_guest, &mut port.from_guest] {
        direction.drops = ["no_room", "malformed"].map(|it| (it.to_owned(), 1)).into();
    }
    port.queues.push(port.queues[0].clone());
    let histogram = HistogramStats { bounds_ns: vec![1], counts: vec![1, 1], sum_ns: 1 };
    port.waits = Some(WaitStats { call_delay: histogram, ..WaitStats::default() });
    let mut value = serde_json::to_value(&reply).expect("JSON");
    for place in numbers(&value, "") {
        let before = std::mem::replace(value.pointer_mut(&place).expect("there"), u64::MAX.into());
        if serde_json::from_value::<StatsReply>(value.clone()).is_err() {
            *value.pointer_mut(&place).expect("a number") = before;
        }
    }
    let uptime_ms = reply.uptime_ms + 1000;
    StatsReply { uptime_ms, ..serde_json::from_value(value).expect("a reply") }
}

/// Where they are.
fn numbers(value: &Value, place: &str) -> Vec<String> {
    let inside = |(key, value): (String, &Value)| numbers(value, &format!("{place}/{key}"));
    match value {
        Value::Number(_) => vec![place.to_owned()],
        Value::Array(all) => {
            all.iter().enumerate().map(|(at, it)| (at.to_string(), it)).flat_map(inside).collect()
        }
        Value::Object(all) => {
            all.iter().map(|(key, it)| (key.clone(), it)).flat_map(inside).collect()
        }
        _ => Vec::new(),
    }
}
