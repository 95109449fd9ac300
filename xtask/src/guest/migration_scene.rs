//! Two hosts in one namespace: a bridge, two ringways with a tap on it each, and a QEMU guest that
//! moves from one to the other while this side talks with it. Or one host, with two ports for it.
//!
//! Limits: two QEMU at a time; both ringways and the bridge share this machine's processors.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail, ensure};
use ringway_control::protocol::FdbReply;
use ringway_guests::monitor::Monitor;
use ringway_guests::numbered::{Numbered, Pace};
use ringway_guests::process::LOOK_EVERY;
use ringway_guests::{Console, Process, Ringway, Side, Stage, net, qemu, shell, silence};
use serde_json::{Value, json};

use super::scene::{self, GUEST, HERE, MTU, TAP_LIMIT};

const BRIDGE: &str = "br0";
const TAPS: [&str; 2] = ["tapa", "tapb"];
/// The names of both ringways, and so of their logs.
const RINGWAYS: [&str; 2] = ["ringway", "ringway-b"];

/// Smaller than usual, as all of it is copied.
const MEMORY: &str = "160M";

/// The kernel of Debian clears each page that it takes into use. A guest that does not leaves pages
/// to which only its device writes.
const KERNEL_WORDS: &str = "init_on_alloc=0";

/// Longest time for one migration, and until a guest is heard that has moved.
pub const LIMIT: Duration = Duration::from_secs(60);

/// How a guest moves in few rounds, in bytes a second and milliseconds: with many, QEMU 7.2 misses
/// pages that its emulated processor writes.
pub const AT_ONCE: [u64; 2] = [2_000_000_000, 1000];

/// How long pings are looked at while nothing happens.
const QUIET_TIME: Duration = Duration::from_secs(1);

/// Of the connections that are echoed: 3 MB/s.
const ECHOED: Pace = Pace { chunk_len: 1 << 14, pause: Duration::from_millis(5) };

/// The place where this side listens, and the one where a guest does.
const PORT_HERE: u16 = 7001;
const PORT_THERE: u16 = 7002;

/// In the guest: the device of its route.
const DEVICE: &str = "$(ls /sys/class/net | grep eth)";

/// A guest, and where it is.
pub struct MigrationGuest {
    pub console: Console,
    pub monitor: Monitor,
    pub host: usize,
}

/// All of it.
pub struct Scene<'a> {
    pub stage: &'a Stage,
    /// One for each host.
    pub ringways: Vec<Ringway>,
    pub guest: MigrationGuest,
    options: String,
    netdev: String,
    /// QEMUs up to now.
    pub started: usize,
    /// The bridge says here which stations it has learned.
    pub bridge: Console,
    listener: TcpListener,
    connections: Vec<Numbered>,
    ping: Process,
    /// Longest time without an answer while nothing happened.
    pub quiet_ms: f64,
}

/// The places between which a guest moves: ports of two hosts, or of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Places {
    Hosts,
    Ports,
}

/// Options of the guest's device, and how many queue pairs it has.
#[derive(Debug, Clone, Copy)]
pub struct Device<'a> {
    pub options: &'a str,
    pub pairs: usize,
}

/// The times of one migration.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// Of the guest, as QEMU counts it.
    pub downtime_ms: f64,
    /// From the moment at which the destination runs to that at which the bridge has learned it;
    /// where both places are at one host, its ringway.
    pub learned_ms: f64,
    /// Longest time without an answer to a ping each 5 ms.
    pub silence_ms: f64,
}

impl<'a> Scene<'a> {
    /// The guest is at the first host, and talks.
    pub fn start(stage: &'a Stage, device: Device<'_>) -> anyhow::Result<Self> {
        Self::start_between(stage, Places::Hosts, device)
    }

