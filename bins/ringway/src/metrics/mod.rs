//! `ringway metrics`: the statistics of a running ringway for Prometheus and its like.
//!
//! It is a process of its own that asks over the control socket for each scrape: what listens to a
//! network has no part in carrying packets. Limits: [`SCRAPERS_MAX`] scrapers at once: of those
//! that have not asked yet the oldest makes room for another one, which otherwise waits; a request
//! has at most [`REQUEST_LEN_MAX`] bytes; a scraper that neither sends nor reads for
//! [`SCRAPER_LIMIT`] is hung up on, and so is one that takes longer than twice that to ask, or to
//! read the answer.

mod families;
mod histograms;
pub mod listen_address;
mod more;
mod slots;
mod text;

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use ringway_vhost_user::{SocketError, take_path};

use crate::args::MetricsArgs;
use crate::control::request_stats;
use crate::outcome;
use listen_address::ListenAddress;
use slots::{ScraperSlot, ScraperSlots};

const SCRAPERS_MAX: usize = 8;

const REQUEST_LEN_MAX: usize = 8192;

const SCRAPER_LIMIT: Duration = Duration::from_secs(5);

/// The largest number of header lines of a request.
const HEADERS_MAX: usize = 64;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const END_OF_HEAD: &str = "\r\n\r\n";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Prints the metrics once, or answers scrapers until a signal ends it.
///
/// # Errors
/// Nothing answers at the control socket, or the address cannot be listened at.
pub fn metrics(args: &MetricsArgs) -> anyhow::Result<()> {
    let control = args.control_or_default();
    match &args.listen {
        None => outcome::print(&measured(&control)?),
        Some(address) => listen(address, control),
    }
}

