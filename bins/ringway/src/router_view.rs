//! The output of `ringway port show` for people.

use crate::control::{PortShowReply, ShownFlow, ShownForward, ShownGuest};
use crate::{layout, units};

/// Guests, forwards and flows, each as a table if there are any.
pub fn text(reply: &PortShowReply, width: usize) -> String {
    let guests: Vec<_> = reply.guests.iter().map(guest).collect();
    let forwards: Vec<_> = reply.forwards.iter().map(|it| forward(it, &reply.guests)).collect();
    let flows: Vec<_> = reply.flows.iter().map(flow).collect();
    let mut text = match guests.is_empty() {
        true => "no guest has an address\n".to_owned(),
        false => layout::rows(["port", "MAC address", "addresses", "leased"], &guests, &[3], width),
    };
    if !forwards.is_empty() {
        text += &layout::rows(["forward", "leads to", "state"], &forwards, &[], width);
    }
    if !flows.is_empty() {
        let header = ["flow", "guest", "remote", "state", "sent", "received", "idle"];
        text += &layout::rows(header, &flows, &[4, 5, 6], width);
    }
    let shown = flows.len() as u64;
    text + &match reply.flows_count {
        count if count > shown => {
            let all = units::counted(count, "flow");
            format!(
                "{all}, {} of them shown: --guest PORT shows one guest's\n",
                units::count(shown)
            )
        }
        count => units::counted(count, "flow") + "\n",
    }
}

fn guest(guest: &ShownGuest) -> [String; 4] {
    let leased = guest.leased_s.map_or("–".to_owned(), |age_s| format!("{age_s} s ago"));
    [guest.port.clone(), guest.mac.clone(), guest.addresses.join("\n"), leased]
}

/// Where it is, where it leads, and what came of it.
pub fn forward(forward: &ShownForward, guests: &[ShownGuest]) -> [String; 3] {
    let leads_to = |guest: &ShownGuest| guest.port == forward.guest && guest.leased_s.is_some();
    let state = match &forward.error {
        Some(why) => format!("not yet: {why}"),
        None if !guests.iter().any(leads_to) => {
            format!("{}, {} has no address", forward.state, forward.guest)
        }
        None => forward.state.clone(),
    };
    let at = format!("{} {}", forward.protocol, forward.at);
    [at, format!("{}:{}", forward.guest, forward.to), state]
}

fn flow(flow: &ShownFlow) -> [String; 7] {
    [
        format!("{} {}", flow.port, flow.protocol),
        flow.guest.clone(),
        flow.remote.clone(),
        flow.state.clone(),
        units::bytes(flow.from_guest_bytes),
        units::bytes(flow.to_guest_bytes),
        format!("{} s", flow.idle_s),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_shown_is_counted() {
        let flow = ShownFlow {
            port: "vm0".into(),
            protocol: "tcp".into(),
            guest: "10.0.2.15:40000".into(),
            remote: "198.51.100.7:80".into(),
            state: "open".into(),
            from_guest_bytes: 1000,
            to_guest_bytes: 7,
            idle_s: 3,
        };
        let forward = ShownForward {
            protocol: "udp".into(),
            at: "127.0.0.1:53".into(),
            guest: "vm0".into(),
            to: 53,
            state: "failed".into(),
            error: Some("Address in use".into()),
        };
        let guest = ShownGuest {
            port: "vm0".into(),
            mac: "02:00:00:00:00:09".into(),
            addresses: vec!["10.0.2.15".into(), "fd00::1".into()],
            leased_s: Some(60),
        };
        let mut reply = PortShowReply {
            version: 1,
            ok: true,
            guests: vec![guest],
            forwards: vec![forward],
            flows: vec![flow],
            flows_count: 1,
        };
        let shown = text(&reply, 120);
        for part in ["fd00::1", "60 s ago", "not yet: Address in use", "1.00 kB", "\n1 flow\n"] {
            assert!(shown.contains(part), "{part} in\n{shown}");
        }
        let bound =
            ShownForward { state: "bound".into(), error: None, ..reply.forwards[0].clone() };
        reply.forwards = vec![bound];
        assert!(!text(&reply, 120).contains("no address"));
        reply.guests[0].leased_s = None;
        assert!(text(&reply, 120).contains("bound, vm0 has no address"));
        reply.flows_count = 2000;
        assert!(text(&reply, 120).contains("2,000 flows, 1 of them shown"));
        (reply.guests, reply.flows_count) = (Vec::new(), 0);
        assert!(text(&reply, 120).starts_with("no guest has an address"));
    }
}