    /// The guest is at the first of two places, and talks.
    pub fn start_between(
        stage: &'a Stage,
        places: Places,
        device: Device<'_>,
    ) -> anyhow::Result<Self> {
        net::ip(&format!("link add {BRIDGE} type bridge"))?;
        net::set_up(BRIDGE, HERE, MTU)?;
        let ringways = match places {
            Places::Hosts => {
                vec![start_ringway(stage, 0, &[0], device)?, start_ringway(stage, 1, &[1], device)?]
            }
            Places::Ports => vec![start_ringway(stage, 0, &[0, 1], device)?],
        };
        stage.step("guest");
        let netdev = if device.pairs > 1 { format!(",queues={}", device.pairs) } else { "".into() };
        let options = device.options.to_string();
        let mut guest = start_qemu(stage, 0, 0, [&options, &netdev], &[])?;
        guest.console.wait_ready(0, qemu::BOOT_LIMIT)?;
        qemu::set_up(&mut guest.console, qemu::MAC, GUEST, MTU)?;
        if device.pairs > 1 {
            let line = format!("ethtool -L {DEVICE} combined {}", device.pairs);
            Side::Guest(&mut guest.console).must(&line)?;
        }
        Side::Here.must(&format!("ping -c 1 -W 10 {GUEST}"))?;
        let monitor = shell::command(&["bridge", "monitor", "fdb"]);
        let bridge = Console::start(stage, "bridge", monitor)?;
        let listener = TcpListener::bind((HERE, PORT_HERE))?;
        let words = ["ping", "-n", "-D", "-O", "-i", "0.005", GUEST];
        let ping = Process::start(stage, "ping", shell::command(&words))?;
        let (started, connections) = (1, Vec::new());
        let mut scene = Self {
            stage,
            ringways,
            guest,
            options,
            netdev,
            started,
            bridge,
            listener,
            connections,
            ping,
            quiet_ms: 0.0,
        };
        scene.connect()?;
        let mark = scene.pings();
        thread::sleep(QUIET_TIME);
        scene.quiet_ms = scene.silence_ms(mark)?;
        Ok(scene)
    }

    /// How much ping has printed.
    pub fn pings(&self) -> usize {
        self.ping.printed().len()
    }

    /// Longest time since then without an answer to a ping.
    pub fn silence_ms(&self, mark: usize) -> anyhow::Result<f64> {
        let text = self.ping.printed();
        silence::silence_ms(text.get(mark..).unwrap_or_default()).context("no answers to pings")
    }

    /// The ringway of a place, and the name of its port.
    pub fn place(&self, host: usize) -> (&Ringway, String) {
        let numbers_ports = self.ringways.len() == 1;
        let ringway = &self.ringways[if numbers_ports { 0 } else { host }];
        (ringway, port_name(if numbers_ports { host } else { 0 }))
    }

    /// Two connections, one opened by each side.
    pub fn connect(&mut self) -> anyhow::Result<()> {
        self.connections = vec![self.connected_by_guest()?, self.connected_to_guest()?];
        self.wait_alive()
    }

    fn connected_by_guest(&mut self) -> anyhow::Result<Numbered> {
        Numbered::echoed(self.accept("-e cat >/dev/null 2>&1 &")?, ECHOED)
    }

    /// The connection of an `nc` in the guest with this behind its address.
    pub fn accept(&mut self, rest: &str) -> anyhow::Result<TcpStream> {
        self.must(&format!("nc {HERE} {PORT_HERE} {rest}"))?;
        self.listener.set_nonblocking(true)?;
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Ok((stream, _)) = self.listener.accept() {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            ensure!(Instant::now() < deadline, "the guest does not connect: nc {rest}");
            thread::sleep(LOOK_EVERY);
        }
    }

    fn connected_to_guest(&mut self) -> anyhow::Result<Numbered> {
        self.must(&format!("nc -l -p {PORT_THERE} -e cat >/dev/null 2>&1 &"))?;
        let deadline = Instant::now() + LIMIT;
        loop {
            match TcpStream::connect((GUEST, PORT_THERE)) {
                Ok(stream) => return Numbered::echoed(stream, ECHOED),
                Err(error) if Instant::now() > deadline => bail!("{GUEST}:{PORT_THERE}: {error}"),
                Err(_) => thread::sleep(LOOK_EVERY),
            }
        }
    }

