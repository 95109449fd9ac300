//! Bridges behind taps that ask for it (`neighbours=sync`) know the IP addresses of the guests that
//! are here. So they, and all hosts of a fabric, answer for them instead of asking everywhere.
//!
//! How: what is wanted is compared with what the bridges have, when it changes, soon after, and now
//! and then: whatever was lost, or was changed by others, is right after the next look. (Routes of
//! a guest's old place, and their end, may come after the guest.) A ringway that ends takes its
//! neighbours along; what one that was killed has left, the next one finds.
//!
//! Entries that are not a ringway's stay: those of operators and other programs are not replaced
//! nor deleted, and no guest has an address of this machine, or, unless it is locked to it, one
//! outside the networks of the bridge.
//!
//! Limits: one ringway for each bridge; the untagged VLAN of each tap. What guests were seen to use
//! counts where they have no `locked_ips`; a data plane that is new sees it anew.

use std::time::{Duration, Instant};

use ringway_net::MacAddress;
use tracing::{debug, warn};

use super::departed::taps;
use crate::bridge_fdb::neighbour::Neighbour;
use crate::bridge_fdb::{self, Netlink, Objection, Resident, Synced, TapPort, bridge_of};
use crate::chatter::Chatter;
use crate::supervisor::ports::Ports;
use crate::supervisor::ports::port::SupervisedPort;

/// As often as this at most: a guest cannot keep the supervisor busy by coming and going.
const SOONEST: Duration = Duration::from_millis(100);

/// After a change, and twice as long each time that nothing was to be done; as often as the second
/// at least.
const AGAIN: Duration = Duration::from_millis(250);
const LATEST: Duration = Duration::from_secs(10);
/// While another program's entry, or the kernel's, is where one is to come.
const LATEST_WAITING: Duration = Duration::from_secs(1);

/// After a failure.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Taps and residents that bridges are to be told of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Wanted {
    taps: Vec<TapPort>,
    residents: Vec<Resident>,
}

/// Neighbours that bridges were told of.
#[derive(Debug)]
pub struct Neighbours {
    wanted: Wanted,
    /// Those that have been told something, and may have it.
    bridges: Vec<u32>,
    due: Option<Instant>,
    last: Option<Instant>,
    /// Until the next look.
    pause: Duration,
    /// Those that bridges were not told of at the last look, and whether the log says so: what is
    /// in the way for a moment only, such as a route of a guest's old place, needs no line.
    refused: Vec<(Neighbour, Objection, bool)>,
    chatter: Chatter,
}

impl Neighbours {
    pub fn new() -> Self {
        let (wanted, bridges) = (Wanted::default(), Vec::new());
        let (due, last, chatter) = (None, None, Chatter::new());
        Self { wanted, bridges, due, last, pause: AGAIN, refused: Vec::new(), chatter }
    }

    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// So it is now.
    fn note(&mut self, wanted: Wanted, now: Instant) {
        if wanted != self.wanted {
            (self.wanted, self.pause) = (wanted, AGAIN);
            self.due = Some(self.last.map_or(now, |last| now.max(last + SOONEST)));
        }
    }

    /// These were told. If one neighbour was refused, the others are there, and what was to go may
    /// be there, too.
    fn note_bridges(&mut self, mut bridges: Vec<u32>, is_done: bool) {
        if !is_done {
            bridges.extend(&self.bridges);
            bridges.sort_unstable();
            bridges.dedup();
        }
        self.bridges = bridges;
    }

    fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// They were not told of these.
    fn note_refused(&mut self, refused: Vec<(Neighbour, Objection)>) {
        let before = std::mem::take(&mut self.refused);
        for (neighbour, why) in refused {
            let find = |(one, other, _): &&_| (*one, *other) == (neighbour, why);
            let is_said = before.iter().find(find).map(|(.., is_said)| *is_said);
            if is_said == Some(false) {
                let Neighbour { ip, address, .. } = neighbour;
                let mac = MacAddress(address);
                self.chatter.say_of(None, || {
                    warn!("{ip} of {mac} is not told to the bridge: {why}");
                });
            }
            self.refused.push((neighbour, why, is_said.is_some()));
        }
    }

    /// They were told of so many changes, or could not be.
    fn have_been_told(&mut self, changes: Option<usize>, is_waiting: bool, now: Instant) {
        let pause = match changes {
            None => RETRY_AFTER,
            Some(0) => self.pause,
            Some(_) => AGAIN,
        };
        let latest = if is_waiting { LATEST_WAITING } else { LATEST };
        let pause = pause.min(latest);
        (self.last, self.pause) = (Some(now), latest.min(2 * pause));
        // Where nothing is wanted any more, that was the last time.
        let is_over = changes.is_some() && self.wanted.taps.is_empty();
        self.due = Some(now + pause).filter(|_| !is_over);
    }

