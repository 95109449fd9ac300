//! Two guests in user space on one `ringway run`: one serves, the other fills its sink and talks to
//! its echo. Sums are compared, and packets must be large: segmentation was left to the receiver.

use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant as Clock};

use ringway_attach::StackGuest;
use ringway_driver::Queues;
use ringway_net::{Features, MacAddress};
use ringway_services::{Addressing, Services};
use ringway_testkit::{GuestOptions, RingwayProcess, UserDevice};
use ringway_virtq::DriverQueue;
use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpCidr, Ipv4Address, Ipv4Cidr};

const SERVER: Ipv4Address = Ipv4Address::new(10, 98, 0, 2);
const CLIENT: Ipv4Address = Ipv4Address::new(10, 98, 0, 1);
const ECHO: u16 = 7;
const SINK: u16 = 9;

/// Bytes that go into the sink.
const BYTES: usize = 8 << 20;
/// Bytes of the client's buffers.
const BUFFER_LEN: usize = 512 << 10;
/// Packets of this mean length can only be those of segmentation offload.
const OFFLOADED_LEN_MIN: u64 = 4000;
/// Longest time for all of it.
const LIMIT: Duration = Duration::from_secs(60);

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

fn now_us(started: Clock) -> u64 {
    u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX)
}

fn serve(socket: &Path, options: &GuestOptions, is_done: &AtomicBool) -> Outcome {
    let (device, queues) = UserDevice::bring_up(socket, options).map_err(text)?;
    let mac = MacAddress(device.mac);
    let addressing = Addressing::Fixed(Ipv4Cidr::new(SERVER, 24), None);
    let started = Clock::now();
    macro_rules! run {
        ($queues:expr) => {{
            let mut guest = StackGuest::new(device, $queues).map_err(text)?;
            let mut services = Services::new(&mut guest.stack, mac, addressing, 1, 0);
            while !is_done.load(Ordering::Relaxed) {
                let poll = guest.turn(|stack| services.poll(stack, now_us(started), &""));
                poll.map_err(text)?;
            }
        }};
    }
    match queues {
        Queues::Split(queues) => run!(queues),
        Queues::Packed(queues) => run!(queues),
    }
    Ok(())
}

fn text(error: ringway_testkit::GuestError) -> String {
    error.to_string()
}

/// Sends everything to a port, closes, and returns what came back.
fn send<Q: DriverQueue>(
    guest: &mut StackGuest<Q>,
    mac: MacAddress,
    port: u16,
    bytes: &[u8],
) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
    let started = Clock::now();
    let now = || Instant::from_micros(i64::try_from(now_us(started)).unwrap_or(i64::MAX));
    let config = Config::new(EthernetAddress(mac.0).into());
    let mut interface = Interface::new(config, &mut guest.stack, now());
    interface.update_ip_addrs(|addresses| {
        addresses.push(IpCidr::Ipv4(Ipv4Cidr::new(CLIENT, 24))).expect("room for one");
    });
    let buffer = || SocketBuffer::new(vec![0; BUFFER_LEN]);
    let mut sockets = SocketSet::new(Vec::new());
    let handle = sockets.add(Socket::new(buffer(), buffer()));
    let socket = sockets.get_mut::<Socket<'_>>(handle);
    socket.connect(interface.context(), (SERVER, port), 40_000 + port)?;
    let (mut rest, mut back) = (bytes, Vec::new());
    loop {
        guest
            .turn(|stack| {
                interface.poll(now(), stack, &mut sockets);
                let socket = sockets.get_mut::<Socket<'_>>(handle);
                let sent = socket.send_slice(rest).unwrap_or(0);
                rest = &rest[sent..];
                let _ = socket.recv(|bytes| (bytes.len(), back.extend_from_slice(bytes)));
                if rest.is_empty() && socket.may_send() {
                    socket.close();
                }
                interface.poll(now(), stack, &mut sockets);
                interface.poll_delay(now(), &sockets).map(|delay| delay.total_micros())
            })
            .map_err(text)?;
        let socket = sockets.get_mut::<Socket<'_>>(handle);
        if rest.is_empty() && !socket.may_recv() && !socket.may_send() {
            return Ok(back);
        }
        if started.elapsed() > LIMIT {
            return Err(format!("port {port}: {:?}, {} left", socket.state(), rest.len()).into());
        }
    }
}

fn talk<Q: DriverQueue>(guest: &mut StackGuest<Q>, mac: MacAddress) -> Outcome {
    let back = send(guest, mac, ECHO, b"once and for all")?;
    assert_eq!(back, b"once and for all");
    let bytes: Vec<u8> = (0..BYTES as u64 / 8)
        .flat_map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .collect();
    let before = *guest.stack.driver().tx.counters();
    let answer = send(guest, mac, SINK, &bytes)?;
    let expected = format!("{BYTES} {:08x}\n", crc32fast::hash(&bytes));
    assert_eq!(String::from_utf8_lossy(&answer), expected);
    let after = *guest.stack.driver().tx.counters();
    let mean_len = (after.bytes - before.bytes) / (after.packets - before.packets);
    assert!(mean_len >= OFFLOADED_LEN_MIN, "packets of {mean_len} bytes");
    Ok(())
}

fn carry(accept: Features) -> Outcome {
    let ringway = RingwayProcess::start(&[("a", ""), ("b", "")]).map_err(|e| e.to_string())?;
    let options = GuestOptions { accept, ..GuestOptions::default() };
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let server = ringway.socket("b");
        let (options, is_done) = (&options, &is_done);
        let serving = scope.spawn(move || serve(&server, options, is_done));
        let talked = (|| {
            let (device, queues) =
                UserDevice::bring_up(&ringway.socket("a"), options).map_err(text)?;
            let mac = MacAddress(device.mac);
            match queues {
                Queues::Split(queues) => {
                    talk(&mut StackGuest::new(device, queues).map_err(text)?, mac)
                }
                Queues::Packed(queues) => {
                    talk(&mut StackGuest::new(device, queues).map_err(text)?, mac)
                }
            }
        })();
        is_done.store(true, Ordering::Relaxed);
        let served = serving.join().map_err(|_| "the server panicked")?;
        talked.and(served)
    })
}

#[test]
fn bulk_and_echo_between_two_stacks_over_packed_rings() -> Outcome {
    carry(Features::OFFERED)
}

#[test]
fn bulk_and_echo_between_two_stacks_over_split_rings() -> Outcome {
    carry(Features::OFFERED - Features::RING_PACKED)
}
