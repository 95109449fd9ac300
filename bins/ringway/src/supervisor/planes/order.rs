//! Orders to the data plane, as values.

use std::cell::RefCell;
use std::rc::Rc;

use ringway_supervisor::changes::Change;
use ringway_switch::PortId;
use tracing::error;

use crate::config::PortSpec;
use crate::control::{ChangeReply, PROTOCOL_VERSION, refusal, reply_line};
use crate::supervisor::clients::control_client::ClientId;
use crate::supervisor::clients::control_socket::ControlSocket;

/// Who asked for a change, and what is to be answered beside whether it was done.
#[derive(Debug, Clone, Default)]
pub struct Requester {
    /// `None`: the file, or the command line.
    pub client: Option<ClientId>,
    /// The report on the file that it is a part of.
    pub report: Option<Rc<ReloadReport>>,
    /// Options that only the next guest will see.
    pub at_next_connection: Vec<&'static str>,
    /// Warnings about what is probably not meant.
    pub warnings: Vec<String>,
}

/// Failures and warnings of a file, beside what has changed.
#[derive(Debug, Default)]
pub struct ReloadReport {
    failures: RefCell<Vec<String>>,
    warnings: RefCell<Vec<String>>,
}

impl ReloadReport {
    pub fn failures(&self) -> Vec<String> {
        self.failures.borrow().clone()
    }

    pub fn warnings(&self) -> Vec<String> {
        self.warnings.borrow().clone()
    }
}

impl Requester {
    /// An order that a file gives; who asked is answered at its end.
    pub fn by(report: &Rc<ReloadReport>) -> Self {
        Self { report: Some(report.clone()), ..Self::default() }
    }

    /// The file has asked for it, or the command line.
    fn is_of_file(&self) -> bool {
        self.report.is_some()
    }

    /// A change was carried out: who asked for it is told.
    pub fn is_answered(&self, control: &mut ControlSocket, guest_told: bool) {
        let Some(client) = self.client else { return };
        let reply = ChangeReply {
            version: PROTOCOL_VERSION,
            ok: true,
            guest_told,
            at_next_connection: self.at_next_connection.iter().map(ToString::to_string).collect(),
            warnings: self.warnings.clone(),
        };
        control.answer_client(client, &reply_line(&reply));
    }

    /// A change of that port was not carried out.
    pub fn is_refused(&self, control: &mut ControlSocket, name: &str, why: &str) {
        let Some(client) = self.client else {
            error!(port = name, "{why}");
            return self.has_failed(|| format!("port {name} stays as it was: {why}"));
        };
        control.say_refused(why);
        control.answer_client(client, &refusal(&[why.to_owned()]));
    }

    /// A port stays as it was, and how.
    pub fn is_told_of(&self, name: &str, how: &str) {
        error!(port = name, "{how}");
        self.has_failed(|| format!("port {name} {how}"));
    }

    /// Something that the file says cannot be done, which the log says, too.
    pub fn has_failed(&self, why: impl FnOnce() -> String) {
        if let Some(report) = &self.report {
            report.failures.borrow_mut().push(why());
        }
    }

    /// Warnings about something that was done nevertheless, which the log says, too.
    pub fn warns(&self, of: impl IntoIterator<Item = String>) {
        if let Some(report) = &self.report {
            report.warnings.borrow_mut().extend(of);
        }
    }
}

/// An order that is not done yet.
#[derive(Debug, Clone)]
pub enum Order {
    /// A port of that name opens.
    Open {
        port: PortId,
        asked: Requester,
    },
    Change {
        change: Box<Change<PortSpec>>,
        asked: Requester,
    },
    Remove {
        port: PortId,
        asked: Requester,
    },
    Link {
        port: PortId,
    },
    Unlink {
        port: PortId,
    },
    LinksDown,
}

impl Order {
    /// A change of that port, with its options, and the file's, before.
    pub fn change(
        port: PortId,
        before: PortSpec,
        from_file: Option<PortSpec>,
        asked: Requester,
    ) -> Self {
        let (name, is_of_file) = (before.name.clone(), asked.is_of_file());
        let change = Change { port: port.0, name, before, from_file, is_of_file };
        Self::Change { change: Box::new(change), asked }
    }

    /// The same for another data plane: who has asked is answered by the first one.
    pub fn unasked(mut self) -> Self {
        match &mut self {
            Self::Open { asked, .. } | Self::Change { asked, .. } | Self::Remove { asked, .. } => {
                *asked = Requester::default();
            }
            Self::Link { .. } | Self::Unlink { .. } | Self::LinksDown => {}
        }
        self
    }
}

/// The outcome of an order.
pub struct OrderOutcome {
    pub is_told: bool,
    pub is_closing: bool,
    pub refusal: Option<String>,
}

impl OrderOutcome {
    /// One that no data plane has said.
    pub fn of(refusal: Option<String>) -> Self {
        Self { is_told: false, is_closing: false, refusal }
    }
}
