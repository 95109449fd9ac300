//! ICMP errors towards a guest.

use std::net::{IpAddr, SocketAddr};

use crate::frame::{self, ICMP, IPV6_HEADER_LEN, Stations, TCP, UDP, UDP_HEADER_LEN};
use crate::socket::Problem;

/// Most bytes of a packet that are quoted: what fits into 576 bytes (RFC 1812 §4.3.2.3).
const QUOTE_LEN_MAX: usize = 548;

/// The frame that tells `to` what its packet, which begins with `quote`, met at `from`.
///
/// `None`: the two are of different families.
pub(crate) fn error(
    stations: Stations,
    from: IpAddr,
    to: IpAddr,
    problem: Problem,
    quote: &[u8],
) -> Option<Vec<u8>> {
    let (kind, code, mtu) = match (from, to) {
        (IpAddr::V4(_), IpAddr::V4(_)) => numbers4(problem),
        (IpAddr::V6(_), IpAddr::V6(_)) => numbers6(problem),
        _ => return None,
    };
    let mut message = vec![kind, code, 0, 0, 0, 0];
    message.extend(mtu.to_be_bytes());
    message.extend(&quote[..quote.len().min(QUOTE_LEN_MAX)]);
    Some(frame::icmp(stations, from, to, message))
}

/// RFC 792, RFC 1812 §5.2.7, RFC 1191 §4.
fn numbers4(problem: Problem) -> (u8, u8, u16) {
    match problem {
        Problem::NetworkUnreachable => (3, 0, 0),
        Problem::HostUnreachable => (3, 1, 0),
        Problem::PortUnreachable => (3, 3, 0),
        Problem::TooBig(mtu) => (3, 4, mtu),
        Problem::Prohibited | Problem::WrongSource => (3, 13, 0),
        Problem::HopsExceeded => (11, 0, 0),
    }
}

/// RFC 4443 §3.
fn numbers6(problem: Problem) -> (u8, u8, u16) {
    match problem {
        Problem::NetworkUnreachable => (1, 0, 0),
        Problem::Prohibited => (1, 1, 0),
        Problem::WrongSource => (1, 5, 0),
        Problem::HostUnreachable => (1, 3, 0),
        Problem::PortUnreachable => (1, 4, 0),
        Problem::TooBig(mtu) => (2, 0, mtu),
        Problem::HopsExceeded => (3, 0, 0),
    }
}

/// The beginning of a guest's packet, made again from what is known of its flow.
///
/// `seq`: the sequence number of a segment, by which its sender knows it.
pub(crate) fn quote(from: SocketAddr, to: SocketAddr, protocol: u8, seq: u32) -> Vec<u8> {
    let mut quote = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            frame::ipv4_header(from, to, protocol, UDP_HEADER_LEN).to_vec()
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            frame::ipv6_header(from, to, protocol, UDP_HEADER_LEN).to_vec()
        }
        _ => vec![0; IPV6_HEADER_LEN],
    };
    let [first, second] = match protocol {
        UDP | TCP => [from.port(), to.port()],
        ICMP => [0x0800, 0],
        _ => [0x8000, 0],
    };
    let last = match protocol {
        TCP => seq,
        UDP => 8 << 16,
        _ => u32::from(from.port()) << 16,
    };
    quote.extend([first.to_be_bytes(), second.to_be_bytes()].as_flattened());
    quote.extend(last.to_be_bytes());
    quote
}

#[cfg(test)]
mod tests {
    use ringway_net::MacAddress;

    use super::*;

    #[test]
    fn errors_quote_what_they_are_about() {
        let stations = Stations { from: MacAddress::local(1), to: MacAddress::local(2) };
        let [from, to] = [SocketAddr::from(([10, 0, 2, 15], 4000)), ([8, 8, 4, 4], 53).into()];
        let quote = quote(from, to, UDP, 0);
        let golden = [&[0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 17, 0x22, 0xb7][..], &[10, 0, 2, 15]];
        assert_eq!(&quote[..16], golden.concat());
        assert_eq!(&quote[16..], [8, 8, 4, 4, 0x0f, 0xa0, 0, 53, 0, 8, 0, 0]);
        let gateway = IpAddr::from([10, 0, 2, 2]);
        let frame = error(stations, gateway, from.ip(), Problem::TooBig(1280), &quote).unwrap();
        assert_eq!(&frame[34..36], [3, 4]);
        assert_eq!(&frame[38..42], [0, 0, 5, 0]);
        assert_eq!(&frame[42..70], &quote[..]);
        let other = "::1".parse().unwrap();
        assert_eq!(error(stations, gateway, other, Problem::Prohibited, &quote), None);
    }
}
