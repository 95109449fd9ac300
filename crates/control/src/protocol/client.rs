//! Asking a running ringway over its control socket.
//!
//! How: [`exchange`] says why there is no answer as a value; everything else is for people, and
//! says where ringway was asked and what to do.
//!
//! Limits: an answer has at most [`REPLY_LEN_MAX`] bytes and is waited for at most
//! [`REPLY_LIMIT`], or as long as the caller of [`exchange`] says.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::fds::receive_with_fds;
use super::{LINE_LEN_MAX, PROTOCOL_VERSION, REPLY_LEN_MAX, Request, StatsReply, StopReply};
use crate::places;

/// Longest wait for an answer.
pub const REPLY_LIMIT: Duration = Duration::from_secs(5);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum NoReply {
    /// The operating system says so: no process listens there, or it does not answer in time.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The line that came is not an answer.
    #[error("not an answer: {0}")]
    NotAnAnswer(String),
    /// It refused.
    #[error("{0}")]
    Refused(String),
}

/// The same for people. Each text starts with the socket and ends with what to do.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No socket, or no process listens on it.
    #[error("{0}: no ringway is listening here: start {how}", how = places::how_to_start(.0))]
    NotRunning(String),
    /// The socket belongs to another user.
    #[error("{0}: permission denied: ask as the user who started this ringway, or as root")]
    Denied(String),
    /// It did not answer in time.
    #[error(
        "{0}: no answer within {limit} s: this ringway hangs or is not one",
        limit = REPLY_LIMIT.as_secs()
    )]
    Silent(String),
    /// The bytes that came are not an answer.
    #[error("{0}: not an answer of ringway ({1}): is this its control socket?")]
    NotAnAnswer(String, String),
    /// It refused.
    #[error("{0}: refused: {1}")]
    Refused(String, String),
    /// Anything else the operating system says.
    #[error("{0}: {1}: check the path, or choose another with --control")]
    Io(String, io::Error),
}

/// Asks the ringway behind a control socket for its statistics.
///
/// # Errors
/// [`ControlError`], with the path in front.
pub fn request_stats(path: &Path) -> Result<StatsReply, ControlError> {
    ask(path, &Request::Stats)
}

/// Asks the ringway behind a control socket.
///
/// # Errors
/// [`ControlError`], with the path in front; [`ControlError::Refused`] has its reasons.
pub fn ask<R: DeserializeOwned>(path: &Path, request: &Request) -> Result<R, ControlError> {
    exchange(path, request, REPLY_LIMIT).map_err(|why| for_people(path, why))
}

/// Asks the ringway behind a control socket, and waits at most so long for each part of its answer.
///
/// # Errors
/// Why there is no answer.
pub fn exchange<R: DeserializeOwned>(
    path: &Path,
    request: &Request,
    limit: Duration,
) -> Result<R, NoReply> {
    let mut stream = connect(path, limit)?;
    stream.write_all((request.to_line() + "\n").as_bytes())?;
    let mut reply = String::new();
    BufReader::new(stream.take(REPLY_LEN_MAX)).read_line(&mut reply)?;
    parse_reply(&reply)
}

/// The same, with the file descriptors that come with the answer.
///
/// # Errors
/// As of [`ask`].
pub fn ask_for_fds<R: DeserializeOwned>(
    path: &Path,
    request: &Request,
) -> Result<(R, Vec<OwnedFd>), ControlError> {
    let mut fds = Vec::new();
    let reply = exchange_for_fds(path, request, &mut fds).map_err(NoReply::Io);
    let reply = reply.and_then(|line| parse_reply(&line));
    Ok((reply.map_err(|why| for_people(path, why))?, fds))
}

/// Asks the ringway behind a control socket to end, and waits until it has closed it, for
/// [`REPLY_LIMIT`].
///
/// # Errors
/// As of [`ask`]; [`ControlError::Silent`]: it has not ended.
pub fn stop(path: &Path) -> Result<StopReply, ControlError> {
    let exchange = || {
        let mut stream = connect(path, REPLY_LIMIT)?;
        stream.write_all((Request::Stop.to_line() + "\n").as_bytes())?;
        let mut reader = BufReader::new(stream.take(LINE_LEN_MAX as u64));
        let mut reply = String::new();
        reader.read_line(&mut reply)?;
        let reply = parse_reply(&reply)?;
        // A connection that was reset is closed, too.
        match reader.read(&mut [0]) {
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => Err(NoReply::Io(why)),
            _ => Ok(reply),
        }
    };
    exchange().map_err(|why| for_people(path, why))
}

