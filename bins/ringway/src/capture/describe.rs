//! Descriptions of packets, beside their bytes.

use std::fmt::Write as _;

use ringway_device::{Queue, QueueId};
use ringway_host::{CaptureDirection, CaptureRecord, DroppedBy};
use ringway_net::{DATA_VALID, GSO_ECN, GsoType, NEEDS_CSUM};

/// For the comment: `from guest, transmitq1, TCP over IPv4 in segments of 1448, checksum at 34+16`.
pub fn comment(record: &CaptureRecord) -> String {
    let (way, queue) = match record.direction {
        CaptureDirection::FromGuest => ("from guest", Queue::FromGuest),
        CaptureDirection::ToGuest => ("to guest", Queue::ToGuest),
    };
    let mut text = format!("{way}, {}", QueueId { pair: record.pair, queue });
    let header = &record.header;
    let segments = match GsoType::from_raw(header.gso_type & !GSO_ECN) {
        None | Some(GsoType::None) => None,
        Some(GsoType::TcpV4) => Some("TCP over IPv4"),
        Some(GsoType::TcpV6) => Some("TCP over IPv6"),
        Some(GsoType::Ufo) => Some("UDP to be fragmented"),
        Some(GsoType::UdpL4) => Some("UDP"),
    };
    // Writing to a text does not fail.
    if let Some(what) = segments {
        let ecn = if header.gso_type & GSO_ECN == 0 { "" } else { " with ECN" };
        let _ = write!(text, ", {what}{ecn} in segments of {}", header.gso_size);
    }
    if header.flags & NEEDS_CSUM != 0 {
        let _ = write!(text, ", checksum at {}+{}", header.csum_start, header.csum_offset);
    } else if header.flags & DATA_VALID != 0 {
        text += ", checksum checked";
    }
    match record.dropped {
        None => {}
        Some(DroppedBy::Port(reason)) => {
            let _ = write!(text, ", dropped: {}", reason.name());
        }
        Some(DroppedBy::Receiver(reason)) => {
            let _ = write!(text, ", dropped by its receiver: {}", reason.name());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_host::CaptureOutput;
    use ringway_net::{DropReason, NetHeader};

    #[test]
    fn what_is_left_undone_and_what_became_of_it_are_said() {
        let mut record = CaptureRecord {
            direction: CaptureDirection::FromGuest,
            port: 0,
            pair: 0,
            output: CaptureOutput::Unknown,
            time_ns: 0,
            header: NetHeader::default(),
            dropped: None,
            stands_for: 1,
            packet_len: 60,
        };
        assert_eq!(comment(&record), "from guest, transmitq1");
        record.header = NetHeader {
            flags: NEEDS_CSUM,
            gso_type: GsoType::TcpV4.raw() | GSO_ECN,
            gso_size: 1448,
            csum_start: 34,
            csum_offset: 16,
            ..NetHeader::default()
        };
        record.dropped = Some(DroppedBy::Receiver(DropReason::NoRoom));
        let said = "from guest, transmitq1, TCP over IPv4 with ECN in segments of 1448, \
                    checksum at 34+16, dropped by its receiver: no_room";
        assert_eq!(comment(&record), said);
        record = CaptureRecord {
            direction: CaptureDirection::ToGuest,
            pair: 1,
            header: NetHeader { flags: DATA_VALID, ..NetHeader::default() },
            dropped: Some(DroppedBy::Port(DropReason::Filtered)),
            ..record
        };
        assert_eq!(comment(&record), "to guest, receiveq2, checksum checked, dropped: filtered");
    }
}
