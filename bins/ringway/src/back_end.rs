//! `ringway vhost-user-net`: the program as other programs start a back-end, one for each device.
//!
//! Source: "Backend program conventions" of QEMU's vhost-user protocol: `--socket-path`, `--fd`,
//! `--print-capabilities`; it does not go to the background, and ends with SIGTERM.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::Path;

use crate::args::BackEndArgs;
use crate::config::error::Origin;
use crate::config::port::LowPort;
use crate::config::{LowConfig, LowOption, RunConfig, SpecError, flags, settings};
use crate::places;
use crate::supervisor::run::socket_path;

/// The command; and what the program is called where it is no command of `ringway`.
const NAME: &str = "vhost-user-net";

/// The port of the guest.
pub const PORT: &str = "vm0";

/// Where the guest's packets go if nothing is said about it.
const REST: &str = "net=nat:";

/// The output of `--print-capabilities` (`VHostUserBackendCapabilities`).
pub const CAPABILITIES: &str = "{\"type\":\"net\"}";

/// The words of the command line; if the program was called as a back-end, the command comes in
/// front.
pub fn words() -> Vec<OsString> {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    let called = words.first().and_then(|word| Path::new(word).file_name());
    if called == Some(OsStr::new(NAME)) {
        words.splice(0..1, ["ringway".into(), NAME.into()]);
    }
    words
}

/// Whether a back-end is asked what it can do: all else is to be ignored then.
pub fn is_asked(words: &[OsString]) -> bool {
    let mut words = words.iter().skip(1);
    words.next().is_some_and(|word| word == NAME)
        && words.any(|word| word == "--print-capabilities")
}

/// The configuration of a back-end.
pub struct BackEnd {
    pub config: RunConfig,
    pub over: Vec<LowOption>,
    /// The socket that it was given.
    pub socket: Option<OwnedFd>,
}

/// From what was typed.
///
/// # Errors
/// Everything that is wrong with it.
pub fn back_end(args: &BackEndArgs) -> Result<BackEnd, Vec<SpecError>> {
    let socket = args.fd.map(inherited).transpose().map_err(|error| vec![error])?;
    let path = match (&args.socket_path, args.fd) {
        (Some(path), _) => path.clone(),
        (None, number) => {
            let at = socket.as_ref().and_then(socket_path);
            let at = at.and_then(|path| Some(path.to_str()?.to_owned()));
            at.unwrap_or_else(|| format!("fd:{}", number.unwrap_or_default()))
        }
    };
    let control = args.control.clone().unwrap_or_else(|| match &args.socket_path {
        Some(path) => format!("{path}.control"),
        None => {
            let name = format!("{NAME}-{}.sock", std::process::id());
            places::control_socket().with_file_name(name).display().to_string()
        }
    });
    let over = vec![settings::flag("control", &control)];
    let rest = if args.ports.is_empty() { vec![REST.to_owned()] } else { args.ports.clone() };
    let parsed = std::iter::once(guest(&path, &args.options));
    let parsed = parsed.chain(rest.iter().map(|typed| flags::parse_port(typed)));
    let ports = parsed.collect::<Result<Vec<_>, _>>().map_err(|error| vec![error])?;
    let low = LowConfig { settings: over.clone(), ports };
    let config = RunConfig::resolve(&low, places::control_socket())?;
    Ok(BackEnd { config, over, socket })
}

/// The port at that socket.
fn guest(path: &str, options: &[String]) -> Result<LowPort, SpecError> {
    let guest = flags::parse_port(&format!("{PORT}=vm:{}", path.replace(',', ",,")))?;
    Ok(LowPort { options: flags::parse_options(options), ..guest })
}

fn inherited(number: i32) -> Result<OwnedFd, SpecError> {
    let wrong =
        |what: &str, advice: &str| Origin::flag(format!("--fd {number}")).wrong(what, advice);
    let Some(socket) = ringway_host::take_inherited_fd(number) else {
        return Err(wrong(
            "this program was not started with it",
            "open it, from 3 on, and pass it on",
        ));
    };
    let is_stream = rustix::net::sockopt::socket_type(&socket)
        .is_ok_and(|kind| kind == rustix::net::SocketType::STREAM);
    let is_unix = rustix::net::sockopt::socket_domain(&socket)
        .is_ok_and(|domain| domain == rustix::net::AddressFamily::UNIX);
    if is_stream && is_unix {
        return Ok(socket);
    }
    Err(wrong("it is no Unix stream socket", "pass one that listens, or is connected"))
}