fn listen(address: &ListenAddress, control: PathBuf) -> anyhow::Result<()> {
    let mut at = address.clone();
    let connections: Box<dyn Iterator<Item = io::Result<Scraper>>> = match address {
        ListenAddress::Tcp(socket) => {
            let listener = TcpListener::bind(socket)
                .map_err(|why| anyhow!("listening at {address}: {why}: choose another place"))?;
            // Where any port was asked for, the kernel has chosen one.
            at = listener.local_addr().map_or(at, ListenAddress::Tcp);
            Box::new(std::iter::from_fn(move || {
                Some(listener.accept().map(|it| Scraper::Tcp(it.0)))
            }))
        }
        ListenAddress::Unix(path) => {
            let listener = bind(path).map_err(|why| anyhow!("{why}"))?;
            Box::new(std::iter::from_fn(move || {
                Some(listener.accept().map(|it| Scraper::Unix(it.0)))
            }))
        }
    };
    outcome::say(&format!("metrics at {at}"));
    let control: Arc<Path> = control.into();
    let slots = Arc::new(ScraperSlots::default());
    for scraper in connections {
        let Ok(scraper) = scraper else {
            // Out of file descriptors, or a connection that has gone: later ones may do better.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        let slot = ScraperSlots::take(&slots, scraper.again());
        let control = Arc::clone(&control);
        let answer = move || {
            // A scraper that hangs up in the middle has had what it wanted.
            let _ = scraper.answer(&control, &slot);
            drop(slot);
        };
        // Without a thread the scraper is hung up on.
        let _ = thread::Builder::new().name("scraper".to_string()).spawn(answer);
    }
    Ok(())
}

/// A socket at that path; one that a process before has left there is replaced.
fn bind(path: &Path) -> Result<UnixListener, SocketError> {
    take_path(path, || UnixListener::bind(path))
}

pub(super) enum Scraper {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Scraper {
    /// The same connection, to be ended from outside.
    fn again(&self) -> Option<Self> {
        match self {
            Self::Tcp(stream) => stream.try_clone().ok().map(Self::Tcp),
            Self::Unix(stream) => stream.try_clone().ok().map(Self::Unix),
        }
    }

    pub(super) fn hang_up(&self) {
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    fn answer(self, control: &Path, slot: &ScraperSlot) -> io::Result<()> {
        let limit = Some(SCRAPER_LIMIT);
        match self {
            Self::Tcp(mut stream) => {
                stream.set_read_timeout(limit)?;
                stream.set_write_timeout(limit)?;
                answer(&mut stream, control, slot)
            }
            Self::Unix(mut stream) => {
                stream.set_read_timeout(limit)?;
                stream.set_write_timeout(limit)?;
                answer(&mut stream, control, slot)
            }
        }
    }
}

fn answer(stream: &mut (impl Read + Write), control: &Path, slot: &ScraperSlot) -> io::Result<()> {
    let mut text = Vec::new();
    let mut piece = [0; 1024];
    let begun = Instant::now();
    let request = loop {
        let len = stream.read(&mut piece)?;
        text.extend_from_slice(&piece[..len]);
        let may_go_on = text.len() < REQUEST_LEN_MAX && begun.elapsed() < SCRAPER_LIMIT;
        match parse(&text) {
            HttpRequest::More if len > 0 && may_go_on => {}
            request => break request,
        }
    };
    slot.has_asked();
    let (reply, begun) = (reply(&request, control), Instant::now());
    let mut left = reply.as_bytes();
    while !left.is_empty() && begun.elapsed() < SCRAPER_LIMIT {
        match stream.write(left)? {
            0 => break,
            len => left = &left[len..],
        }
    }
    Ok(())
}

/// The subject of a request, as far as it has come.
enum HttpRequest {
    More,
    Nonsense,
    /// `is_head`: without the text.
    Page {
        path: Page,
        is_head: bool,
    },
}

enum Page {
    Root,
    Metrics { open: bool },
    Other,
}

fn parse(request: &[u8]) -> HttpRequest {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let is_whole = match parsed.parse(request) {
        Ok(status) => status.is_complete(),
        Err(_) => return HttpRequest::Nonsense,
    };
    let path = parsed.path.and_then(|path| path.split('?').next());
    match (is_whole, parsed.method, path) {
        (false, ..) => HttpRequest::More,
        (true, Some(method @ ("GET" | "HEAD")), path) => {
            let path = match path {
                Some("/metrics") => Page::Metrics { open: wants_open(&parsed) },
                Some("/") => Page::Root,
                _ => Page::Other,
            };
            HttpRequest::Page { path, is_head: method == "HEAD" }
        }
        (true, ..) => HttpRequest::Nonsense,
    }
}

fn wants_open(request: &httparse::Request<'_, '_>) -> bool {
    let accepted = request.headers.iter().filter(|it| it.name.eq_ignore_ascii_case("accept"));
    let mut values = accepted.map(|header| String::from_utf8_lossy(header.value));
    values.any(|value| value.contains("application/openmetrics-text"))
}

fn reply(request: &HttpRequest, control: &Path) -> String {
    const ADVICE: &str = "ask: GET /metrics\n";
    const LINK: &str = "<a href=\"/metrics\">Metrics of ringway</a>\n";
    let HttpRequest::Page { path, is_head } = request else {
        return page("400 Bad Request", PROMETHEUS, ADVICE);
    };
    let whole = match path {
        Page::Root => page("200 OK", HTML, LINK),
        Page::Other => page("404 Not Found", PROMETHEUS, ADVICE),
        Page::Metrics { open } => match measured(control) {
            Ok(text) if *open => page("200 OK", OPEN_METRICS, &text),
            Ok(text) => page("200 OK", PROMETHEUS, &text::prometheus(&text)),
            Err(error) => page("503 Service Unavailable", PROMETHEUS, &format!("{error:#}\n")),
        },
    };
    match whole.split_once(END_OF_HEAD).filter(|_| *is_head) {
        Some((head, _)) => format!("{head}{END_OF_HEAD}"),
        None => whole,
    }
}

fn measured(control: &Path) -> anyhow::Result<String> {
    Ok(text::open_metrics(&request_stats(control)?)?)
}

fn page(status: &str, kind: &str, text: &str) -> String {
    let len = text.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len}\r\n\
         Connection: close{END_OF_HEAD}{text}"
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    /// Each finds a socket that was left over; none takes that of another one for it.
    #[test]
    fn of_those_that_start_at_once_one_has_the_socket() {
        const STARTERS: usize = 4;
        let folder = tempfile::tempdir().expect("a directory");
        for round in 0..100 {
            let path = folder.path().join(round.to_string());
            drop(UnixListener::bind(&path).expect("a socket"));
            let (start, path) = (&Barrier::new(STARTERS), &path);
            let start = move || {
                start.wait();
                bind(path)
            };
            let bound: Vec<_> = thread::scope(|scope| {
                let starters: Vec<_> = (0..STARTERS).map(|_| scope.spawn(start)).collect();
                starters.into_iter().map(|starter| starter.join().expect("it ends")).collect()
            });
            assert_eq!(bound.iter().filter(|it| it.is_ok()).count(), 1, "{round}: {bound:?}");
        }
    }
}
