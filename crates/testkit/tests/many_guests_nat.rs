//! A router with 64 guests at once, each with a TCP/IP stack of its own: every one gets its lease,
//! resolves the name of another one, and has a conversation with a server of this machine.
//!
//! Limits: one thread drives all guests; they have a minute for everything.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use ringway_net::Features;
use ringway_testkit::beside::{Outcome, accepting};
use ringway_testkit::{AnyUserGuest, GuestOptions, RingwayProcess};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Checksum, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::{dhcpv4, dns, tcp};
use smoltcp::time::Instant as StackInstant;
use smoltcp::wire::{DnsQueryType, EthernetAddress, IpAddress, IpCidr};

const GUESTS: usize = 64;
const LIMIT: Duration = Duration::from_secs(60);
/// The number of bytes that each guest sends, and gets back.
const LEN: usize = 50_000;
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
const RESOLVER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 3);

/// A guest as a device of the stack.
struct Nic {
    guest: AnyUserGuest,
    /// It takes packets whose checksum is not complete.
    is_lazy: bool,
}

struct Received(Vec<u8>);
struct Sent<'a>(&'a mut AnyUserGuest);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Sent<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut packet = vec![0; len];
        let result = f(&mut packet);
        // Without room it is lost, and the stack sends it again.
        let _ = self.0.send(&packet).expect("a good device");
        result
    }
}

impl Device for Nic {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sent<'a>;

    fn receive(&mut self, _: StackInstant) -> Option<(Received, Sent<'_>)> {
        let (_, packet) = self.guest.receive().expect("a good device")?;
        Some((Received(packet), Sent(&mut self.guest)))
    }

    fn transmit(&mut self, _: StackInstant) -> Option<Sent<'_>> {
        Some(Sent(&mut self.guest))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        if self.is_lazy {
            (capabilities.checksum.tcp, capabilities.checksum.udp) = (Checksum::Tx, Checksum::Tx);
        }
        capabilities
    }
}

/// A guest with its stack, and how far it is.
struct Guest {
    nic: Nic,
    interface: Interface,
    sockets: SocketSet<'static>,
    lease: SocketHandle,
    dns: SocketHandle,
    tcp: SocketHandle,
    address: Option<Ipv4Addr>,
    query: Option<dns::QueryHandle>,
    neighbour: Option<Ipv4Addr>,
    sent: usize,
    received: Vec<u8>,
}

fn text(at: usize) -> Vec<u8> {
    (0..LEN).map(|byte| ((byte * 7 + at) % 251).to_le_bytes()[0]).collect()
}

impl Guest {
    fn new(guest: AnyUserGuest, is_lazy: bool) -> Self {
        let mac = EthernetAddress(guest.mac());
        let mut nic = Nic { guest, is_lazy };
        let mut config = Config::new(mac.into());
        config.random_seed = u64::from(mac.0[5]) << 8 | u64::from(mac.0[4]);
        let interface = Interface::new(config, &mut nic, StackInstant::ZERO);
        let mut sockets = SocketSet::new(Vec::new());
        let lease = sockets.add(dhcpv4::Socket::new());
        let dns = sockets.add(dns::Socket::new(&[RESOLVER.into()], vec![None]));
        let buffer = || tcp::SocketBuffer::new(vec![0; 8192]);
        let tcp = sockets.add(tcp::Socket::new(buffer(), buffer()));
        let (address, query, neighbour) = (None, None, None);
        Self {
            nic,
            interface,
            sockets,
            lease,
            dns,
            tcp,
            address,
            query,
            neighbour,
            sent: 0,
            received: Vec::new(),
        }
    }

    /// Does what there is to do; `true`: it has everything.
    fn work(&mut self, at: usize, (server, since): (u16, Instant)) -> bool {
        let now = i64::try_from(since.elapsed().as_micros()).expect("a minute at most");
        let now = StackInstant::from_micros(now);
        self.interface.poll(now, &mut self.nic, &mut self.sockets);
        self.nic.guest.flush();
        let lease = self.sockets.get_mut::<dhcpv4::Socket>(self.lease);
        if let Some(dhcpv4::Event::Configured(lease)) = lease.poll() {
            let router = lease.router.expect("a router");
            self.address = Some(lease.address.address());
            self.interface.update_ip_addrs(|all| {
                all.clear();
                all.push(IpCidr::Ipv4(lease.address)).expect("room");
            });
            self.interface.routes_mut().add_default_ipv4_route(router).expect("room");
        }
        if self.address.is_some() {
            self.ask(at);
            self.talk(at, server);
        }
        self.neighbour.is_some() && self.received.len() == LEN
    }

    /// For the address of its neighbour, which may have none yet.
    fn ask(&mut self, at: usize) {
        let socket = self.sockets.get_mut::<dns::Socket>(self.dns);
        let Some(query) = self.query else {
            if self.neighbour.is_none() {
                let (name, context) =
                    (format!("g{}.internal", (at + 1) % GUESTS), &mut self.interface);
                self.query = socket.start_query(context.context(), &name, DnsQueryType::A).ok();
            }
            return;
        };
        match socket.get_query_result(query) {
            Err(dns::GetQueryResultError::Pending) => {}
            Err(_) => self.query = None,
            Ok(found) => {
                self.query = None;
                self.neighbour = found.iter().find_map(|address| match address {
                    IpAddress::Ipv4(address) => Some(*address),
                    IpAddress::Ipv6(_) => None,
                });
            }
        }
    }

