//! `ringway metrics`, asked as scrapers ask.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{Ringway, wait_for};
use ringway_testkit::{AnyUserGuest, GuestOptions};

/// `ringway metrics --listen`; ends with the value.
struct Server(Child);

impl Server {
    fn at(place: &str, ringway: &Ringway) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
        command.args(["metrics", "--listen", place, "--control"]).arg(ringway.control());
        Self(command.stderr(Stdio::null()).spawn().expect("it starts"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it ends");
    }
}

/// A port of the loopback that is free now.
fn free_place() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address").to_string()
}

fn got(mut stream: impl Read + Write, request: &str) -> String {
    stream.write_all(request.as_bytes()).expect("sent");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply");
    reply
}

const SCRAPE: &str = "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n";

#[test]
fn scrapers_over_tcp_are_answered_whatever_others_do() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &["--port", "a=vm:a.sock"]);
    let place = free_place();
    let _server = Server::at(&place, &ringway);
    let connect = || TcpStream::connect(&place).ok();
    // One says nothing, one asks and never reads.
    let _silent = wait_for("the server", connect);
    let mut deaf = connect().expect("connected");
    deaf.write_all(SCRAPE.as_bytes()).expect("sent");
    let reply = got(connect().expect("connected"), SCRAPE);
    assert!(reply.starts_with("HTTP/1.1 200 OK\r\n"), "{reply}");
    assert!(reply.contains("ringway_port_state{port=\"a\",state=\"waiting\"} 1\n"), "{reply}");
    assert!(reply.ends_with("# EOF\n"), "{reply}");
    let asked = |request| got(connect().expect("connected"), request);
    assert!(
        asked("GET / HTTP/1.1\r\n\r\n").ends_with("<a href=\"/metrics\">Metrics of ringway</a>\n")
    );
    assert!(asked("GET /other HTTP/1.1\r\n\r\n").contains("404 Not Found"));
    let head = asked("HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    assert!(asked("what?\r\n\r\n").contains("400 Bad Request"));
    assert!(asked("POST /metrics HTTP/1.1\r\n\r\n").contains("400 Bad Request"));
    drop(ringway);
    let reply = asked(SCRAPE);
    assert!(reply.contains("503") && reply.contains("no ringway is listening here"), "{reply}");
}

#[test]
fn a_port_that_the_kernel_chooses_is_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &["--port", "a=vm:a.sock"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
    command.args(["metrics", "--listen", "127.0.0.1:0", "--control"]).arg(ringway.control());
    let mut server = Server(command.stderr(Stdio::piped()).spawn().expect("it starts"));
    let mut told = String::new();
    let said = server.0.stderr.take().expect("a pipe");
    BufReader::new(said).read_line(&mut told).expect("a line");
    let place = told.trim().trim_start_matches("metrics at http://").trim_end_matches("/metrics");
    let reply = got(TcpStream::connect(place).expect(&told), SCRAPE);
    assert!(reply.starts_with("HTTP/1.1 200 OK\r\n"), "{reply}");
}

#[test]
fn of_many_that_do_not_ask_some_are_hung_up_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &["--port", "a=vm:a.sock"]);
    let place = free_place();
    let _server = Server::at(&place, &ringway);
    wait_for("the server", || TcpStream::connect(&place).ok());
    let scrapers: Vec<TcpStream> =
        (0..20).map(|_| TcpStream::connect(&place).expect("connected")).collect();
    let hung_up = wait_for("an end", || {
        let is_over = |mut scraper: &TcpStream| {
            scraper.set_read_timeout(Some(Duration::from_millis(10))).expect("set");
            matches!(scraper.read(&mut [0]), Ok(0))
        };
        Some(scrapers.iter().filter(|scraper| is_over(scraper)).count()).filter(|&it| it > 0)
    });
    assert!(hung_up < 20, "{hung_up}");
}

#[test]
fn those_that_do_not_ask_keep_no_place_from_those_that_do() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &["--port", "a=vm:a.sock"]);
    let place = free_place();
    let _server = Server::at(&place, &ringway);
    wait_for("the server", || TcpStream::connect(&place).ok());
    for _ in 0..3 {
        let half = || {
            let mut stream = TcpStream::connect(&place).expect("connected");
            stream.write_all(b"GET /met").expect("sent");
            stream
        };
        let halves: Vec<TcpStream> = (0..8).map(|_| half()).collect();
        // Sooner than any of them is given up.
        let mut stream = TcpStream::connect(&place).expect("connected");
        stream.set_read_timeout(Some(Duration::from_secs(4))).expect("set");
        stream.write_all(SCRAPE.as_bytes()).expect("sent");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("a reply");
        assert!(reply.contains("200 OK"), "{reply}");
        drop(halves);
    }
}

/// A scraper that sends a byte now and then would keep a place for hours.
#[test]
fn slow_scrapers_do_not_keep_their_places() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &["--port", "a=vm:a.sock"]);
    let place = free_place();
    let _server = Server::at(&place, &ringway);
    let mut slow = wait_for("the server", || TcpStream::connect(&place).ok());
    slow.set_read_timeout(Some(Duration::from_millis(200))).expect("set");
    slow.write_all(b"GET /metrics HTTP/1.1\r\nX: ").expect("sent");
    wait_for("the end", || {
        let _ = slow.write_all(b"x");
        slow.read(&mut [0]).ok()
    });
    assert!(got(TcpStream::connect(&place).expect("connected"), SCRAPE).contains("200 OK"));
}

