//! How many scenarios begin and end, and what they ask their guests.

use std::time::Duration;

use anyhow::ensure;
use ringway_guests::ringway::Moved;
use ringway_guests::{
    Console, Direction, PortStatistics, Ringway, Side, Stage, net, qemu, traffic, uml,
};

pub const TAP: &str = "tap0";

/// Longest time until it is there, or gone.
pub const TAP_LIMIT: Duration = Duration::from_secs(30);

/// Packets of this mean length can only be those of segmentation offload.
pub const OFFLOADED_LEN_MIN: u64 = 4000;

/// The addresses of two User Mode Linux guests.
pub const ADDRESSES: [&str; 2] = ["10.99.0.1", "10.99.0.2"];

/// The addresses of this machine's end of an uplink, and of a QEMU guest; an ordinary MTU.
pub const HERE: &str = "10.98.0.1";
pub const GUEST: &str = "10.98.0.2";
pub const MTU: u32 = 1500;

/// Drops that say nothing of ringway: guests that are too slow, and guests that are not there.
const HARMLESS_DROPS: [&str; 2] = ["no_room", "link_down"];

/// A ringway, and guests on its ports `vm0`, `vm1` and so on.
pub struct Scene<'a> {
    pub stage: &'a Stage,
    ports: Vec<String>,
    pub ringway: Ringway,
    pub guests: Vec<Console>,
}

impl<'a> Scene<'a> {
    /// Ringway alone, with these ports and more arguments.
    pub fn start(stage: &'a Stage, ports: &[String], more: &[&str]) -> anyhow::Result<Self> {
        stage.step("ringway");
        let ringway = Ringway::start_with(stage, ports, more)?;
        Ok(Self { stage, ports: ports.to_vec(), ringway, guests: Vec::new() })
    }

    /// With a port `vm0` that has these options, and an uplink whose end here has this address and
    /// MTU.
    pub fn with_tap(
        stage: &'a Stage,
        options: &str,
        address: &str,
        mtu: u32,
    ) -> anyhow::Result<Self> {
        let ports = [port(stage, "vm0", options), format!("up=tap:{TAP},mtu={mtu}")];
        let scene = Self::start(stage, &ports, &[])?;
        set_up_tap(address, mtu)?;
        Ok(scene)
    }

    /// With two User Mode Linux guests at [`ADDRESSES`] on ports with these options, with more
    /// ports and arguments.
    pub fn two_guests(
        stage: &'a Stage,
        options: [&str; 2],
        ports: &[String],
        more: &[&str],
    ) -> anyhow::Result<Self> {
        let guests = [port(stage, "vm0", options[0]), port(stage, "vm1", options[1])];
        let mut scene = Self::start(stage, &[&guests, ports].concat(), more)?;
        scene.boot_uml(&ADDRESSES)?;
        Ok(scene)
    }

    /// Boots a User Mode Linux guest at each of these addresses, on ports `vm0`, `vm1` and so on.
    pub fn boot_uml(&mut self, addresses: &[&str]) -> anyhow::Result<()> {
        self.stage.step("guests");
        let start = |at: usize| {
            let name = format!("vm{at}");
            uml::start(self.stage, &name, &self.stage.socket(&name))
        };
        self.guests = (0..addresses.len()).map(start).collect::<anyhow::Result<_>>()?;
        let mut booted = self.guests.iter_mut().zip(addresses);
        booted.try_for_each(|(guest, address)| uml::wait_booted(guest, address))
    }

    /// With a QEMU guest at [`GUEST`] on a port with these options, an uplink whose end here has
    /// this MTU, and more arguments.
    pub fn qemu(
        stage: &'a Stage,
        machine: &qemu::Machine<'_>,
        options: &str,
        tap_mtu: u32,
        more: &[&str],
    ) -> anyhow::Result<Self> {
        let guest = port(stage, "vm0", &format!(",mac={}{options}", qemu::MAC));
        let mut scene = Self::start(stage, &[guest, format!("up=tap:{TAP}")], more)?;
        set_up_tap(HERE, tap_mtu)?;
        stage.step("guest");
        let mut guest = qemu::boot(stage, &stage.socket("vm0"), machine)?;
        qemu::set_up(&mut guest, qemu::MAC, GUEST, MTU)?;
        scene.guests.push(guest);
        Ok(scene)
    }

