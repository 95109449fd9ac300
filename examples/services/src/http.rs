//! The statistics page over HTTP/1.1.
//!
//! Limits: `GET` and `HEAD` of `/`; requests of at most 2 KiB without a body; pages of at most
//! 4 KiB. Connections are kept, unless the peer wants none kept.

use core::fmt::{self, Write};

use smoltcp::socket::tcp::Socket;

use crate::conversation::send;
use crate::{Conversation, Text};

const REQUEST_LEN_MAX: usize = 2048;
const PAGE_LEN_MAX: usize = 4096;
const HEAD_LEN_MAX: usize = 256;
const FIELDS_MAX: usize = 32;

/// One connection of a browser.
#[derive(Debug, Default)]
pub struct Http {
    request: Text<REQUEST_LEN_MAX>,
}

/// The answer that a request wants.
#[derive(Debug, PartialEq, Eq)]
struct HttpRequest {
    status: &'static str,
    with_body: bool,
    keep: bool,
    /// Its bytes.
    len: usize,
}

const BAD: HttpRequest =
    HttpRequest { status: "400 Bad HttpRequest", with_body: true, keep: false, len: 0 };

impl Conversation for Http {
    const PORT: u16 = 80;
    const CONNECTIONS: usize = 8;
    const BUFFER_LEN: usize = 8 << 10;

    fn step<R: fmt::Display>(&mut self, socket: &mut Socket<'_>, report: &R) {
        if socket.can_recv() {
            // The bytes that do not fit wait for the next step.
            let _ = socket.recv(|bytes| (self.request.append(bytes), ()));
        }
        // An answer is only made if all of it can be sent, so nothing has to be remembered.
        while socket.send_capacity() - socket.send_queue() >= HEAD_LEN_MAX + PAGE_LEN_MAX {
            let Some(request) = parse(self.request.bytes()) else { break };
            answer(socket, &request, report);
            self.request.drop_front(request.len);
            if !request.keep {
                return socket.close();
            }
        }
        if !socket.may_recv() && socket.recv_queue() == 0 {
            socket.close();
        }
    }
}

fn answer<R: fmt::Display>(socket: &mut Socket<'_>, request: &HttpRequest, report: &R) {
    let mut page = Text::<PAGE_LEN_MAX>::new();
    let _ = match request.status {
        OK => write!(page, "{report}"),
        other => writeln!(page, "{other}"),
    };
    let mut head = Text::<HEAD_LEN_MAX>::new();
    let connection = if request.keep { "keep-alive" } else { "close" };
    let _ = write!(
        head,
        "HTTP/1.1 {}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: {connection}\r\n\r\n",
        request.status,
        page.bytes().len()
    );
    send(socket, head.bytes());
    if request.with_body {
        send(socket, page.bytes());
    }
}

const OK: &str = "200 OK";

/// The first request, if it is complete.
fn parse(bytes: &[u8]) -> Option<HttpRequest> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let len = match request.parse(bytes) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) if bytes.len() < REQUEST_LEN_MAX => return None,
        _ => return Some(BAD),
    };
    let status = match (request.method, request.path) {
        (Some("GET" | "HEAD"), Some("/")) => OK,
        (Some("GET" | "HEAD"), _) => "404 Not Found",
        _ => "405 Method Not Allowed",
    };
    let closes = request.headers.iter().any(|field| {
        let is_close = field.value.eq_ignore_ascii_case(b"close");
        field.name.eq_ignore_ascii_case("connection") && is_close
    });
    let has_body = request.method.is_some_and(|method| method != "GET" && method != "HEAD");
    let keep = !closes && !has_body && request.version == Some(1);
    Some(HttpRequest { status, with_body: request.method != Some("HEAD"), keep, len })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(text: &str) -> Option<(&'static str, bool)> {
        parse(text.as_bytes()).map(|request| (request.status, request.keep))
    }

    #[test]
    fn requests_are_understood_or_refused() {
        assert_eq!(status("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), Some((OK, true)));
        assert_eq!(status("GET / HTTP/1.0\r\n\r\n"), Some((OK, false)));
        assert_eq!(status("GET / HTTP/1.1\r\nconnection: Close\r\n\r\n"), Some((OK, false)));
        assert_eq!(status("GET /x HTTP/1.1\r\n\r\n"), Some(("404 Not Found", true)));
        let refused = Some(("405 Method Not Allowed", false));
        assert_eq!(status("POST / HTTP/1.1\r\n\r\n"), refused);
        assert_eq!(status("\u{1}\u{2}\r\n\r\n"), Some(("400 Bad HttpRequest", false)));
        assert_eq!(status("GET / HTTP/1.1\r\nHost"), None);
        assert_eq!(status(&"a".repeat(REQUEST_LEN_MAX)), Some(("400 Bad HttpRequest", false)));
    }

    #[test]
    fn one_request_ends_where_the_next_begins() {
        let two = "HEAD / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n";
        let first = parse(two.as_bytes()).expect("complete");
        assert_eq!((first.len, first.with_body), (19, false));
    }
}