    /// Asks the kernel, if something has changed or the time has come.
    pub fn tell(&mut self, ports: &Ports) {
        let taps = taps(ports, |spec| spec.syncs_neighbours);
        let residents = if taps.is_empty() {
            Vec::new()
        } else {
            ports.values().flat_map(residents_of).collect()
        };
        let now = Instant::now();
        self.note(Wanted { taps, residents }, now);
        if !self.is_due(now) {
            return;
        }
        let (count, is_waiting, why) = match self.sync() {
            Ok(Synced { failure, count, is_waiting, .. }) => (count, is_waiting, failure),
            Err(why) => (0, false, Some(why)),
        };
        let changes = why.is_none().then_some(count);
        self.have_been_told(changes, is_waiting, now);
        if count > 0 {
            debug!("{count} neighbours of bridges have come or gone");
        }
        if let Some(why) = why {
            let why = format!("bridges do not know where guests are: {why:#}");
            self.chatter.say_of(None, || warn!("{why}"));
        }
    }

    /// No guest is here any more.
    pub fn take_along(&mut self) {
        if !self.bridges.is_empty() {
            self.wanted.residents.clear();
            let _ = self.sync();
        }
    }

    fn sync(&mut self) -> anyhow::Result<Synced> {
        let (state, mut netlink) = (self, Netlink::open()?);
        let (links, Wanted { taps, residents }) = (netlink.links()?, &state.wanted);
        let bridges = taps.iter().filter_map(|tap| bridge_of(&links, tap.interface));
        let bridges: Vec<u32> = bridges.collect();
        let all = [&bridges[..], &state.bridges].concat();
        let neighbours = bridge_fdb::neighbours(&links, taps, residents);
        let done = netlink.sync(&all, &neighbours);
        state.note_bridges(bridges, done.as_ref().is_ok_and(|done| done.failure.is_none()));
        let mut done = done?;
        state.note_refused(std::mem::take(&mut done.refused));
        Ok(done)
    }
}

/// The IP addresses behind a port: those that it is locked to, or else those that were seen.
fn residents_of(port: &SupervisedPort) -> Vec<Resident> {
    let locked = port.spec.rules.policy().locked_ips;
    if locked.is_empty() {
        let seen = port.seen_ips.iter().filter(|_| port.is_here());
        return seen.map(Resident::seen).collect();
    }
    let Some((vlan, address)) = port.station() else { return vec![] };
    let resident = |ip| Resident { vlan: vlan.raw(), address, ip, is_locked: true };
    locked.into_iter().map(resident).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_switch::Vlan;

    fn wanted(last: u8) -> Wanted {
        let ip = [10, 0, 0, last].into();
        let residents = vec![Resident { vlan: 7, address: [2; 6], ip, is_locked: false }];
        Wanted { taps: vec![TapPort { interface: 1, vlan: Vlan::None }], residents }
    }

    #[test]
    fn bridges_are_told_of_changes_not_too_often_and_now_and_then() {
        let (mut told, start) = (Neighbours::new(), Instant::now());
        told.note(Wanted::default(), start);
        assert_eq!(told.due(), None, "no tap asks");
        told.note(wanted(1), start);
        assert!(told.is_due(start));
        told.have_been_told(Some(1), false, start);
        told.note(wanted(2), start + SOONEST / 2);
        assert_eq!(told.due(), Some(start + SOONEST));
        told.have_been_told(Some(1), false, start + SOONEST);
        told.note(wanted(2), start + 2 * SOONEST);
        let (mut now, mut pauses) = (start + SOONEST, Vec::new());
        for changes in [0, 0, 0, 0, 0, 0, 0, 1] {
            let due = told.due().expect("there is more");
            pauses.push(due - now);
            now = due;
            told.have_been_told(Some(changes), false, now);
        }
        pauses.push(told.due().expect("there is more") - now);
        let doubled = [1, 2, 4, 8, 16, 32].map(|count| AGAIN * count);
        assert_eq!((&pauses[..6], &pauses[6..]), (&doubled[..], &[LATEST, LATEST, AGAIN][..]));
    }

    #[test]
    fn what_failed_is_tried_again_and_the_last_is_the_last() {
        let (mut told, start) = (Neighbours::new(), Instant::now());
        told.note(wanted(1), start);
        told.have_been_told(None, false, start);
        assert_eq!(told.due(), Some(start + RETRY_AFTER));
        told.note(Wanted::default(), start + LATEST);
        assert!(told.is_due(start + LATEST));
        told.have_been_told(Some(1), false, start + LATEST);
        assert_eq!(told.due(), None);
    }

    #[test]
    fn bridges_that_refused_something_are_told_again_and_at_the_end() {
        let mut told = Neighbours::new();
        let steps: [(u32, bool, &[u32]); 4] =
            [(8, false, &[8]), (9, false, &[8, 9]), (9, false, &[8, 9]), (9, true, &[9])];
        for (bridge, is_done, left) in steps {
            told.note_bridges(vec![bridge], is_done);
            assert_eq!(told.bridges, left, "{bridge} {is_done}");
        }
    }
}
