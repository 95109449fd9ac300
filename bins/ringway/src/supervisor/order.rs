//! Orders to the data plane, as values.

use std::cell::RefCell;
use std::rc::Rc;

use ringway_switch::PortId;

use super::control_client::ClientId;
use crate::config::PortSpec;

/// Who asked for a change, and what is to be answered beside whether it was done.
#[derive(Debug, Clone, Default)]
pub(super) struct Requester {
    /// `None`: the file, or the command line.
    pub(super) client: Option<ClientId>,
    /// The report on the file that it is a part of.
    pub(super) report: Option<Rc<Report>>,
    /// Options that only the next guest will see.
    pub(super) at_next_connection: Vec<&'static str>,
    /// Warnings about what is probably not meant.
    pub(super) warnings: Vec<String>,
}

/// Failures and warnings of a file, beside what has changed.
#[derive(Debug, Default)]
pub(super) struct Report {
    failures: RefCell<Vec<String>>,
    warnings: RefCell<Vec<String>>,
}

impl Report {
    pub(super) fn failures(&self) -> Vec<String> {
        self.failures.borrow().clone()
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        self.warnings.borrow().clone()
    }
}

impl Requester {
    /// An order that a file gives; who asked is answered at its end.
    pub(super) fn by(report: &Rc<Report>) -> Self {
        Self { report: Some(report.clone()), ..Self::default() }
    }

    /// Something that the file says cannot be done, which the log says, too.
    pub(super) fn has_failed(&self, why: impl FnOnce() -> String) {
        if let Some(report) = &self.report {
            report.failures.borrow_mut().push(why());
        }
    }

    /// Warnings about something that was done nevertheless, which the log says, too.
    pub(super) fn warns(&self, of: impl IntoIterator<Item = String>) {
        if let Some(report) = &self.report {
            report.warnings.borrow_mut().extend(of);
        }
    }
}

/// An order that is not done yet.
#[derive(Debug, Clone)]
pub(super) enum Order {
    /// A port of that name opens.
    Open {
        port: PortId,
        asked: Requester,
    },
    /// A port changes; what it was before.
    Change {
        port: PortId,
        before: Box<PortSpec>,
        from_file: Option<Box<PortSpec>>,
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
    /// The same for another data plane: who has asked is answered by the first one.
    pub(super) fn unasked(mut self) -> Self {
        if let Self::Open { asked, .. } | Self::Change { asked, .. } | Self::Remove { asked, .. } =
            &mut self
        {
            *asked = Requester::default();
        }
        self
    }
}

/// The outcome of an order.
pub(super) struct OrderOutcome {
    pub(super) is_told: bool,
    pub(super) is_closing: bool,
    pub(super) refusal: Option<String>,
}
