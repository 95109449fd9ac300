//! Findings about the way of a flow's packet through the switch: a pure function of the answer to
//! `trace`.

use super::ends::End;
use super::look::Finding;
use super::refusals::refusal;
use super::rules::{ALL, HALF};
use crate::control::TraceReply;

/// Reasons that keep a packet from its end, or make its way uncertain.
pub fn on_the_way(to: &End, port: &str, reply: &TraceReply) -> Vec<Finding> {
    let said = |rule: &str| reply.steps.iter().rev().find(|step| step.rule == rule);
    // A state of the port, which has a finding of its own.
    if said("link").is_some() {
        return Vec::new();
    }
    let mut found = Vec::new();
    let source = said("source").filter(|source| is_elsewhere(&source.outcome));
    found.extend(source.map(|source| Finding {
        weight: HALF,
        what: "its address was last seen at another port",
        figure: format!("source: {}", source.outcome),
        advice: "two stations use one address, or one has moved: see `ringway fdb`".into(),
    }));
    if let Some(reason) = reply.verdict.strip_prefix("dropped: ") {
        let last = reply.steps.last();
        let last = last.map_or(String::new(), |it| format!("; {}: {}", it.rule, it.outcome));
        found.push(refused(reason, port, &format!("{}{last}", reply.verdict)));
    } else if reply.verdict.starts_with("waits ") {
        found.push(Finding {
            weight: ALL,
            what: "the rate limit from the guest",
            figure: format!("a packet {}", reply.verdict),
            advice: format!("raise it: ringway port set {port} rate_from_guest=…"),
        });
    } else if let Some(other) = reply.verdict.strip_prefix("goes to ") {
        let is_other = to.port.as_deref().is_some_and(|wanted| wanted != other);
        found.extend(is_other.then(|| elsewhere(to, other)));
    } else {
        found.extend(flooded(to, port, reply));
    }
    found
}

fn is_elsewhere(learned: &str) -> bool {
    ["moves here", "belongs to another", "stays at another"]
        .iter()
        .any(|it| learned.starts_with(it))
}

fn refused(reason: &str, port: &str, figure: &str) -> Finding {
    let (what, advice) = refusal(reason, port);
    Finding { weight: ALL, what, figure: figure.to_owned(), advice }
}

fn elsewhere(to: &End, other: &str) -> Finding {
    Finding {
        weight: ALL,
        what: "the address is behind another port",
        figure: format!("packets go to {other}, and not to {}", to.typed),
        advice: format!("see who uses it: ringway fdb --port {other}"),
    }
}

/// The switch does not know where the address is.
fn flooded(to: &End, port: &str, reply: &TraceReply) -> Vec<Finding> {
    let is_it = |name: &String| to.port.as_ref() == Some(name);
    let receiver = reply.receivers.iter().find(|receiver| is_it(&receiver.port));
    let reason = receiver.and_then(|it| it.outcome.strip_prefix("not: "));
    // A sentence is a state of the other port, which has a finding of its own.
    let reason = reason.filter(|reason| !reason.contains(' '));
    let refused = reason.map(|reason| refused(reason, port, &format!("not: {reason}")));
    let unknown = Finding {
        weight: 1,
        what: "the address is not known",
        figure: "no packet came from it: what is for it goes to all".into(),
        advice: format!(
            "it is learned from its first packet; see what comes: ringway capture {}",
            to.port.as_deref().unwrap_or("PORT")
        ),
    };
    refused.into_iter().chain([unknown]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{TraceReceiver, TraceStep};

    fn reply(verdict: &str, steps: &[(&str, &str)], receivers: &[(&str, &str)]) -> TraceReply {
        let step = |(rule, outcome): &(&str, &str)| TraceStep {
            rule: (*rule).into(),
            outcome: (*outcome).into(),
        };
        let receiver = |(port, outcome): &(&str, &str)| TraceReceiver {
            port: (*port).into(),
            outcome: (*outcome).into(),
        };
        TraceReply {
            version: 1,
            ok: true,
            verdict: verdict.into(),
            steps: steps.iter().map(step).collect(),
            receivers: receivers.iter().map(receiver).collect(),
        }
    }

    #[test]
    fn each_verdict_is_a_finding_or_none() {
        let (moves, not_b) = (("source", "moves here from another port"), ("b", "not: isolated"));
        let to = End { port: Some("b".into()), ..End::default() };
        let unknown = "the address is not known";
        for (reply, wanted) in [
            (reply("goes to b", &[], &[]), vec![]),
            (reply("goes to c", &[], &[]), vec!["the address is behind another port"]),
            (reply("dropped: vlan", &[], &[]), vec!["the VLAN"]),
            (reply("dropped: no_route", &[], &[]), vec!["packets that lead nowhere"]),
            (reply("dropped: no_route", &[("link", "down")], &[]), vec![]),
            (reply("waits for 5 µs", &[], &[]), vec!["the rate limit from the guest"]),
            (reply("goes to b", &[moves], &[]), vec!["its address was last seen at another port"]),
            (reply("flooded", &[], &[not_b]), vec!["isolation", unknown]),
            (reply("flooded", &[], &[("b", "not: its link is down")]), vec![unknown]),
        ] {
            let found = on_the_way(&to, "a", &reply);
            assert_eq!(found.iter().map(|it| it.what).collect::<Vec<_>>(), wanted, "{reply:?}");
        }
    }
}
