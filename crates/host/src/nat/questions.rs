//! Questions for names: they go to one of the host's resolvers, and to the next one by themselves
//! where that is silent, is not there, or says that it does not answer.

use ringway_nat::{Failure, FlowId, Guest, Problem, Protocol};
use ringway_net::Nanos;

use crate::nat::part::FramePart;
use crate::nat::socket::Socket;
use crate::nat::sockets::Sockets;

/// Questions that are looked at in one visit, because they have waited for long.
const LATE_MAX: usize = 64;

impl Sockets {
    /// Goes to the resolver that the guest asks first, or to the next one that is not out of reach.
    pub(crate) fn open_to_resolver(
        &mut self,
        flow: FlowId,
        guest: Guest,
        protocol: Protocol,
        now: Nanos,
    ) -> Result<Socket, Failure> {
        let mut question = self.resolvers.question(guest, now);
        loop {
            let none = Failure::Unreachable(Problem::PortUnreachable);
            let to = self.resolvers.place(&question).ok_or(none)?;
            match self.table.open_to(flow, protocol, to) {
                Ok(mut socket) => {
                    if protocol == Protocol::Udp {
                        // Each answer is looked at.
                        socket.take_several(false);
                    }
                    socket.question = Some(question);
                    return Ok(socket);
                }
                Err(why @ (Failure::NoRoom | Failure::NoPort)) => return Err(why),
                Err(why) => {
                    // A resolver need not answer by TCP.
                    if protocol == Protocol::Udp {
                        self.resolvers.failed(&question);
                    }
                    if !self.resolvers.move_on(&mut question, now) {
                        return Err(why);
                    }
                }
            }
        }
    }

    /// A guest's question is remembered until it is answered.
    pub(crate) fn note_question(&mut self, flow: FlowId, part: FramePart<'_>, now: Nanos) {
        let Some((socket, _)) = self.table.of(flow) else { return };
        if let Some(question) = &mut socket.question {
            let mut message = Vec::with_capacity(part.len);
            part.copy_to(&mut message);
            question.ask(message, now);
            self.watch_question(flow);
        }
    }

    /// The flow is looked at when its resolver has been silent for too long.
    pub(crate) fn watch_question(&mut self, flow: FlowId) {
        let Some((socket, _)) = self.table.of(flow) else { return };
        let is_connecting = socket.is_connecting;
        let Some(question) = &mut socket.question else { return };
        let waits = is_connecting || !question.messages.is_empty();
        if waits && !question.is_watched {
            question.is_watched = true;
            let at = question.late_at();
            self.asked.push_back((at, flow));
        }
    }

    /// Resolvers that have been silent for too long are asked after the others by the same guest,
    /// and the next one is asked instead.
    pub(crate) fn ask_others(&mut self, now: Nanos) {
        for _ in 0..LATE_MAX {
            let Some((at, flow)) = self.asked.front().copied().filter(|(at, _)| *at <= now) else {
                return;
            };
            self.asked.pop_front();
            let Some((socket, _)) = self.table.of(flow) else { continue };
            let is_connecting = socket.is_connecting;
            let Some(question) = &mut socket.question else { continue };
            question.is_watched = false;
            let is_late = question.late_at() <= now;
            if is_late && (is_connecting || !question.messages.is_empty()) {
                let question = question.clone();
                if !is_connecting {
                    self.resolvers.failed(&question);
                }
                self.asks_next(flow, now);
            } else if !is_late && at != question.late_at() {
                self.watch_question(flow);
            }
        }
    }

    /// Asks the next resolver what this one does not answer; `false`: there is no other one.
    pub(crate) fn asks_next(&mut self, flow: FlowId, now: Nanos) -> bool {
        let Some((socket, _)) = self.table.of(flow) else { return false };
        let protocol = socket.protocol;
        let Some(mut question) = socket.question.clone() else { return false };
        // A new socket: the next one may be of the other family.
        while self.resolvers.move_on(&mut question, now) {
            let place = self.resolvers.place(&question);
            let Some(Ok(mut socket)) = place.map(|to| self.table.open_to(flow, protocol, to))
            else {
                continue;
            };
            for message in &question.messages {
                // Datagrams get lost.
                let _ = rustix::io::write(&socket, message);
            }
            if protocol == Protocol::Udp {
                socket.take_several(false);
            }
            question.is_watched = false;
            socket.question = Some(question);
            self.table.replace(socket);
            self.watch_question(flow);
            return true;
        }
        false
    }

