//! From two statistics to what holds a port back. Each rule finds one thing, or nothing.

use std::path::Path;

use super::front_end::front_end_waits;
use super::look::{Finding, Look};
use super::refusals::refusal;
use super::router::{lacks, lost_forward, not_leased};
use crate::config::{PortSpec, json};
use crate::control::Direction;
use crate::places::how_to_tell_bridges;
use crate::{socket_reach, units};

/// Nothing passes at all.
pub const ALL: u64 = 100;
/// Packets for one of two places go now to one, now to the other.
pub const HALF: u64 = 50;
/// Part of its rate limit, or of a processor, that is nearly all of it, in percent.
pub const NEARLY_ALL: u64 = 90;

/// All rules.
const RULES: &[fn(&Look<'_>) -> Option<Finding>] = &[
    failed,
    quarantined,
    broken,
    new_interface,
    link_down,
    waiting,
    not_started,
    front_end_waits,
    waits_for_log,
    same_mac,
    other_mac,
    overlap,
    deaf_bridges,
    not_leased,
    lost_forward,
    lacks,
    moved,
    no_buffers,
    rate_to_guest,
    rate_from_guest,
    locked,
    storm,
    isolated,
    vlan,
    other_drops,
    too_long,
    mtu,
    worker,
];

/// Everything that is found, the weightiest first.
pub fn findings(look: &Look<'_>) -> Vec<Finding> {
    let mut found: Vec<Finding> = RULES.iter().filter_map(|rule| rule(look)).collect();
    found.sort_by_key(|finding| std::cmp::Reverse(finding.weight));
    found
}

fn failed(look: &Look<'_>) -> Option<Finding> {
    let why = look.port.error.clone().filter(|_| look.port.state == "failed")?;
    let advice = "mend that; a tap is opened again when it is possible".to_owned();
    Some(Finding { weight: ALL, what: "the port could not be opened", figure: why, advice })
}

fn new_interface(look: &Look<'_>) -> Option<Finding> {
    let figure = look.port.notice.clone()?;
    let advice = "give it its addresses, or make it a part of the bridge again".to_owned();
    Some(Finding { weight: ALL, what: "its interface was deleted and made anew", figure, advice })
}

fn quarantined(look: &Look<'_>) -> Option<Finding> {
    (look.port.state == "quarantined").then(|| Finding {
        weight: ALL,
        what: "the port is quarantined",
        figure: look.port.error.clone().unwrap_or_else(|| "state: quarantined".to_owned()),
        advice: format!(
            "its guest may be the cause; ringway tries it again when that time is over, or at \
             once: ringway port set {} link=up",
            look.port.name
        ),
    })
}

fn broken(look: &Look<'_>) -> Option<Finding> {
    let figure = look.port.broken.first()?.clone();
    let advice = "the guest's driver broke the rules of the ring: restart the guest, or its driver";
    Some(Finding { weight: ALL, what: "a ring is broken", figure, advice: advice.to_owned() })
}

fn link_down(look: &Look<'_>) -> Option<Finding> {
    let is_down = look.options.get("link").and_then(|value| value.as_str()) == Some("down");
    is_down.then(|| Finding {
        weight: ALL,
        what: "the link is down",
        figure: "link=down".to_owned(),
        advice: format!("ringway port set {} link=up", look.port.name),
    })
}

fn waiting(look: &Look<'_>) -> Option<Finding> {
    let spec = || PortSpec::resolve(&json::read_port(look.options).ok()?).ok();
    // A path that is not absolute is one of the directory in which ringway was started.
    let is_known = |spec: &PortSpec| spec.kind.socket().is_some_and(Path::is_absolute);
    let closed = || socket_reach::barrier(&spec().filter(is_known)?);
    let attach =
        || format!("start the guest with what this prints: ringway attach {}", look.port.name);
    (look.port.state == "waiting").then(|| Finding {
        weight: ALL,
        what: "no front-end is connected",
        figure: format!("state: waiting at {}", look.port.address),
        advice: closed().unwrap_or_else(attach),
    })
}

fn not_started(look: &Look<'_>) -> Option<Finding> {
    let of = |what, figure: String, advice: &str| Finding {
        weight: ALL,
        what,
        figure,
        advice: advice.to_owned(),
    };
    (look.port.state == "connected").then(|| match look.port.stopped_ms {
        None => of(
            "the guest has not started its queues",
            "state: connected, no queue runs".to_owned(),
            "wait until it has booted; see whether it has a virtio-net driver",
        ),
        Some(ms) => of(
            "the guest's queues were stopped",
            format!("stopped {} s ago by the monitor (paused, link off or reset)", ms / 1000),
            "let the guest go on, set its link on in the monitor, or wait until it has booted",
        ),
    })
}

fn waits_for_log(look: &Look<'_>) -> Option<Finding> {
    look.port.waits_for_log.then(|| Finding {
        weight: ALL,
        what: "the guest's queues wait for the migration's log",
        figure: "state: migrating, and no page can be marked that they write".to_owned(),
        advice: format!(
            "ringway's log says what is wrong with the log of the front-end of {}; cancel the \
             migration, or begin it anew",
            look.port.name
        ),
    })
}

fn other_mac(look: &Look<'_>) -> Option<Finding> {
    let (used, own) = (look.port.used_mac.as_ref()?, look.port.mac.as_ref()?);
    Some(Finding {
        weight: 1,
        what: "the guest has another MAC address",
        figure: format!("the guest uses {used}, the port has {own}"),
        advice: format!(
            "give its network card that one in the monitor, or: ringway port set {} mac={used}",
            look.port.name
        ),
    })
}

fn same_mac(look: &Look<'_>) -> Option<Finding> {
    let mac = look.port.mac.as_ref()?;
    let others = look.now.ports.iter().filter(|other| other.name != look.port.name);
    let other = others.into_iter().find(|other| other.mac.as_ref() == Some(mac))?;
    // Of two, the one that started later loses.
    let weight = look.drops(Direction::FromGuest, &["spoofed_mac"]).map_or(1, |(_, share)| share);
    Some(Finding {
        weight,
        what: "another port has the same MAC address",
        figure: format!("{mac} at {} as well", other.name),
        advice: match look.port.kind.as_str() {
            "nat" => format!(
                "both are routers for each guest: remove one, or ringway port set {} vlan=…",
                look.port.name
            ),
            _ => format!("give one of them another: ringway port set {} mac=…", look.port.name),
        },
    })
}

fn overlap(look: &Look<'_>) -> Option<Finding> {
    Some(Finding {
        weight: 1,
        what: "guests do not reach a network of this machine",
        figure: look.port.nat.as_ref()?.overlap.clone()?,
        advice: format!("give them another one: ringway port set {} range=…", look.port.name),
    })
}

/// Outside its sandbox ringway does not say what it may.
fn deaf_bridges(look: &Look<'_>) -> Option<Finding> {
    let sandbox = look.now.sandbox.as_ref().filter(|sandbox| sandbox.on)?;
    let is_allowed = sandbox.capabilities.iter().any(|name| name == "net_admin");
    let asks = |key: &&str| look.options.get(*key).is_some_and(|it| it == "sync");
    let asked: Vec<&str> = ["fdb", "neighbours"].into_iter().filter(asks).collect();
    (!asked.is_empty() && !is_allowed).then(|| Finding {
        weight: HALF,
        what: "bridges do not hear of guests",
        figure: format!("{}=sync, and ringway has no CAP_NET_ADMIN", asked.join("=sync,")),
        advice: how_to_tell_bridges(),
    })
}

fn no_buffers(look: &Look<'_>) -> Option<Finding> {
    let (dropped, weight) = look.drops(Direction::ToGuest, &["no_room"])?;
    Some(Finding {
        weight,
        what: "the guest posts no buffers",
        figure: look.drop_figure(dropped, "no_room"),
        advice: "the guest does not take its packets: see how busy it is, or whether it is \
                 stopped; longer receive rings (rx_queue_size) help against bursts"
            .to_owned(),
    })
}

fn rate_to_guest(look: &Look<'_>) -> Option<Finding> {
    let keys = ["rate_to_guest", "packets_to_guest"];
    let finding = rate(look, Direction::ToGuest, "the rate limit to the guest", keys);
    let Some((dropped, weight)) = look.drops(Direction::ToGuest, &["rate_limit"]) else {
        return finding;
    };
    let advice = format!("raise it: ringway port set {} rate_to_guest=…", look.port.name);
    let figure = look.drop_figure(dropped, "rate_limit");
    Some(Finding { weight, what: "the rate limit to the guest", figure, advice })
}

fn rate_from_guest(look: &Look<'_>) -> Option<Finding> {
    let keys = ["rate_from_guest", "packets_from_guest"];
    rate(look, Direction::FromGuest, "the rate limit from the guest", keys)
}

/// The port moves nearly as much as it may.
fn rate(
    look: &Look<'_>,
    direction: Direction,
    what: &'static str,
    keys: [&str; 2],
) -> Option<Finding> {
    let (packets, bytes) = look.moved(direction);
    let used = |count: u64, key: &str| {
        let limit = look.number(key).filter(|limit| *limit > 0)?;
        let per_second = count.saturating_mul(1000) / look.passed_ms();
        Some((per_second.saturating_mul(100) / limit, limit, key.to_owned()))
    };
    let both = [used(bytes.saturating_mul(8), keys[0]), used(packets, keys[1])];
    let (share, limit, key) = both.into_iter().flatten().max()?;
    (share >= NEARLY_ALL).then(|| Finding {
        weight: share.min(ALL),
        what,
        figure: format!("{share} % of {key}={} is used", units::count(limit)),
        advice: format!("raise it: ringway port set {} {key}=…", look.port.name),
    })
}

fn locked(look: &Look<'_>) -> Option<Finding> {
    let [mac, ip] = ["spoofed_mac", "spoofed_ip"].map(|it| look.dropped(Direction::FromGuest, it));
    let reason = if mac >= ip { "spoofed_mac" } else { "spoofed_ip" };
    refused_as(look, &["spoofed_mac", "spoofed_ip"], reason)
}

fn storm(look: &Look<'_>) -> Option<Finding> {
    refused_as(look, &["storm"], "storm")
}

fn isolated(look: &Look<'_>) -> Option<Finding> {
    refused_as(look, &["isolated"], "isolated")
}

fn vlan(look: &Look<'_>) -> Option<Finding> {
    refused_as(look, &["vlan"], "vlan")
}

/// The switch has refused packets from the guest for one of these reasons, mostly for the last.
fn refused_as(look: &Look<'_>, reasons: &[&str], reason: &str) -> Option<Finding> {
    let (dropped, weight) = look.drops(Direction::FromGuest, reasons)?;
    let (what, advice) = refusal(reason, &look.port.name);
    Some(Finding { weight, what, figure: look.drop_figure(dropped, reason), advice })
}

/// Reasons for drops that no other rule looks at: at the sender, or at the receiver.
const OTHER_DROPS: [(Direction, &str); 5] = [
    (Direction::FromGuest, "malformed"),
    (Direction::FromGuest, "no_route"),
    (Direction::ToGuest, "offload"),
    (Direction::ToGuest, "os"),
    (Direction::ToGuest, "filtered"),
];

fn other_drops(look: &Look<'_>) -> Option<Finding> {
    let found = OTHER_DROPS.iter().filter_map(|(direction, reason)| {
        let (dropped, weight) = look.drops(*direction, &[reason])?;
        // A guest need not want all that is flooded to it.
        (*reason != "filtered" || weight >= NEARLY_ALL).then_some((weight, dropped, *reason))
    });
    let (weight, dropped, reason) = found.max()?;
    let (what, advice) = refusal(reason, &look.port.name);
    Some(Finding { weight, what, figure: look.drop_figure(dropped, reason), advice })
}

/// Reasons of the switch for which it may refuse all that a port sends.
const REFUSALS: [&str; 7] =
    ["spoofed_mac", "spoofed_ip", "storm", "isolated", "vlan", "malformed", "no_route"];

/// Whether a rule of that port can still be why packets are refused.
fn is_configured(look: &Look<'_>, reason: &str) -> bool {
    match reason {
        "isolated" | "storm" => look.options.contains_key(reason),
        "spoofed_ip" => look.options.contains_key("locked_ips"),
        _ => true,
    }
}

/// A guest that gets no answer is silent for most of the time: so far nearly all was refused.
pub fn nothing_passed(look: &Look<'_>) -> Option<Finding> {
    if look.has_sent() || look.drops(Direction::FromGuest, &REFUSALS).is_some() {
        return None;
    }
    let from = &look.port.from_guest;
    let of = |reason: &&str| from.dropped(reason);
    let reason = REFUSALS.iter().max_by_key(|reason| of(reason))?;
    let dropped = of(reason);
    let all = dropped.max(from.packets);
    let is_most = dropped > 0 && dropped.saturating_mul(100) / all >= NEARLY_ALL;
    (is_most && is_configured(look, reason)).then(|| {
        let (what, advice) = refusal(reason, &look.port.name);
        let figure = format!("{dropped} of {} from it were dropped so far ({reason})", {
            units::counted(all, "packet")
        });
        Finding { weight: ALL, what, figure, advice }
    })
}

fn moved(look: &Look<'_>) -> Option<Finding> {
    let moved = look.moved_addresses();
    (moved > 0).then(|| Finding {
        weight: HALF,
        what: "addresses move to it from other ports",
        figure: format!("{} in {} ms", units::counted(moved, "move"), look.passed_ms()),
        advice: "two stations use one address: see `ringway fdb`, and give one of them another"
            .to_owned(),
    })
}

fn too_long(look: &Look<'_>) -> Option<Finding> {
    let (dropped, weight) = look.drops(Direction::ToGuest, &["too_long"])?;
    Some(Finding {
        weight,
        what: "packets are longer than the guest's buffers",
        figure: look.drop_figure(dropped, "too_long"),
        advice: "the MTUs differ: give all ports the same mtu, and the guests' interfaces, too"
            .to_owned(),
    })
}

fn mtu(look: &Look<'_>) -> Option<Finding> {
    let own = look.port.mtu?;
    let others = look.now.ports.iter().filter(|other| other.name != look.port.name);
    let other = others.into_iter().find(|other| other.mtu.is_some_and(|mtu| mtu != own))?;
    Some(Finding {
        weight: 1,
        what: "the MTUs differ",
        figure: format!("mtu={own}, and {} has mtu={}", other.name, other.mtu.unwrap_or(0)),
        advice: "long packets of the one are lost at the other: give both the same mtu".to_owned(),
    })
}

/// A worker that is awake all the time has no time for more, also where it does not get a processor
/// for all of it.
fn worker(look: &Look<'_>) -> Option<Finding> {
    let passed_ns = look.passed_ms().saturating_mul(1_000_000);
    let percent = |ns: u64| (ns.saturating_mul(100) / passed_ns).min(100);
    let shares = look.now.workers.iter().filter_map(|now| {
        let before = look.before.workers.iter().find(|before| before.worker == now.worker)?;
        let slept_ns = now.slept_ns?.saturating_sub(before.slept_ns?);
        let polled_ns = now.total.polled_ns.saturating_sub(before.total.polled_ns);
        let busy = percent(passed_ns.saturating_sub(slept_ns.saturating_add(polled_ns)));
        let used = percent(now.cpu_ns.saturating_sub(before.cpu_ns).saturating_sub(polled_ns));
        Some((busy, used, now.worker))
    });
    let (busy, used, number) = shares.max()?;
    let advice = match used >= NEARLY_ALL {
        true => "give ports queues= and ringway --workers, or more of the machine to it",
        false => "others use its processor: give the machine more of them, or ringway --pin",
    };
    (busy >= NEARLY_ALL).then(|| Finding {
        weight: busy,
        what: "a worker is saturated",
        figure: format!("worker {number} has work {busy} % of the time, a processor {used} %"),
        advice: advice.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;
    use crate::control::examples::{example, largest};
    use crate::control::{SandboxStats, StatsReply};

    #[test]
    fn a_port_that_is_kept_from_its_guest_is_found() {
        let (before, mut now, options) = (example(), example(), Map::new());
        let why = "quarantined for 10 minutes";
        (now.ports[0].state, now.ports[0].error) = ("quarantined".into(), Some(why.into()));
        let look = Look { before: &before, now: &now, port: &now.ports[0], options: &options };
        let found = findings(&look);
        assert_eq!((found[0].what, &*found[0].figure), ("the port is quarantined", why));
    }

    #[test]
    fn a_bridge_that_is_not_told_of_guests_is_found() {
        let (before, mut now) = (example(), example());
        let sync = |keys: &[&str]| keys.iter().map(|it| ((*it).into(), "sync".into())).collect();
        let found = |now: &StatsReply, options: &Map<String, serde_json::Value>| {
            let look = Look { before: &before, now, port: &now.ports[0], options };
            findings(&look).into_iter().find(|it| it.what == "bridges do not hear of guests")
        };
        let both = sync(&["fdb", "neighbours"]);
        assert_eq!(found(&now, &both), None, "it may");
        now.sandbox = Some(SandboxStats { on: true, capabilities: vec!["chown".into()] });
        assert_eq!(found(&now, &Map::new()), None, "it is not asked to");
        let finding = found(&now, &both).expect("it may not");
        let figure = "fdb=sync,neighbours=sync, and ringway has no CAP_NET_ADMIN";
        assert_eq!(finding.figure, figure);
        assert!(finding.advice.contains("/usr/share/ringway/wide.conf"), "{}", finding.advice);
        let one = found(&now, &sync(&["neighbours"])).expect("it may not");
        assert!(one.figure.starts_with("neighbours=sync, and"), "{}", one.figure);
    }

    #[test]
    fn a_port_of_which_nothing_passes_is_found_while_it_is_silent() {
        let mut now = example();
        now.ports[0].from_guest.packets = 20;
        let cases = [(20, true, true), (19, true, true), (17, true, false), (0, true, false)];
        for (isolated, is_configured, is_found) in cases.into_iter().chain([(20, false, false)]) {
            let options = match is_configured {
                true => Map::from_iter([("isolated".to_owned(), true.into())]),
                false => Map::new(),
            };
            now.ports[0].from_guest.drops = [("isolated".to_owned(), isolated)].into();
            let before = now.clone();
            let look = Look { before: &before, now: &now, port: &now.ports[0], options: &options };
            let found = nothing_passed(&look);
            assert_eq!(found.is_some(), is_found, "{isolated}: {found:?}");
            assert!(found.is_none_or(|found| found.what == "isolation"));
        }
    }

    #[test]
    fn queues_that_were_stopped_are_told_from_those_that_never_ran() {
        let (before, mut now, options) = (example(), example(), Map::new());
        now.ports[0].state = "connected".into();
        for (stopped_ms, what) in [
            (None, "the guest has not started its queues"),
            (Some(12_400), "the guest's queues were stopped"),
        ] {
            now.ports[0].stopped_ms = stopped_ms;
            let look = Look { before: &before, now: &now, port: &now.ports[0], options: &options };
            let found = findings(&look);
            assert_eq!(found[0].what, what);
            let figure = "stopped 12 s ago by the monitor (paused, link off or reset)";
            assert_eq!(found[0].figure == figure, stopped_ms.is_some(), "{}", found[0].figure);
        }
    }

    #[test]
    fn numbers_that_cannot_be_are_found_to_hold_back() {
        let (before, now, options) = (example(), largest(), Map::new());
        let look = Look { before: &before, now: &now, port: &now.ports[0], options: &options };
        let found = findings(&look);
        assert!(found.iter().any(|found| found.figure.contains("18,446,744")), "{found:?}");
    }
}
