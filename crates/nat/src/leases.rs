//! The IPv4 addresses that guests have.
//!
//! A lease belongs to a port and a MAC address behind it, and is kept as long as the router runs:
//! its end only says when another guest may have it. Limits: [`LEASES_PER_PORT_MAX`].

use std::net::Ipv4Addr;

use ringway_net::{MacAddress, Nanos};

use crate::addresses::{Plan, Prefix4};

/// Most leases behind one port.
pub const LEASES_PER_PORT_MAX: usize = 8;

/// Most leases of all ports; a guest's request walks them all.
const LEASES_MAX: usize = 1024;

/// How long an address is not handed out that a guest found to be used.
const DECLINED_NS: u64 = 600_000_000_000;

#[derive(Debug, Clone)]
struct Lease {
    port: String,
    /// `None`: declined.
    mac: Option<MacAddress>,
    address: Ipv4Addr,
    since: Nanos,
    until: Nanos,
    /// Until when it comes without an IPv6 address.
    without6_until: Nanos,
    /// It was offered, and its guest has not taken it.
    is_offer: bool,
}

/// A station that has a lease, or wants one: the name of its port, and its MAC address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lessee<'a> {
    pub port: &'a str,
    pub mac: MacAddress,
}

/// Since when a lease holds, and until when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub since: Nanos,
    pub until: Nanos,
}

/// One lease, as it is shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leased<'a> {
    pub port: &'a str,
    pub mac: MacAddress,
    pub address: Ipv4Addr,
    pub since: Nanos,
    /// Until when no other port may have the address.
    pub until: Nanos,
}

/// The holder of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holder<'a> {
    None,
    /// The stations behind this port may use it.
    This,
    Other(&'a str),
}

impl Times {
    /// Those of a lease that begins now.
    pub fn from_now(plan: &Plan, now: Nanos) -> Self {
        Self { since: now, until: now.plus(plan.held_ns()) }
    }
}

impl Lease {
    fn is_of(&self, lessee: Lessee<'_>) -> bool {
        self.port == lessee.port && self.mac == Some(lessee.mac)
    }

    fn is_behind(&self, port: &str) -> bool {
        self.port == port && self.mac.is_some()
    }
}

/// All leases of a network.
#[derive(Debug, Clone)]
pub struct Leases {
    prefix: Prefix4,
    leases: Vec<Lease>,
    /// There are others than when that was asked.
    has_news: bool,
    /// When that was asked last, and the first one may be over of those that held then.
    noted: (Nanos, Nanos),
    asked: Option<Ipv4Addr>,
}

impl Leases {
    /// No leases.
    pub fn new(prefix: Prefix4) -> Self {
        Self {
            prefix,
            leases: Vec::new(),
            has_news: false,
            noted: (Nanos(0), Nanos(0)),
            asked: None,
        }
    }

    /// Ports, and the addresses that are leased behind them.
    pub fn all(&self) -> impl Iterator<Item = (&str, Ipv4Addr)> {
        self.owned().map(|lease| (lease.port, lease.address))
    }

