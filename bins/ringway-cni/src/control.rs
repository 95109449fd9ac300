//! Asking a running ringway (`docs/control-protocol.md`).

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use ringway_control::protocol::client::{NoReply, exchange};
use ringway_control::protocol::{ChangeReply, ListedPort, PortListReply, Request};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::answer::{Code, Failure};

/// Longest wait for an answer.
const LIMIT: Duration = Duration::from_secs(60);

/// A ringway that may run.
#[derive(Debug)]
pub struct Control<'a> {
    pub socket: &'a str,
}

impl Control<'_> {
    /// All ports.
    ///
    /// # Errors
    /// No ringway answers.
    pub fn ports(&self) -> Result<Vec<ListedPort>, Failure> {
        self.ask(&Request::PortList).map(|reply: PortListReply| reply.ports)
    }

    /// The same; none where no ringway listens, because ports that were added end with it. One that
    /// goes on with them after a kill is awaited: its service manager keeps the socket listening.
    ///
    /// # Errors
    /// A ringway may be there, and does not answer.
    pub fn ports_left(&self) -> Result<Vec<ListedPort>, Failure> {
        match UnixStream::connect(self.socket).map_err(|why| why.kind()) {
            Err(ErrorKind::NotFound | ErrorKind::ConnectionRefused) => Ok(Vec::new()),
            _ => self.ports(),
        }
    }

    /// Adds a port.
    ///
    /// # Errors
    /// No ringway answers, or it refuses.
    pub fn add(&self, port: Map<String, Value>) -> Result<(), Failure> {
        self.change(&Request::PortAdd { port, until_restart: false })
    }

    /// Removes a port.
    ///
    /// # Errors
    /// No ringway answers, or there is no such port.
    pub fn remove(&self, name: &str) -> Result<(), Failure> {
        self.change(&Request::PortRemove(name.to_owned()))
    }

    fn change(&self, request: &Request) -> Result<(), Failure> {
        self.ask(request).map(|_: ChangeReply| ())
    }

    fn ask<R: DeserializeOwned>(&self, request: &Request) -> Result<R, Failure> {
        exchange(Path::new(self.socket), request, LIMIT).map_err(|why| {
            let code = match why {
                NoReply::Io(_) => Code::TryAgain,
                NoReply::NotAnAnswer(_) | NoReply::Refused(_) => Code::Ringway,
            };
            Failure::new(code, format!("ringway at {}: {why}", self.socket))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    use super::*;

    /// The failure that the runtime is told when ringway answers with this line.
    fn told(answer: &'static str) -> String {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("c.sock");
        let listener = UnixListener::bind(&socket).expect("it listens");
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("it is asked");
            BufReader::new(&stream).read_line(&mut String::new()).expect("a question");
            stream.write_all(answer.as_bytes()).expect("connected");
        });
        let socket = socket.to_str().expect("a text");
        let failure = Control { socket }.remove("a").expect_err(answer);
        server.join().expect("it has answered");
        failure.text("1.1.0").replace(socket, "SOCKET")
    }

    #[test]
    fn a_runtime_is_told_whether_to_try_again() {
        let nowhere = Control { socket: "/nowhere/c.sock" }.ports().expect_err("nothing is there");
        let right = "{\"cniVersion\":\"1.1.0\",\"code\":11,\"msg\":\
                     \"ringway at /nowhere/c.sock: No such file or directory (os error 2)\"}\n";
        assert_eq!(nowhere.text("1.1.0"), right);
        let refused = told("{\"version\":1,\"ok\":false,\"error\":\"why\",\"errors\":[\"why\"]}\n");
        assert!(refused.contains("\"code\":100,\"msg\":\"ringway at SOCKET: why\""), "{refused}");
        let wrong = told("hello\n");
        assert!(
            wrong.contains("\"code\":100,\"msg\":\"ringway at SOCKET: not an answer: "),
            "{wrong}"
        );
    }
}
