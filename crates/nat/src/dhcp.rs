//! A DHCP server (RFC 2131, 2132), as a function of a request and the leases.

use std::net::Ipv4Addr;

use ringway_net::{MacAddress, Nanos};
use smoltcp::wire::{DhcpFlags, DhcpMessageType as Kind, DhcpOpCode, DhcpOption};
use smoltcp::wire::{DhcpOptionWriter, DhcpPacket, EthernetAddress};

use crate::addresses::Plan;
use crate::leases::{Leases, Lessee, Times};

/// Longest answer, in bytes from its first field on: what every client takes (RFC 2131 §2).
pub const DHCP_LEN_MAX: usize = 548;

/// Shortest answer: that of BOOTP, which some relays and clients insist on.
const DHCP_LEN_MIN: usize = 300;

/// Where options begin, behind the fixed fields and the magic number.
const OPTIONS_AT: usize = 240;
const MAGIC_NUMBER: u32 = 0x6382_5363;

/// Longest option; a longer value goes on in another one (RFC 3396).
const OPTION_LEN_MAX: usize = 255;

/// Options that are looked at in a request.
const OPTIONS_MAX: usize = 64;

const ROUTERS: u8 = 3;
const NETMASK: u8 = 1;
const DNS_SERVERS: u8 = 6;
const HOST_NAME: u8 = 12;
const DOMAIN: u8 = 15;
const MTU: u8 = 26;
const BROADCAST: u8 = 28;
const REQUESTED: u8 = 50;
const LEASE_TIME: u8 = 51;
const KIND: u8 = 53;
const SERVER: u8 = 54;
const RENEWAL: u8 = 58;
const REBINDING: u8 = 59;
const RAPID: u8 = 80;
const SEARCH: u8 = 119;

/// The server: what it says, and about whom it speaks.
#[derive(Debug)]
pub(crate) struct Dhcp<'a> {
    /// The network.
    pub plan: &'a Plan,
    /// Name of the port that the request came from.
    pub port: &'a str,
    /// When.
    pub now: Nanos,
}

/// An answer, and where it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DhcpReply {
    pub bytes: Vec<u8>,
    pub to: Ipv4Addr,
    pub to_mac: MacAddress,
}

/// The parts of a request that count.
#[derive(Debug, Clone, Copy)]
struct DhcpRequest {
    /// `None`: BOOTP.
    kind: Option<Kind>,
    mac: MacAddress,
    client: Ipv4Addr,
    requested: Option<Ipv4Addr>,
    server: Option<Ipv4Addr>,
    is_rapid: bool,
    wants_broadcast: bool,
}

impl DhcpRequest {
    fn parse(bytes: &[u8]) -> Option<(Self, DhcpPacket<&[u8]>)> {
        let packet = DhcpPacket::new_checked(bytes).ok()?;
        let is_request = packet.opcode() == DhcpOpCode::Request && packet.hardware_len() == 6;
        let is_right = is_request && packet.magic_number() == MAGIC_NUMBER;
        // Relays are asked by guests of other networks.
        if !is_right || !packet.relay_agent_ip().is_unspecified() {
            return None;
        }
        let mut request = Self {
            kind: None,
            mac: MacAddress(packet.client_hardware_address().0),
            client: packet.client_ip(),
            requested: None,
            server: None,
            is_rapid: false,
            wants_broadcast: packet.flags().contains(DhcpFlags::BROADCAST),
        };
        for option in packet.options().take(OPTIONS_MAX) {
            request.take(&option);
        }
        request.mac.is_station().then_some((request, packet))
    }

    fn take(&mut self, option: &DhcpOption<'_>) {
        let address = || <[u8; 4]>::try_from(option.data).ok().map(Ipv4Addr::from);
        match option.kind {
            KIND => self.kind = option.data.first().map(|kind| Kind::from(*kind)),
            REQUESTED => self.requested = address(),
            SERVER => self.server = address(),
            RAPID => self.is_rapid = true,
            _ => {}
        }
    }
}

