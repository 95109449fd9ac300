//! Who answers this machine's questions for names.

use std::net::IpAddr;

/// Where they are listed (resolv.conf(5)).
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// The resolvers of this machine, as they are now.
pub fn of_this_machine() -> Vec<IpAddr> {
    listed(&std::fs::read_to_string(RESOLV_CONF).unwrap_or_default())
}

/// The resolvers that a file names.
fn listed(text: &str) -> Vec<IpAddr> {
    let words = text.lines().map(str::split_whitespace);
    let servers = words.filter_map(|mut words| match (words.next(), words.next()) {
        (Some("nameserver"), Some(address)) => address.parse().ok(),
        _ => None,
    });
    servers.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolvers_are_read() {
        let text = "# nameserver 9.9.9.9\nsearch a b\nnameserver 10.0.0.1\n nameserver ::1 # x\n\
                    nameserver\nnameserver nowhere\n";
        let expected: [IpAddr; 2] = [[10, 0, 0, 1].into(), "::1".parse().unwrap()];
        assert_eq!(listed(text), expected);
    }
}