    /// Whether that message of a resolver does not answer, and the next one is asked instead.
    pub(crate) fn is_no_answer(&mut self, flow: FlowId, message: &[u8], now: Nanos) -> bool {
        let Some((socket, _)) = self.table.of(flow) else { return false };
        let Some(question) = &mut socket.question else { return false };
        question.is_no_answer(message) && self.asks_next(flow, now)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};
    use std::os::fd::AsFd;

    use ringway_nat::{Action, Target};

    use super::*;
    use crate::memory::scratch::Scratch;
    use crate::nat::calls::Skipped;

    const SECOND_NS: u64 = 1_000_000_000;
    const FLOW: FlowId = FlowId::from_u64(0);
    const GUEST: Guest = Guest(1);

    fn asking(resolvers: &[SocketAddr]) -> Sockets {
        let mut sockets = Sockets::new(4, 4, Skipped::new(true)).unwrap();
        sockets.resolvers.set(resolvers);
        let (flow, protocol, to) = (FLOW, Protocol::Udp, Target::Resolver(GUEST));
        let open = Action::Open { flow, protocol, to, port: None };
        sockets.carry_out(open, None, Nanos(0));
        assert!(sockets.table.news.is_empty());
        let scratch = Scratch::new(12);
        scratch.bytes().write(0, &[7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        let message = FramePart { pieces: &[scratch.bytes()], skip: 0, len: 12 };
        sockets.note_question(FLOW, message, Nanos(0));
        sockets
    }

    fn resolver(at: &str) -> UdpSocket {
        let socket = UdpSocket::bind(at).unwrap();
        socket.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        socket
    }

    fn asked(sockets: &mut Sockets) -> SocketAddr {
        let (socket, _) = sockets.table.of(FLOW).unwrap();
        UdpSocket::from(socket.as_fd().try_clone_to_owned().unwrap()).peer_addr().unwrap()
    }

    /// No socket connects there.
    const OUT_OF_REACH: ([u8; 4], u16) = ([255; 4], 53);

    #[test]
    fn a_resolver_out_of_reach_is_not_asked() {
        let mut sockets = asking(&[OUT_OF_REACH.into(), ([127, 0, 0, 1], 53).into()]);
        assert_eq!(asked(&mut sockets), ([127, 0, 0, 1], 53).into());
    }

    #[test]
    fn a_silent_resolver_makes_room_for_one_of_the_other_family() {
        let Ok(other) = UdpSocket::bind("[::1]:0") else {
            return println!("skipped: this machine has no such addresses");
        };
        let (first, second) = (resolver("127.0.0.1:0"), other.local_addr().unwrap());
        let first_at = first.local_addr().unwrap();
        let mut sockets = asking(&[first_at, OUT_OF_REACH.into(), second]);
        sockets.ask_others(Nanos(2 * SECOND_NS - 1));
        assert_eq!(asked(&mut sockets), first_at);
        sockets.ask_others(Nanos(2 * SECOND_NS));
        assert_eq!(asked(&mut sockets), second);
        let mut got = [0; 64];
        assert_eq!(other.recv(&mut got).unwrap(), 12, "it is asked by itself");
        assert_eq!(sockets.table.count(), 1);
        let first_now =
            |guest| sockets.resolvers.place(&sockets.resolvers.question(guest, Nanos(0)));
        assert_eq!(first_now(GUEST), Some(OUT_OF_REACH.into()), "remembered");
        assert_eq!(first_now(Guest(2)), Some(first_at), "perhaps it is this guest's question");
        sockets.ask_others(Nanos(9 * SECOND_NS));
        assert_eq!(asked(&mut sockets), second, "all were tried");
    }

    #[test]
    fn no_question_of_a_table_before_is_looked_at() {
        let mut sockets = asking(&[([127, 0, 0, 1], 53).into()]);
        assert_eq!(sockets.asked.len(), 1);
        sockets.clear();
        assert!(sockets.asked.is_empty(), "its flow may have the name of another one");
    }

    #[test]
    fn who_does_not_answer_is_no_reason_to_wait() {
        for (code, moves) in [(0, false), (3, false), (2, true), (4, true), (5, true)] {
            let [one, two] = [(); 2].map(|()| resolver("127.0.0.1:0"));
            let places = [&one, &two].map(|it| it.local_addr().unwrap());
            let mut sockets = asking(&places);
            let answer = [7, 7, 0x81, 0x80 | code, 0, 1, 0, 0, 0, 0, 0, 0];
            assert_eq!(sockets.is_no_answer(FLOW, &answer, Nanos(1)), moves, "{code}");
            assert_eq!(asked(&mut sockets), places[usize::from(moves)], "{code}");
            assert!(!sockets.is_no_answer(FLOW, &answer, Nanos(2)), "there is no third one");
        }
    }
}
