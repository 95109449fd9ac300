//! Messages of a front-end: bytes to messages.

use ringway_vhost_user::codec;
use ringway_vhost_user::device_state::DeviceState;

use crate::bridge_fdb;
use crate::neighbour::{self, Neighbour, NeighbourEntry, Owner};

/// Bytes of a message's header: request, flags, payload length.
const HEADER_LEN: usize = 12;

/// Any bytes as one message, whole and cut.
pub(crate) fn codec(data: &[u8]) {
    let _ = codec::decode(data, Vec::new());
    let _ = codec::split(data);
    let Some((&request, payload)) = data.split_first() else { return };
    if let Ok(message) = codec::decode(&message(request, payload), Vec::new()) {
        // A message that was understood can be encoded again, and means the same.
        let again = codec::decode(&codec::encode(&message), Vec::new());
        if !matches!(message.request, ringway_vhost_user::Request::Malformed { .. }) {
            assert!(again.is_ok_and(|again| again.request.code() == message.request.code()));
        }
    }
}

/// A device's state from another host: any bytes; and items of known and unknown kinds, each with
/// its length, behind a right beginning.
pub(crate) fn device_state(data: &[u8]) {
    let _ = DeviceState::decode(data);
    let mut bytes = DeviceState::default().encode();
    let mut rest = data;
    while let [kind, version, len, behind @ ..] = rest {
        let (content, behind) = behind.split_at(usize::from(*len).min(behind.len()));
        rest = behind;
        bytes.extend([kind % 4, 0, u8::from(*version > 0xf0) + 1, 0]);
        bytes.extend(u32::from(*len).to_le_bytes());
        bytes.extend(content);
    }
    if let Ok(state) = DeviceState::decode(&bytes) {
        assert_eq!(DeviceState::decode(&state.encode()), Ok(state), "as it was read");
    }
}

/// Messages of the kernel about bridges: as they are, and as a message of any kind with a right
/// length.
pub(crate) fn bridge_fdb(data: &[u8]) {
    const NUMBER: u32 = 7;
    let _ = bridge_fdb::read(data, NUMBER);
    let Some((&[kind, family], rest)) = data.split_first_chunk() else { return };
    // Every kind of message that netlink and its routing family have, the known ones more often.
    let known = [28, 16, 3, 2, 29, 17];
    let kind = known.get(usize::from(kind) % 128).copied().unwrap_or(u16::from(kind));
    let len = u32::try_from(16 + rest.len()).unwrap_or(u32::MAX);
    let head = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), &[2, 0], &NUMBER.to_ne_bytes()];
    let mut bytes = [&head.concat()[..], &[0; 4], rest].concat();
    // Neighbours of a bridge, and of IPv4 and IPv6.
    if let Some(place) = bytes.get_mut(16) {
        *place = [7, 2, 10, family][usize::from(family & 3)];
    }
    for said in bridge_fdb::read(&bytes, NUMBER).into_iter().flatten() {
        match said {
            // An entry that is understood can be asked to go, and to come.
            bridge_fdb::Said::Entry(entry) => {
                assert!(!bridge_fdb::remove(&entry, NUMBER).is_empty());
            }
            bridge_fdb::Said::Neighbour(known) => {
                let NeighbourEntry { interface, ip, address: Some(address), .. } = known else {
                    continue;
                };
                let put = Neighbour { interface, ip, address };
                let again = bridge_fdb::read(&neighbour::replace(&put, NUMBER), NUMBER);
                let own = NeighbourEntry { owner: Owner::Ringway, ..known };
                assert_eq!(again.expect("our own message"), [bridge_fdb::Said::Neighbour(own)]);
                assert!(!neighbour::remove(&put, NUMBER).is_empty());
            }
            _ => {}
        }
    }
}

/// A message that wants a reply.
pub(crate) fn message(request: u8, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(HEADER_LEN + payload.len());
    bytes.extend(u32::from(request).to_le_bytes());
    bytes.extend(9u32.to_le_bytes());
    bytes.extend(len.to_le_bytes());
    bytes.extend(payload);
    bytes
}
