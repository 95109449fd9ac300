//! A tap becomes an interface of the container: ringway keeps its file descriptor, whatever its
//! namespace. With the programs `ip` and `nsenter`.

use std::process::Command;

use serde_json::Value;

use crate::answer::{Code, Failure};

/// Moves it into the container's namespace under its name there, with the MAC address that is asked
/// for, these addresses and routes, and switches it on; its MAC address.
///
/// # Errors
/// Something of that fails.
pub fn move_into(
    tap: &str,
    namespace: &str,
    interface: &str,
    mac: Option<&str>,
    addresses: &Value,
) -> Result<String, Failure> {
    run(&["ip", "link", "set", tap, "netns", namespace, "name", interface])?;
    let inside = format!("--net={namespace}");
    let run_inside = |words: &[&str]| run(&[&["nsenter", &inside, "ip"], words].concat());
    if let Some(mac) = mac {
        run_inside(&["link", "set", interface, "address", mac])?;
    }
    for ip in addresses["ips"].as_array().into_iter().flatten() {
        let address = ip["address"].as_str().unwrap_or_default();
        run_inside(&["addr", "add", address, "dev", interface])?;
    }
    run_inside(&["link", "set", interface, "up"])?;
    for route in addresses["routes"].as_array().into_iter().flatten() {
        let to = route["dst"].as_str().unwrap_or_default();
        match route["gw"].as_str().or_else(|| gateway_for(to, addresses)) {
            Some(via) => run_inside(&["route", "add", to, "via", via, "dev", interface])?,
            None => run_inside(&["route", "add", to, "dev", interface])?,
        };
    }
    let shown = run_inside(&["-o", "link", "show", "dev", interface])?;
    let mut words = shown.split_whitespace().skip_while(|word| *word != "link/ether");
    Ok(words.nth(1).unwrap_or_default().to_string())
}

/// The first gateway of the family of a route that names none.
fn gateway_for<'a>(to: &str, addresses: &'a Value) -> Option<&'a str> {
    let is_six = to.contains(':');
    let ips = addresses["ips"].as_array().into_iter().flatten();
    let mut gateways = ips.filter_map(|ip| ip["gateway"].as_str());
    gateways.find(|gateway| gateway.contains(':') == is_six)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_goes_by_a_gateway_of_its_own_family() {
        let four = serde_json::json!({ "address": "10.1.0.5/24", "gateway": "10.1.0.1" });
        let six = serde_json::json!({ "address": "fd1::5/64", "gateway": "fd1::1" });
        let both = serde_json::json!({ "ips": [four, six] });
        assert_eq!(gateway_for("0.0.0.0/0", &both), Some("10.1.0.1"));
        assert_eq!(gateway_for("::/0", &both), Some("fd1::1"));
        let only_four = serde_json::json!({ "ips": [four, { "address": "fd1::5/64" }] });
        assert_eq!(gateway_for("::/0", &only_four), None);
    }
}
