//! `ringway forward`: places of this machine that lead into guests, one by one.
//!
//! How: a router has them as one option, which is read, and set with one more or one less.
//!
//! Limits: of two that are changed at the same moment one may be lost.

use anyhow::{Context, bail, ensure};
use serde::Serialize;

use crate::args::{AskArgs, ForwardCommand};
use crate::config::error::no_port;
use crate::config::{PortKind, PortSpec, SpecError};
use crate::control::client::ask;
use crate::control::{PROTOCOL_VERSION, PortShowQuestion, PortShowReply, Request, ShownForward};
use crate::port_command::{names, ports, print, set, spec_of};
use crate::{layout, place_users, router_view};

/// Carries out one command; the outer error is a mistake in what was typed.
///
/// # Errors
/// Everything that is wrong with what was typed.
pub fn forward(command: &ForwardCommand) -> Result<anyhow::Result<()>, Vec<SpecError>> {
    let (router, ask, wanted) = match command {
        ForwardCommand::List { router, ask } => return Ok(list(router.as_deref(), ask)),
        ForwardCommand::Add { router, forwards, ask } => {
            (router, ask, one_router(router, ask).and_then(|spec| with(&spec, forwards)))
        }
        ForwardCommand::Remove { router, forwards, ask } => {
            (router, ask, one_router(router, ask).and_then(|spec| without(&spec, forwards)))
        }
    };
    match wanted {
        Ok(wanted) if wanted.is_empty() => set(router, &["forward=default".to_owned()], ask),
        Ok(wanted) => set(router, &[format!("forward={}", wanted.join("+"))], ask),
        Err(why) => Ok(Err(why)),
    }
}

/// The router of that name, as it is now.
fn one_router(name: &str, args: &AskArgs) -> anyhow::Result<PortSpec> {
    let reply = ports(&args.control_or_default())?;
    let found = reply.ports.iter().filter_map(spec_of).find(|spec| spec.name == name);
    let spec = found.with_context(|| no_port(name, names(&reply)))?;
    let kind = spec.kind.name();
    ensure!(spec.kind == PortKind::Nat, "{name}: a {kind} is no router: name a nat: port");
    Ok(spec)
}

fn texts(spec: &PortSpec) -> Vec<String> {
    spec.nat.forwards.iter().map(ToString::to_string).collect()
}

fn with(spec: &PortSpec, more: &[String]) -> anyhow::Result<Vec<String>> {
    let mut all = texts(spec);
    for text in more {
        ensure!(!all.contains(text), "{}: {text} is there already", spec.name);
        all.push(text.clone());
    }
    Ok(all)
}

fn without(spec: &PortSpec, less: &[String]) -> anyhow::Result<Vec<String>> {
    let mut all = texts(spec);
    for text in less {
        let is_it = |it: &String| it == text || place(it) == Some(text.trim_end_matches(':'));
        let Some(at) = all.iter().position(is_it) else {
            let name = &spec.name;
            match all.is_empty() {
                true => bail!("{name}: there is no forward {text}, nor any other"),
                false => bail!("{name}: there is no forward {text}: it has {}", all.join(" ")),
            }
        };
        all.remove(at);
    }
    Ok(all)
}

/// The text in front of the guest and its port.
fn place(text: &str) -> Option<&str> {
    let (rest, _) = text.rsplit_once(':')?;
    Some(rest.rsplit_once(':')?.0)
}

/// A forward with its router.
#[derive(Debug, Serialize)]
struct Listed {
    router: String,
    #[serde(flatten)]
    forward: ShownForward,
}

#[derive(Debug, Serialize)]
struct ListReply {
    version: u32,
    ok: bool,
    forwards: Vec<Listed>,
}

fn list(router: Option<&str>, args: &AskArgs) -> anyhow::Result<()> {
    let control = args.control_or_default();
    let routers = match router {
        Some(name) => vec![one_router(name, args)?],
        None => {
            let specs = ports(&control)?.ports;
            specs.iter().filter_map(spec_of).filter(|spec| spec.kind == PortKind::Nat).collect()
        }
    };
    let (mut forwards, mut rows) = (Vec::new(), Vec::new());
    for spec in routers {
        let question = PortShowQuestion { name: spec.name.clone(), guest: None };
        let mut shown: PortShowReply = ask(&control, &Request::PortShow(question))?;
        place_users::name_in(&mut shown.forwards, &control);
        for forward in shown.forwards {
            let [at, to, state] = router_view::forward(&forward, &shown.guests);
            rows.push([spec.name.clone(), at, to, state]);
            forwards.push(Listed { router: spec.name.clone(), forward });
        }
    }
    let reply = ListReply { version: PROTOCOL_VERSION, ok: true, forwards };
    print(args, &reply, || match rows.is_empty() {
        true => "no place of this machine leads into a guest\n".to_owned(),
        false => {
            layout::rows(["router", "forward", "leads to", "state"], &rows, &[], layout::width())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::flags;

    #[test]
    fn forwards_come_and_go_one_by_one() {
        let typed =
            "net=nat:,forward=tcp:8080:vm0:80+unix:/run/web.sock:vm0:80+tcp:[::1]:81:vm1:81";
        let low = flags::parse_port(typed).expect("a port");
        let spec = PortSpec::resolve(&low).expect("a router");
        let all = texts(&spec);
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        let more = with(&spec, &words(&["tcp:2222:vm0:22"])).expect("one more");
        assert_eq!(more.len(), 4);
        assert!(with(&spec, &words(&["tcp:8080:vm0:80"])).is_err());
        for word in ["tcp:8080:vm0:80", "tcp:8080", "tcp:8080:"] {
            assert_eq!(without(&spec, &words(&[word])).expect("it is there"), all[1..], "{word}");
        }
        let left = without(&spec, &words(&["unix:/run/web.sock", "tcp:[::1]:81"]));
        assert_eq!(left.expect("both are there"), all[..1]);
        let why = without(&spec, &words(&["tcp:1"])).expect_err("it is not there").to_string();
        assert!(
            why.starts_with("net: there is no forward tcp:1: it has tcp:8080:vm0:80 "),
            "{why}"
        );
    }
}
