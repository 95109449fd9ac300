//! All services of a guest on one device.

use alloc::vec::Vec;
use core::fmt;

use ringway_net::MacAddress;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::Device;
use smoltcp::socket::dhcpv4;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpCidr, Ipv4Address, Ipv4Cidr};

use crate::{Echo, Http, Listener, Sink, Source};

/// Where the guest's address comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addressing {
    /// A DHCP server on the network.
    Dhcp,
    /// Fixed, and perhaps with a way out of the network.
    Fixed(Ipv4Cidr, Option<Ipv4Address>),
}

/// A stack with all services.
pub struct Services {
    interface: Interface,
    sockets: SocketSet<'static>,
    dhcp: Option<SocketHandle>,
    echo: Listener<Echo>,
    sink: Listener<Sink>,
    source: Listener<Source>,
    http: Listener<Http>,
}

impl Services {
    /// Allocates everything. `seed` should differ from start to start.
    pub fn new<D: Device>(
        device: &mut D,
        mac: MacAddress,
        addressing: Addressing,
        seed: u64,
        now_us: u64,
    ) -> Self {
        let mut config = Config::new(EthernetAddress(mac.0).into());
        config.random_seed = seed;
        let interface = Interface::new(config, device, instant(now_us));
        let mut sockets = SocketSet::new(Vec::new());
        let dhcp = (addressing == Addressing::Dhcp).then(|| sockets.add(dhcpv4::Socket::new()));
        let mut services = Self {
            interface,
            dhcp,
            echo: Listener::new(&mut sockets),
            sink: Listener::new(&mut sockets),
            source: Listener::new(&mut sockets),
            http: Listener::new(&mut sockets),
            sockets,
        };
        if let Addressing::Fixed(address, gateway) = addressing {
            services.set_address(Some(address), gateway);
        }
        services
    }

    /// The guest's address, once it has one.
    pub fn address(&self) -> Option<Ipv4Address> {
        self.interface.ipv4_addr()
    }

    /// Receives, answers, sends. The device must be flushed afterwards. Returns in how many
    /// microseconds this is due again even if nothing arrives; `None`: not before.
    pub fn poll<D: Device, R: fmt::Display>(
        &mut self,
        device: &mut D,
        now_us: u64,
        report: &R,
    ) -> Option<u64> {
        let now = instant(now_us);
        self.interface.poll(now, device, &mut self.sockets);
        self.poll_dhcp();
        self.echo.step(&mut self.sockets, report);
        self.sink.step(&mut self.sockets, report);
        self.source.step(&mut self.sockets, report);
        self.http.step(&mut self.sockets, report);
        // The packets that the steps have made are sent now, not at the next poll.
        self.interface.poll_egress(now, device, &mut self.sockets);
        self.interface.poll_delay(now, &self.sockets).map(|delay| delay.total_micros())
    }

    fn poll_dhcp(&mut self) {
        let Some(handle) = self.dhcp else { return };
        let (address, gateway) = match self.sockets.get_mut::<dhcpv4::Socket<'_>>(handle).poll() {
            None => return,
            Some(dhcpv4::Event::Configured(config)) => (Some(config.address), config.router),
            Some(dhcpv4::Event::Deconfigured) => (None, None),
        };
        self.set_address(address, gateway);
    }

    fn set_address(&mut self, address: Option<Ipv4Cidr>, gateway: Option<Ipv4Address>) {
        self.interface.update_ip_addrs(|addresses| {
            addresses.clear();
            // An empty list takes one.
            addresses.extend(address.map(IpCidr::Ipv4));
        });
        let routes = self.interface.routes_mut();
        routes.remove_default_ipv4_route();
        if let Some(gateway) = gateway {
            // An empty table takes one; without it the network itself is still reached.
            let _ = routes.add_default_ipv4_route(gateway);
        }
    }
}

fn instant(now_us: u64) -> Instant {
    Instant::from_micros(i64::try_from(now_us).unwrap_or(i64::MAX))
}