    /// Runs a line in the guest that must succeed; what it printed.
    pub fn must(&mut self, line: &str) -> anyhow::Result<String> {
        Side::Guest(&mut self.guest.console).must(line)
    }

    /// Both connections carry bytes, all of them right.
    pub fn wait_alive(&self) -> anyhow::Result<()> {
        let mut numbered =
            ["opened by the guest", "opened to it"].into_iter().zip(&self.connections);
        numbered.try_for_each(|(which, connection)| connection.wait_for_more().context(which))
    }

    /// A QEMU at the other host that waits for the guest.
    pub fn start_incoming(&mut self, more: &[&str]) -> anyhow::Result<MigrationGuest> {
        self.start_next(&[&["-incoming", "defer"], more].concat())
    }

    /// The same with these arguments, of which one says where the guest comes from.
    pub fn start_next(&mut self, more: &[&str]) -> anyhow::Result<MigrationGuest> {
        let host = 1 - self.guest.host;
        self.started += 1;
        start_qemu(self.stage, host, self.started - 1, [&self.options, &self.netdev], more)
    }

    /// The guest moves to the other host over a socket.
    pub fn migrate(&mut self) -> anyhow::Result<Times> {
        let mut next = self.start_incoming(&[])?;
        set_speed(&mut self.guest.monitor, AT_ONCE)?;
        let (printed, mark) = (self.pings(), self.bridge.mark());
        self.begin(&mut next)?;
        let learned = self.wait_learned(next.host, mark)?;
        let told = wait_completed(&mut self.guest.monitor)?;
        let downtime_ms = told["downtime"].as_f64().context("no downtime")?;
        let resumed = next.monitor.wait_event("RESUME")?;
        self.guest = next;
        self.wait_alive()?;
        let silence_ms = self.silence_ms(printed)?;
        Ok(Times { downtime_ms, learned_ms: (learned - resumed) * 1e3, silence_ms })
    }

    /// All that was sent has come back.
    pub fn end_connections(&mut self) -> anyhow::Result<()> {
        for connection in self.connections.drain(..) {
            let bytes = connection.finish()?;
            self.stage.step(&format!("{bytes} bytes were echoed, each of them right"));
        }
        Ok(())
    }

    /// The guest, which was paused there, goes on at its new place.
    pub fn go_on_at(&mut self, next: MigrationGuest) -> anyhow::Result<()> {
        self.guest = next;
        self.guest.monitor.execute("cont", &json!({}))?;
        self.wait_alive()
    }

    /// Memory begins to be copied.
    pub fn begin(&mut self, next: &mut MigrationGuest) -> anyhow::Result<()> {
        let place = self.stage.file(&format!("migration{}", self.started));
        let place = json!({ "uri": format!("unix:{}", place.display()) });
        next.monitor.execute("migrate-incoming", &place)?;
        self.guest.monitor.execute("migrate", &place).map(drop)
    }

    /// Waits until the bridge has the guest behind that tap, or their ringway has it behind that
    /// port; when, in seconds since 1970.
    pub fn wait_learned(&self, host: usize, mark: usize) -> anyhow::Result<f64> {
        if self.ringways.len() > 1 {
            let entry = format!("{} dev {}", qemu::MAC, TAPS[host]);
            self.bridge.wait_for(&entry, mark, LIMIT)?;
        } else {
            self.wait_moved(host)?;
        }
        Ok(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs_f64())
    }

    fn wait_moved(&self, host: usize) -> anyhow::Result<()> {
        let (ringway, port) = self.place(host);
        let deadline = Instant::now() + LIMIT;
        loop {
            let fdb: FdbReply = ringway.told_json(&["fdb"])?;
            let ports = fdb.addresses.iter().filter(|it| it.mac == qemu::MAC).map(|it| &it.port);
            if ports.eq([&port]) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{} is not behind {port}: {fdb:?}", qemu::MAC);
            thread::sleep(LOOK_EVERY);
        }
    }

