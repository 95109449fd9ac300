//! The reports that the kernel has received of datagrams that did not arrive, as news of their
//! flows. A socket that listens has those of all its clients, told apart by where each datagram was
//! to go.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use ringway_nat::{Event, FlowId, Protocol};
use ringway_net::Nanos;

use crate::nat::calls::{SocketOption, option};
use crate::nat::error_queue::{self, Report};
use crate::nat::sockets::Sockets;

/// Reports taken from the socket of one flow at a time.
const REPORTS_MAX: usize = 8;

/// The same of a socket with many flows.
const MANY_REPORTS_MAX: usize = 64;

impl Sockets {
    /// Of the datagrams of that flow.
    pub(crate) fn take_reports(&mut self, flow: FlowId, now: Nanos) {
        let Some((socket, _)) = self.table.of(flow) else { return };
        if let Some(bound) = socket.way.map(|way| way.bound()) {
            return self.take_reports_at(bound);
        }
        if let Some(number) = socket.port {
            return self.take_port_reports(number);
        }
        let mut reports = Vec::new();
        for _ in 0..REPORTS_MAX {
            let Some(report) = error_queue::next(socket.as_fd()) else { break };
            reports.extend(report);
        }
        // A connected socket tells an error when the next datagram is sent.
        reports.retain(|report| report.from.is_some() || socket.to.is_some());
        // One that is left there wakes the worker again and again.
        let _ = socket.take_error();
        if let Some(question) = socket.question.clone().filter(|_| !reports.is_empty()) {
            self.resolvers.failed(&question);
            if self.asks_next(flow, now) {
                return;
            }
        }
        self.table.news.extend(reports.iter().map(|report| (flow, event(report))));
    }

    /// Of the datagrams to clients of the listener with that number.
    pub(crate) fn take_client_reports(&mut self, number: usize) {
        let listener = self.listeners.at(number);
        let bound = listener.and_then(|listener| listener.forward.at.address());
        if let Some(bound) = bound {
            self.take_reports_at(bound);
        }
    }

    fn take_reports_at(&mut self, bound: SocketAddr) {
        let Some(listener) = self.listeners.bound_to(Protocol::Udp, bound) else { return };
        let found = reports_of_many(listener.fd.as_fd(), |to| self.table.flow_to(to, bound));
        self.table.news.extend(found);
    }
}

/// Of the socket of many flows; `flow_of` finds that whose datagrams go to a place.
pub(crate) fn reports_of_many(
    fd: BorrowedFd<'_>,
    flow_of: impl Fn(SocketAddr) -> Option<FlowId>,
) -> Vec<(FlowId, Event)> {
    let mut found = Vec::new();
    for _ in 0..MANY_REPORTS_MAX {
        let Some(report) = error_queue::next(fd) else { break };
        let Some((report, to)) = report.and_then(|report| Some((report, report.to?))) else {
            continue;
        };
        found.extend(flow_of(to).map(|flow| (flow, event(&report))));
    }
    // One that is left there wakes the worker again and again.
    let _ = option(fd, SocketOption(libc::SOL_SOCKET, libc::SO_ERROR));
    found
}

fn event(report: &Report) -> Event {
    Event::Report { from: report.from, problem: report.problem }
}