impl Dhcp<'_> {
    /// The answer to what a guest sent to the server's port; `None`: silence.
    /// `used`: addresses that are not free, although none has leased them.
    pub(crate) fn answer(
        &self,
        bytes: &[u8],
        leases: &mut Leases,
        used: impl FnOnce() -> Vec<Ipv4Addr>,
    ) -> Option<DhcpReply> {
        let (request, packet) = DhcpRequest::parse(bytes)?;
        let who = Lessee { port: self.port, mac: request.mac };
        let times = Times::from_now(self.plan, self.now);
        let is_for_us = request.server.is_none_or(|server| server == self.plan.gateway4());
        match request.kind {
            None => {
                let address = leases.lease(who, None, times, used)?;
                Some(self.reply(&request, &packet, None, Some(address)))
            }
            Some(Kind::Discover) => {
                let wish = request.requested;
                let address = leases.lease(who, wish, times, used)?;
                let kind = if request.is_rapid { Kind::Ack } else { Kind::Offer };
                if kind == Kind::Offer {
                    leases.offer(who, self.now);
                }
                Some(self.reply(&request, &packet, Some(kind), Some(address)))
            }
            Some(Kind::Request) if is_for_us => {
                let wish = request.requested.unwrap_or(request.client);
                let address = leases.lease(who, Some(wish), times, used);
                let address = address.filter(|address| *address == wish);
                let kind = if address.is_some() { Kind::Ack } else { Kind::Nak };
                leases.take(who);
                Some(self.reply(&request, &packet, Some(kind), address))
            }
            Some(Kind::Inform) => Some(self.reply(&request, &packet, Some(Kind::Ack), None)),
            Some(Kind::Release) if is_for_us => {
                leases.release(who);
                None
            }
            Some(Kind::Decline) if is_for_us => {
                leases.decline(who, self.now);
                None
            }
            Some(_) => None,
        }
    }

    fn reply(
        &self,
        request: &DhcpRequest,
        packet: &DhcpPacket<&[u8]>,
        kind: Option<Kind>,
        leased: Option<Ipv4Addr>,
    ) -> DhcpReply {
        let mut bytes = vec![0; DHCP_LEN_MAX];
        let mut reply = DhcpPacket::new_unchecked(&mut bytes[..]);
        reply.set_opcode(DhcpOpCode::Reply);
        reply.set_hardware_type(packet.hardware_type());
        reply.set_hardware_len(6);
        reply.set_transaction_id(packet.transaction_id());
        reply.set_flags(packet.flags());
        reply.set_client_hardware_address(EthernetAddress(request.mac.0));
        reply.set_magic_number(MAGIC_NUMBER);
        let is_nak = kind == Some(Kind::Nak);
        reply.set_client_ip(if is_nak { Ipv4Addr::UNSPECIFIED } else { request.client });
        reply.set_your_ip(leased.unwrap_or(Ipv4Addr::UNSPECIFIED));
        reply.set_server_ip(if is_nak { Ipv4Addr::UNSPECIFIED } else { self.plan.gateway4() });
        let mut options = OptionWriter::new(&mut bytes[OPTIONS_AT..]);
        // The kind comes first: some clients look only there.
        if let Some(kind) = kind {
            options.put(KIND, &[kind.into()]);
        }
        options.put(SERVER, &self.plan.gateway4().octets());
        if (request.kind, kind) == (Some(Kind::Discover), Some(Kind::Ack)) {
            options.put(RAPID, &[]);
        }
        if !is_nak {
            self.put_lease(&mut options, kind.is_some() && leased.is_some());
            self.put_network(&mut options);
        }
        let len = OPTIONS_AT + options.end();
        bytes.truncate(len.max(DHCP_LEN_MIN));
        let (to, to_mac) = self.address_of(request, is_nak, leased);
        DhcpReply { bytes, to, to_mac }
    }

    /// RFC 2131 §4.1.
    fn address_of(
        &self,
        request: &DhcpRequest,
        is_nak: bool,
        leased: Option<Ipv4Addr>,
    ) -> (Ipv4Addr, MacAddress) {
        match leased {
            _ if !is_nak && !request.client.is_unspecified() => (request.client, request.mac),
            Some(leased) if !request.wants_broadcast => (leased, request.mac),
            _ => (Ipv4Addr::BROADCAST, MacAddress::BROADCAST),
        }
    }

    fn put_lease(&self, options: &mut OptionWriter<'_>, is_lease: bool) {
        if is_lease {
            let lease_s = self.plan.lease_s;
            options.put(LEASE_TIME, &lease_s.to_be_bytes());
            options.put(RENEWAL, &(lease_s / 2).to_be_bytes());
            options.put(REBINDING, &(lease_s / 8 * 7).to_be_bytes());
        }
    }

    fn put_network(&self, options: &mut OptionWriter<'_>) {
        let plan = self.plan;
        options.put(NETMASK, &plan.prefix4.mask().octets());
        options.put(ROUTERS, &plan.gateway4().octets());
        options.put(BROADCAST, &plan.prefix4.broadcast().octets());
        options.put(MTU, &plan.mtu.to_be_bytes());
        if plan.has_dns {
            options.put(DNS_SERVERS, &plan.dns4().octets());
        }
        if is_host_name(self.port) {
            options.put(HOST_NAME, self.port.as_bytes());
        }
        if let Some(domain) = plan.domains.first() {
            options.put(DOMAIN, domain.as_bytes());
        }
        options.put_long(SEARCH, &names(&plan.domains));
    }
}