    /// No front-end was cut off that was not to, nothing was wrong, and all content came back.
    pub fn finish(mut self) -> anyhow::Result<()> {
        self.end_connections()?;
        for host in 0..2 {
            let (ringway, port) = self.place(host);
            ringway.port(&port)?.check_healthy(&["no_room", "link_down"])?;
        }
        drop(self.guest);
        self.ringways.into_iter().try_for_each(Ringway::finish)
    }
}

fn port_name(number: usize) -> String {
    format!("vm{number}")
}

/// With a port for each of these places.
fn start_ringway(
    stage: &Stage,
    host: usize,
    places: &[usize],
    device: Device<'_>,
) -> anyhow::Result<Ringway> {
    let name = RINGWAYS[host];
    stage.step(name);
    let queues = if device.pairs > 1 { format!(",queues={}", device.pairs) } else { "".into() };
    // Two ports cannot have one address: there only the guest knows its own.
    let mac = if places.len() > 1 { String::new() } else { format!(",mac={}", qemu::MAC) };
    let guests = places.iter().enumerate().map(|(number, place)| {
        let (name, socket) = (port_name(number), socket(stage, *place));
        let mac = if number == 0 { format!(",mac={}", qemu::MAC) } else { mac.clone() };
        format!("{name}=vm:{}{mac}{queues}", socket.display())
    });
    let ports: Vec<_> = guests.chain([format!("up=tap:{}", TAPS[host])]).collect();
    let ringway = Ringway::start_named(stage, name, &ports, &[])?;
    net::wait_exists(TAPS[host], true, TAP_LIMIT)?;
    net::ip(&format!("link set {} master {BRIDGE} mtu {MTU} up", TAPS[host]))?;
    Ok(ringway)
}

fn socket(stage: &Stage, host: usize) -> PathBuf {
    stage.socket(&format!("vm{host}"))
}

fn start_qemu(
    stage: &Stage,
    host: usize,
    number: usize,
    [device_options, netdev_options]: [&str; 2],
    more: &[&str],
) -> anyhow::Result<MigrationGuest> {
    let place = stage.file(&format!("monitor{number}"));
    let monitor: Option<&Path> = Some(&place);
    let (memory, kernel_words) = (MEMORY, KERNEL_WORDS);
    let machine =
        qemu::Machine { device_options, netdev_options, monitor, memory, more, kernel_words };
    let name = format!("guest{number}");
    let console = qemu::start(stage, &name, &socket(stage, host), &machine)?;
    let monitor = Monitor::connect_soon(&place, LIMIT)?;
    Ok(MigrationGuest { console, monitor, host })
}

/// Waits until all of the guest has gone, or come; what QEMU tells of that.
pub fn wait_completed(monitor: &mut Monitor) -> anyhow::Result<Value> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let told = monitor.execute("query-migrate", &json!({}))?;
        match told["status"].as_str() {
            Some("completed") => return Ok(told),
            Some("failed" | "cancelled") => bail!("migration: {told}"),
            _ => ensure!(Instant::now() < deadline, "migration: still {told}"),
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Changes how many bytes a second a guest moves, and for how many milliseconds it may stand still.
pub fn set_speed(monitor: &mut Monitor, [bytes, downtime_ms]: [u64; 2]) -> anyhow::Result<()> {
    let speed = json!({ "max-bandwidth": bytes, "downtime-limit": downtime_ms });
    monitor.execute("migrate-set-parameters", &speed).map(drop)
}

/// The ring format that a guest at that host has.
pub fn check_format(scene: &Scene<'_>, is_packed: bool) -> anyhow::Result<()> {
    let (ringway, port) = scene.place(scene.guest.host);
    ringway.port(&port)?.check_negotiated(scene::format_name(is_packed), &[])
}