/// The process that made a control socket, as far as the kernel says. It may be gone.
pub fn pid(path: &Path) -> Option<u32> {
    let peer = rustix::net::sockopt::socket_peercred(connect(path, REPLY_LIMIT).ok()?).ok()?;
    u32::try_from(peer.pid.as_raw_nonzero().get()).ok()
}

fn exchange_for_fds(path: &Path, request: &Request, fds: &mut Vec<OwnedFd>) -> io::Result<String> {
    let mut stream = connect(path, REPLY_LIMIT)?;
    stream.write_all((request.to_line() + "\n").as_bytes())?;
    let mut reply = Vec::new();
    while !reply.ends_with(b"\n") && reply.len() < LINE_LEN_MAX {
        let mut bytes = [0; 4096];
        match receive_with_fds(&stream, &mut bytes, fds)? {
            0 => break,
            len => reply.extend_from_slice(&bytes[..len]),
        }
    }
    String::from_utf8(reply).map_err(|_| io::ErrorKind::InvalidData.into())
}

fn connect(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    Ok(stream)
}

fn for_people(path: &Path, why: NoReply) -> ControlError {
    let shown = path.display().to_string();
    let why = match why {
        NoReply::NotAnAnswer(why) => return ControlError::NotAnAnswer(shown, why),
        NoReply::Refused(why) => return ControlError::Refused(shown, why),
        NoReply::Io(why) => why,
    };
    match why.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            ControlError::NotRunning(shown)
        }
        io::ErrorKind::PermissionDenied => ControlError::Denied(shown),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ControlError::Silent(shown),
        io::ErrorKind::InvalidData => ControlError::NotAnAnswer(shown, why.to_string()),
        _ => ControlError::Io(shown, why),
    }
}

fn parse_reply<R: DeserializeOwned>(line: &str) -> Result<R, NoReply> {
    if line.is_empty() {
        return Err(NoReply::NotAnAnswer("it hung up".to_string()));
    }
    let not_an_answer = |why: serde_json::Error| NoReply::NotAnAnswer(why.to_string());
    let value: Value = serde_json::from_str(line).map_err(not_an_answer)?;
    if value.get("ok") == Some(&Value::Bool(false)) {
        let error = value.get("error").and_then(Value::as_str).unwrap_or("no reason given");
        return Err(NoReply::Refused(error.to_string()));
    }
    let version = value.get("version").and_then(Value::as_u64);
    if version != Some(u64::from(PROTOCOL_VERSION)) {
        let why = format!("version {version:?}, not {PROTOCOL_VERSION}");
        return Err(NoReply::NotAnAnswer(why));
    }
    serde_json::from_value(value).map_err(not_an_answer)
}

#[cfg(test)]
mod tests {
    use super::super::examples::example;
    use super::super::{refusal, reply_line};
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::thread;

    #[test]
    fn an_answer_and_a_refusal_are_told_apart() {
        let reply: StatsReply = parse_reply(&reply_line(&example())).expect("a reply");
        assert_eq!(reply, example());
        let refused = parse_reply::<StatsReply>(&refusal(&["one".into(), "two".into()]));
        let Err(NoReply::Refused(why)) = refused else { panic!("{refused:?}") };
        assert_eq!(why, "one; two");
    }

    #[test]
    fn what_is_not_an_answer_is_said_to_be_none() {
        for line in
            ["", "hello\n", "{}", r#"{"version":9,"ok":true}"#, r#"{"version":1,"ok":true}"#]
        {
            let outcome = parse_reply::<StatsReply>(line);
            assert!(matches!(outcome, Err(NoReply::NotAnAnswer(_))), "{line:?}");
        }
    }

    #[test]
    fn a_running_daemon_is_asked_over_its_socket() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("control.sock");
        let listener = UnixListener::bind(&path).expect("bind");
        let server = thread::spawn(move || {
            let (stream, _) = listener.accept().expect("accept");
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).expect("line");
            assert_eq!(Request::parse(line.trim_end()), Ok(Request::Stats));
            let reply = reply_line(&example()) + "\n";
            (&stream).write_all(reply.as_bytes()).expect("write");
        });
        assert_eq!(request_stats(&path).expect("stats"), example());
        server.join().expect("server");
        // The listener is gone, its file is not.
        let error = request_stats(&path).expect_err("no listener").to_string();
        assert!(error.contains("no ringway is listening here"), "{error}");
        let missing = directory.path().join("missing.sock");
        let error = request_stats(&missing).expect_err("missing").to_string();
        assert!(error.starts_with(&missing.display().to_string()), "{error}");
        assert!(error.contains("ringway run --control"), "{error}");
    }
}