    /// Ringway is killed, and another one started.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.ringway.kill();
        self.ringway = Ringway::start(self.stage, &self.ports)?;
        Ok(())
    }

    /// Runs a command line in the guest of this number that must succeed; what it printed.
    pub fn must(&mut self, guest: usize, line: &str) -> anyhow::Result<String> {
        self.side(guest).must(line)
    }

    pub fn on_all(&mut self, line: &str) -> anyhow::Result<()> {
        (0..self.guests.len()).try_for_each(|guest| self.must(guest, line).map(drop))
    }

    pub fn side(&mut self, guest: usize) -> Side<'_> {
        Side::Guest(&mut self.guests[guest])
    }

    pub fn port(&self, guest: usize) -> anyhow::Result<PortStatistics> {
        self.ringway.port(&format!("vm{guest}"))
    }

    /// The packets that a guest's port moves in one direction while something is done.
    pub fn moved(
        &mut self,
        guest: usize,
        direction: Direction,
        act: impl FnOnce(&mut Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<Moved> {
        let before = self.port(guest)?.moved(direction);
        act(self)?;
        Ok(self.port(guest)?.moved(direction).since(before))
    }

    /// All that every pair has to carry between a guest and an address, where an iperf3 server is.
    /// The mean length of packets tells whether they were segmented on the way.
    pub fn carry(&mut self, guest: usize, address: &str) -> anyhow::Result<()> {
        self.stage.step(&format!("flood of {} pings to {address}", traffic::FLOOD_PACKETS));
        let ms = traffic::flood(&mut self.side(guest), address, traffic::FLOOD_PACKETS)?;
        let out = self.offloaded_tcp(guest, address, Direction::FromGuest)?;
        let back = self.offloaded_tcp(guest, address, Direction::ToGuest)?;
        self.stage.step("UDP");
        let udp = traffic::udp(self.stage, &mut self.side(guest), address)?;
        let lost = udp.lost_percent.unwrap_or(0.0);
        self.stage.note(&format!("{out} out, {back} in, UDP {lost:.1} % lost, {ms:.3} ms"));
        Ok(())
    }

    /// TCP in that direction alone; what was measured.
    fn offloaded_tcp(
        &mut self,
        guest: usize,
        address: &str,
        direction: Direction,
    ) -> anyhow::Result<String> {
        let option = match direction {
            Direction::FromGuest => "",
            Direction::ToGuest => "-R",
        };
        let mut measured = String::new();
        let moved = self.moved(guest, direction, |scene| {
            let report = traffic::tcp(&mut scene.side(guest), address, 1, option)?;
            let again = report.retransmits.map_or("?".to_string(), |count| count.to_string());
            measured = format!("{:.2} Gb/s ({again} retransmits)", report.gigabits());
            Ok(())
        })?;
        self.stage.step(&format!("TCP, {direction:?}: {measured}, {moved}"));
        let is_offloaded = moved.mean_len() > OFFLOADED_LEN_MIN;
        ensure!(is_offloaded, "{direction:?}, {moved}: no segmentation offload");
        Ok(measured)
    }

    /// Nothing was wrong with any guest's port; all end.
    pub fn finish(self) -> anyhow::Result<()> {
        for guest in 0..self.guests.len() {
            self.port(guest)?.check_healthy(&HARMLESS_DROPS)?;
        }
        drop(self.guests);
        self.ringway.finish()
    }
}

/// A port of this name, with options behind a comma.
pub fn port(stage: &Stage, name: &str, options: &str) -> String {
    format!("{name}=vm:{}{options}", stage.socket(name).display())
}

/// This machine's end of the uplink, once it is there.
pub fn set_up_tap(address: &str, mtu: u32) -> anyhow::Result<()> {
    net::wait_exists(TAP, true, TAP_LIMIT)?;
    net::set_up(TAP, address, mtu)
}

/// `packed` or `split`, as ringway says it.
pub fn format_name(is_packed: bool) -> &'static str {
    if is_packed { "packed" } else { "split" }
}

/// Gb/s of TCP from a side and back to it, with these options.
pub fn rates(
    side: &mut Side<'_>,
    address: &str,
    seconds: u32,
    options: &str,
) -> anyhow::Result<[f64; 2]> {
    let mut tcp = |way| traffic::tcp(side, address, seconds, &format!("{options}{way}"));
    Ok([tcp("")?.gigabits(), tcp(" -R")?.gigabits()])
}
