//! `ringway-cni`: a plugin for container runtimes (CNI 1.1). Each attachment is a port of a running
//! ringway: a vhost-user socket for a virtual machine, or a tap that is moved into the container.
//!
//! Stateless: what it has to find again is in the port's labels. Limits: the control socket of one
//! ringway; versions 1.0.0 and 1.1.0 of CNI.
#![forbid(unsafe_code)]

mod answer;
mod attachment;
mod configuration;
mod control;
mod device_info;
mod ipam;
mod tap;
mod verbs;

use std::io::{Read, Write};
use std::process::ExitCode;

use answer::{Code, Failure, VERSIONS};
use configuration::{Call, Configuration};

fn main() -> ExitCode {
    let [_, mut version] = VERSIONS.map(str::to_owned);
    let (text, code) = match answer(&mut version) {
        Ok(text) => (text, ExitCode::SUCCESS),
        Err(failure) => (failure.text(&version), ExitCode::FAILURE),
    };
    // Without a reader nothing can be told.
    let _ = std::io::stdout().write_all(text.as_bytes());
    code
}

/// The text to print; `version` becomes that of the runtime as soon as it is known.
fn answer(version: &mut String) -> Result<String, Failure> {
    let mut input = String::new();
    let read = std::io::stdin().read_to_string(&mut input);
    read.map_err(|why| Failure::new(Code::Io, format!("standard input: {why}")))?;
    let command = std::env::var("CNI_COMMAND").unwrap_or_default();
    if command == "VERSION" {
        let [first, last] = VERSIONS;
        return Ok(format!(
            "{{\"cniVersion\":\"{last}\",\"supportedVersions\":[\"{first}\",\"{last}\"]}}\n"
        ));
    }
    let configuration = Configuration::parse(&input)?;
    version.clone_from(&configuration.cni_version);
    let call = Call::of_environment(&command)?;
    verbs::carry_out(&call, &configuration, &input)
}