/// Whether a port's name may be the name of a host (RFC 1123 §2.1).
pub(crate) fn is_host_name(name: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !name.is_empty() && name.len() <= 63 && name.bytes().all(is_fine)
}

/// Domains as labels, uncompressed (RFC 1035 §3.1); what is no domain is left out.
pub(crate) fn names(domains: &[String]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for domain in domains {
        let labels = domain.trim_end_matches('.').split('.');
        let is_fine = |label: &str| (1..=63).contains(&label.len());
        if domain.len() > 253 || !labels.clone().all(is_fine) {
            continue;
        }
        for label in labels {
            bytes.extend(u8::try_from(label.len()));
            bytes.extend(label.as_bytes());
        }
        bytes.push(0);
    }
    bytes
}

/// Options, as long as there is room.
struct OptionWriter<'a> {
    writer: DhcpOptionWriter<'a>,
    capacity: usize,
    len: usize,
}

impl<'a> OptionWriter<'a> {
    fn new(buffer: &'a mut [u8]) -> Self {
        let capacity = buffer.len();
        Self { writer: DhcpOptionWriter::new(buffer), capacity, len: 0 }
    }

    /// One byte is left for the end.
    fn has_room(&self, len: usize) -> bool {
        self.len + len < self.capacity
    }

    /// An option that does not fit, or is too long, is left out.
    fn put(&mut self, kind: u8, data: &[u8]) {
        let len = 2 + data.len();
        if self.has_room(len) && self.writer.emit(DhcpOption { kind, data }).is_ok() {
            self.len += len;
        }
    }

    /// A value that is split where it is too long for one option; all of it, or nothing.
    fn put_long(&mut self, kind: u8, data: &[u8]) {
        let parts = data.chunks(OPTION_LEN_MAX);
        if self.has_room(2 * parts.len() + data.len()) {
            parts.for_each(|part| self.put(kind, part));
        }
    }