#[test]
fn a_socket_that_was_left_behind_is_replaced_and_one_in_use_is_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &["--port", "a=vm:a.sock"]);
    let path = directory.path().join("metrics.sock");
    let place = path.display().to_string();
    let connect = || UnixStream::connect(&path).ok();
    for _ in 0..2 {
        let _server = Server::at(&place, &ringway);
        let reply = got(wait_for("the server", connect), SCRAPE);
        assert!(reply.contains("ringway_uptime_seconds"), "{reply}");
        let mut second = Server::at(&place, &ringway);
        assert!(!second.0.wait().expect("it ends").success());
        std::mem::forget(second);
    }
    let file = directory.path().join("precious");
    std::fs::write(&file, "data").expect("a file");
    let mut other = Server::at(&file.display().to_string(), &ringway);
    wait_for("its end", || other.0.try_wait().expect("a status"));
    std::mem::forget(other);
    assert_eq!(std::fs::read(&file).expect("it is still there"), b"data");
}

fn guest(directory: &Path, name: &str) -> AnyUserGuest {
    let socket = directory.join(format!("{name}.sock"));
    wait_for("a guest", || AnyUserGuest::attach(&socket, &GuestOptions::default()).ok())
}

#[test]
fn waits_are_counted_where_it_is_asked_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let limited = "a=vm:a.sock,histograms=on,packets_from_guest=100,burst_from_guest_us=10000";
    let ports = ["--port", limited, "--port", "b=vm:b.sock"];
    let ringway = Ringway::run(directory.path(), &ports);
    let (mut a, mut b) = (guest(directory.path(), "a"), guest(directory.path(), "b"));
    let mut exchange = || {
        for _ in 0..3 {
            let _ = (a.send(&[0xff; 60]).expect("connected"), b.send(&[0xff; 60]));
            a.flush();
            b.flush();
        }
        let _ = (a.receive().expect("connected"), b.receive().expect("connected"));
        ringway.told(&["metrics"])
    };
    for (wait, count) in [("call_delay", 1), ("visit_delay", 1), ("packet_hold", 2)] {
        let line = format!("ringway_{wait}_seconds_count{{port=\"a\"}} ");
        wait_for(wait, || {
            let text = exchange();
            let told = text.lines().find_map(|it| it.strip_prefix(&line)).expect("a histogram");
            (told.parse::<u64>().expect("a number") >= count).then_some(())
        });
    }
    assert!(!exchange().contains("_delay_seconds_count{port=\"b\"}"));
    for (port, is_on) in [("a", "off"), ("b", "on")] {
        ringway.told(&["port", "set", port, &format!("histograms={is_on}")]);
    }
    let text = exchange();
    assert!(text.contains("ringway_visit_delay_seconds_bucket{le=\"+Inf\",port=\"b\"}"), "{text}");
    assert!(!text.contains("_delay_seconds_count{port=\"a\"}"), "{text}");
}

/// Prometheus as a package of the distribution, unpacked.
fn prometheus(program: &str) -> Option<PathBuf> {
    let unpacked = std::env::var_os("RINGWAY_PROMETHEUS")?;
    Some(Path::new(&unpacked).join("usr/bin").join(program))
}

#[test]
fn promtool_finds_nothing_wrong_and_prometheus_reads_it() {
    let (Some(promtool), Some(prometheus)) = (prometheus("promtool"), prometheus("prometheus"))
    else {
        return println!("skipped: no Prometheus: ./x setup unpacks it");
    };
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["--port", "a=vm:a.sock", "--port", "b=vm:b.sock,histograms=on"];
    let ringway = Ringway::run(directory.path(), &ports);
    let _b = guest(directory.path(), "b");
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/ringway.rules.yml");
    let checked = Command::new(&promtool).args(["check", "rules"]).arg(rules).output();
    let checked = checked.expect("it starts");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let mut lint = Command::new(promtool);
    lint.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut lint = lint.spawn().expect("it starts");
    let (place, web) = (free_place(), free_place());
    let _server = Server::at(&place, &ringway);
    let connected = wait_for("the server", || TcpStream::connect(&place).ok());
    let reply = got(connected, "GET /metrics HTTP/1.1\r\n\r\n");
    let (_, text) = reply.split_once("\r\n\r\n").expect("a page");
    lint.stdin.take().expect("its input").write_all(text.as_bytes()).expect("written");
    let said = lint.wait_with_output().expect("it ends");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let config = format!(
        "global: {{scrape_interval: 200ms}}\n\
         scrape_configs: [{{job_name: ringway, static_configs: [{{targets: ['{place}']}}]}}]\n"
    );
    let file = directory.path().join("prometheus.yml");
    std::fs::write(&file, config).expect("written");
    let mut reader = Command::new(prometheus);
    reader.arg(format!("--config.file={}", file.display()));
    reader.arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()));
    reader.arg(format!("--web.listen-address={web}")).stderr(Stdio::null());
    let _reader = Server(reader.spawn().expect("it starts"));
    let query = "GET /api/v1/query?query=ringway_port_state HTTP/1.0\r\n\r\n";
    let read = || {
        let reply = got(TcpStream::connect(&web).ok()?, query);
        reply.contains("\"state\":\"waiting\"").then_some(())
    };
    wait_for("the metrics in Prometheus", read);
}
