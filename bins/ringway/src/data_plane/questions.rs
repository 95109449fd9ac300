//! Questions of the control socket's clients that only the data plane can answer.

use std::os::fd::OwnedFd;

use anyhow::{Context, bail};
use ringway_switch::{KnownAddress, PortId, VlanId};
use serde::Serialize;

use super::{DataPlane, Port};
use crate::control::{
    FDB_PAGE_MAX, FdbEntry, FdbFlushQuestion, FdbFlushReply, FdbQuestion, FdbReply, LogReply,
    PROTOCOL_VERSION, Request, refusal, reply_line,
};
use crate::log;

const NS_PER_MS: u64 = 1_000_000;
const MS_PER_S: u64 = 1000;

/// A port and a VLAN, where one is meant.
type Place = (Option<PortId>, Option<VlanId>);

impl DataPlane {
    /// The answer to a line, without the newline.
    pub(super) fn answer(&mut self, line: &[u8], fds: Vec<OwnedFd>) -> String {
        match Request::parse(&String::from_utf8_lossy(line)) {
            Ok(Request::Stats | Request::PortList) => reply_line(&self.stats()),
            Ok(Request::Fdb(question)) => reply_or_refusal(self.addresses(&question)),
            Ok(Request::FdbFlush(question)) => reply_or_refusal(self.flush(&question)),
            Ok(Request::PortShow(question)) => reply_or_refusal(self.show(&question)),
            Ok(Request::Log(question)) => reply_or_refusal(set_level(&question.level)),
            Ok(Request::Trace(question)) => reply_or_refusal(self.trace(&question)),
            Ok(Request::Capture(question)) => reply_or_refusal(self.start_capture(&question, fds)),
            Ok(_) => refusal(&["the data plane is not asked this".to_owned()]),
            Err(why) => refusal(&[why]),
        }
    }

    fn addresses(&self, question: &FdbQuestion) -> anyhow::Result<FdbReply> {
        let (port, vlan) = self.place((question.name.as_deref(), question.vlan))?;
        let now_ms = ringway_host::now().0 / NS_PER_MS;
        let wanted = |known: &KnownAddress| {
            port.is_none_or(|port| known.port == port)
                && (vlan.is_none() || known.vlan == vlan)
                && self.ports.contains_key(&known.port)
        };
        let page = self.worker.shared().addresses(question.after, FDB_PAGE_MAX, now_ms, wanted);
        Ok(FdbReply {
            version: PROTOCOL_VERSION,
            ok: true,
            addresses: page.addresses.iter().map(|known| self.entry(known)).collect(),
            next: page.next,
        })
    }

    /// The next data plane is to know of it, too.
    fn flush(&mut self, question: &FdbFlushQuestion) -> anyhow::Result<FdbFlushReply> {
        let (port, vlan) = self.place((question.name.as_deref(), question.vlan))?;
        let flushed = self.worker.shared().flush(port, vlan);
        self.notes.is_changed();
        Ok(FdbFlushReply { version: PROTOCOL_VERSION, ok: true, flushed })
    }

    fn place(&self, (name, vlan): (Option<&str>, Option<u16>)) -> anyhow::Result<Place> {
        let port = name.map(|name| self.port_called(name)).transpose()?;
        let vlan = vlan.map(|vlan| VlanId::new(vlan).context("there is no such VLAN"));
        Ok((port, vlan.transpose()?))
    }

    fn entry(&self, known: &KnownAddress) -> FdbEntry {
        let port = self.ports.get(&known.port);
        let locked = port.and_then(|port| port.spec.rules.policy().locked_mac);
        let kind = match known.age_ms {
            None if locked == Some(known.address) => "locked",
            None => "static",
            Some(_) if known.is_own => "own",
            Some(_) => "learned",
        };
        FdbEntry {
            port: self.name(known.port).to_owned(),
            vlan: known.vlan.map(VlanId::raw),
            mac: known.address.to_string(),
            age_s: known.age_ms.map(|age_ms| age_ms / MS_PER_S),
            kind: kind.to_owned(),
        }
    }

    pub(super) fn port_called(&self, name: &str) -> anyhow::Result<PortId> {
        let is_it = |port: &Port| port.spec.name == name && !port.is_leaving();
        let found = self.ports.iter().find(|(_, port)| is_it(port));
        match found {
            Some((id, _)) => Ok(*id),
            None => bail!("there is no port called {name:?}"),
        }
    }
}

fn set_level(level: &str) -> anyhow::Result<LogReply> {
    let before = log::set_level(level).context("the log has no such level")?;
    Ok(LogReply { version: PROTOCOL_VERSION, ok: true, level: level.to_owned(), before })
}

fn reply_or_refusal(reply: anyhow::Result<impl Serialize>) -> String {
    match reply {
        Ok(reply) => reply_line(&reply),
        Err(why) => refusal(&[format!("{why:#}")]),
    }
}