    fn end(mut self) -> usize {
        let len = self.len + usize::from(self.writer.end().is_ok());
        debug_assert!(len <= self.capacity);
        len
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 7]);

    struct Lab {
        plan: Plan,
        leases: Leases,
    }

    impl Lab {
        fn new() -> Self {
            let domains = vec!["lab.test".to_owned(), "b.test".to_owned()];
            let plan = Plan { domains, ..Plan::default() };
            Self { leases: Leases::new(plan.prefix4), plan }
        }

        fn ask(&mut self, bytes: &[u8]) -> Option<DhcpReply> {
            let dhcp = Dhcp { plan: &self.plan, port: "vm0", now: Nanos(5) };
            dhcp.answer(bytes, &mut self.leases, Vec::new)
        }
    }

    fn request(kind: Option<Kind>, options: &[(u8, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; 300];
        let mut packet = DhcpPacket::new_unchecked(&mut bytes[..]);
        packet.set_opcode(DhcpOpCode::Request);
        packet.set_hardware_type(smoltcp::wire::ArpHardware::Ethernet);
        packet.set_hardware_len(6);
        packet.set_transaction_id(0x1234_5678);
        packet.set_client_hardware_address(EthernetAddress(MAC.0));
        packet.set_magic_number(MAGIC_NUMBER);
        let mut writer = DhcpOptionWriter::new(&mut bytes[OPTIONS_AT..]);
        if let Some(kind) = kind {
            writer.emit(DhcpOption { kind: KIND, data: &[kind.into()] }).unwrap();
        }
        for (kind, data) in options {
            writer.emit(DhcpOption { kind: *kind, data }).unwrap();
        }
        writer.end().unwrap();
        bytes
    }

    fn option(answer: &DhcpReply, kind: u8) -> Option<Vec<u8>> {
        let packet = DhcpPacket::new_checked(&answer.bytes[..]).unwrap();
        let parts: Vec<&[u8]> =
            packet.options().filter(|option| option.kind == kind).map(|found| found.data).collect();
        (!parts.is_empty()).then(|| parts.concat())
    }

    fn kind(answer: &DhcpReply) -> Kind {
        Kind::from(answer.bytes[OPTIONS_AT + 2])
    }

    fn leased(answer: &DhcpReply) -> Ipv4Addr {
        DhcpPacket::new_unchecked(&answer.bytes[..]).your_ip()
    }

    #[test]
    fn a_guest_gets_a_lease_and_what_belongs_to_it() {
        let mut lab = Lab::new();
        let offer = lab.ask(&request(Some(Kind::Discover), &[])).unwrap();
        assert_eq!(kind(&offer), Kind::Offer);
        let address = leased(&offer);
        assert_eq!(address, Ipv4Addr::new(10, 0, 2, 15));
        assert_eq!((offer.to, offer.to_mac), (address, MAC));
        let server = lab.plan.gateway4().octets();
        let asks = [(REQUESTED, &address.octets()[..]), (SERVER, &server[..])];
        let ack = lab.ask(&request(Some(Kind::Request), &asks)).unwrap();
        assert_eq!((kind(&ack), leased(&ack)), (Kind::Ack, address));
        assert_eq!(ack.bytes[OPTIONS_AT], KIND, "first");
        assert!((DHCP_LEN_MIN..=DHCP_LEN_MAX).contains(&ack.bytes.len()));
        for (kind, value) in [
            (NETMASK, &[255, 255, 255, 0][..]),
            (ROUTERS, &[10, 0, 2, 2]),
            (DNS_SERVERS, &[10, 0, 2, 3]),
            (MTU, &1500u16.to_be_bytes()),
            (BROADCAST, &[10, 0, 2, 255]),
            (LEASE_TIME, &3600u32.to_be_bytes()),
            (RENEWAL, &1800u32.to_be_bytes()),
            (REBINDING, &3150u32.to_be_bytes()),
            (HOST_NAME, b"vm0"),
            (DOMAIN, b"lab.test"),
            (SEARCH, b"\x03lab\x04test\0\x01b\x04test\0"),
        ] {
            assert_eq!(option(&ack, kind).as_deref(), Some(value), "option {kind}");
        }
    }

    #[test]
    fn what_is_not_the_clients_is_refused() {
        let mut lab = Lab::new();
        let wrong = [(REQUESTED, &[192, 168, 1, 9][..])];
        let nak = lab.ask(&request(Some(Kind::Request), &wrong)).unwrap();
        assert_eq!((kind(&nak), leased(&nak)), (Kind::Nak, Ipv4Addr::UNSPECIFIED));
        assert_eq!((nak.to, nak.to_mac), (Ipv4Addr::BROADCAST, MacAddress::BROADCAST));
        assert_eq!(option(&nak, ROUTERS), None);
        let other = [(SERVER, &[10, 0, 2, 9][..]), (REQUESTED, &[10, 0, 2, 15][..])];
        assert_eq!(lab.ask(&request(Some(Kind::Request), &other)), None, "another server's");
    }

    #[test]
    fn a_lease_is_asked_for_again_after_a_restart() {
        let mut lab = Lab::new();
        let had = [(REQUESTED, &[10, 0, 2, 77][..])];
        let ack = lab.ask(&request(Some(Kind::Request), &had)).unwrap();
        assert_eq!((kind(&ack), leased(&ack)), (Kind::Ack, Ipv4Addr::new(10, 0, 2, 77)));
    }

    #[test]
    fn the_other_kinds() {
        let mut lab = Lab::new();
        let rapid = lab.ask(&request(Some(Kind::Discover), &[(RAPID, &[])])).unwrap();
        assert_eq!(
            (kind(&rapid), option(&rapid, RAPID)),
            (Kind::Ack, Some(vec![])),
            "RFC 4039 §3.1"
        );
        assert_eq!(lab.ask(&request(Some(Kind::Decline), &[])), None);
        let next = lab.ask(&request(Some(Kind::Discover), &[])).unwrap();
        assert_eq!(leased(&next), Ipv4Addr::new(10, 0, 2, 16), "the declined one is not given");
        assert_eq!(lab.ask(&request(Some(Kind::Release), &[])), None);
        assert_eq!(lab.leases.address_of("vm0", MAC), None);
        let inform = lab.ask(&request(Some(Kind::Inform), &[])).unwrap();
        assert_eq!((kind(&inform), option(&inform, LEASE_TIME)), (Kind::Ack, None));
        assert_eq!(lab.leases.address_of("vm0", MAC), None, "without lease");
        let bootp = lab.ask(&request(None, &[])).unwrap();
        assert_eq!((option(&bootp, KIND), option(&bootp, LEASE_TIME)), (None, None));
        assert!(!leased(&bootp).is_unspecified());
    }

    #[test]
    fn long_search_lists_are_split_and_too_long_ones_left_out() {
        let mut lab = Lab::new();
        lab.plan.domains = (0..20).map(|at| format!("domain{at:02}.test")).collect();
        let ack = lab.ask(&request(Some(Kind::Inform), &[])).unwrap();
        assert!(option(&ack, SEARCH).is_none(), "more than there is room for");
        lab.plan.domains.truncate(15);
        let ack = lab.ask(&request(Some(Kind::Inform), &[])).unwrap();
        assert_eq!(option(&ack, SEARCH), Some(names(&lab.plan.domains)));
        assert!(names(&["..".to_owned(), "a".repeat(64)]).is_empty());
    }

    proptest! {
        #[test]
        fn anything_is_survived(
            at in 0..300usize, len in 0..400usize,
            bytes in proptest::collection::vec(any::<u8>(), 0..120),
        ) {
            let mut lab = Lab::new();
            let mut request = request(Some(Kind::Discover), &[(REQUESTED, &[10, 0, 2, 20])]);
            request.resize(len, 0);
            let end = (at + bytes.len()).min(len);
            if at < end {
                request[at..end].copy_from_slice(&bytes[..end - at]);
            }
            if let Some(answer) = lab.ask(&request) {
                prop_assert!(answer.bytes.len() <= DHCP_LEN_MAX);
            }
        }
    }
}
