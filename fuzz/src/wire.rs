//! What a front-end sends: bytes to messages.

use ringway_vhost_user::codec;

use crate::bridge_fdb;

/// Bytes of a message's header: request, flags, payload length.
const HEADER_LEN: usize = 12;

/// Any bytes as one message, whole and cut.
pub(crate) fn codec(data: &[u8]) {
    let _ = codec::decode(data, Vec::new());
    let _ = codec::split(data);
    let Some((&request, payload)) = data.split_first() else { return };
    if let Ok(message) = codec::decode(&message(request, payload), Vec::new()) {
        // What was understood can be said again, and means the same.
        let again = codec::decode(&codec::encode(&message), Vec::new());
        if !matches!(message.request, ringway_vhost_user::Request::Malformed { .. }) {
            assert!(again.is_ok_and(|again| again.request.code() == message.request.code()));
        }
    }
}

/// What the kernel tells of bridges: as it is, and with a length that fits.
pub(crate) fn bridge_fdb(data: &[u8]) {
    const NUMBER: u32 = 7;
    let _ = bridge_fdb::read(data, NUMBER);
    let Some((&kind, rest)) = data.split_first() else { return };
    let kind = [28u16, 3, 2, 29][usize::from(kind & 3)];
    let len = u32::try_from(16 + rest.len()).unwrap_or(u32::MAX);
    let head = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), &[2, 0], &NUMBER.to_ne_bytes()];
    let bytes = [&head.concat()[..], &[0; 4], rest].concat();
    for said in bridge_fdb::read(&bytes, NUMBER).into_iter().flatten() {
        if let bridge_fdb::Said::Entry(entry) = said {
            // What is understood can be asked to go.
            assert!(!bridge_fdb::remove(&entry, NUMBER).is_empty());
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