    fn talk(&mut self, at: usize, server: u16) {
        let socket = self.sockets.get_mut::<tcp::Socket>(self.tcp);
        if !socket.is_open() && self.sent == 0 {
            let port = 40_000 + u16::try_from(at).expect("few guests");
            socket.connect(self.interface.context(), (GATEWAY, server), port).expect("a port");
        }
        if socket.can_send() {
            self.sent += socket.send_slice(&text(at)[self.sent..]).expect("it can");
        }
        if socket.can_recv() {
            let received = &mut self.received;
            socket.recv(|bytes| (bytes.len(), received.extend_from_slice(bytes))).expect("it can");
        }
    }
}

/// Sends back what it gets.
fn serve() -> std::io::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(len @ 1..) = stream.read(&mut bytes) {
                    if stream.write_all(&bytes[..len]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    Ok(port)
}

fn start(options: &str, more: &[&str]) -> std::io::Result<RingwayProcess> {
    let names: Vec<String> = (0..GUESTS).map(|at| format!("g{at}")).collect();
    let ports: Vec<(&str, &str)> = names.iter().map(|name| (&**name, options)).collect();
    let router = format!("net=nat:,host={GATEWAY},dns=127.0.0.1,uplink=on");
    RingwayProcess::start_with(&ports, &[&["--port", &router], more].concat())
}

/// Rings of both formats; every third guest takes neither partial checksums nor long segments, and
/// every fifth has small buffers.
fn attach(ringway: &RingwayProcess, at: usize, pairs: u16) -> Result<Guest, Box<dyn Error>> {
    let mut accept = Features::OFFERED | Features::MQ | Features::CTRL_VQ;
    accept.set(Features::RING_PACKED, at.is_multiple_of(2));
    accept.set(Features::MRG_RXBUF, !at.is_multiple_of(5));
    accept.set(Features::MQ, pairs > 1);
    let is_lazy = !at.is_multiple_of(3);
    let of_receiver = Features::GUEST_CSUM | Features::GUEST_TSO4 | Features::GUEST_TSO6;
    accept.set(of_receiver | Features::GUEST_USO4 | Features::GUEST_USO6, is_lazy);
    let options = GuestOptions { queue_size: 64, queue_pairs: pairs, ..accepting(accept) };
    Ok(Guest::new(AnyUserGuest::attach(&ringway.socket(&format!("g{at}")), &options)?, is_lazy))
}

fn all_are_served(ringway: &RingwayProcess, pairs: u16) -> Outcome {
    let server = serve()?;
    let mut guests = Vec::new();
    for at in 0..GUESTS {
        guests.push(attach(ringway, at, pairs)?);
    }
    let since = Instant::now();
    let mut is_over = false;
    while !is_over {
        is_over = true;
        for (at, guest) in guests.iter_mut().enumerate() {
            // Each guest sends on one of its pairs.
            guest.nic.guest.send_on(usize::from(pairs - 1) * (at % 2));
            is_over &= guest.work(at, (server, since));
        }
        if since.elapsed() > LIMIT {
            let missing = guests.iter().enumerate().map(|(at, guest)| {
                (at, guest.address, guest.neighbour, guest.sent, guest.received.len())
            });
            let missing: Vec<_> = missing.filter(|it| it.2.is_none() || it.4 < LEN).collect();
            return Err(format!("not served: {missing:?}\n{:?}", ringway.port_stats("net")?).into());
        }
        thread::sleep(Duration::from_micros(200));
    }
    println!("{GUESTS} guests after {:?}", since.elapsed());
    for (at, guest) in guests.iter().enumerate() {
        assert!(guest.received == text(at), "guest {at} got other bytes");
        assert_eq!(guest.neighbour, guests[(at + 1) % GUESTS].address, "guest {at}");
    }
    let mut addresses: Vec<_> = guests.iter().map(|guest| guest.address).collect();
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), GUESTS, "each has its own");
    Ok(())
}

#[test]
fn sixty_four_guests_of_a_router_are_all_served() -> Outcome {
    all_are_served(&start("", &[])?, 1)
}

/// A connection comes on one pair, which its addresses and ports decide (ADR 17), also where
/// another worker has it; those of several guests use both.
#[test]
fn guests_of_a_router_with_two_queue_pairs_are_served_by_two_workers() -> Outcome {
    // Otherwise each hears the others' broadcasts too.
    let ringway = start("queues=2,isolated=on", &["--workers", "2"])?;
    all_are_served(&ringway, 2)?;
    let mut second_pairs = 0;
    for at in 0..GUESTS {
        let stats = ringway.port_stats(&format!("g{at}"))?;
        let all = stats.to_guest.packets;
        // Pairs are not listed where all packets went by the first one.
        let second = stats.pairs.get(1).map_or(0, |pair| pair.to_guest);
        // Leases, names and advertisements are no part of the connection, nor are the questions of
        // the router before it offers another guest its address: those come on the first pair.
        let is_second = second > 8;
        let rest = if is_second { all - second } else { second };
        assert!(rest <= 8 + GUESTS as u64, "guest {at}: {second} of {all}: {stats:?}");
        second_pairs += usize::from(is_second);
    }
    println!("{second_pairs} connections on the second pair");
    assert!((8..=GUESTS - 8).contains(&second_pairs), "{second_pairs} on the second pair");
    Ok(())
}
