//! Connections and datagrams from outside into guests behind a router.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, ensure};
use ringway_guests::{Console, Side, Stage, nat_lab, traffic};

use super::scenarios_nat::{boot_uml, configure, finish, must, ports, shows};
use super::services::ask;

/// The number of bytes through a Unix socket.
const LEN_UNIX: u32 = 4 << 20;

/// Connections from outside into two guests, while it changes which.
pub fn forward(stage: &Stage) -> anyhow::Result<()> {
    let stage = &nat_lab::without_rights(stage)?;
    let web = stage.file("web.sock");
    let to = |guest: &str| {
        let datagrams = "tcp:*:5201:vm0:5201+udp:*:5201:vm0:5201";
        let unix = format!("unix:{}:{guest}:80", web.display());
        format!("forward=tcp:*:8080:{guest}:80+tcp:8081:vm1:80+tcp:8082:vm1:80+{unix}+{datagrams}")
    };
    let options = format!(",{}", to("vm0"));
    let ringway = nat_lab::start(stage, &ports(stage, &["vm0", "vm1"], &options))?;
    let mut guests = [boot_uml(stage, "vm0")?, boot_uml(stage, "vm1")?];
    for (guest, number) in guests.iter_mut().zip([15, 16]) {
        configure(stage, guest, &format!("10.0.2.{number}"), "internal")?;
        must(guest, "echo 'echo I am $(ip -4 -o addr show dev eth0); cat' > answer")?;
        must(guest, "busybox nc -ll -p 80 -e sh ./answer >/dev/null 2>&1 & sleep 1")?;
    }
    let [first, _] = &mut guests;
    guest_names(stage, first)?;
    stage.step("from the provider, and from the machine itself");
    let at: SocketAddr = format!("{}:8080", nat_lab::MACHINE).parse()?;
    let asks = |number: u32| -> anyhow::Result<()> {
        let answer = ask(at, b"over and out\n")?;
        let is_right = answer.contains(&format!("10.0.2.{number}/"));
        ensure!(is_right && answer.ends_with("over and out\n"), "{at}: {answer:?}");
        Ok(())
    };
    asks(15)?;
    let here = "for port in 8081 8082; do echo x | busybox nc 127.0.0.1 $port; done";
    let answers = nat_lab::on_machine(ringway.id(), here)?;
    ensure!(answers.matches("10.0.2.16/").count() == 2, "{answers}");
    through_unix_socket(&web, "10.0.2.15/")?;
    datagrams_in(stage, &mut guests[0])?;
    stage.step("other ways, while it runs");
    ringway.set("net", &to("vm1"))?;
    asks(16)?;
    through_unix_socket(&web, "10.0.2.16/")?;
    let refused =
        ringway.set("net", "forward=tcp:10.9.9.9:80:vm0:80").expect_err("no such address");
    ensure!(format!("{refused:#}").contains("10.9.9.9:80"), "{refused:#}");
    asks(16)?;
    ringway.set("net", "forward=default")?;
    ensure!(ask(at, b"").is_err(), "nothing listens any more");
    finish(stage, ringway)
}

/// A guest's greeting, and what it sends back of more than any buffer on the way holds.
fn through_unix_socket(path: &Path, greeting: &str) -> anyhow::Result<()> {
    let mut stream = UnixStream::connect(path)?;
    let sent: Vec<u8> = (0..LEN_UNIX).map(|at| (at % 251) as u8).collect();
    let (mut writer, bytes) = (stream.try_clone()?, sent.clone());
    let writer = std::thread::spawn(move || {
        writer.write_all(&bytes)?;
        writer.shutdown(Shutdown::Write)
    });
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    writer.join().map_err(|_| anyhow::anyhow!("the writer"))??;
    let end = answer.iter().position(|byte| *byte == b'\n').context("a greeting")? + 1;
    let line = String::from_utf8_lossy(&answer[..end]);
    ensure!(line.contains(greeting), "{line}");
    ensure!(answer[end..] == sent, "{} bytes came back", answer.len() - end);
    Ok(())
}

/// Two clients at once, both ways, and none gets what is another's.
fn datagrams_in(stage: &Stage, guest: &mut Console) -> anyhow::Result<()> {
    stage.step("datagrams from the provider");
    must(guest, "iperf3 -s -D >/dev/null 2>&1; sleep 1")?;
    for option in ["", "-R"] {
        let machine = nat_lab::MACHINE;
        let line = format!("iperf3 -c {machine} -u -b 5M -l 1200 -t 2 -P 2 {option} --json");
        let text = traffic::iperf(&mut Side::Here, &line)?;
        let report: serde_json::Value = serde_json::from_str(&text)?;
        let sum = &report["end"]["sum"];
        let count = |name: &str| sum[name].as_u64().unwrap_or(0);
        let (packets, lost) = (count("packets"), count("lost_packets"));
        stage.note(&format!("UDP from outside {option}: {packets} datagrams, {lost} lost"));
        ensure!(packets > 1000 && lost * 20 < packets, "{packets}, {lost} lost: {report}");
    }
    Ok(())
}

/// Each guest by the name of its port: both families, and back.
fn guest_names(stage: &Stage, guest: &mut Console) -> anyhow::Result<()> {
    stage.step("names of guests");
    let nslookup = |name: &str| format!("busybox nslookup {name} 10.0.2.3");
    shows(guest, &nslookup("vm1.internal"), &["10.0.2.16", "Address: fd"])?;
    must(guest, "ping -c 1 -W 5 10.0.2.16")?;
    shows(guest, &nslookup("10.0.2.16"), &["name = vm1.internal"])?;
    shows(guest, &nslookup("gateway.internal"), &["Address: 10.0.2.2"])
}