    /// All that have an owner.
    pub(crate) fn owned(&self) -> impl Iterator<Item = Leased<'_>> {
        self.leases.iter().filter_map(|lease| {
            let Lease { port, mac, address, since, until, .. } = lease;
            Some(Leased { port, mac: (*mac)?, address: *address, since: *since, until: *until })
        })
    }

    /// The address that a MAC address behind a port has.
    pub fn address_of(&self, port: &str, mac: MacAddress) -> Option<Ipv4Addr> {
        let lessee = Lessee { port, mac };
        self.leases.iter().find(|lease| lease.is_of(lessee)).map(|lease| lease.address)
    }

    /// The holder of that address, as seen from this port.
    pub(crate) fn holder(&self, port: &str, address: Ipv4Addr) -> Holder<'_> {
        match self.leases.iter().find(|lease| lease.address == address) {
            None => Holder::None,
            Some(lease) if lease.is_behind(port) => Holder::This,
            Some(lease) => Holder::Other(&lease.port),
        }
    }

    /// The port's leases that hold, or all where none does any more; the oldest first.
    pub(crate) fn behind(&self, port: &str, now: Nanos) -> impl Iterator<Item = Leased<'_>> {
        let is_it = move |lease: &Leased<'_>| lease.port == port;
        let any_holds = self.owned().filter(is_it).any(|lease| lease.until > now);
        self.owned().filter(is_it).filter(move |lease| !any_holds || lease.until > now)
    }

    /// Leases an address: the one that it had, the one that it wishes, or the lowest free one.
    /// `used`: addresses that are in use without a lease, and not free.
    ///
    /// `None`: none is free, or the port has [`LEASES_PER_PORT_MAX`] that hold.
    pub(crate) fn lease(
        &mut self,
        lessee: Lessee<'_>,
        wish: Option<Ipv4Addr>,
        times: Times,
        used: impl FnOnce() -> Vec<Ipv4Addr>,
    ) -> Option<Ipv4Addr> {
        if let Some(lease) = self.leases.iter_mut().find(|lease| lease.is_of(lessee)) {
            self.has_news |= lease.until <= times.since;
            lease.until = times.until;
            return Some(lease.address);
        }
        self.make_room_behind(lessee.port, times.since)?;
        let used = used();
        self.make_room(times.since, &used)?;
        let wish = wish.filter(|address| self.is_for_guests(*address));
        let wish = wish.filter(|address| self.is_free(*address) && !used.contains(address));
        let address = wish.or_else(|| self.lowest_free(&used))?;
        self.push(lessee, address, times);
        self.has_news = true;
        Some(address)
    }

    fn push(&mut self, lessee: Lessee<'_>, address: Ipv4Addr, times: Times) {
        let (port, mac, Times { since, until }) = (lessee.port.into(), Some(lessee.mac), times);
        let (without6_until, is_offer) = (Nanos(0), false);
        self.leases.push(Lease { port, mac, address, since, until, without6_until, is_offer });
    }

    /// A lease that was just made is only offered: whether a station has the address already is
    /// asked meanwhile (RFC 2131 §4.4.1).
    pub(crate) fn offer(&mut self, lessee: Lessee<'_>, now: Nanos) {
        let offered = self.leases.iter_mut().find(|lease| lease.is_of(lessee));
        if let Some(lease) = offered.filter(|lease| lease.since == now) {
            lease.is_offer = true;
            self.asked = Some(lease.address);
        }
    }

    /// The guest takes what was offered.
    pub(crate) fn take(&mut self, lessee: Lessee<'_>) {
        let taken = self.leases.iter_mut().find(|lease| lease.is_of(lessee));
        taken.into_iter().for_each(|lease| lease.is_offer = false);
    }

    /// The address that was just offered, and is to be asked for.
    pub(crate) fn take_asked(&mut self) -> Option<Ipv4Addr> {
        self.asked.take()
    }

    /// A station behind that port says that it has the address: an offer of it to another one is
    /// void.
    pub(crate) fn is_used(&mut self, port: &str, address: Ipv4Addr) {
        let is_void = |it: &Lease| it.is_offer && it.address == address && it.port != port;
        self.leases.retain(|lease| !is_void(lease));
    }

    /// Has a lease that another router has given, if there is room and the address is free.
    pub(crate) fn remember(&mut self, lessee: Lessee<'_>, address: Ipv4Addr, times: Times) {
        let of_port = self.leases.iter().filter(|lease| lease.port == lessee.port).count();
        let has_room = of_port < LEASES_PER_PORT_MAX && self.leases.len() < LEASES_MAX;
        let is_new = self.address_of(lessee.port, lessee.mac).is_none() && self.is_free(address);
        if has_room && is_new && self.is_for_guests(address) {
            self.push(lessee, address, times);
        }
    }

    /// Has leases that another router has given, and whose addresses no other port has here, in
    /// place of those that the port has. Ones that are over make room.
    pub(crate) fn adopt(&mut self, port: &str, all: &[(MacAddress, Ipv4Addr, Times)]) {
        let is_replaced = |lease: &Lease| {
            lease.port == port || all.iter().any(|(_, address, _)| *address == lease.address)
        };
        self.leases.retain(|lease| all.is_empty() || !is_replaced(lease));
        for (mac, address, times) in all.iter().copied() {
            let lessee = Lessee { port, mac };
            self.leases.retain(|lease| !lease.is_of(lessee) && lease.address != address);
            if self.leases.len() >= LEASES_MAX {
                self.forget_oldest(times.since, |lease| lease.port != port);
            }
            self.push(lessee, address, times);
        }
        self.has_news = true;
    }

    /// A station has moved from one port to another, with its lease. The one that it may have there
    /// goes. `false`: there is no room.
    pub(crate) fn follow(&mut self, mac: MacAddress, from: &str, to: &str) -> bool {
        if !self.leases.iter().any(|lease| lease.is_of(Lessee { port: from, mac })) {
            return true;
        }
        let here = Lessee { port: to, mac };
        let others = self.leases.iter().filter(|lease| lease.port == to && !lease.is_of(here));
        if others.count() >= LEASES_PER_PORT_MAX {
            return false;
        }
        self.leases.retain(|lease| !lease.is_of(here));
        let its = self.leases.iter_mut().filter(|it| it.is_of(Lessee { port: from, mac }));
        its.for_each(|lease| to.clone_into(&mut lease.port));
        self.has_news = true;
        true
    }

    /// Whether there is room for so many leases that a port [adopts](Self::adopt).
    pub(crate) fn has_room_for(&self, port: &str, count: usize, now: Nanos) -> bool {
        let holds = |lease: &&Lease| lease.port != port && lease.until > now;
        count <= LEASES_PER_PORT_MAX
            && self.leases.iter().filter(holds).count() + count <= LEASES_MAX
    }

    /// Whether others hold than when this was asked last.
    pub(crate) fn take_news(&mut self, now: Nanos) -> bool {
        let has_news = std::mem::take(&mut self.has_news);
        let (before, first_end) = self.noted;
        if !has_news && now < first_end {
            return false;
        }
        let ends = || self.owned().map(|lease| lease.until);
        let is_over = ends().any(|until| before < until && until <= now);
        let first_end = ends().filter(|until| *until > now).min();
        // One that is made later is news anyway.
        self.noted = (now, first_end.unwrap_or(Nanos(u64::MAX)));
        has_news || is_over
    }

    /// A guest gives an address back: another may have it at once.
    pub(crate) fn release(&mut self, lessee: Lessee<'_>) {
        self.leases.retain(|lease| !lease.is_of(lessee));
        self.has_news = true;
    }

    /// A port is gone: its leases stay only as long as no other needs them.
    pub(crate) fn end(&mut self, port: &str) {
        let its = self.leases.iter_mut().filter(|lease| lease.port == port);
        its.for_each(|lease| lease.until = Nanos(0));
    }

    /// A guest found its address in use: it is not handed out for ten minutes, in which it counts
    /// for the guest's port.
    pub(crate) fn decline(&mut self, lessee: Lessee<'_>, now: Nanos) {
        if let Some(lease) = self.leases.iter_mut().find(|lease| lease.is_of(lessee)) {
            (lease.mac, lease.until) = (None, now.plus(DECLINED_NS));
            self.has_news = true;
        }
    }

    /// A guest found the IPv6 address in use that comes with its lease: for ten minutes it gets
    /// none.
    pub(crate) fn decline6(&mut self, lessee: Lessee<'_>, now: Nanos) {
        if let Some(lease) = self.leases.iter_mut().find(|lease| lease.is_of(lessee)) {
            lease.without6_until = now.plus(DECLINED_NS);
        }
    }

    /// Whether an IPv6 address comes with its lease.
    pub(crate) fn has6(&self, lessee: Lessee<'_>, now: Nanos) -> bool {
        let lease = self.leases.iter().find(|lease| lease.is_of(lessee));
        lease.is_some_and(|lease| lease.without6_until <= now)
    }

    fn is_free(&self, address: Ipv4Addr) -> bool {
        self.leases.iter().all(|lease| lease.address != address)
    }

    fn is_for_guests(&self, address: Ipv4Addr) -> bool {
        let number = address.to_bits() & !self.prefix.mask().to_bits();
        self.prefix.contains(address) && self.prefix.guests().contains(&number)
    }

    /// Walks all addresses once: a guest may ask as often as it likes.
    fn lowest_free(&self, used: &[Ipv4Addr]) -> Option<Ipv4Addr> {
        let numbers = self.prefix.guests();
        let mut is_leased = [false; LEASES_MAX + 1];
        for address in self.leases.iter().map(|lease| lease.address).chain(used.iter().copied()) {
            let number = address.to_bits() & !self.prefix.mask().to_bits();
            let place = number.checked_sub(numbers.start).and_then(|at| usize::try_from(at).ok());
            if let Some(place) = place.and_then(|at| is_leased.get_mut(at)) {
                *place = true;
            }
        }
        let mut places = numbers.zip(is_leased);
        places.find(|(_, is_leased)| !is_leased).map(|(number, _)| self.prefix.host(number))
    }

    /// `None`: the port has all that it may have, and none of them is over.
    fn make_room_behind(&mut self, port: &str, now: Nanos) -> Option<()> {
        self.leases.retain(|lease| lease.mac.is_some() || lease.until > now);
        let of_port = self.leases.iter().filter(|lease| lease.port == port).count();
        if of_port < LEASES_PER_PORT_MAX {
            return Some(());
        }
        self.forget_oldest(now, |lease| lease.is_behind(port))
    }

    /// `None`: no address is free, and no lease is over.
    fn make_room(&mut self, now: Nanos, used: &[Ipv4Addr]) -> Option<()> {
        if self.leases.len() < LEASES_MAX && self.lowest_free(used).is_some() {
            return Some(());
        }
        self.forget_oldest(now, |_| true)
    }

    /// Of the leases that are over.
    fn forget_oldest(&mut self, now: Nanos, is_one: impl Fn(&Lease) -> bool) -> Option<()> {
        let all = self.leases.iter().enumerate();
        let over = all.filter(|(_, lease)| lease.until <= now && is_one(lease));
        let (oldest, _) = over.min_by_key(|(_, lease)| lease.until)?;
        self.leases.remove(oldest);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos(1);
    const LATER: Nanos = Nanos(1000);
    const TIMES: Times = Times { since: NOW, until: LATER };

    fn station(port: &str, mac: u32) -> Lessee<'_> {
        Lessee { port, mac: MacAddress::local(mac) }
    }

    fn leases() -> Leases {
        Leases::new(Prefix4::new([10, 0, 2, 0].into(), 24).unwrap())
    }

    fn lease(leases: &mut Leases, port: &str, mac: u32, wish: Option<u8>) -> Option<u8> {
        let wish = wish.map(|last| Ipv4Addr::new(10, 0, 2, last));
        let address = leases.lease(station(port, mac), wish, TIMES, Vec::new);
        address.map(|address| address.octets()[3])
    }

    #[test]
    fn addresses_stay_with_port_and_mac() {
        let mut all = leases();
        assert_eq!(lease(&mut all, "a", 1, None), Some(15));
        assert_eq!(lease(&mut all, "b", 1, None), Some(16), "another port");
        assert_eq!(lease(&mut all, "a", 1, Some(40)), Some(15), "the one that it had");
        assert_eq!(lease(&mut all, "c", 1, Some(40)), Some(40));
        for bad in [0, 2, 3, 14, 16, 255] {
            assert!(lease(&mut all, "d", u32::from(bad), Some(bad)).unwrap() > 16, "{bad}");
        }
        assert_eq!(all.holder("a", Ipv4Addr::new(10, 0, 2, 16)), Holder::Other("b"));
        assert_eq!(all.holder("b", Ipv4Addr::new(10, 0, 2, 16)), Holder::This);
        assert_eq!(all.holder("b", Ipv4Addr::new(10, 0, 2, 99)), Holder::None);
        let first = all.behind("b", NOW).next().expect("a lease");
        assert_eq!((first.address.octets()[3], first.mac), (16, MacAddress::local(1)));
    }

    #[test]
    fn addresses_in_use_are_not_leased() {
        let mut all = leases();
        let used = || [15, 16, 40].map(|last| Ipv4Addr::new(10, 0, 2, last)).to_vec();
        let wish = Some(Ipv4Addr::new(10, 0, 2, 40));
        let who = station("a", 1);
        let leased = all.lease(who, wish, TIMES, used);
        assert_eq!(leased, Some(Ipv4Addr::new(10, 0, 2, 17)));
        let again = all.lease(who, None, TIMES, || vec![Ipv4Addr::new(10, 0, 2, 17)]);
        assert_eq!(again, leased, "its own");
    }

    #[test]
    fn a_port_has_few_and_only_its_own_end_for_it() {
        let mut all = leases();
        lease(&mut all, "other", 0, None);
        for mac in 0..8 {
            assert!(lease(&mut all, "a", mac, None).is_some());
        }
        assert_eq!(lease(&mut all, "a", 8, None), None);
        let who = station("a", 8);
        let used = || panic!("a port that has all it may have makes no work");
        assert_eq!(all.lease(who, None, TIMES, used), None);
        let again =
            all.lease(who, None, Times { since: Nanos(2000), until: Nanos(3000) }, Vec::new);
        assert_eq!(again, Some(Ipv4Addr::new(10, 0, 2, 16)), "its oldest is over");
    }

    #[test]
    fn released_and_declined() {
        let mut all = leases();
        lease(&mut all, "a", 1, None);
        all.release(station("a", 1));
        assert_eq!(lease(&mut all, "b", 2, None), Some(15));
        all.decline(station("b", 2), NOW);
        assert_eq!(lease(&mut all, "b", 2, Some(15)), Some(16));
        let after = NOW.plus(DECLINED_NS);
        let wish = Some(Ipv4Addr::new(10, 0, 2, 15));
        assert_eq!(
            all.lease(station("c", 1), wish, Times { since: after, until: after }, Vec::new),
            wish
        );
    }

    #[test]
    fn a_port_that_declines_everything_takes_no_address_of_others() {
        let mut all = leases();
        let leased = |all: &mut Leases, mac: u32, now: Nanos| {
            all.lease(station("a", mac), None, Times { since: now, until: now.plus(1) }, Vec::new)
        };
        for mac in 0..300 {
            leased(&mut all, mac, NOW);
            all.decline(station("a", mac), NOW);
        }
        assert_eq!(lease(&mut all, "b", 1, None), Some(23), "behind eight declined ones");
        assert!(leased(&mut all, 1, NOW.plus(DECLINED_NS)).is_some(), "it has its share again");
    }

    #[test]
    fn a_full_network_leases_no_more_until_one_is_over() {
        let mut all = leases();
        for mac in 0..240 {
            assert!(lease(&mut all, &format!("port{mac}"), mac, None).is_some());
        }
        assert_eq!(lease(&mut all, "one more", 300, None), None);
        let more =
            all.lease(station("one more", 1), None, Times { since: LATER, until: LATER }, Vec::new);
        assert!(more.is_some());
    }
}
