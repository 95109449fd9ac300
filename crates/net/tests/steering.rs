//! The receive queue that a packet takes.

use ringway_net::{
    FromPair, HASH_TYPES_SUPPORTED, NetHeader, Packet, ReceiveHash, RssTable, Steering,
};
use ringway_virtq::SharedSlice;

const KEY: [u8; 40] = [0x5a; 40];

/// The pair that `steering` chooses for a UDP packet from that port, coming from `from`.
fn pair_for(steering: &Steering, from: FromPair, port: u16) -> u16 {
    let mut bytes = [0; 60];
    bytes[12..14].copy_from_slice(&[8, 0]);
    bytes[14] = 0x45;
    bytes[23] = 17;
    bytes[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    bytes[34..36].copy_from_slice(&port.to_be_bytes());
    packet_pair(steering, from, &mut bytes)
}

fn packet_pair(steering: &Steering, from: FromPair, bytes: &mut [u8]) -> u16 {
    // SAFETY: the bytes live until the end of this function, and no other code uses them.
    let payload = [unsafe { SharedSlice::new(bytes.as_mut_ptr(), bytes.len()) }];
    let len = u32::try_from(bytes.len()).unwrap();
    steering.pair_for(from, &Packet { header: &NetHeader::ZERO, payload: &payload, len })
}

fn table(entries: &[u16]) -> RssTable {
    let hash = ReceiveHash::new(HASH_TYPES_SUPPORTED, &KEY).unwrap();
    RssTable::new(hash, entries.iter().copied(), 1, 4).unwrap()
}

#[test]
fn a_packet_keeps_the_number_of_its_pair() {
    let steering = Steering::new(4, None);
    for of in [4, 8] {
        for pair in 0..of {
            for port in [1, 2, 3] {
                assert_eq!(pair_for(&steering, FromPair { pair, of }, port), pair % 4);
            }
        }
    }
}

#[test]
fn conversations_from_a_port_with_fewer_pairs_are_spread() {
    let steering = Steering::new(4, None);
    let from = FromPair { pair: 0, of: 1 };
    let mut counts = [0; 4];
    for port in 0..400 {
        let pair = pair_for(&steering, from, port);
        assert_eq!(pair, pair_for(&steering, from, port), "a conversation stays where it is");
        counts[usize::from(pair)] += 1;
    }
    assert!(counts.iter().all(|&count| count > 50), "{counts:?}");
    let not_ip = &mut [0; 60];
    assert_eq!(packet_pair(&steering, from, not_ip), 0);
}

#[test]
fn a_table_decides_alone() {
    for pair in 0..4 {
        let steering = Steering::new(4, Some(&table(&[pair; 128])));
        for of in [1, 4] {
            assert_eq!(pair_for(&steering, FromPair { pair: 0, of }, 99), pair);
        }
        let not_ip = &mut [0; 60];
        assert_eq!(packet_pair(&steering, FromPair { pair: 3, of: 4 }, not_ip), 1);
    }
}

#[test]
fn never_a_pair_that_does_not_run() {
    for pairs in 0..4 {
        let steering = Steering::new(pairs, Some(&table(&[3; 128])));
        assert!(pair_for(&steering, FromPair { pair: 3, of: 4 }, 5) < pairs.max(1));
    }
}
