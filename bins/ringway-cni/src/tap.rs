//! A tap becomes an interface of the container: ringway keeps its file descriptor, whatever its
//! namespace. With the programs `ip` and `nsenter`.

use std::process::Command;

use serde_json::Value;

use crate::answer::{Code, Failure};

/// Moves it into the container's namespace under its name there, with these addresses and routes,
/// and switches it on; its MAC address.
///
/// # Errors
/// Something of that fails.
pub fn move_into(
    tap: &str,
    (namespace, interface): (&str, &str),
    addresses: &Value,
) -> Result<String, Failure> {
    run(&["ip", "link", "set", tap, "netns", namespace, "name", interface])?;
    let inside = format!("--net={namespace}");
    let run_inside = |words: &[&str]| run(&[&["nsenter", &inside, "ip"], words].concat());
    for ip in addresses["ips"].as_array().into_iter().flatten() {
        let address = ip["address"].as_str().unwrap_or_default();
        run_inside(&["addr", "add", address, "dev", interface])?;
    }
    run_inside(&["link", "set", interface, "up"])?;
    let gateway = addresses["ips"][0]["gateway"].as_str();
    for route in addresses["routes"].as_array().into_iter().flatten() {
        let to = route["dst"].as_str().unwrap_or_default();
        match route["gw"].as_str().or(gateway) {
            Some(via) => run_inside(&["route", "add", to, "via", via, "dev", interface])?,
            None => run_inside(&["route", "add", to, "dev", interface])?,
        };
    }
    let shown = run_inside(&["-o", "link", "show", "dev", interface])?;
    let mut words = shown.split_whitespace().skip_while(|word| *word != "link/ether");
    Ok(words.nth(1).unwrap_or_default().to_string())
}

fn run(words: &[&str]) -> Result<String, Failure> {
    let failure = |why: String| Failure::new(Code::Tap, format!("{}: {why}", words.join(" ")));
    let output = Command::new(words[0]).args(&words[1..]).output();
    let output = output.map_err(|why| failure(why.to_string()))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(failure(String::from_utf8_lossy(&output.stderr).trim().to_string())),
    }
}
